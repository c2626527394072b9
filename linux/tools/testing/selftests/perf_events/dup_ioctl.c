// SPDX-License-Identifier: GPL-2.0
/*
 * What is done to one of two events that share leaves the other alone, and each
 * counts what happens from its own beginning. All on one task that does not run
 * meanwhile, so that counts are equal to those of an event that does not share.
 */
#include "dup.h"

FIXTURE(dup_ioctl)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct target		target;
	int			a;
	int			b;
	/* Counts what @a and @b do; nothing but reads is done to it. */
	int			ref;
};

FIXTURE_VARIANT(dup_ioctl)
{
	bool			user_only;
};

FIXTURE_VARIANT_ADD(dup_ioctl, user)
{
	.user_only = true,
};

FIXTURE_VARIANT_ADD(dup_ioctl, user_and_kernel)
{
	.user_only = false,
};

FIXTURE_SETUP(dup_ioctl)
{
	struct perf_event_attr ref_attr;
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t))
		return;

	self->attr = variant->user_only ? user_instructions() : instructions();
	ref_attr = reference(self->attr);

	self->target = on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, 2);
	self->a = open_event(_metadata, &t->a, &self->attr, self->target);
	self->b = open_event(_metadata, &t->b, &self->attr, self->target);
	self->ref = open_event(_metadata, &t->a, &ref_attr, self->target);
	worker_runs(_metadata, &t->worker);
}

FIXTURE_TEARDOWN(dup_ioctl)
{
	dup_teardown(_metadata, &self->t);
}

/* @a and @b have been equal to the reference but for what they missed of it. */
#define EXPECT_COUNTS(missed_a, missed_b) do {					\
	__u64 value = read_value(_metadata, self->ref);				\
										\
	EXPECT_EQ(value - (missed_a), read_value(_metadata, self->a));		\
	EXPECT_EQ(value - (missed_b), read_value(_metadata, self->b));		\
	EXPECT_TRUE(runs_always(self->a));						\
	EXPECT_TRUE(runs_always(self->b));						\
} while (0)

TEST_F(dup_ioctl, reset)
{
	struct dup_test *t = &self->t;
	__u64 missed;

	EXPECT_COUNTS(0, 0);
	missed = read_value(_metadata, self->ref);
	EXPECT_GE(missed, LOOPS);
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_RESET, 0));
	EXPECT_EQ(0U, read_value(_metadata, self->a));
	EXPECT_COUNTS(missed, 0);
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(missed, 0);
	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_RESET, 0));
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, self->b), LOOPS);
	EXPECT_LT(read_value(_metadata, self->b), read_value(_metadata, self->a));
}

TEST_F(dup_ioctl, disable)
{
	struct dup_test *t = &self->t;
	__u64 before, missed;

	before = read_value(_metadata, self->ref);
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_DISABLE, 0));
	worker_runs(_metadata, &t->worker);
	missed = read_value(_metadata, self->ref) - before;
	EXPECT_GE(missed, LOOPS);
	EXPECT_COUNTS(missed, 0);

	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_ENABLE, 0));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(missed, 0);
}

/* Nobody counts for a while. */
TEST_F(dup_ioctl, disable_both)
{
	struct dup_test *t = &self->t;
	__u64 before, missed;

	before = read_value(_metadata, self->ref);
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_DISABLE, 0));
	worker_runs(_metadata, &t->worker);
	missed = read_value(_metadata, self->ref) - before;
	EXPECT_GE(missed, LOOPS);

	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_ENABLE, 0));
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_ENABLE, 0));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(missed, missed);
}

/* Enabling what is enabled and disabling what is disabled changes nothing. */
TEST_F(dup_ioctl, twice)
{
	struct dup_test *t = &self->t;
	__u64 before, missed;

	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_ENABLE, 0));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(0, 0);

	before = read_value(_metadata, self->ref);
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_DISABLE, 0));
	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_DISABLE, 0));
	worker_runs(_metadata, &t->worker);
	missed = read_value(_metadata, self->ref) - before;
	EXPECT_COUNTS(missed, 0);
}

