# SPDX-License-Identifier: GPL-2.0
#
# The tests of perf stat --create-cgroup: first where nothing was ever written to
# cgroup.subtree_control (the guest was booted with lab.fresh_cgroups), then with
# cgroup v2 and with the v1 hierarchy of perf_event. The host puts before this:
# TESTS, a name of perf test per line, and ASAN_OPTIONS when perf has the sanitizer.

V2=/sys/fs/cgroup
V1=/tmp/perf_event

fail()
{
	echo "create-cgroup: $*"
	exit 1
}

# The search for leaks takes ten seconds at the end of each program, so not in each of
# the thousands that the tests run.
leaks()
{
	ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1 \
		perf stat --create-cgroup -o /results/leaks.log "$@" > /dev/null 2>&1
}

# The one number of the entry with this name.
number_of()
{
	awk -v name="$1" '/^ *[0-9]+[.:]/ { number = $1; sub(/:$/, "", number)
		sub(/^ *[0-9.]+: /, ""); if ($0 == name) print number }' /tmp/list
}

run_tests()
{
	n=0
	echo "$TESTS" | while read -r entry; do
		n=$((n + 1))
		echo "$1 $n $(cut -d ' ' -f 1 /proc/uptime) $entry"
		number=$(number_of "$entry")
		[ -n "$number" ] || fail "perf test has no entry '$entry'"
		perf test -S -vv "${number%.*}" > "/results/$1-$n.log" 2>&1 < /dev/null ||
			echo "perf test ended with status $?" >> "/results/$1-$n.log"
	done || exit 1
}

cd /tmp || exit 1
[ -z "$(cat $V2/cgroup.subtree_control)" ] || fail "the cgroups are not fresh"
perf stat --create-cgroup -e task-clock true > /results/fresh.log 2>&1 &&
	fail "counted a cgroup without the controller"
grep -q "lack the perf_event controller" /results/fresh.log || fail "no reason"
# What it advises helps.
eval "$(grep '^echo ' /results/fresh.log)" || fail "bad advice"
[ -z "$(ls -d $V2/*/ 2> /dev/null)" ] || fail "left behind: $(ls -d $V2/*/)"

if [ -n "$ASAN_OPTIONS" ]; then
	leaks -e task-clock -- true
	leaks -e task-clock -p $$ -- true
	leaks -e task-clock -p 1000000 -- true
fi

perf test list > /tmp/list 2>&1
run_tests v2

[ -z "$(ls -d $V2/*/ 2> /dev/null)" ] || fail "left behind: $(ls -d $V2/*/)"
umount $V2
mkdir $V1
mount -t cgroup -o perf_event cgroup $V1 || fail "no v1 hierarchy for perf_event"
run_tests v1
[ -z "$(ls -d $V1/*/ 2> /dev/null)" ] || fail "left behind: $(ls -d $V1/*/)"
