// SPDX-License-Identifier: GPL-2.0
/*
 * Equal events of one opener on one target do not share: a process counts the
 * counters of the PMU by opening equal events until one gets none. Its k-th event
 * shares with the k-th one of other openers. kernel.perf_event_dup changes the
 * rule for events opened afterwards.
 */
#include "dup.h"

FIXTURE(dup_ordinal)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct target		target;
	/* The counters that the PMU has for this event. */
	unsigned int		nr;
	int			fd[MAX_COUNTERS];
};

FIXTURE_SETUP(dup_ordinal)
{
	unsigned int i;

	if (!dup_setup(_metadata, &self->t))
		return;

	self->attr = instructions();
	self->target = on_cpu(self->t.cpu);
	self->nr = take_counters(_metadata, &self->t.filler, &self->attr, self->target,
				 self->fd, MAX_COUNTERS);
	for (i = 0; i < self->nr; i++)
		close(self->fd[i]);
	if (self->nr < 2)
		SKIP(return, "needs two counters, %u found", self->nr);
}

FIXTURE_TEARDOWN(dup_ordinal)
{
	dup_teardown(_metadata, &self->t);
}

/* All events are equal, and most are on one CPU. */
static int open_equal(struct __test_metadata *_metadata, struct opener *opener, int cpu)
{
	struct perf_event_attr attr = instructions();

	return open_event(_metadata, opener, &attr, on_cpu(cpu));
}

/* The loop of LTP's perf_event_open02 ends at the number of counters. */
TEST_F(dup_ordinal, one_opener)
{
	struct dup_test *t = &self->t;
	int fd[MAX_COUNTERS + 1];
	unsigned int nr, i;
	bool all = true;

	for (nr = 0; nr <= self->nr && all; nr++) {
		fd[nr] = open_equal(_metadata, &t->a, t->cpu);
		worker_runs(_metadata, &t->worker);
		for (i = 0; i <= nr; i++)
			all = all && runs_always(fd[i]);
	}
	EXPECT_FALSE(all);
	EXPECT_EQ(self->nr + 1, nr);
}

/* The filler of the other tests: pinned events, while others share. */
TEST_F(dup_ordinal, one_opener_pinned)
{
	struct dup_test *t = &self->t;
	unsigned int i;
	int b;

	b = open_equal(_metadata, &t->b, t->cpu);
	EXPECT_EQ(self->nr, take_counters(_metadata, &t->a, &self->attr, self->target,
					  self->fd, MAX_COUNTERS));
	worker_runs(_metadata, &t->worker);
	for (i = 0; i < self->nr; i++)
		EXPECT_TRUE(runs_always(self->fd[i]));
	EXPECT_TRUE(runs_always(b));
}

/* The k-th events of two openers share, for every k. */
TEST_F(dup_ordinal, two_openers)
{
	struct dup_test *t = &self->t;
	struct bracket from[MAX_COUNTERS], to[MAX_COUNTERS];
	int fd[MAX_COUNTERS];
	unsigned int i;

	for (i = 0; i < self->nr; i++)
		self->fd[i] = open_equal(_metadata, &t->a, t->cpu);
	for (i = 0; i < self->nr; i++)
		fd[i] = open_equal(_metadata, &t->b, t->cpu);

	for (i = 0; i < self->nr; i++)
		from[i] = read_bracket(_metadata, self->fd[i], fd[i]);
	worker_runs(_metadata, &t->worker);
	for (i = 0; i < self->nr; i++)
		to[i] = read_bracket(_metadata, self->fd[i], fd[i]);

	for (i = 0; i < self->nr; i++) {
		EXPECT_GE(to[i].inner - from[i].inner, LOOPS);
		expect_bracketed(_metadata, from[i], to[i]);
		EXPECT_TRUE(runs_always(self->fd[i]));
		EXPECT_TRUE(runs_always(fd[i]));
	}
}

/* An event that is closed gives its ordinal to the next one. */
TEST_F(dup_ordinal, smallest_free_ordinal)
{
	struct dup_test *t = &self->t;
	int a[2], b;

	leave_counters(_metadata, t, t->cpu, 2);
	a[0] = open_equal(_metadata, &t->a, t->cpu);
	a[1] = open_equal(_metadata, &t->a, t->cpu);
	b = open_equal(_metadata, &t->b, t->cpu);
	close(a[0]);
	a[0] = open_equal(_metadata, &t->a, t->cpu);

	worker_runs(_metadata, &t->worker);
	EXPECT_TRUE(runs_always(a[0]));
	EXPECT_TRUE(runs_always(a[1]));
	EXPECT_TRUE(runs_always(b));
}

