#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the tests of perf stat --create-cgroup have in common: a cgroup with two
# children, a and b, of which this shell is in a; tasks in either, and where they are.

err=0
current=
failures=
mnt=
base=
pids=()
output=$(mktemp /tmp/__perf_test.create_cgroup.XXXXX)

# Wait until command "$@" is true.
await()
{
	local left=100
	while [ $((left--)) -gt 0 ]; do
		if "$@"; then
			return 0
		fi
		sleep 0.05
	done
	return 1
}

# A cgroup with tasks inside cannot be removed, so end these first.
remove_base()
{
	local p
	while read -r p; do
		kill -9 "$p" 2> /dev/null
	done < <(find "$mnt$base" -name "$members" -exec cat {} + 2> /dev/null)
	find "$mnt$base" -depth -type d -exec rmdir {} + 2> /dev/null
	[ ! -d "$mnt$base" ]
}

cleanup()
{
	trap - EXIT TERM INT
	for pid in "${pids[@]}"; do
		kill -9 "$pid" 2> /dev/null || true
		wait "$pid" 2> /dev/null || true
	done
	if [ -n "$base" ] && [ -d "$mnt$base" ]; then
		echo $$ > "$mnt/cgroup.procs" || true
		await remove_base || echo "cannot remove $mnt$base"
	fi
	rm -f "${output}"
}

trap_cleanup()
{
	echo "Unexpected signal in ${FUNCNAME[1]}"
	cleanup
	exit 1
}
trap trap_cleanup EXIT TERM INT

skip()
{
	echo "Skipping: $1"
	cleanup
	exit 2
}

fail()
{
	echo "$current [Failed - $1]"
	cat "${output}"
	# shellcheck disable=SC2034 # the test ends with that
	err=1
	failures=1
}

begin()
{
	current=$1
	failures=
	: > "${output}"
	echo "$current"
}

end()
{
	[ -n "$failures" ] || echo "$current [Success]"
}

# The hierarchy that perf uses: that of v1 with perf_event, else v2.
find_hierarchy()
{
	mnt=$(awk '$3 == "cgroup" && $4 ~ /(^|,)perf_event(,|$)/ { print $2; exit }' /proc/mounts)
	if [ -n "$mnt" ]; then
		version=1
		members=tasks
	else
		mnt=$(awk '$3 == "cgroup2" { print $2 }' /proc/mounts | tail -n 1)
		version=2
		members=cgroup.threads
	fi
	[ -n "$mnt" ] || skip "no cgroup file system"
	[ "$(id -u)" = 0 ] || skip "not root"

	base=/perf-test-$$
	mkdir "$mnt$base" 2> /dev/null || skip "cannot create a cgroup in $mnt"
	mkdir "$mnt$base/a" "$mnt$base/b"
	echo $$ > "$mnt$base/a/cgroup.procs"
}

# Print the cgroup of a task.
cgroup_of()
{
	if [ $version = 1 ]; then
		sed -n -E 's/^[0-9]+:([^:]*,)?perf_event(,[^:]*)?://p' "/proc/$1/cgroup"
	else
		sed -n 's/^0:://p' "/proc/$1/cgroup"
	fi
}

# Start a task in cgroup $1 of ours, its pid is in $pid.
start()
{
	local cgroup=$1
	shift
	"$@" > /dev/null 2>&1 &
	pid=$!
	pids+=("$pid")
	echo "$pid" > "$mnt$base/$cgroup/cgroup.procs"
}

stop()
{
	kill -9 "$1" 2> /dev/null || true
	wait "$1" 2> /dev/null || true
}

is_moved()
{
	case $(cgroup_of "$1") in
	*/perf-stat-*) return 0 ;;
	esac
	return 1
}

no_leftover()
{
	[ -z "$(find "$mnt$base" -name 'perf-stat-*')" ]
}

# Is task $1 in our cgroup $2, and nothing is left?
check_back()
{
	if [ "$(cgroup_of "$1")" != "$base/$2" ]; then
		fail "task is in $(cgroup_of "$1")"
	fi
	if ! no_leftover; then
		fail "left behind: $(find "$mnt$base" -name 'perf-stat-*')"
	fi
}

find_hierarchy
perf stat --create-cgroup -o /dev/null -e task-clock true || skip "no cgroup events"
