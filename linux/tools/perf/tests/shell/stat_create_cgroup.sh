#!/bin/bash
# perf stat --create-cgroup tests
# SPDX-License-Identifier: GPL-2.0
#
# lib/create_cgroup.sh sets the variables that nothing here sets.
# shellcheck disable=SC2154

set -e

# shellcheck source=lib/create_cgroup.sh
. "$(dirname "$0")"/lib/create_cgroup.sh

test_workload()
{
	begin "Workload"
	# shellcheck disable=SC2016
	if ! perf stat --create-cgroup -o /dev/null -e task-clock -- \
		sh -c 'cat /proc/self/cgroup; sleep 600 & echo $!' > "${output}" 2>&1
	then
		fail "perf stat"
	fi
	if ! grep -q "$base/a/perf-stat-" "${output}"; then
		fail "command did not run in a cgroup of its own"
	fi
	# What it left running goes back.
	pid=$(tail -n 1 "${output}")
	check_back "$pid" a
	kill "$pid"

	perf stat --create-cgroup -e task-clock -- /no/such/command > "${output}" 2>&1 && \
		fail "no error for a command that does not exist"
	no_leftover || fail "cgroup of a command that does not exist"
	end
}

test_process()
{
	begin "Process"
	start b perf test -w noploop 600
	perf stat --create-cgroup -e task-clock -p "$pid" -- sleep 1 > "${output}" 2>&1 &
	perf_pid=$!
	await is_moved "$pid" || fail "process was not moved"
	if ! wait $perf_pid; then
		fail "perf stat"
	fi
	grep -q "process id '$pid'" "${output}" || fail "wrong header"
	check_back "$pid" b

	# It runs all the time if the CPU has nothing else to do.
	perf stat --create-cgroup -x, -o "${output}" -e task-clock -p "$pid" -- sleep 0.5
	awk -F, '/task-clock/ { ok = $1 > 10 && $1 < 5000 && $5 == "100.00" } END { exit !ok }' \
		"${output}" || fail "task-clock"
	stop "$pid"
	end
}

has_threads()
{
	[ "$(ls "/proc/$1/task" | wc -l)" -gt 1 ]
}

test_thread()
{
	local tid

	begin "Thread"
	start b perf test -w thloop 600
	await has_threads "$pid" || fail "no threads"
	tid=$(ls "/proc/$pid/task" | tail -n 1)
	perf stat --create-cgroup -e task-clock -t "$tid" -- sleep 1 > "${output}" 2>&1 &
	perf_pid=$!
	await is_moved "$pid/task/$tid" || fail "thread was not moved"
	if [ "$tid" != "$pid" ] && is_moved "$pid/task/$pid"; then
		fail "another thread was moved"
	fi
	wait $perf_pid || fail "perf stat"
	check_back "$pid/task/$tid" b
	stop "$pid"
	end
}

# All that was forked meanwhile goes back, also while it goes on forking.
test_forks()
{
	begin "Forks"
	start b bash -c 'while :; do (:) & (:) & wait $!; sleep 0.01; sleep 5 & done'
	perf stat --create-cgroup -e task-clock -p "$pid" -- sleep 0.5 > "${output}" 2>&1 ||
		fail "perf stat"
	check_back "$pid" b
	stop "$pid"
	[ -z "$(ls -d "$mnt$base"/*/perf-stat-* 2> /dev/null)" ] || fail "left behind"
	# end the sleeps
	for p in $(cat "$mnt$base/b/cgroup.procs"); do
		kill -9 "$p" 2> /dev/null || true
	done
	end
}

test_moved_by_others()
{
	begin "Task that somebody else moves"
	start b sleep 600
	perf stat --create-cgroup -e task-clock -p "$pid" -- sleep 1 > "${output}" 2>&1 &
	perf_pid=$!
	await is_moved "$pid" || fail "process was not moved"
	echo "$pid" > "$mnt$base/a/cgroup.procs"
	wait $perf_pid || fail "perf stat"
	check_back "$pid" a
	stop "$pid"
	end
}

