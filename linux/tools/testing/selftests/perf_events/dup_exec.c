// SPDX-License-Identifier: GPL-2.0
/*
 * Events that begin or end at exec. The task stops there, in the middle of the
 * exec, and what a reference has counted by then is what came before. Only
 * instructions of user space count, so all of the exec is one instant.
 */
#include "dup.h"

FIXTURE(dup_exec)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct target		target;
	/* Counts all the time. */
	int			ref;
};

FIXTURE_VARIANT(dup_exec)
{
	/* A child does the exec, with events that it inherited. */
	bool			child;
};

FIXTURE_VARIANT_ADD(dup_exec, task)
{
	.child = false,
};

FIXTURE_VARIANT_ADD(dup_exec, child)
{
	.child = true,
};

FIXTURE_SETUP(dup_exec)
{
	struct perf_event_attr ref_attr;
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t))
		return;

	self->attr = user_instructions();
	self->attr.inherit = variant->child;
	self->target = on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, 2);

	ref_attr = reference(self->attr);
	self->ref = open_event(_metadata, &t->filler, &ref_attr, self->target);
}

FIXTURE_TEARDOWN(dup_exec)
{
	dup_teardown(_metadata, &self->t);
}

static void work_until_exec(struct __test_metadata *_metadata, struct worker *worker,
			    bool child)
{
	int status;

	if (child) {
		worker_does(_metadata, worker, WORK_FORK_EXEC, LOOPS);
		return;
	}
	worker_begins(_metadata, worker, WORK_STOP_AT_EXEC, LOOPS);
	ASSERT_EQ(worker->pid, waitpid(worker->pid, &status, 0));
	ASSERT_TRUE(WIFSTOPPED(status));
}

static void work_after_exec(struct __test_metadata *_metadata, struct worker *worker,
			    bool child)
{
	int status;

	if (child) {
		worker_does(_metadata, worker, WORK_GO_ON, 0);
		return;
	}
	ASSERT_EQ(0, ptrace(PTRACE_CONT, worker->pid, NULL, NULL));
	ASSERT_EQ(worker->pid, waitpid(worker->pid, &status, 0));
	ASSERT_EQ(0, status);
}

/* Both end: what they counted last must not be lost. */
TEST_F(dup_exec, remove)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 value;
	int a, b;

	attr.remove_on_exec = 1;
	a = open_event(_metadata, &t->a, &attr, self->target);
	b = open_event(_metadata, &t->b, &attr, self->target);

	work_until_exec(_metadata, &t->worker, variant->child);
	value = read_value(_metadata, self->ref);
	EXPECT_GE(value, LOOPS);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	/* The worker's own events are still there when a child does the exec. */
	value = read_value(_metadata, a);
	work_after_exec(_metadata, &t->worker, variant->child);
	EXPECT_EQ(read_value(_metadata, a), read_value(_metadata, b));
	EXPECT_LT(read_value(_metadata, a), value + LOOPS);
	if (!variant->child)
		EXPECT_EQ(value, read_value(_metadata, a));
}

/* The one that stays counts on, through the same counter. */
TEST_F(dup_exec, remove_one)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 value;
	int a, b;

	b = open_event(_metadata, &t->b, &attr, self->target);
	attr.remove_on_exec = 1;
	a = open_event(_metadata, &t->a, &attr, self->target);

	work_until_exec(_metadata, &t->worker, variant->child);
	value = read_value(_metadata, self->ref);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));

	work_after_exec(_metadata, &t->worker, variant->child);
	EXPECT_GE(read_value(_metadata, self->ref), value + LOOPS);
	EXPECT_EQ(read_value(_metadata, self->ref), read_value(_metadata, b));
	EXPECT_LT(read_value(_metadata, a), value + LOOPS);
	EXPECT_TRUE(runs_always(b));
}

/* Both begin at exec, with one counter for the two. */
TEST_F(dup_exec, enable)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 value, worker;
	int a, b;

	attr.disabled = 1;
	attr.enable_on_exec = 1;
	a = open_event(_metadata, &t->a, &attr, self->target);
	b = open_event(_metadata, &t->b, &attr, self->target);

	work_until_exec(_metadata, &t->worker, variant->child);
	EXPECT_EQ(0U, read_value(_metadata, a));
	EXPECT_EQ(0U, read_value(_metadata, b));
	value = read_value(_metadata, self->ref);

	work_after_exec(_metadata, &t->worker, variant->child);
	value = read_value(_metadata, self->ref) - value;
	EXPECT_GE(read_value(_metadata, a), LOOPS);
	EXPECT_EQ(read_value(_metadata, a), read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
	/* The worker's own events are off, but it did little. */
	worker = value - read_value(_metadata, a);
	EXPECT_LE(worker, variant->child ? LOOPS : 0);
}

/* One ends where the other begins. */
TEST_F(dup_exec, hand_over)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 value;
	int a, b;

	attr.remove_on_exec = 1;
	a = open_event(_metadata, &t->a, &attr, self->target);
	attr.remove_on_exec = 0;
	attr.disabled = 1;
	attr.enable_on_exec = 1;
	b = open_event(_metadata, &t->b, &attr, self->target);

	work_until_exec(_metadata, &t->worker, variant->child);
	value = read_value(_metadata, self->ref);
	EXPECT_GE(value, LOOPS);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(0U, read_value(_metadata, b));

	work_after_exec(_metadata, &t->worker, variant->child);
	EXPECT_GE(read_value(_metadata, b), LOOPS);
	EXPECT_EQ(read_value(_metadata, self->ref),
		  read_value(_metadata, a) + read_value(_metadata, b));
	EXPECT_TRUE(runs_always(b));
}

FIXTURE(dup_exec_child)
{
	struct dup_test		t;
};

FIXTURE_SETUP(dup_exec_child)
{
	dup_setup(_metadata, &self->t);
}

FIXTURE_TEARDOWN(dup_exec_child)
{
	dup_teardown(_metadata, &self->t);
}

/*
 * The exec in a child, to the end of its events. The kernel removes the latest
 * event of a task first: what that one has counted is the least that the
 * inherited ones have. What they counted in the worker is that of an event that
 * is not inherited.
 */
TEST_F(dup_exec_child, remove_to_the_end)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	__u64 before_a, before_b, before_worker, last, in_worker;
	int a, b, worker, first;
	pid_t child;

	leave_counters(_metadata, t, t->cpu, 3);
	attr.remove_on_exec = 1;
	attr.inherit = 1;
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	attr = reference(instructions());
	worker = open_event(_metadata, &t->filler, &attr, target);

	child = worker_does(_metadata, &t->worker, WORK_FORK_STOP, LOOPS);
	attr.remove_on_exec = 1;
	first = open_event(_metadata, &t->filler, &attr, on_task(child));
	before_a = read_value(_metadata, a);
	before_b = read_value(_metadata, b);
	before_worker = read_value(_metadata, worker);
	EXPECT_EQ(before_a, before_b);

	worker_does(_metadata, &t->worker, WORK_GO_ON, 0);
	last = read_value(_metadata, first);
	in_worker = read_value(_metadata, worker) - before_worker;
	EXPECT_GE(last, LOOPS);
	EXPECT_GE(read_value(_metadata, a) - before_a - in_worker, last);
	EXPECT_GE(read_value(_metadata, b) - before_b - in_worker, last);
	worker_does(_metadata, &t->worker, WORK_GO_ON, 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], BURN_ARGUMENT)) {
		burn(LOOPS);
		return 0;
	}

	return test_harness_run(argc, argv);
}
