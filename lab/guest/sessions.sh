# SPDX-License-Identifier: GPL-2.0
#
# Independent perf stat sessions beside a workload, for scenarios that the host puts
# after this.
#
# How their counts can be compared: sessions start one after the other, so no
# two count over the same time. But they count user mode (:u), all other
# programs are kept on CPU 1, and CPU 0 runs nothing but the workload, which is
# stopped (SIGSTOP) until the last session was enabled, and stops itself again
# before the first is disabled. On CPU 0 the workload is therefore the common
# window of all of them, to the instruction, and any difference there is an error
# of counting. (perf moves itself to each CPU that it counts on; the cpuset denies
# that, and perf takes it as the optimisation that it is.)

export LOOPS="${LOOPS:-60000}"
export CGROUP=/sys/fs/cgroup

fail()
{
	echo "sessions: $*" >&2
	exit 1
}

# A command of perf's control fifo, and its acknowledgement.
tell()
{
	echo "$2" > "/tmp/$table/control$1"
	read -r answer < "/tmp/$table/answer$1"
	[ "$answer" = ack ] || fail "session $1 of $table answers '$answer' to $2"
}

# Is the workload stopped, either before it began or after it ended?
stopped()
{
	[ -d "/proc/$workload" ] || fail "the workload is gone: $(cat /tmp/workload.txt)"
	grep -q "^State:.T" "/proc/$workload/status"
}

# Start a process that will be the workload, so that sessions can name it.
prepare()
{
	# shellcheck disable=SC2016 # for that shell to expand
	sh -c 'echo $$ > $CGROUP/workload/cgroup.procs
	       kill -STOP $$
	       perf bench sched pipe -l $LOOPS
	       status=$?
	       kill -STOP $$
	       exit $status' > /tmp/workload.txt 2>&1 &
	workload=$!
	until stopped; do sleep 0.02; done
}

# count NAME OPTIONS...: a session with each of these options of perf stat (in one
# word), all beside the workload that prepare() made. What they print, and what the
# PMU's own register says about the counters in use meanwhile, is in /results/NAME.
count()
{
	table=$1
	shift
	mkdir "/tmp/$table" "/results/$table"

	sessions=
	n=0
	for options; do
		n=$((n + 1))
		mkfifo "/tmp/$table/control$n" "/tmp/$table/answer$n"
		# shellcheck disable=SC2086 # several options
		perf stat -j -o "/results/$table/session$n.json" $options -D -1 \
			--control "fifo:/tmp/$table/control$n,/tmp/$table/answer$n" &
		sessions="$sessions $!"
	done
	for n in $(seq $#); do tell "$n" enable; done

	kill -CONT "$workload"
	until stopped; do
		cat /proc/pmcount
		sleep 0.02
	done > "/results/$table/counters.txt"

	for n in $(seq $#); do tell "$n" disable; done
	# shellcheck disable=SC2086 # a list
	kill -INT $sessions
	for pid in $sessions; do
		wait "$pid"
	done
	kill -CONT "$workload"
	wait "$workload" || fail "the workload failed: $(cat /tmp/workload.txt)"
	[ "$(ls "/results/$table"/session*.json | wc -l)" = $# ] ||
		fail "a session of $table wrote nothing"
}

insmod /lab/pmcount.ko || fail "no pmcount module"

mkdir $CGROUP/watchers $CGROUP/workload
echo 1 > $CGROUP/watchers/cpuset.cpus || fail "no cpuset"
echo 0 > $CGROUP/workload/cpuset.cpus || fail "no cpuset"
echo $$ > $CGROUP/watchers/cgroup.procs || fail "no cpuset"
