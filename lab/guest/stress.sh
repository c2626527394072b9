# SPDX-License-Identifier: GPL-2.0
#
# The stress test of shared counters; the host puts its time and seed before this.

kcsan=/sys/kernel/debug/kcsan
if [ -e $kcsan ]; then
	echo on > $kcsan || exit 1
fi
cd /kselftest/perf_events || exit 1
./dup_stress > /results/stress.ktap 2>&1
status=$?
# How many accesses it watched, of which a run without a report should have many.
[ -e $kcsan ] && cat $kcsan
exit $status