ignored()
{
	local mask

	mask=0x$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status)
	[ $((mask >> ($(kill -l "$1") - 1) & 1)) = 1 ]
}

test_signals()
{
	local sig ret

	begin "Signals"
	start b sleep 600
	# A shell lets its background jobs ignore INT and QUIT.
	set -m
	for sig in INT TERM HUP QUIT ABRT PWR RTMIN; do
		# perf leaves it so, and a shell cannot set it back.
		if ignored $sig; then
			echo "  SIG$sig is ignored here"
			continue
		fi
		perf stat --create-cgroup -e task-clock -p "$pid" > "${output}" 2>&1 &
		perf_pid=$!
		await is_moved "$pid" || fail "process was not moved before SIG$sig"
		kill -s $sig $perf_pid
		ret=0
		wait $perf_pid || ret=$?
		[ $ret = $((128 + $(kill -l $sig))) ] || fail "perf ended with $ret after SIG$sig"
		check_back "$pid" b
	done
	set +m
	stop "$pid"
	end
}

test_leftover()
{
	local other=$$

	begin "Leftover of a killed perf"
	start b sleep 600
	for run in target sibling; do
		perf stat --create-cgroup -e task-clock -p "$pid" > "${output}" 2>&1 &
		perf_pid=$!
		await is_moved "$pid" || fail "process was not moved"
		# While perf lives, its cgroup is its own.
		if perf stat --create-cgroup -e task-clock -p "$pid" true > "${output}" 2>&1; then
			fail "process counted twice"
		fi
		grep -q "$perf_pid" "${output}" || fail "perf is not named"
		stop $perf_pid
		is_moved "$pid" || fail "SIGKILL was handled"

		if [ $run = target ]; then
			other=$pid
		else
			start b sleep 600
			other=$pid
			pid=${pids[-2]}
		fi
		perf stat --create-cgroup -e task-clock -p "$other" true > "${output}" 2>&1 ||
			fail "perf stat"
		grep -q "removed cgroup" "${output}" || fail "no message"
		check_back "$pid" b
	done
	stop "$pid"
	stop "$other"
	end
}

# A killed perf that nobody has waited for, as under an agent that does not.
test_zombie()
{
	begin "Leftover of a perf that is a zombie"
	start b sleep 600
	sh -c 'perf stat --create-cgroup -e task-clock -p '"$pid"' > /dev/null 2>&1 &
	       echo $!; exec sleep 600' > "${output}" &
	pids+=("$!")
	await is_moved "$pid" || fail "process was not moved"
	kill -9 "$(cat "${output}")"
	await grep -q '^State:.Z' "/proc/$(cat "${output}")/status" || fail "perf is no zombie"
	perf stat --create-cgroup -e task-clock -p "$pid" true > "${output}" 2>&1 ||
		fail "perf stat"
	grep -q "removed cgroup" "${output}" || fail "no message"
	check_back "$pid" b
	stop "$pid"
	end
}

# Tasks that made a cgroup of their own below that of perf stay in it, and perf says so.
test_cgroup_below()
{
	local below

	begin "Cgroup below"
	export -f cgroup_of
	export mnt version
	# shellcheck disable=SC2016
	if perf stat --create-cgroup -o /dev/null -e task-clock -- bash -c \
		'below=$mnt$(cgroup_of self)/below; mkdir "$below"; echo "$below"' \
		> "${output}" 2>&1
	then
		fail "no error"
	fi
	grep -q "cannot remove" "${output}" || fail "no reason"
	below=$(sed -n '/\/below$/p' "${output}")
	rmdir "$below" || fail "no cgroup below"
	# The next one removes the rest.
	perf stat --create-cgroup -o /dev/null -e task-clock true > "${output}" 2>&1 ||
		fail "perf stat"
	no_leftover || fail "left behind"
	end
}

