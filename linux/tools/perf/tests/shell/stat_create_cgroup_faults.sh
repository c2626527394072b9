#!/bin/bash
# perf stat --create-cgroup fault tests
# SPDX-License-Identifier: GPL-2.0
#
# lib/create_cgroup.sh sets the variables that nothing here sets.
# shellcheck disable=SC2154

set -e

# shellcheck source=lib/create_cgroup.sh
. "$(dirname "$0")"/lib/create_cgroup.sh

# Let each system call of set-up and tear-down fail, or end perf after it: what
# "$@" names is counted.
test_faults()
{
	local how n ret

	begin "Faults and signals at each system call: $*"
	start b sleep 6000
	for how in "error 5" "signal 15" "signal 2"; do
		for n in $(seq 2000); do
			ret=0
			# shellcheck disable=SC2086
			perf test -w syscall_fault -- /cgroup $n $how \
				perf stat --create-cgroup -e task-clock "${@//PID/$pid}" \
				> "${output}" 2>&1 || ret=$?
			[ $ret = 2 ] && break
			check_back "$pid" b
			[ $ret = 3 ] && break
		done
		if [ $ret = 2 ]; then
			echo "$current [Skipped - the kernel cannot change system calls]"
			break
		fi
		echo "  $how: $((n - 1)) calls"
		[ $ret = 3 ] && [ "$n" -gt 10 ] || fail "calls were not reached"
	done
	stop "$pid"
	end
}

test_faults -p PID -- true
test_faults -- true

cleanup
exit $err
