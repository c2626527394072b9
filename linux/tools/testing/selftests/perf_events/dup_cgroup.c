// SPDX-License-Identifier: GPL-2.0
/*
 * cgroup events live on the CPU: those of two openers share, on one cgroup, on
 * different ones and with CPU-wide events. The tasks of the cgroups do not run
 * while the counts are read.
 */
#include "dup_cgroup.h"

FIXTURE(dup_cgroup)
{
	struct dup_test		t;
	struct worker		other;
	struct cgroups		c;
};

FIXTURE_SETUP(dup_cgroup)
{
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t) || !cgroups_setup(_metadata, &self->c, t))
		return;

	start_worker(_metadata, &self->other, t->cpu);
	wait_for_sleep(_metadata, &self->other);
}

FIXTURE_TEARDOWN(dup_cgroup)
{
	stop(&self->t.worker);
	stop(&self->other);
	cgroups_teardown(&self->c);
	dup_teardown(_metadata, &self->t);
}

TEST_F(dup_cgroup, two_openers)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_cgroup(self->c.parent.fd, t->cpu);
	int a, b, ref, i;
	__u64 value;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->a, &ref_attr, target);

	move_to(_metadata, &t->worker, self->c.parent.path);
	for (i = 1; i <= 5; i++) {
		worker_runs(_metadata, &t->worker);
		value = read_value(_metadata, ref);
		EXPECT_GE(value, i * LOOPS);
		EXPECT_EQ(value, read_value(_metadata, a));
		EXPECT_EQ(value, read_value(_metadata, b));
	}
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	/* Others do not count. */
	worker_runs(_metadata, &self->other);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));

	move_to(_metadata, &t->worker, self->c.root);
	value = read_value(_metadata, ref);
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(value, read_value(_metadata, ref));
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
}

/* The CPU-wide event counts what the cgroup counts, and more. */
TEST_F(dup_cgroup, beside_cpu_wide)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	__u64 from, to;
	int cpu, cgroup;

	leave_counters(_metadata, t, t->cpu, 1);
	cpu = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	cgroup = open_event(_metadata, &t->b, &attr, on_cgroup(self->c.parent.fd, t->cpu));

	move_to(_metadata, &t->worker, self->c.parent.path);
	from = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	to = read_value(_metadata, cpu);

	EXPECT_GE(read_value(_metadata, cgroup), LOOPS);
	EXPECT_LT(read_value(_metadata, cgroup), to - from);
	EXPECT_TRUE(runs_always(cpu));
	EXPECT_TRUE(runs_always(cgroup));

	worker_runs(_metadata, &self->other);
	EXPECT_GE(read_value(_metadata, cpu), to + LOOPS);
	EXPECT_LT(read_value(_metadata, cgroup), to - from);
}

/* Events on a cgroup count what runs in its children, too. */
TEST_F(dup_cgroup, nested)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	int parent, child, ref_parent, ref_child, i;
	__u64 value = 0;

	/* A counter for each reference and one to share. */
	leave_counters(_metadata, t, t->cpu, 3);
	parent = open_event(_metadata, &t->a, &attr, on_cgroup(self->c.parent.fd, t->cpu));
	child = open_event(_metadata, &t->b, &attr, on_cgroup(self->c.child[0].fd, t->cpu));
	ref_parent = open_event(_metadata, &t->b, &ref_attr,
				on_cgroup(self->c.parent.fd, t->cpu));
	ref_child = open_event(_metadata, &t->a, &ref_attr,
			       on_cgroup(self->c.child[0].fd, t->cpu));

	for (i = 0; i < 4; i++) {
		move_to(_metadata, &t->worker, i % 2 ? self->c.parent.path : self->c.child[0].path);
		worker_runs(_metadata, &t->worker);
		EXPECT_EQ(read_value(_metadata, ref_parent), read_value(_metadata, parent));
		EXPECT_EQ(read_value(_metadata, ref_child), read_value(_metadata, child));
		EXPECT_GE(read_value(_metadata, parent), (i + 1) * LOOPS);
		EXPECT_EQ(i % 2, read_value(_metadata, child) == value);
		value = read_value(_metadata, child);
	}
	EXPECT_TRUE(runs_always(parent));
	EXPECT_TRUE(runs_always(child));
}

/* Two cgroups take turns on the CPU, two openers count each of them. */
TEST_F(dup_cgroup, take_turns)
{
	struct work_order order = { .what = WORK_LOOP, .loops = 50 * LOOPS };
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct worker *worker[2] = { &t->worker, &self->other };
	int a[2], b[2], ref[2], cpu, i;
	struct target target;
	__u64 value;

	/* One for the reference of the cgroup that runs and one to share. */
	leave_counters(_metadata, t, t->cpu, 2);
	for (i = 0; i < 2; i++) {
		target = on_cgroup(self->c.child[i].fd, t->cpu);
		move_to(_metadata, worker[i], self->c.child[i].path);
		a[i] = open_event(_metadata, &t->a, &attr, target);
		b[i] = open_event(_metadata, &t->b, &attr, target);
		ref[i] = open_event(_metadata, &t->a, &ref_attr, target);
	}
	cpu = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));

	for (i = 0; i < 2; i++) {
		ASSERT_EQ((ssize_t)sizeof(order),
			  send(worker[i]->sock, &order, sizeof(order), 0));
	}
	for (i = 0; i < 2; i++) {
		ASSERT_EQ((ssize_t)sizeof(order),
			  recv(worker[i]->sock, &order, sizeof(order), 0));
		wait_for_sleep(_metadata, worker[i]);
	}

	for (i = 0; i < 2; i++) {
		value = read_value(_metadata, ref[i]);
		EXPECT_GE(value, 50 * LOOPS);
		EXPECT_EQ(value, read_value(_metadata, a[i]));
		EXPECT_EQ(value, read_value(_metadata, b[i]));
		EXPECT_TRUE(runs_always(a[i]));
		EXPECT_TRUE(runs_always(b[i]));
	}
	EXPECT_GE(read_value(_metadata, cpu),
		  read_value(_metadata, a[0]) + read_value(_metadata, a[1]));
	EXPECT_TRUE(runs_always(cpu));
}