test_different_cgroups()
{
	local one two

	begin "Targets in different cgroups"
	start a sleep 600
	one=$pid
	start b sleep 600
	two=$pid
	if perf stat --create-cgroup -e task-clock -p "$one,$two" true > "${output}" 2>&1; then
		fail "no error"
	fi
	for name in a b; do
		grep -q "$base/$name" "${output}" || fail "cgroup $name is not named"
	done
	check_back "$one" a
	check_back "$two" b

	echo "$two" > "$mnt$base/a/cgroup.procs"
	perf stat --create-cgroup -e task-clock -p "$one,$two" true > "${output}" 2>&1 ||
		fail "targets in one cgroup"
	check_back "$one" a
	check_back "$two" a
	stop "$one"
	stop "$two"
	end
}

test_usage()
{
	local opts

	begin "Options that do not go together"
	for opts in "-a" "-C 0" "-e task-clock -G /" "--for-each-cgroup /" "--per-thread" "-i"; do
		# shellcheck disable=SC2086
		if perf stat --create-cgroup $opts -- true > "${output}" 2>&1; then
			fail "$opts was taken"
		fi
		grep -q "cannot use both --create-cgroup and" "${output}" || fail "$opts: no reason"
	done
	if perf stat --create-cgroup > "${output}" 2>&1; then
		fail "no target was taken"
	fi
	no_leftover || fail "left behind"
	end
}

# The lines are those of -p, without numbers.
test_output()
{
	local opts option workload

	begin "Output"
	start b perf test -w noploop 600
	for opts in "" "-x," "-j" "-I 100 --interval-count 2" "-I 100 --interval-count 2 -x," \
		    "-r 2" "-D 50" "--timeout 100" "--metric-only -M CPUs_utilized" ; do
		workload="sleep 0.2"
		case $opts in
		*-I* | *--timeout*) workload= ;;
		esac
		for option in "" --create-cgroup; do
			# shellcheck disable=SC2086
			perf stat $option -e task-clock,page-faults $opts -p "$pid" $workload \
				> "${output}" 2>&1 || fail "perf stat $option $opts"
			sed -E 's/[0-9.,+-]+/N/g; s/ +/ /g' "${output}" > "${output}$option.lines"
		done
		if ! diff "${output}.lines" "${output}--create-cgroup.lines"; then
			fail "output differs with $opts"
		fi
		rm -f "${output}.lines" "${output}--create-cgroup.lines"
		check_back "$pid" b
	done
	stop "$pid"
	end
}

test_control()
{
	local fifo

	begin "Control"
	fifo=$(mktemp -u /tmp/perf-stat-create-cgroup-fifo.XXXXX)
	start b perf test -w noploop 600
	mkfifo "$fifo" "$fifo.ack"
	perf stat --create-cgroup -D -1 --control "fifo:$fifo,$fifo.ack" -x, -e task-clock \
		-p "$pid" -- sleep 1 > "${output}" 2>&1 &
	perf_pid=$!
	exec 8> "$fifo" 9< "$fifo.ack"
	echo enable >&8
	read -r -u 9 -t 5 || fail "no ack"
	wait $perf_pid || fail "perf stat"
	exec 8>&- 9<&-
	awk -F, '/task-clock/ { ok = $1 > 10 } END { exit !ok }' "${output}" || fail "not counted"
	check_back "$pid" b
	rm -f "$fifo" "$fifo.ack"
	stop "$pid"
	end
}

test_unprivileged()
{
	begin "Unprivileged user"
	if ! setpriv --reuid=65534 --regid=65534 --clear-groups perf version > /dev/null 2>&1; then
		echo "$current [Skipped - no setpriv, or perf cannot be executed]"
		return
	fi
	if setpriv --reuid=65534 --regid=65534 --clear-groups \
		perf stat --create-cgroup -e task-clock true > "${output}" 2>&1
	then
		fail "no error"
	fi
	grep -q "$mnt$base/a.*Permission denied" "${output}" || fail "no reason"
	grep -q "Run perf as root" "${output}" || fail "no advice"
	no_leftover || fail "left behind"
	end
}

test_workload
test_process
test_thread
test_forks
test_moved_by_others
test_signals
test_leftover
test_zombie
test_cgroup_below
test_different_cgroups
test_usage
test_output
test_control
test_unprivileged

cleanup
exit $err
