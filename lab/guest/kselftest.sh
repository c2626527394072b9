# SPDX-License-Identifier: GPL-2.0
#
# The installed selftests through their own runner. Its output is the result;
# whether tests failed is for the host to read from it. The host puts before
# this: SKIP, options that leave tests out; ONE_CPU, tests that want to be
# alone with one CPU.

cd /kselftest || exit 1
# As the tests' documentation asks for; the reports of the runs are ours.
echo -1 > /proc/sys/kernel/perf_event_paranoid

later=
now=
for test in $ONE_CPU; do
	later="$later -S $test"
	now="$now -t $test"
done
# shellcheck disable=SC2086 # lists
./run_kselftest.sh $SKIP $later 2>&1 | tee /results/kselftest.ktap
if [ -n "$now" ]; then
	for cpu in /sys/devices/system/cpu/cpu[1-9]*; do
		echo 0 > "$cpu/online" || exit 1
	done
	# shellcheck disable=SC2086 # lists
	./run_kselftest.sh $now 2>&1 | tee /results/one-cpu.ktap
fi
[ -s /results/kselftest.ktap ]
