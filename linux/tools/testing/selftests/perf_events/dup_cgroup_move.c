// SPDX-License-Identifier: GPL-2.0
/*
 * A task moves between cgroups whose events share a counter. It is alone in
 * them, so that together they count what an event on the task counts.
 */
#include "dup_cgroup.h"

#define NR_MOVES	12

FIXTURE(dup_cgroup_move)
{
	struct dup_test		t;
	struct cgroups		c;
	/* Two openers' events on the parent and its children, and the task's. */
	int			parent[2];
	int			child[2][2];
	int			ref;
};

FIXTURE_SETUP(dup_cgroup_move)
{
	struct perf_event_attr attr = user_instructions();
	struct dup_test *t = &self->t;
	struct opener *opener;
	int i;

	if (!dup_setup(_metadata, t) || !cgroups_setup(_metadata, &self->c, t))
		return;

	leave_counters(_metadata, t, t->cpu, 2);
	for (i = 0; i < 2; i++) {
		opener = i ? &t->b : &t->a;
		self->child[0][i] = open_event(_metadata, opener, &attr,
					       on_cgroup(self->c.child[0].fd, t->cpu));
		self->parent[i] = open_event(_metadata, opener, &attr,
					     on_cgroup(self->c.parent.fd, t->cpu));
		self->child[1][i] = open_event(_metadata, opener, &attr,
					       on_cgroup(self->c.child[1].fd, t->cpu));
	}
	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, on_task(t->worker.pid));
}

FIXTURE_TEARDOWN(dup_cgroup_move)
{
	stop(&self->t.worker);
	cgroups_teardown(&self->c);
	dup_teardown(_metadata, &self->t);
}

/* What the task did, of which @outside was not in a child. */
#define EXPECT_SUMS(outside) do {						\
	__u64 value = read_value(_metadata, self->ref);				\
	int i;									\
										\
	for (i = 0; i < 2; i++) {						\
		EXPECT_EQ(value, read_value(_metadata, self->parent[i]));	\
		EXPECT_EQ(value - (outside),					\
			  read_value(_metadata, self->child[0][i]) +		\
			  read_value(_metadata, self->child[1][i]));		\
	}									\
	EXPECT_EQ(read_value(_metadata, self->child[0][0]),			\
		  read_value(_metadata, self->child[0][1]));			\
} while (0)

#define EXPECT_ALWAYS() do {							\
	int i;									\
										\
	for (i = 0; i < 2; i++) {						\
		EXPECT_TRUE(runs_always(self->parent[i]));			\
		EXPECT_TRUE(runs_always(self->child[0][i]));			\
		EXPECT_TRUE(runs_always(self->child[1][i]));			\
	}									\
} while (0)

/* The task sleeps while it is moved. */
TEST_F(dup_cgroup_move, asleep)
{
	struct dup_test *t = &self->t;
	__u64 last[2] = {};
	int i;

	for (i = 0; i < NR_MOVES; i++) {
		move_to(_metadata, &t->worker, self->c.child[i % 2].path);
		worker_runs(_metadata, &t->worker);
		EXPECT_SUMS(0);
		EXPECT_GE(read_value(_metadata, self->child[i % 2][0]), last[i % 2] + LOOPS);
		EXPECT_EQ(read_value(_metadata, self->child[!(i % 2)][0]), last[!(i % 2)]);
		last[i % 2] = read_value(_metadata, self->child[i % 2][0]);
	}
	EXPECT_ALWAYS();
}

/* It also stays in the parent, whose event counts all along. */
TEST_F(dup_cgroup_move, nested)
{
	struct cgroup *where[] = { &self->c.parent, &self->c.child[0],
				   &self->c.parent, &self->c.child[1] };
	struct dup_test *t = &self->t;
	__u64 outside = 0, before;
	int i;

	for (i = 0; i < NR_MOVES; i++) {
		before = read_value(_metadata, self->ref);
		move_to(_metadata, &t->worker, where[i % 4]->path);
		worker_runs(_metadata, &t->worker);
		if (i % 2 == 0)
			outside += read_value(_metadata, self->ref) - before;
		EXPECT_SUMS(outside);
	}
	EXPECT_ALWAYS();
}

