// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes count a task and its children, across fork, exec and exit. Where
 * equal events meet in one task they share there; what the children counted
 * comes back to each of the parent's events exactly.
 */
#include "dup.h"

FIXTURE(dup_inherit)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct perf_event_attr	ref_attr;
	struct target		target;
};

FIXTURE_VARIANT(dup_inherit)
{
	bool			user_only;
	bool			inherit_stat;
};

FIXTURE_VARIANT_ADD(dup_inherit, user)
{
	.user_only = true,
};

FIXTURE_VARIANT_ADD(dup_inherit, user_and_kernel)
{
	.user_only = false,
};

FIXTURE_VARIANT_ADD(dup_inherit, inherit_stat)
{
	.user_only = true,
	.inherit_stat = true,
};

FIXTURE_SETUP(dup_inherit)
{
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t))
		return;

	self->attr = variant->user_only ? user_instructions() : instructions();
	self->attr.inherit = 1;
	self->attr.inherit_stat = variant->inherit_stat;
	self->ref_attr = reference(self->attr);
	self->target = on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, 2);
}

FIXTURE_TEARDOWN(dup_inherit)
{
	dup_teardown(_metadata, &self->t);
}

/* Children of one tick or less, one after the other. */
TEST_F(dup_inherit, fork)
{
	struct dup_test *t = &self->t;
	int a, b, ref, i;
	__u64 value;

	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	ref = open_event(_metadata, &t->a, &self->ref_attr, self->target);

	for (i = 1; i <= 5; i++) {
		worker_does(_metadata, &t->worker, WORK_FORK, LOOPS);
		value = read_value(_metadata, ref);
		EXPECT_GE(value, i * LOOPS);
		EXPECT_EQ(value, read_value(_metadata, a));
		EXPECT_EQ(value, read_value(_metadata, b));
	}
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	worker_ends(_metadata, &t->worker, WORK_EXIT);
	value = read_value(_metadata, ref);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
}

/* Children that run for many ticks and take turns, so that contexts are swapped. */
TEST_F(dup_inherit, children_take_turns)
{
	struct dup_test *t = &self->t;
	int a, b, ref;
	__u64 value;

	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	ref = open_event(_metadata, &t->a, &self->ref_attr, self->target);

	worker_does(_metadata, &t->worker, WORK_FORK, 50 * LOOPS);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, 50 * LOOPS);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* Only one of the two goes on in children: they share in the parent. */
TEST_F(dup_inherit, one_inherits)
{
	struct perf_event_attr alone = self->attr;
	struct perf_event_attr ref_alone = self->ref_attr;
	struct dup_test *t = &self->t;
	int a, b, ref_a, ref_b;

	alone.inherit = 0;
	alone.inherit_stat = 0;
	ref_alone.inherit = 0;
	ref_alone.inherit_stat = 0;

	/* A counter for each reference and one to share. */
	release_counter(_metadata, t);
	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &alone, self->target);
	ref_a = open_event(_metadata, &t->a, &self->ref_attr, self->target);
	ref_b = open_event(_metadata, &t->b, &ref_alone, self->target);

	worker_runs(_metadata, &t->worker);
	worker_does(_metadata, &t->worker, WORK_FORK, 10 * LOOPS);
	EXPECT_EQ(read_value(_metadata, ref_a), read_value(_metadata, a));
	EXPECT_EQ(read_value(_metadata, ref_b), read_value(_metadata, b));
	EXPECT_GE(read_value(_metadata, a), read_value(_metadata, b) + 10 * LOOPS);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* What perf stat does with a workload: the events start at exec. */
TEST_F(dup_inherit, enable_on_exec)
{
	struct dup_test *t = &self->t;
	int a, b, ref;
	__u64 value;

	self->attr.disabled = 1;
	self->attr.enable_on_exec = 1;
	self->ref_attr.disabled = 1;
	self->ref_attr.enable_on_exec = 1;
	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	ref = open_event(_metadata, &t->a, &self->ref_attr, self->target);

	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(0U, read_value(_metadata, a));
	EXPECT_EQ(0U, read_value(_metadata, b));

	worker_ends(_metadata, &t->worker, WORK_EXEC);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, LOOPS);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* One is enabled at exec while the other already counts. */
TEST_F(dup_inherit, enable_on_exec_joins)
{
	struct perf_event_attr late = self->attr;
	struct dup_test *t = &self->t;
	__u64 before, value;
	int a, b, ref;

	late.disabled = 1;
	late.enable_on_exec = 1;
	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &late, self->target);
	ref = open_event(_metadata, &t->a, &self->ref_attr, self->target);

	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
	EXPECT_EQ(0U, read_value(_metadata, b));
	before = read_value(_metadata, ref);

	worker_ends(_metadata, &t->worker, WORK_EXEC);
	value = read_value(_metadata, ref);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_GE(read_value(_metadata, b), LOOPS);
	EXPECT_LE(read_value(_metadata, b), value - before);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* One is removed at exec, the other goes on. dup_exec has the exact counts. */
TEST_F(dup_inherit, remove_on_exec)
{
	struct perf_event_attr removed = self->attr;
	struct dup_test *t = &self->t;
	__u64 before, value;
	int a, b, ref;

	/* It is the worker's own event that is removed. */
	removed.inherit = 0;
	removed.inherit_stat = 0;
	removed.remove_on_exec = 1;
	a = open_event(_metadata, &t->a, &removed, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	ref = open_event(_metadata, &t->a, &self->ref_attr, self->target);

	worker_runs(_metadata, &t->worker);
	before = read_value(_metadata, ref);
	EXPECT_EQ(before, read_value(_metadata, a));
	EXPECT_EQ(before, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));

	worker_ends(_metadata, &t->worker, WORK_EXEC);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, before + LOOPS);
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(b));
	EXPECT_GE(read_value(_metadata, a), before);
	EXPECT_LT(read_value(_metadata, a), value - LOOPS);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], BURN_ARGUMENT)) {
		burn(LOOPS);
		return 0;
	}

	return test_harness_run(argc, argv);
}
