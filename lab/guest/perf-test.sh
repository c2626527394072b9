# SPDX-License-Identifier: GPL-2.0
#
# Entries of perf test, each alone and then beside sessions that count the same. The
# host puts before this: KERNEL, patched or unpatched, and /tmp/entries.
#
# Beside: one session counts on all CPUs; another one counts each test and its
# children, that is, every task has events already that the test's own can share a
# counter with. The sessions need so few of the PMU's counters that the tests' results
# are the same without sharing.

LIMIT=60
SESSION=cycles,instructions

fail()
{
	echo "perf-test: $*"
	exit 1
}

# The one number of the entry with this name.
number_of()
{
	awk -v name="$1" '/^ *[0-9]+: / { number = $1 + 0; sub(/^ *[0-9]+: /, "")
		if ($0 == name) print number }' /tmp/list
}

run_all()
{
	mkdir "/results/$1"
	n=0
	while read -r entry; do
		n=$((n + 1))
		# For the log of the guest: where the time goes.
		echo "$1 $n $(cut -d ' ' -f 1 /proc/uptime) $entry"
		log=/results/$1/$n.log
		number=$(number_of "$entry")
		if [ -z "$number" ]; then
			echo "perf test has no such entry" > "$log"
			continue
		fi
		"$1" timeout $LIMIT perf test -S -vv "$number" > "$log" 2>&1 < /dev/null ||
			echo "perf test ended with status $?" >> "$log"
	done < /tmp/entries
}

alone()
{
	"$@"
}

beside()
{
	perf stat -e $SESSION -o "/results/beside/$n.session" -- "$@"
}

# The tests look at what perf prints more than at counts. So see once that events
# beside the sessions count at all: a task's (no option), and those of all CPUs (-a).
counts()
{
	n=counts$1
	# shellcheck disable=SC2086 # an option or nothing
	beside perf stat $1 -x , -o "/results/beside/$n.csv" -e $SESSION -- true ||
		fail "perf stat $1 failed beside the sessions"
	[ "$(grep -c '^[1-9][0-9]*,' "/results/beside/$n.csv")" = 2 ] ||
		fail "perf stat $1 beside the sessions: $(cat "/results/beside/$n.csv")"
}

# Is this the kernel that it should be?
there=unpatched
[ -e /proc/sys/kernel/perf_event_dup ] && there=patched
[ $there = "$KERNEL" ] || fail "this is the $there kernel and not the $KERNEL one"

echo 1 > /proc/sys/kernel/perf_user_access || fail "no perf_user_access"
cd /tmp || exit 1
perf test list > /tmp/list 2>&1

run_all alone

perf stat -a -e $SESSION -o /results/beside.txt &
session=$!
sleep 0.2
run_all beside
counts ""
counts -a
kill -INT $session
wait $session
# A session that lost its counters would leave the tests alone.
grep -q "seconds time elapsed" /results/beside.txt ||
	fail "the session beside the tests left no counts"
if grep -q "<not " /results/beside.txt; then
	fail "the session beside the tests did not count"
fi