/* Ordinals are counted on each target: here on two tasks. */
TEST_F(dup_ordinal, two_targets)
{
	struct dup_test *t = &self->t;
	struct worker other;
	int fd[4], i;

	start_worker(_metadata, &other, t->cpu);
	wait_for_sleep(_metadata, &other);
	leave_counters(_metadata, t, t->cpu, 1);

	fd[0] = open_event(_metadata, &t->a, &self->attr, on_task(t->worker.pid));
	fd[1] = open_event(_metadata, &t->a, &self->attr, on_task(other.pid));
	fd[2] = open_event(_metadata, &t->b, &self->attr, on_task(other.pid));
	fd[3] = open_event(_metadata, &t->b, &self->attr, on_task(t->worker.pid));

	worker_runs(_metadata, &t->worker);
	worker_runs(_metadata, &other);
	for (i = 0; i < 4; i++) {
		EXPECT_TRUE(runs_always(fd[i]));
		EXPECT_GE(read_value(_metadata, fd[i]), LOOPS);
	}
	EXPECT_EQ(read_value(_metadata, fd[0]), read_value(_metadata, fd[3]));
	EXPECT_EQ(read_value(_metadata, fd[1]), read_value(_metadata, fd[2]));
}

/* The threads of a process are one opener. */
TEST_F(dup_ordinal, threads)
{
	struct dup_test *t = &self->t;
	struct open_request req = {
		.attr		= self->attr,
		.target		= self->target,
		.by_thread	= true,
	};
	int fd[3];

	leave_counters(_metadata, t, t->cpu, 1);
	fd[0] = open_equal(_metadata, &t->a, t->cpu);
	fd[1] = request_event(_metadata, &t->a, &req);
	ASSERT_GE(fd[1], 0);
	worker_runs(_metadata, &t->worker);
	EXPECT_FALSE(runs_always(fd[0]) && runs_always(fd[1]));
	close(fd[1]);

	/* Threads of two processes are two. */
	fd[1] = request_event(_metadata, &t->b, &req);
	ASSERT_GE(fd[1], 0);
	close(fd[0]);
	fd[0] = request_event(_metadata, &t->a, &req);
	ASSERT_GE(fd[0], 0);
	worker_runs(_metadata, &t->worker);
	EXPECT_TRUE(runs_always(fd[0]));
	EXPECT_TRUE(runs_always(fd[1]));
}

/* 0: nothing is shared. What was opened before goes on as it was. */
TEST_F(dup_ordinal, sysctl_off)
{
	struct dup_test *t = &self->t;
	int a, b, old_a, old_b;

	leave_counters(_metadata, t, t->cpu, 2);
	old_a = open_equal(_metadata, &t->a, t->cpu);
	old_b = open_equal(_metadata, &t->b, t->cpu);

	ASSERT_EQ(0, write_long(DUP_SYSCTL, 0));
	a = open_equal(_metadata, &t->a, t->cpu);
	b = open_equal(_metadata, &t->b, t->cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_FALSE(runs_always(old_a) && runs_always(old_b) &&
		     runs_always(a) && runs_always(b));

	close(b);
	close(old_a);
	close(old_b);
	close(a);
	release_counter(_metadata, t);
	old_a = open_equal(_metadata, &t->a, t->cpu);
	a = open_equal(_metadata, &t->a, t->cpu);
	b = open_equal(_metadata, &t->b, t->cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_TRUE(runs_always(old_a));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* 2: equal events of one opener share as well. */
TEST_F(dup_ordinal, sysctl_all)
{
	struct dup_test *t = &self->t;
	struct bracket from, to;
	int fd[3], i;

	leave_counters(_metadata, t, t->cpu, 1);
	ASSERT_EQ(0, write_long(DUP_SYSCTL, 2));
	fd[0] = open_equal(_metadata, &t->a, t->cpu);
	fd[1] = open_equal(_metadata, &t->a, t->cpu);
	fd[2] = open_equal(_metadata, &t->b, t->cpu);

	from = read_bracket(_metadata, fd[0], fd[1]);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, fd[0], fd[1]);
	EXPECT_GE(to.inner - from.inner, LOOPS);
	expect_bracketed(_metadata, from, to);
	for (i = 0; i < 3; i++)
		EXPECT_TRUE(runs_always(fd[i]));
}

/* Other values are refused and change nothing. */
TEST_F(dup_ordinal, sysctl_range)
{
	EXPECT_EQ(-EINVAL, write_long(DUP_SYSCTL, -1));
	EXPECT_EQ(-EINVAL, write_long(DUP_SYSCTL, 3));
	EXPECT_EQ(-EINVAL, write_string(DUP_SYSCTL, "on"));
	EXPECT_EQ(1, read_long(DUP_SYSCTL));
	EXPECT_EQ(0, write_long(DUP_SYSCTL, 2));
	EXPECT_EQ(2, read_long(DUP_SYSCTL));
}

TEST_HARNESS_MAIN