TEST_F(dup_ioctl, close)
{
	struct dup_test *t = &self->t;

	close(self->a);
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(read_value(_metadata, self->ref), read_value(_metadata, self->b));
	EXPECT_TRUE(runs_always(self->b));
}

/* One that joins when much has been counted is not credited with it. */
TEST_F(dup_ioctl, join)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct opener other;
	__u64 before;

	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
	close(self->b);
	before = read_value(_metadata, self->ref);
	start_opener(_metadata, &other);
	self->b = open_event(_metadata, &other, &attr, self->target);
	EXPECT_EQ(0U, read_value(_metadata, self->b));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(0, before);
}

/* The same on a CPU, where the counter runs at that moment. */
TEST_F(dup_ioctl, join_on_cpu)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 before, value, after;
	int a, b, i;

	/* The counter of the reference goes to another event. */
	close(self->a);
	close(self->b);
	close(self->ref);
	attr = reference(attr);
	open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));
	attr = self->attr;
	a = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);

	for (i = 0; i < 3; i++) {
		before = read_value(_metadata, a);
		EXPECT_GE(before, 10 * LOOPS);
		b = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));
		value = read_value(_metadata, b);
		after = read_value(_metadata, a);
		EXPECT_LE(value, after - before);
		EXPECT_TRUE(runs_always(a));
		EXPECT_TRUE(runs_always(b));
		close(b);
	}
}

/* Reset, disable and enable on a CPU, where the counter runs at that moment. */
TEST_F(dup_ioctl, control_on_cpu)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	__u64 before, value, after;
	struct bracket from, to;
	int a, b, ref;

	/* The counters of the fixture become those of the reference and the rest. */
	close(self->a);
	close(self->b);
	close(self->ref);
	a = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	b = open_event(_metadata, &t->b, &attr, on_cpu(t->cpu));
	attr = reference(attr);
	ref = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	from = read_bracket(_metadata, ref, b);

	worker_runs(_metadata, &t->worker);
	before = read_value(_metadata, b);
	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_RESET, 0));
	value = read_value(_metadata, a);
	after = read_value(_metadata, b);
	EXPECT_LE(value, after - before);

	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_DISABLE, 0));
	before = read_value(_metadata, a);
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(before, read_value(_metadata, a));
	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_ENABLE, 0));
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, a), before + LOOPS);

	to = read_bracket(_metadata, ref, b);
	expect_bracketed(_metadata, from, to);
	EXPECT_GE(to.inner - from.inner, 3 * LOOPS);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* Events that share are different events all the same. */
TEST_F(dup_ioctl, id)
{
	__u64 id_a, id_b, id_ref;

	ASSERT_EQ(0, ioctl(self->a, PERF_EVENT_IOC_ID, &id_a));
	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_ID, &id_b));
	ASSERT_EQ(0, ioctl(self->ref, PERF_EVENT_IOC_ID, &id_ref));
	EXPECT_NE(id_a, id_b);
	EXPECT_NE(id_a, id_ref);
	EXPECT_NE(id_b, id_ref);
}

/* Records of both in one buffer, which has nothing to do with the counter. */
TEST_F(dup_ioctl, set_output)
{
	size_t size = 2 * sysconf(_SC_PAGESIZE);
	struct dup_test *t = &self->t;
	void *ring;

	ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->a, 0);
	ASSERT_NE(ring, MAP_FAILED);
	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_SET_OUTPUT, (long)self->a));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(0, 0);

	ASSERT_EQ(0, ioctl(self->b, PERF_EVENT_IOC_SET_OUTPUT, -1L));
	ASSERT_EQ(0, munmap(ring, size));
	worker_runs(_metadata, &t->worker);
	EXPECT_COUNTS(0, 0);
}

/* A period would make it an event that does not share. */
TEST_F(dup_ioctl, period)
{
	__u64 period = 100000;

	EXPECT_EQ(-1, ioctl(self->a, PERF_EVENT_IOC_PERIOD, &period));
	EXPECT_EQ(EINVAL, errno);
	worker_runs(_metadata, &self->t.worker);
	EXPECT_COUNTS(0, 0);
}

TEST_HARNESS_MAIN
