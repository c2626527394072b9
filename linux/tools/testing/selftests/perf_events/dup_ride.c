// SPDX-License-Identifier: GPL-2.0
/*
 * Groups that take no counter, since all of their members count through counters
 * that run already, go on behind a group that does not fit; nobody else does. And
 * events take turns by what they count, not by how many count it.
 *
 * Shares are those of many turns; bounds allow for some that the time measured
 * begins or ends with.
 */
#include "dup.h"

/* 30 turns with the longest tick, and more with others. */
#define MEASURE_US	300000
#define WARM_UP_US	50000

/* More than what is left of the test. */
#define FOREVER		1000000000000UL

#define NR_SHARERS	12

FIXTURE(dup_ride)
{
	struct dup_test		t;
	struct opener		many[NR_SHARERS];
	/* Of the events that take turns. */
	struct target		target;
	/* Of pinned ones. */
	struct target		holder;
};

FIXTURE_VARIANT(dup_ride)
{
	bool			on_task;
	bool			holder_on_task;
};

FIXTURE_VARIANT_ADD(dup_ride, cpu)
{
	.on_task = false,
};

FIXTURE_VARIANT_ADD(dup_ride, task)
{
	.on_task = true,
	.holder_on_task = true,
};

FIXTURE_VARIANT_ADD(dup_ride, task_beside_cpu)
{
	.on_task = true,
};

FIXTURE_SETUP(dup_ride)
{
	struct dup_test *t = &self->t;
	int i;

	if (!dup_setup(_metadata, t))
		return;

	for (i = 0; i < NR_SHARERS; i++)
		start_opener(_metadata, &self->many[i]);
	self->target = variant->on_task ? on_task(t->worker.pid) : on_cpu(t->cpu);
	self->holder = variant->holder_on_task ? on_task(t->worker.pid) : on_cpu(t->cpu);
}

FIXTURE_TEARDOWN(dup_ride)
{
	dup_teardown(_metadata, &self->t);
}

/* Different ones; each can use any counter. */
static struct perf_event_attr key(unsigned int nr)
{
	struct perf_event_attr attr = twin(nr % NR_TWINS);

	attr.exclude_kernel = nr < NR_TWINS;

	return attr;
}

static int open_key(struct __test_metadata *_metadata, struct opener *opener, unsigned int nr,
		    struct target target)
{
	struct perf_event_attr attr = key(nr);

	return open_event(_metadata, opener, &attr, target);
}

static int open_pinned(struct __test_metadata *_metadata, struct opener *opener,
		       unsigned int nr, struct target target)
{
	struct perf_event_attr attr = key(nr);

	attr.pinned = 1;
	return open_event(_metadata, opener, &attr, target);
}

/* Returns the leader of a group of two. */
static int open_pair(struct __test_metadata *_metadata, struct opener *opener,
		     unsigned int first, unsigned int second, struct target target)
{
	struct perf_event_attr attr = key(second);
	int leader;

	leader = open_key(_metadata, opener, first, target);
	open_in_group(_metadata, opener, &attr, target, leader);

	return leader;
}

struct share {
	int			fd;
	struct counts		from;
	/* For how long it ran, in ns and in percent of the time that it was enabled. */
	__u64			ran;
	int			percent;
};

/* From now on, while the worker works. */
static void measure_shares(struct __test_metadata *_metadata, struct share *share, int nr)
{
	struct counts to;
	int i;

	usleep(WARM_UP_US);
	for (i = 0; i < nr; i++)
		share[i].from = read_counts(_metadata, share[i].fd);
	usleep(MEASURE_US);
	for (i = 0; i < nr; i++) {
		to = read_counts(_metadata, share[i].fd);
		to.enabled -= share[i].from.enabled;
		to.running -= share[i].from.running;
		ASSERT_NE(0U, to.enabled);
		share[i].ran = to.running;
		share[i].percent = 100 * to.running / to.enabled;
	}
}

static void measure(struct __test_metadata *_metadata, struct dup_test *t, struct share *share,
		    int nr)
{
	/* It ends with the test. */
	worker_begins(_metadata, &t->worker, WORK_LOOP, FOREVER);
	measure_shares(_metadata, share, nr);
}

