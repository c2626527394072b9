# SPDX-License-Identifier: GPL-2.0
#
# perf stat sessions beside a workload (sessions.sh): all counters but two are taken by
# pinned events. One of the two counts the workload, pinned as well, by an event that
# nobody shares: the same by its raw number. The other one is for a session on all
# CPUs and for one with --create-cgroup.

INSTRUCTIONS=instructions:u
REFERENCE=r8:uD

prepare

# Six programmable counters, two left.
perf stat -a -o /results/others.txt -e r23:uD,r23:kD,r24:uD,r24:kD &
others=$!
until [ "$(sed -n 's/^cpu0 //p' /proc/pmcount)" = 4 ]; do sleep 0.02; done

count counts "-p $workload -e $REFERENCE" "-a -A -e $INSTRUCTIONS" \
	"-p $workload --create-cgroup -e $INSTRUCTIONS"

kill -INT $others
wait $others
if grep -q "<not " /results/others.txt; then
	fail "the pinned events did not count: $(cat /results/others.txt)"
fi