/* It wants to run, and waits for the CPU while it is moved. */
TEST_F(dup_cgroup_move, runnable)
{
	struct dup_test *t = &self->t;
	int i;

	move_to(_metadata, &t->worker, self->c.child[0].path);
	worker_begins(_metadata, &t->worker, WORK_CALL, 50 * LOOPS);
	for (i = 1; i < NR_MOVES; i++) {
		usleep(5000);
		ASSERT_FALSE(worker_is_ready(&t->worker));
		move_to(_metadata, &t->worker, self->c.child[i % 2].path);
		EXPECT_SUMS(0);
	}
	worker_ready(_metadata, &t->worker);
	EXPECT_SUMS(0);
	EXPECT_GT(read_value(_metadata, self->child[0][0]), 0U);
	EXPECT_GE(read_value(_metadata, self->child[1][0]), LOOPS);
	EXPECT_ALWAYS();
}

/* It runs while it is moved, from another CPU. */
TEST_F(dup_cgroup_move, running)
{
	struct dup_test *t = &self->t;
	int i;

	if (!leave_cpu(t->cpu))
		SKIP(return, "needs two CPUs");

	move_to(_metadata, &t->worker, self->c.child[0].path);
	worker_begins(_metadata, &t->worker, WORK_CALL, 50 * LOOPS);
	for (i = 1; i < NR_MOVES; i++) {
		usleep(3000);
		ASSERT_FALSE(worker_is_ready(&t->worker));
		move_to(_metadata, &t->worker, self->c.child[i % 2].path);
	}
	worker_ready(_metadata, &t->worker);
	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));
	EXPECT_SUMS(0);
	EXPECT_GE(read_value(_metadata, self->child[0][0]), LOOPS);
	EXPECT_GE(read_value(_metadata, self->child[1][0]), LOOPS);
	EXPECT_ALWAYS();
}

/* What dead tasks counted stays, also when their cgroup is gone. */
TEST_F(dup_cgroup_move, dead)
{
	struct dup_test *t = &self->t;

	move_to(_metadata, &t->worker, self->c.child[0].path);
	worker_runs(_metadata, &t->worker);
	move_to(_metadata, &t->worker, self->c.child[1].path);
	worker_ends(_metadata, &t->worker, WORK_EXIT);
	EXPECT_GE(read_value(_metadata, self->ref), LOOPS);
	EXPECT_SUMS(0);
	EXPECT_ALWAYS();

	ASSERT_EQ(0, rmdir(self->c.child[1].path));
	ASSERT_EQ(0, rmdir(self->c.child[0].path));
	EXPECT_SUMS(0);
	close(self->child[1][0]);
	EXPECT_EQ(read_value(_metadata, self->ref),
		  read_value(_metadata, self->child[0][1]) +
		  read_value(_metadata, self->child[1][1]));
}

/* What it forks is counted in the cgroup where that was made. */
TEST_F(dup_cgroup_move, children)
{
	struct perf_event_attr attr = user_instructions();
	struct dup_test *t = &self->t;

	close(self->ref);
	attr.inherit = 1;
	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, on_task(t->worker.pid));

	move_to(_metadata, &t->worker, self->c.child[0].path);
	worker_begins(_metadata, &t->worker, WORK_FORK, 50 * LOOPS);
	usleep(20000);
	ASSERT_FALSE(worker_is_ready(&t->worker));
	move_to(_metadata, &t->worker, self->c.child[1].path);
	worker_ready(_metadata, &t->worker);
	worker_does(_metadata, &t->worker, WORK_FORK, LOOPS);
	EXPECT_SUMS(0);
	EXPECT_GE(read_value(_metadata, self->child[0][0]), LOOPS);
	EXPECT_GE(read_value(_metadata, self->child[1][0]), LOOPS);
	EXPECT_ALWAYS();
}

TEST_HARNESS_MAIN