static bool is_between(struct __test_metadata *_metadata, int low, int high,
		       const struct share *share)
{
	if (share->percent >= low && share->percent <= high)
		return true;

	TH_LOG("%d %%, and not %d to %d", share->percent, low, high);
	return false;
}

/*
 * Two groups never fit. Without free riders the one behind them runs as long as it
 * is in front of them, which is half of the time. The other one would fit behind
 * them and has to wait for its turn all the same, as it does where can_add_hw stays
 * false for it. But it has one: to rotate the rider, the only one that is active
 * then, would leave the groups that do not fit in front for ever.
 */
TEST_F(dup_ride, behind_groups)
{
	enum { HOLDER, FIRST, SECOND, OTHER, RIDER, NR };
	struct dup_test *t = &self->t;
	struct share share[NR];

	leave_counters(_metadata, t, t->cpu, 2);
	share[HOLDER].fd = open_pinned(_metadata, &t->a, 0, self->holder);
	share[FIRST].fd = open_pair(_metadata, &t->a, 1, 2, self->target);
	share[SECOND].fd = open_pair(_metadata, &t->a, 4, 5, self->target);
	share[OTHER].fd = open_key(_metadata, &t->b, 3, self->target);
	share[RIDER].fd = open_key(_metadata, &t->b, 0, self->target);
	measure(_metadata, t, share, NR);

	EXPECT_TRUE(runs_always(share[HOLDER].fd));
	EXPECT_TRUE(runs_always(share[RIDER].fd));
	EXPECT_EQ(0U, share[FIRST].ran);
	EXPECT_EQ(0U, share[SECOND].ran);
	/* One turn of four. */
	EXPECT_TRUE(is_between(_metadata, 8, 70, &share[OTHER]));
}

/* All hardware members have to be there; software events do not matter. */
TEST_F(dup_ride, every_member)
{
	enum { FIRST, WITH_SOFTWARE, RIDERS, HALF, NR };
	struct perf_event_attr software = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= sizeof(software),
		.config		= PERF_COUNT_SW_DUMMY,
		.read_format	= READ_TIMES,
	};
	struct dup_test *t = &self->t;
	struct share share[NR];
	int i;

	leave_counters(_metadata, t, t->cpu, 3);
	for (i = 0; i < 2; i++)
		open_pinned(_metadata, &t->a, i, self->holder);
	share[FIRST].fd = open_pair(_metadata, &t->a, 4, 5, self->target);
	share[WITH_SOFTWARE].fd = open_key(_metadata, &self->many[0], 0, self->target);
	open_in_group(_metadata, &self->many[0], &software, self->target,
		      share[WITH_SOFTWARE].fd);
	share[RIDERS].fd = open_pair(_metadata, &t->b, 0, 1, self->target);
	share[HALF].fd = open_pair(_metadata, &self->many[1], 0, 3, self->target);
	measure(_metadata, t, share, NR);

	EXPECT_EQ(0U, share[FIRST].ran);
	EXPECT_TRUE(runs_always(share[WITH_SOFTWARE].fd));
	EXPECT_TRUE(runs_always(share[RIDERS].fd));
	/* It has turns, as a group that would ride with one of two members. */
	EXPECT_TRUE(is_between(_metadata, 8, 80, &share[HALF]));
}

/* An exclusive group does not let a rider run beside it, and it has its turns. */
TEST_F(dup_ride, exclusive)
{
	struct perf_event_attr attr = key(1);
	enum { HOLDER, EXCLUSIVE, RIDER, NR };
	struct dup_test *t = &self->t;
	struct share share[NR];

	attr.exclusive = 1;
	leave_counters(_metadata, t, t->cpu, 2);
	share[HOLDER].fd = open_pinned(_metadata, &t->a, 0, self->holder);
	share[EXCLUSIVE].fd = open_event(_metadata, &t->a, &attr, self->target);
	share[RIDER].fd = open_key(_metadata, &t->b, 0, self->target);
	measure(_metadata, t, share, NR);

	EXPECT_TRUE(runs_always(share[HOLDER].fd));
	EXPECT_TRUE(is_between(_metadata, 25, 75, &share[EXCLUSIVE]));
	EXPECT_TRUE(is_between(_metadata, 25, 75, &share[RIDER]));
	EXPECT_LE(share[EXCLUSIVE].percent + share[RIDER].percent, 102);
}

