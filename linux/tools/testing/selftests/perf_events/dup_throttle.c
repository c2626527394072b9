// SPDX-License-Identifier: GPL-2.0
/*
 * A sampling event that interrupts too often is throttled, and its group with
 * it: counting siblings stop as well. A sibling that shares its counter must not
 * stop it for the others.
 */
#include "dup_ring.h"

#define MAX_SAMPLE_RATE	"/proc/sys/kernel/perf_event_max_sample_rate"

#define RING_PAGES	32
#define PERIOD		10000
#define MANY_LOOPS	(50 * LOOPS)

/* Samples of a leader with one sibling, see perf_output_read_group(). */
struct group_read {
	__u64			nr;
	__u64			enabled;
	__u64			running;
	struct {
		__u64		value;
		__u64		id;
	}			member[2];
};

FIXTURE(dup_throttle)
{
	struct dup_test		t;
	long			rate;
	struct ring		ring;
	/* One opener's group; the other opener's event equals the sibling. */
	int			leader;
	int			sibling;
	int			other;
	int			ref;
};

FIXTURE_VARIANT(dup_throttle)
{
	bool			cpu_wide;
	/* The other opener's event is there before the group. */
	bool			other_first;
};

FIXTURE_VARIANT_ADD(dup_throttle, task)
{
	.other_first = true,
};

FIXTURE_VARIANT_ADD(dup_throttle, task_other_joins)
{
	.other_first = false,
};

FIXTURE_VARIANT_ADD(dup_throttle, cpu)
{
	.cpu_wide = true,
	.other_first = true,
};

FIXTURE_SETUP(dup_throttle)
{
	struct perf_event_attr attr = user_instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct perf_event_attr leader_attr = attr;
	struct dup_test *t = &self->t;
	struct target target;

	self->rate = -1;
	if (!dup_setup(_metadata, t))
		return;

	/* Each tick, the leader is throttled after a few samples. */
	self->rate = read_long(MAX_SAMPLE_RATE);
	if (write_long(MAX_SAMPLE_RATE, 1000))
		SKIP(return, "cannot write " MAX_SAMPLE_RATE);

	leader_attr.disabled = 1;
	leader_attr.sample_period = PERIOD;
	leader_attr.sample_type = PERF_SAMPLE_READ;
	leader_attr.read_format |= PERF_FORMAT_GROUP | PERF_FORMAT_ID;

	target = variant->cpu_wide ? on_cpu(t->cpu) : on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, 3);
	if (variant->other_first)
		self->other = open_event(_metadata, &t->b, &attr, target);
	self->leader = open_event(_metadata, &t->a, &leader_attr, target);
	self->sibling = open_in_group(_metadata, &t->a, &attr, target, self->leader);
	if (!variant->other_first)
		self->other = open_event(_metadata, &t->b, &attr, target);
	self->ref = open_event(_metadata, &t->b, &ref_attr, target);

	map_ring(_metadata, &self->ring, self->leader, RING_PAGES);

	/* Leader and sibling start together. */
	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_ENABLE, 0));
}

FIXTURE_TEARDOWN(dup_throttle)
{
	if (self->rate >= 0)
		EXPECT_EQ(0, write_long(MAX_SAMPLE_RATE, self->rate));
	dup_teardown(_metadata, &self->t);
}

/*
 * Checks the values in all samples: leader and sibling count the same, they stop
 * together and the PMU stands still while a sample is taken, so they are equal.
 */
static void check_ring(struct __test_metadata *_metadata, struct ring *ring,
		       unsigned int *throttled)
{
	struct ring samples = *ring, throttles = *ring;
	struct perf_event_header *header;
	struct group_read *sample;
	unsigned int nr = 0;
	__u64 last = 0;

	for (*throttled = 0; next_record(_metadata, &throttles, PERF_RECORD_THROTTLE);)
		(*throttled)++;

	while ((header = next_record(_metadata, &samples, PERF_RECORD_SAMPLE))) {
		ASSERT_EQ(header->size, sizeof(*header) + sizeof(*sample));
		sample = (struct group_read *)(header + 1);
		ASSERT_EQ(2U, sample->nr);
		EXPECT_GT(sample->member[0].value, last);
		EXPECT_EQ(sample->member[0].value, sample->member[1].value);
		last = sample->member[0].value;
		nr++;
	}

	EXPECT_GT(nr, *throttled);
}

TEST_F(dup_throttle, other_goes_on)
{
	struct dup_test *t = &self->t;
	struct bracket from, to;
	struct group_read group;
	unsigned int throttled;

	from = read_bracket(_metadata, self->ref, self->other);
	worker_does(_metadata, &t->worker, WORK_CALL, MANY_LOOPS);
	to = read_bracket(_metadata, self->ref, self->other);

	EXPECT_TRUE(runs_always(self->other));
	EXPECT_TRUE(runs_always(self->leader));
	EXPECT_GE(to.inner - from.inner, MANY_LOOPS);
	expect_bracketed(_metadata, from, to);

	/* The group lost what came while it was throttled. */
	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	check_ring(_metadata, &self->ring, &throttled);
	ASSERT_GT(throttled, 1U)
		TH_LOG("the leader was not throttled, nothing was tested");
	ASSERT_EQ((ssize_t)sizeof(group), read(self->leader, &group, sizeof(group)));
	EXPECT_EQ(group.member[0].value, group.member[1].value);
	EXPECT_GT(group.member[0].value, (__u64)throttled * PERIOD);
	EXPECT_LT(group.member[0].value, to.inner);

	/* Without the group nothing stops. */
	from = read_bracket(_metadata, self->ref, self->other);
	worker_runs(_metadata, &t->worker);
	to = read_bracket(_metadata, self->ref, self->other);
	expect_bracketed(_metadata, from, to);
	EXPECT_GE(to.inner - from.inner, LOOPS);
}

/* The other one leaves while the group is throttled, the sibling goes on. */
TEST_F(dup_throttle, other_leaves)
{
	struct dup_test *t = &self->t;
	struct group_read before, after;
	unsigned int throttled;

	worker_does(_metadata, &t->worker, WORK_CALL, MANY_LOOPS);
	close(self->other);
	ASSERT_EQ((ssize_t)sizeof(before), read(self->leader, &before, sizeof(before)));
	worker_does(_metadata, &t->worker, WORK_CALL, MANY_LOOPS);

	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	check_ring(_metadata, &self->ring, &throttled);
	ASSERT_GT(throttled, 1U)
		TH_LOG("the leader was not throttled, nothing was tested");
	ASSERT_EQ((ssize_t)sizeof(after), read(self->leader, &after, sizeof(after)));
	EXPECT_GT(after.member[1].value, before.member[1].value);
	EXPECT_EQ(after.member[0].value, after.member[1].value);
	EXPECT_TRUE(runs_always(self->leader));
}

TEST_HARNESS_MAIN
