# SPDX-License-Identifier: GPL-2.0
#
# What the scenarios of bench/scenarios.py are made of, in a guest. The host puts the
# variables before this and the scenarios after it:
#
# REPEAT  how often a workload is timed
# CALLS   1: count the driver's calls and not the time
# BPF     the option that makes perf stat count by BPF programs, or nothing
# DUP     what kernel.perf_event_dup is; nothing on a kernel that has no sharing
# CGROUPS the cgroups to make

PMCOUNT=/lab/pmcount.ko

fail()
{
	echo "bench: $name: $*" >&2
	exit 1
}

# begin NAME [DUP]: the sysctl may be another one for a scenario.
begin()
{
	name=$1
	place=/results/$name
	sessions=
	ends=
	echo "$name"
	number=0
	mkdir -p "$place"
	[ -z "$DUP" ] || echo "${2:-$DUP}" > /proc/sys/kernel/perf_event_dup || fail "no sysctl"
	if [ "$CALLS" = 1 ]; then
		insmod $PMCOUNT calls=1 || fail "no pmcount module"
		memory "$place/slab-before.txt"
	fi
}

# session OPTIONS...: a perf stat session in the background. Its own command runs when
# its events do.
session()
{
	number=$((number + 1))
	rm -f /tmp/ready
	# shellcheck disable=SC2086 # an option or nothing
	perf stat $BPF -j -o "$place/session$number.json" "$@" -- \
		sh -c 'echo $$ > /tmp/pid; mv /tmp/pid /tmp/ready; exec sleep 1000000' \
		2> "$place/session$number.txt" &
	sessions="$sessions $!"
	until [ -e /tmp/ready ]; do
		kill -0 $! || fail "session $number: $(cat "$place/session$number.txt")"
		sleep 0.05
	done
	ends="$ends $(cat /tmp/ready)"
}

# What the kernel's objects take, in bytes, and the perf events among them.
memory()
{
	# Else what is free on the lists of a CPU counts as in use.
	for cache in /sys/kernel/slab/*/shrink; do echo 1 > "$cache"; done
	awk 'NR > 2 { bytes += $2 * $4 }
	     $1 == "perf_event" { print "perf_event", $2 }
	     END { print "slab", bytes }' /proc/slabinfo > "$1"
	sed -n 's/^Percpu: *\([0-9]*\) kB/percpu \1/p' /proc/meminfo >> "$1"
}

# state FILE: how many context switches there were, and calls of the driver.
state()
{
	grep ctxt /proc/stat > "$1"
	[ "$CALLS" != 1 ] || cat /proc/pmcount >> "$1"
}

# take: what the sessions take of the kernel's memory.
take()
{
	memory "$place/slab.txt"
}

# measure LOOPS COMMAND TIMES: the time that COMMAND takes by its own account, or the calls
# of the driver while it runs; for two lengths, so that its start does not count.
measure()
{
	command=$2
	[ "$CALLS" != 1 ] || take
	for n in $(seq $((REPEAT * $3))); do
		for loops in "$1" $(($1 * 3)); do
			# What the run before it left is cleared away meanwhile.
			sleep 2
			state "$place/before$n-$loops.txt"
			eval "$command" > "$place/time$n-$loops.txt" 2>&1 ||
				fail "$command: $(tail -n 5 "$place/time$n-$loops.txt")"
			state "$place/after$n-$loops.txt"
		done
	done
}

# program OUTPUT COMMAND...: one that measures by itself, bench/*.c.
program()
{
	name=$1
	shift
	[ -z "$DUP" ] || echo "$DUP" > /proc/sys/kernel/perf_event_dup || fail "no sysctl"
	"$@" > "/results/$name.txt" || fail "$*"
}

# end: cgroups that were never on a CPU have no count, and there may be hundreds.
end()
{
	for pid in $ends; do kill "$pid"; done
	for pid in $sessions; do wait "$pid"; done
	for file in "$place"/*.json; do
		[ ! -e "$file" ] || sed -i '/"cgroup" : "c[0-9]/d' "$file"
	done
	[ "$CALLS" != 1 ] || rmmod pmcount || fail "the pmcount module is in use"
	# BPF programs and their events go later than those who brought them.
	sleep 1
}

name=start
# Then a write to a pipe makes its reader ready to run, but not run at once: one switch
# an operation, each time, where it would be up to 5 % more at the whim of virtual time.
echo NO_WAKEUP_PREEMPTION > /sys/kernel/debug/sched/features || fail "no scheduler features"
for cgroup in $CGROUPS; do
	mkdir "/sys/fs/cgroup/$cgroup" || fail "no cgroup"
done
# The first time, all are slow.
perf bench sched pipe -l 1000 > /dev/null || fail "no perf bench"
