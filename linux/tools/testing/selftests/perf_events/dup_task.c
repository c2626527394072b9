// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes count the same on one task that finds only one counter. All
 * counts are read while the task does not run: they must be equal to each other
 * and to those of an event that does not share.
 */
#include "dup.h"

FIXTURE(dup_task)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
};

FIXTURE_VARIANT(dup_task)
{
	bool			user_only;
};

FIXTURE_VARIANT_ADD(dup_task, user)
{
	.user_only = true,
};

FIXTURE_VARIANT_ADD(dup_task, user_and_kernel)
{
	.user_only = false,
};

FIXTURE_SETUP(dup_task)
{
	dup_setup(_metadata, &self->t);
	self->attr = variant->user_only ? user_instructions() : instructions();
}

FIXTURE_TEARDOWN(dup_task)
{
	dup_teardown(_metadata, &self->t);
}

/* Two openers and the reference, two counters. */
TEST_F(dup_task, last_counter)
{
	struct perf_event_attr attr = self->attr;
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	__u64 value, last = 0;
	int a, b, ref, i;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->b, &ref_attr, target);

	for (i = 0; i < 5; i++) {
		if (i < 4)
			worker_runs(_metadata, &t->worker);
		else
			worker_ends(_metadata, &t->worker, WORK_EXIT);

		value = read_value(_metadata, ref);
		EXPECT_GT(value, last);
		EXPECT_EQ(value, read_value(_metadata, a));
		EXPECT_EQ(value, read_value(_metadata, b));
		EXPECT_TRUE(runs_always(a));
		EXPECT_TRUE(runs_always(b));
		last = value;
	}
	EXPECT_GE(last, 4 * LOOPS);
}

/* One that comes later counts what it sees, and what it sees is exact. */
TEST_F(dup_task, late)
{
	struct perf_event_attr attr = self->attr;
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	int a, b, ref_a, ref_b;

	leave_counters(_metadata, t, t->cpu, 3);
	a = open_event(_metadata, &t->a, &attr, target);
	ref_a = open_event(_metadata, &t->a, &ref_attr, target);
	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);

	b = open_event(_metadata, &t->b, &attr, target);
	ref_b = open_event(_metadata, &t->b, &ref_attr, target);
	EXPECT_EQ(0U, read_value(_metadata, b));
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(read_value(_metadata, ref_a), read_value(_metadata, a));
	EXPECT_EQ(read_value(_metadata, ref_b), read_value(_metadata, b));

	/* The first one leaves. */
	close(a);
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(read_value(_metadata, ref_b), read_value(_metadata, b));
	EXPECT_TRUE(runs_always(b));
	EXPECT_GE(read_value(_metadata, b), 2 * LOOPS);
	EXPECT_LT(read_value(_metadata, b), read_value(_metadata, ref_a) - 5 * LOOPS);
}

/* Opened, read and closed while the task runs. */
TEST_F(dup_task, running)
{
	struct work_order order = { .what = WORK_LOOP, .loops = 100 * LOOPS };
	struct perf_event_attr attr = self->attr;
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	struct bracket from, to;
	int a, b, ref, i;

	leave_counters(_metadata, t, t->cpu, 2);
	ref = open_event(_metadata, &t->a, &ref_attr, target);
	a = open_event(_metadata, &t->a, &attr, target);
	ASSERT_EQ((ssize_t)sizeof(order), send(t->worker.sock, &order, sizeof(order), 0));

	for (i = 0; i < 10; i++) {
		b = open_event(_metadata, &t->b, &attr, target);
		from = read_bracket(_metadata, ref, b);
		do {
			usleep(5000);
			to = read_bracket(_metadata, ref, b);
		} while (to.start == from.end);
		expect_bracketed(_metadata, from, to);
		EXPECT_TRUE(runs_always(b));
		close(b);
	}

	ASSERT_EQ((ssize_t)sizeof(order), recv(t->worker.sock, &order, sizeof(order), 0));
	wait_for_sleep(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, a), 100 * LOOPS);
	EXPECT_EQ(read_value(_metadata, ref), read_value(_metadata, a));
	EXPECT_TRUE(runs_always(a));
}

/* A group that shares both of its members: they are read together. */
TEST_F(dup_task, groups)
{
	struct perf_event_attr attr = self->attr;
	struct perf_event_attr cycles = attr;
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	__u64 words_a[5], words_b[5];
	int a, b;

	attr.read_format |= PERF_FORMAT_GROUP;
	cycles.read_format |= PERF_FORMAT_GROUP;
	cycles.config = PERF_COUNT_HW_CPU_CYCLES;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	open_in_group(_metadata, &t->a, &cycles, target, a);
	b = open_event(_metadata, &t->b, &attr, target);
	open_in_group(_metadata, &t->b, &cycles, target, b);
	worker_runs(_metadata, &t->worker);

	ASSERT_EQ((ssize_t)sizeof(words_a), read(a, words_a, sizeof(words_a)));
	ASSERT_EQ((ssize_t)sizeof(words_b), read(b, words_b, sizeof(words_b)));
	EXPECT_EQ(2U, words_a[0]);
	EXPECT_EQ(2U, words_b[0]);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
	EXPECT_GE(words_a[3], LOOPS);
	EXPECT_EQ(words_a[3], words_b[3]);
	EXPECT_EQ(words_a[4], words_b[4]);
}

TEST_HARNESS_MAIN