/*
 * What is promised: with one counter for three keys each has a third, whether one
 * counts it or many. By events, the second would have 12 turns of 15.
 */
TEST_F(dup_ride, turns_by_key)
{
	static const int sharers[] = { 1, NR_SHARERS, 2 };
	struct share share[1 + NR_SHARERS + 2];
	struct dup_test *t = &self->t;
	unsigned int k;
	int i, nr = 0;

	leave_counters(_metadata, t, t->cpu, 1);
	for (i = 0; i < NR_SHARERS; i++) {
		for (k = 0; k < ARRAY_SIZE(sharers); k++) {
			if (i < sharers[k])
				share[nr++].fd = open_key(_metadata, &self->many[i], k,
							  self->target);
		}
	}
	measure(_metadata, t, share, nr);
	for (i = 0; i < nr; i++)
		EXPECT_TRUE(is_between(_metadata, 27, 40, &share[i]));
}

/* The same with two counters for three keys. */
TEST_F(dup_ride, turns_of_two)
{
	static const int sharers[] = { 2, NR_SHARERS, 1 };
	struct share share[2 + NR_SHARERS + 1];
	struct dup_test *t = &self->t;
	unsigned int k;
	int i, nr = 0;

	leave_counters(_metadata, t, t->cpu, 2);
	for (k = 0; k < ARRAY_SIZE(sharers); k++) {
		for (i = 0; i < sharers[k]; i++)
			share[nr++].fd = open_key(_metadata, &self->many[i], k, self->target);
	}
	measure(_metadata, t, share, nr);
	for (i = 0; i < nr; i++)
		EXPECT_TRUE(is_between(_metadata, 59, 74, &share[i]));
}

/*
 * Those who ride on the counter of a pinned event free nothing by giving way. If
 * theirs was a turn, the two others would have a third and two thirds.
 */
TEST_F(dup_ride, riders_have_no_turn)
{
	struct share share[2 + NR_SHARERS];
	struct dup_test *t = &self->t;
	int i;

	leave_counters(_metadata, t, t->cpu, 2);
	open_pinned(_metadata, &t->a, 0, self->holder);
	for (i = 0; i < NR_SHARERS; i++)
		share[2 + i].fd = open_key(_metadata, &self->many[i], 0, self->target);
	for (i = 0; i < 2; i++)
		share[i].fd = open_key(_metadata, &t->a, 1 + i, self->target);
	measure(_metadata, t, share, ARRAY_SIZE(share));

	for (i = 0; i < 2; i++)
		EXPECT_TRUE(is_between(_metadata, 43, 57, &share[i]));
	for (i = 0; i < NR_SHARERS; i++)
		EXPECT_TRUE(runs_always(share[2 + i].fd));
}

/* Two sharers, with a group between them that fits when neither runs. */
TEST_F(dup_ride, around_a_group)
{
	enum { FIRST, GROUP, LAST, NR };
	struct dup_test *t = &self->t;
	struct share share[NR];
	int both;

	leave_counters(_metadata, t, t->cpu, 2);
	share[FIRST].fd = open_key(_metadata, &t->a, 0, self->target);
	share[GROUP].fd = open_pair(_metadata, &t->a, 1, 2, self->target);
	share[LAST].fd = open_key(_metadata, &t->b, 0, self->target);
	measure(_metadata, t, share, NR);

	EXPECT_TRUE(is_between(_metadata, 40, 60, &share[FIRST]));
	EXPECT_TRUE(is_between(_metadata, 40, 60, &share[GROUP]));
	/* The second one rides with the first, and both give way at once. */
	both = share[FIRST].percent;
	EXPECT_TRUE(is_between(_metadata, both - 1, both + 1, &share[LAST]));
}

/* Flexible events of a task beside those of its CPU, which come before them. */
FIXTURE(dup_ride_flexible)
{
	struct dup_test		t;
};

FIXTURE_SETUP(dup_ride_flexible)
{
	dup_setup(_metadata, &self->t);
}

