# SPDX-License-Identifier: GPL-2.0
#
# Eight independent perf stat sessions beside a workload, and what the PMU's
# own register says about the counters in use meanwhile.
#
# How their counts can be compared: sessions start one after the other, so no
# two count over the same time. But they count user mode (:u), all other
# programs are kept on CPU 0, and CPU 1 runs nothing but the workload, which
# starts after the last session was enabled and ends before the first is
# disabled. On CPU 1 the workload is therefore the common window of all of
# them, to the instruction, and any difference there is an error of counting.
# (perf moves itself to each CPU that it counts on; the cpuset denies that, and
# perf takes it as the optimisation that it is.)

SESSIONS=8
EVENTS=cycles:u,instructions:u
LOOPS=${LOOPS:-60000}
CGROUP=/sys/fs/cgroup

fail()
{
	echo "demo: $*"
	exit 1
}

# A command of perf's control fifo, and its acknowledgement.
tell()
{
	echo "$2" > "/tmp/control$1"
	read -r answer < "/tmp/answer$1"
	[ "$answer" = ack ] || fail "session $1 answers '$answer' to $2"
}

insmod /lab/pmcount.ko || fail "no pmcount module"

mkdir $CGROUP/watchers $CGROUP/workload
echo 0 > $CGROUP/watchers/cpuset.cpus || fail "no cpuset"
echo 1 > $CGROUP/workload/cpuset.cpus || fail "no cpuset"
echo $$ > $CGROUP/watchers/cgroup.procs || fail "no cpuset"

sessions=
n=1
while [ $n -le $SESSIONS ]; do
	mkfifo "/tmp/control$n" "/tmp/answer$n"
	perf stat -a -A -j -o "/results/session$n.json" -e $EVENTS -D -1 \
		--control "fifo:/tmp/control$n,/tmp/answer$n" &
	sessions="$sessions $!"
	n=$((n + 1))
done
for n in $(seq $SESSIONS); do tell "$n" enable; done

(
	echo 0 > $CGROUP/workload/cgroup.procs
	exec perf bench sched pipe -l "$LOOPS"
) > /results/workload.txt 2>&1 &
workload=$!
while kill -0 $workload 2> /dev/null; do
	cat /proc/pmcount
	sleep 0.02
done > /results/counters.txt
wait $workload || fail "the workload failed: $(cat /results/workload.txt)"

for n in $(seq $SESSIONS); do tell "$n" disable; done
# shellcheck disable=SC2086 # a list
kill -INT $sessions
for pid in $sessions; do
	wait "$pid"
done
[ "$(ls /results/session*.json | wc -l)" = $SESSIONS ] || fail "a session wrote nothing"
