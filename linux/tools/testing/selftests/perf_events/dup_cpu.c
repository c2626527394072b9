// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes count the same on one CPU that has no counter left for the
 * second: they share one, both run always, and both count the same.
 */
#include "dup.h"

FIXTURE(dup_cpu)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
};

FIXTURE_VARIANT(dup_cpu)
{
	__u64			config;
	bool			user_only;
};

FIXTURE_VARIANT_ADD(dup_cpu, instructions)
{
	.config = PERF_COUNT_HW_INSTRUCTIONS,
};

FIXTURE_VARIANT_ADD(dup_cpu, user_instructions)
{
	.config = PERF_COUNT_HW_INSTRUCTIONS,
	.user_only = true,
};

FIXTURE_VARIANT_ADD(dup_cpu, cycles)
{
	.config = PERF_COUNT_HW_CPU_CYCLES,
};

FIXTURE_SETUP(dup_cpu)
{
	dup_setup(_metadata, &self->t);
	self->attr = variant->user_only ? user_instructions() : instructions();
	self->attr.config = variant->config;
}

FIXTURE_TEARDOWN(dup_cpu)
{
	dup_teardown(_metadata, &self->t);
}

/* Two openers, one counter. */
TEST_F(dup_cpu, last_counter)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct bracket from, to;
	int a, b;

	leave_counters(_metadata, t, t->cpu, 1);
	a = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	b = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));

	from = read_bracket(_metadata, a, b);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, a, b);

	EXPECT_GE(to.inner - from.inner, LOOPS);
	expect_bracketed(_metadata, from, to);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	/* The other way round. */
	from = read_bracket(_metadata, b, a);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, b, a);
	expect_bracketed(_metadata, from, to);
}

/* Many openers cost what one costs, whatever the order in which they leave. */
TEST_F(dup_cpu, many_openers)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct bracket from, to;
	struct opener many[16];
	int fd[16], i;

	leave_counters(_metadata, t, t->cpu, 1);
	for (i = 0; i < 16; i++) {
		start_opener(_metadata, &many[i]);
		fd[i] = open_event(_metadata, &many[i], &attr, on_cpu(t->cpu));
	}

	worker_runs(_metadata, &t->worker);
	for (i = 0; i < 16; i++)
		EXPECT_TRUE(runs_always(fd[i]));

	for (i = 0; i < 14; i++)
		close(fd[(i * 5) % 14]);

	from = read_bracket(_metadata, fd[14], fd[15]);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, fd[14], fd[15]);
	EXPECT_GE(to.inner - from.inner, LOOPS);
	expect_bracketed(_metadata, from, to);
	EXPECT_TRUE(runs_always(fd[14]));
	EXPECT_TRUE(runs_always(fd[15]));
}

/* An opener that ended has not taken its event along, nor its right to share. */
TEST_F(dup_cpu, opener_ends)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct bracket from, to;
	int a, b;

	leave_counters(_metadata, t, t->cpu, 1);
	a = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	end_opener(_metadata, &t->a);
	b = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));

	from = read_bracket(_metadata, a, b);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, a, b);

	EXPECT_GE(to.inner - from.inner, LOOPS);
	expect_bracketed(_metadata, from, to);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* A pinned event keeps the counter for a flexible one, in either order. */
TEST_F(dup_cpu, pinned_and_flexible)
{
	struct perf_event_attr flexible = self->attr;
	struct perf_event_attr pinned = flexible;
	struct dup_test *t = &self->t;
	int a, b, i;

	pinned.pinned = 1;
	leave_counters(_metadata, t, t->cpu, 1);

	for (i = 0; i < 2; i++) {
		a = open_event(_metadata, &t->a, i ? &pinned : &flexible, on_cpu(t->cpu));
		b = open_event(_metadata, &t->b, i ? &flexible : &pinned, on_cpu(t->cpu));
		worker_runs(_metadata, &t->worker);
		EXPECT_TRUE(runs_always(a));
		EXPECT_TRUE(runs_always(b));

		/* The one that stays goes on with the counter. */
		close(a);
		worker_runs(_metadata, &t->worker);
		EXPECT_TRUE(runs_always(b));
		close(b);
	}
}

/* Two openers with a group each; the groups cost what one costs. */
TEST_F(dup_cpu, groups)
{
	struct perf_event_attr attr = self->attr;
	struct perf_event_attr kernel = attr;
	struct dup_test *t = &self->t;
	struct bracket from[2], to[2];
	int a[2], b[2], i;

	kernel.exclude_user = 1;
	kernel.exclude_kernel = 0;

	leave_counters(_metadata, t, t->cpu, 2);
	a[0] = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	a[1] = open_in_group(_metadata, &t->a, &kernel, on_cpu(t->cpu), a[0]);
	/* The position in the group makes no difference. */
	b[1] = open_event(_metadata, &t->b, &kernel, on_cpu(t->cpu));
	b[0] = open_in_group(_metadata, &t->b, &attr, on_cpu(t->cpu), b[1]);

	for (i = 0; i < 2; i++)
		from[i] = read_bracket(_metadata, a[i], b[i]);
	worker_runs(_metadata, &t->worker);
	for (i = 0; i < 2; i++)
		to[i] = read_bracket(_metadata, a[i], b[i]);

	EXPECT_GE(to[0].inner - from[0].inner, LOOPS);
	for (i = 0; i < 2; i++) {
		expect_bracketed(_metadata, from[i], to[i]);
		EXPECT_TRUE(runs_always(a[i]));
		EXPECT_TRUE(runs_always(b[i]));
	}
}

/* Without sharers an event needs a counter of its own, as ever. */
TEST_F(dup_cpu, no_counter)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	int a, b;

	leave_counters(_metadata, t, t->cpu, 0);
	a = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	b = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(0U, read_counts(_metadata, a).running);
	EXPECT_EQ(0U, read_counts(_metadata, b).running);

	/* A counter that becomes free serves both. */
	release_counter(_metadata, t);
	worker_does(_metadata, &t->worker, WORK_LOOP, 100 * LOOPS);
	EXPECT_NE(0U, read_counts(_metadata, a).running);
	EXPECT_NE(0U, read_counts(_metadata, b).running);
}

TEST_HARNESS_MAIN
