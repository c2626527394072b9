# SPDX-License-Identifier: GPL-2.0
#
# perf stat sessions beside a workload (sessions.sh), twice: eight of one kind, and one
# of each of five kinds.

SESSIONS=8
EVENTS=cycles:u,instructions:u
# All that QEMU's PMU can count. Of the stalls it says 0, but they take counters
# like the others, two a session.
MORE_EVENTS=$EVENTS,stalled-cycles-frontend:u,stalled-cycles-backend:u

prepare
set --
while [ $# -lt $SESSIONS ]; do set -- "$@" "-e $EVENTS -a -A"; done
count kernels "$@"

# The cgroup never runs on CPU 1, and perf has no count of it there: so no -A.
prepare
count mixed "-e $MORE_EVENTS -a -A" "-e $MORE_EVENTS -p $workload" "-e $MORE_EVENTS -C 0" \
	"-e $MORE_EVENTS -a -G workload" "-e $MORE_EVENTS -p $workload --create-cgroup"