/*
 * An event is enabled as long as a task of its cgroup runs, also if other events,
 * those which take the counters here, keep the time of the CPU's context going. If
 * nobody starts the time of the cgroup then its first event seems to be as old
 * as the machine, and if nobody stops it then so does a later one.
 */
TEST_F(dup_cgroup, times)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	struct target target = on_cgroup(self->c.child[0].fd, t->cpu);
	struct counts counts;
	__u64 from;
	int fd, i;

	if (!leave_cpu_to_workers(_metadata, t))
		SKIP(return, "needs two CPUs");
	leave_counters(_metadata, t, t->cpu, 1);
	move_to(_metadata, &t->worker, self->c.child[0].path);
	for (i = 0; i < 3; i++) {
		/* Its task sleeps. */
		fd = open_event(_metadata, &t->a, &attr, target);
		EXPECT_EQ(0U, read_counts(_metadata, fd).enabled);
		close(fd);

		/* It begins while the task runs, and is read when it sleeps again. */
		worker_begins(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
		usleep(5000);
		from = nanoseconds();
		fd = open_event(_metadata, &t->a, &attr, target);
		ASSERT_FALSE(worker_is_ready(&t->worker));
		worker_ready(_metadata, &t->worker);
		counts = read_counts(_metadata, fd);
		EXPECT_NE(0U, counts.enabled);
		EXPECT_LE(counts.enabled, nanoseconds() - from);
		EXPECT_EQ(counts.enabled, counts.running);
		close(fd);

		/* It ends while the task runs. */
		worker_begins(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
		usleep(5000);
		fd = open_event(_metadata, &t->a, &attr, target);
		usleep(1000);
		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_DISABLE, 0));
		counts = read_counts(_metadata, fd);
		EXPECT_NE(0U, counts.enabled);
		EXPECT_EQ(counts.enabled, counts.running);
		close(fd);
		ASSERT_FALSE(worker_is_ready(&t->worker));
		worker_ready(_metadata, &t->worker);
	}
}

/*
 * A task enables a pinned event of its own, for which the flexible events of the CPU
 * are scheduled anew. The cgroup's time goes on; if it was taken for ended, reads
 * would give the times of the last tick.
 */
TEST_F(dup_cgroup, times_beside_pinned)
{
	struct worker self_as_worker = { .pid = getpid() };
	struct perf_event_attr attr = instructions();
	struct perf_event_attr pinned_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct counts from, to;
	int fd, pinned, i, j;

	pinned_attr.disabled = 1;
	leave_counters(_metadata, t, t->cpu, 2);
	move_to(_metadata, &self_as_worker, self->c.child[0].path);
	fd = open_event(_metadata, &t->a, &attr, on_cgroup(self->c.child[0].fd, t->cpu));
	pinned = open_event(_metadata, &t->b, &pinned_attr, on_task(getpid()));

	for (i = 0; i < 4; i++) {
		usleep(1000);
		ASSERT_EQ(0, ioctl(pinned, PERF_EVENT_IOC_ENABLE, 0));
		for (j = 0; j < 5; j++) {
			from = read_counts(_metadata, fd);
			burn(LOOPS / 20);
			to = read_counts(_metadata, fd);
			EXPECT_GE(to.value, from.value + LOOPS / 20);
			EXPECT_LT(from.enabled, to.enabled);
			EXPECT_EQ(to.enabled, to.running);
		}
		ASSERT_EQ(0, ioctl(pinned, PERF_EVENT_IOC_DISABLE, 0));
	}
	move_to(_metadata, &self_as_worker, self->c.root);
}

/* A cgroup that is removed leaves its events with what they counted. */
TEST_F(dup_cgroup, removed)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_cgroup(self->c.child[0].fd, t->cpu);
	int a, b, ref, cpu;
	__u64 value, before;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->a, &ref_attr, target);
	cpu = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));

	move_to(_metadata, &t->worker, self->c.child[0].path);
	worker_runs(_metadata, &t->worker);
	move_to(_metadata, &t->worker, self->c.root);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, LOOPS);

	close(self->c.child[0].fd);
	ASSERT_EQ(0, rmdir(self->c.child[0].path));
	before = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, cpu), before + LOOPS);
	EXPECT_EQ(value, read_value(_metadata, ref));
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	close(a);
	close(ref);
	EXPECT_EQ(value, read_value(_metadata, b));
	close(b);
	before = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, cpu), before + LOOPS);
	EXPECT_TRUE(runs_always(cpu));
}

TEST_HARNESS_MAIN
