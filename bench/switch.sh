# SPDX-License-Identifier: GPL-2.0
#
# What two context switches cost (perf bench sched pipe, in us of virtual time,
# 4 ns for an instruction), without events and with four of them: of the CPU, of
# two cgroups between which each switch goes, of the task.

EVENTS=cycles,instructions,r10,r3
ROUNDS=5000

pipe() {
	taskset 1 perf bench sched pipe -l $ROUNDS "$@" 2>&1 | awk '/usecs\/op/ {print $1}'
}

# Is any line not at 100 %, or not counted?
complete() {
	if grep -qE '<not counted>|\([0-9. ]+%\)' "$@"; then
		echo "multiplexed"
	else
		echo "all at 100 %"
	fi
}

mkdir -p /sys/fs/cgroup/a /sys/fs/cgroup/b
pipe > /dev/null

echo "no events: $(pipe)"
echo "no events, cgroups: $(pipe -G a,b)"

perf stat -o /tmp/cpu -a -e $EVENTS -- sleep 1000 &
cpu=$!
sleep 1
echo "-a: $(pipe)"
echo "task beside -a: $(taskset 1 perf stat -o /tmp/task -e $EVENTS \
	perf bench sched pipe -l $ROUNDS 2>&1 | awk '/usecs\/op/ {print $1}')" \
	"$(complete /tmp/task)"
kill -INT $cpu
wait $cpu
echo "task: $(taskset 1 perf stat -o /tmp/task -e $EVENTS \
	perf bench sched pipe -l $ROUNDS 2>&1 | awk '/usecs\/op/ {print $1}')"

perf stat -o /tmp/cgroups -a -e $EVENTS --for-each-cgroup a,b -- sleep 1000 &
cgroups=$!
sleep 1
echo "cgroups: $(pipe -G a,b)"
perf stat -o /tmp/cpu -a -e $EVENTS -- sleep 1000 &
cpu=$!
sleep 1
echo "cgroups beside -a: $(pipe -G a,b)"
kill -INT $cgroups $cpu
wait $cgroups $cpu
echo "these cgroups: $(complete /tmp/cgroups)"