FIXTURE_TEARDOWN(dup_ride_flexible)
{
	dup_teardown(_metadata, &self->t);
}

/*
 * A rider on a counter that the CPU's flexible event holds has no turn either: the
 * counter stays when the task's events go. Were it passed over only for pinned
 * holders (the second condition in perf_dup_held()), it would be the first active
 * group to rotate each time, the group that does not fit would stay in front, and
 * the last one would never run.
 */
TEST_F(dup_ride_flexible, behind_group)
{
	enum { HOLDER, GROUP, RIDER, OTHER, NR };
	struct dup_test *t = &self->t;
	struct target task = on_task(t->worker.pid);
	struct share share[NR];

	leave_counters(_metadata, t, t->cpu, 2);
	share[HOLDER].fd = open_key(_metadata, &t->a, 0, on_cpu(t->cpu));
	share[GROUP].fd = open_pair(_metadata, &t->a, 1, 2, task);
	share[RIDER].fd = open_key(_metadata, &t->b, 0, task);
	share[OTHER].fd = open_key(_metadata, &t->a, 3, task);
	measure(_metadata, t, share, NR);

	EXPECT_TRUE(runs_always(share[HOLDER].fd));
	EXPECT_TRUE(runs_always(share[RIDER].fd));
	EXPECT_EQ(0U, share[GROUP].ran);
	/* One turn of three. */
	EXPECT_TRUE(is_between(_metadata, 8, 70, &share[OTHER]));
}

/* Returns when an event that takes turns with others has just been given its turn. */
static void wait_for_turn(struct __test_metadata *_metadata, int fd)
{
	__u64 last, running = read_counts(_metadata, fd).running;
	bool had_turn, has_turn = true;

	do {
		usleep(100);
		last = running;
		running = read_counts(_metadata, fd).running;
		had_turn = has_turn;
		has_turn = running != last;
	} while (had_turn || !has_turn);
}

/*
 * The first hardware event of a task comes in the midst of its work, and is let in
 * on the spot, for it counts through the CPU's counter. The task is not switched
 * out from then on. Its event has to give way all the same when it is the turn of
 * another of the CPU's events: if group_join() let it in without its PMU context in
 * perf_cpu_pmu_context::task_epc, where rotation looks for the events of the task,
 * it would hold the only counter, and the second key would have no turn.
 */
TEST_F(dup_ride_flexible, never_switched)
{
	struct sched_param param = { .sched_priority = 1 };
	struct perf_event_attr attr = key(0), software = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= sizeof(software),
		.config		= PERF_COUNT_SW_TASK_CLOCK,
		.read_format	= READ_TIMES,
	};
	enum { FIRST, SECOND, JOINED, NR };
	struct dup_test *t = &self->t;
	struct target task = on_task(t->worker.pid);
	struct share share[NR];
	int clock, i;

	if (!leave_cpu_to_workers(_metadata, t))
		SKIP(return, "needs two CPUs");
	leave_counters(_metadata, t, t->cpu, 1);
	share[FIRST].fd = open_key(_metadata, &t->a, 0, on_cpu(t->cpu));
	share[SECOND].fd = open_key(_metadata, &t->a, 1, on_cpu(t->cpu));
	/* With it the context of the task is active. */
	clock = open_event(_metadata, &t->a, &software, task);
	attr.disabled = 1;
	share[JOINED].fd = open_event(_metadata, &t->b, &attr, task);

	/* No thread of the kernel comes in between; not for longer than a second. */
	ASSERT_EQ(0, sched_setscheduler(t->worker.pid, SCHED_FIFO, &param));
	worker_begins(_metadata, &t->worker, WORK_LOOP, FOREVER);
	usleep(WARM_UP_US);
	wait_for_turn(_metadata, share[FIRST].fd);
	ASSERT_EQ(0, ioctl(share[JOINED].fd, PERF_EVENT_IOC_ENABLE, 0));
	measure_shares(_metadata, share, NR);

	for (i = 0; i < NR; i++)
		EXPECT_TRUE(is_between(_metadata, 35, 65, &share[i]));
	EXPECT_TRUE(runs_always(clock));
}

TEST_HARNESS_MAIN
