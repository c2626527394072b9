// SPDX-License-Identifier: GPL-2.0
/*
 * A CPU goes offline while events on it share a counter. Their counts stay, they
 * can be closed, and the CPU counts again when it is back.
 */
#include "dup.h"

FIXTURE(dup_hotplug)
{
	struct dup_test		t;
	/* The CPU that goes, not the one that the test runs on. */
	int			cpu;
	char			online[64];
};

FIXTURE_SETUP(dup_hotplug)
{
	struct dup_test *t = &self->t;
	cpu_set_t set;

	self->cpu = -1;
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(set), &set));
	if (!dup_setup(_metadata, t))
		return;

	for (self->cpu = CPU_SETSIZE - 1; self->cpu > t->cpu; self->cpu--) {
		if (!CPU_ISSET(self->cpu, &set))
			continue;
		snprintf(self->online, sizeof(self->online),
			 "/sys/devices/system/cpu/cpu%d/online", self->cpu);
		if (!access(self->online, W_OK))
			break;
	}
	if (self->cpu == t->cpu)
		SKIP(return, "no CPU can go offline");
	ASSERT_EQ(0, bind_to_cpu(t->worker.pid, self->cpu));
}

FIXTURE_TEARDOWN(dup_hotplug)
{
	if (self->cpu > self->t.cpu)
		EXPECT_EQ(0, write_string(self->online, "1"));
	dup_teardown(_metadata, &self->t);
}

/* Two openers on the CPU, with one counter left for them. */
static void count_both(struct __test_metadata *_metadata, struct dup_test *t, int cpu,
		       int *a, int *b)
{
	struct perf_event_attr attr = instructions();

	leave_counters(_metadata, t, cpu, 1);
	*a = open_event(_metadata, &t->a, &attr, on_cpu(cpu));
	*b = open_event(_metadata, &t->b, &attr, on_cpu(cpu));
	worker_runs(_metadata, &t->worker);
	EXPECT_TRUE(runs_always(*a));
	EXPECT_TRUE(runs_always(*b));
}

static void close_fillers(struct dup_test *t)
{
	int i;

	for (i = 0; i < MAX_COUNTERS; i++) {
		if (t->filler_fd[i] > 0)
			close(t->filler_fd[i]);
	}
}

TEST_F(dup_hotplug, off_and_on)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	int a, b, c, d, i;
	__u64 value;

	c = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));
	d = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));

	for (i = 0; i < 3; i++) {
		count_both(_metadata, t, self->cpu, &a, &b);
		ASSERT_EQ(0, write_string(self->online, "0"));
		value = read_value(_metadata, a);
		EXPECT_GE(value, LOOPS);
		EXPECT_GE(read_value(_metadata, b), LOOPS);

		/* The worker was moved, and nothing counts it there. */
		worker_runs(_metadata, &t->worker);
		EXPECT_EQ(value, read_value(_metadata, a));

		/* One goes while the CPU is away, the other when it is back. */
		close(a);
		ASSERT_EQ(0, write_string(self->online, "1"));
		EXPECT_GE(read_value(_metadata, b), LOOPS);
		close(b);
		close_fillers(t);
		ASSERT_EQ(0, bind_to_cpu(t->worker.pid, self->cpu));
	}

	EXPECT_TRUE(runs_always(c));
	EXPECT_TRUE(runs_always(d));
	value = read_value(_metadata, c);
	ASSERT_EQ(0, bind_to_cpu(t->worker.pid, t->cpu));
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, c), value + LOOPS);
}

/* A CPU that is away takes no new event, whoever else counts on it. */
TEST_F(dup_hotplug, open_while_off)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	int a, b;

	count_both(_metadata, t, self->cpu, &a, &b);
	ASSERT_EQ(0, write_string(self->online, "0"));
	EXPECT_EQ(-ENODEV, try_open(_metadata, &t->filler, &attr, on_cpu(self->cpu), -1));
	ASSERT_EQ(0, write_string(self->online, "1"));
	close(b);
	close(a);
}

/* Events that went with their CPU lead no group when it is back. */
TEST_F(dup_hotplug, leader_removed)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	int a, b;

	count_both(_metadata, t, self->cpu, &a, &b);
	ASSERT_EQ(0, write_string(self->online, "0"));
	ASSERT_EQ(0, write_string(self->online, "1"));
	EXPECT_EQ(-ENODEV, try_open(_metadata, &t->a, &attr, on_cpu(self->cpu), a));
	EXPECT_EQ(-ENODEV, try_open(_metadata, &t->b, &attr, on_cpu(self->cpu), b));
	close(b);
	close(a);
}

/* Task events go with their task to another CPU and go on there. */
TEST_F(dup_hotplug, task_moves)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_task(t->worker.pid);
	int a, b, ref;
	__u64 value;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->a, &ref_attr, target);

	worker_runs(_metadata, &t->worker);
	ASSERT_EQ(0, write_string(self->online, "0"));
	worker_runs(_metadata, &t->worker);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, 2 * LOOPS);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

TEST_HARNESS_MAIN
