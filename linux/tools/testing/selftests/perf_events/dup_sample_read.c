// SPDX-License-Identifier: GPL-2.0
/*
 * A sampling event whose records have the counts of its siblings, which share
 * with another opener's events. The siblings are read in the PMU's interrupt.
 */
#include "dup_ring.h"

#define RING_PAGES	64
#define PERIOD		100000
#define NR_SIBLINGS	3
#define MANY_LOOPS	(50 * LOOPS)

struct group_read {
	__u64			nr;
	__u64			enabled;
	__u64			running;
	struct {
		__u64		value;
		__u64		id;
	}			member[1 + NR_SIBLINGS];
};

struct sample {
	struct perf_event_header header;
	struct group_read	group;
};

FIXTURE(dup_sample_read)
{
	struct dup_test		t;
	struct target		target;
	struct perf_event_attr	attr[NR_SIBLINGS];
	int			leader;
	int			sibling[NR_SIBLINGS];
	int			other[NR_SIBLINGS];
	int			ref;
	__u64			id[1 + NR_SIBLINGS];
	struct ring		ring;
};

FIXTURE_VARIANT(dup_sample_read)
{
	bool			cpu_wide;
	/* The other opener's events are there before the group. */
	bool			other_first;
};

FIXTURE_VARIANT_ADD(dup_sample_read, task)
{
	.other_first = false,
};

FIXTURE_VARIANT_ADD(dup_sample_read, task_other_first)
{
	.other_first = true,
};

FIXTURE_VARIANT_ADD(dup_sample_read, cpu)
{
	.cpu_wide = true,
};

FIXTURE_VARIANT_ADD(dup_sample_read, cpu_other_first)
{
	.cpu_wide = true,
	.other_first = true,
};

static void open_others(struct __test_metadata *_metadata, struct opener *opener,
			const struct perf_event_attr *attr, struct target target, int *fd)
{
	int i;

	for (i = 0; i < NR_SIBLINGS; i++)
		fd[i] = open_event(_metadata, opener, &attr[i], target);
}

/* The first sibling counts what the leader does, the others something else. */
FIXTURE_SETUP(dup_sample_read)
{
	struct perf_event_attr attr = user_instructions();
	struct dup_test *t = &self->t;
	int i;

	if (!dup_setup(_metadata, t))
		return;

	self->attr[0] = user_instructions();
	self->attr[1] = user_instructions();
	self->attr[1].config = PERF_COUNT_HW_CPU_CYCLES;
	self->attr[2] = instructions();

	self->target = variant->cpu_wide ? on_cpu(t->cpu) : on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, 2 + NR_SIBLINGS);
	if (variant->other_first)
		open_others(_metadata, &t->b, self->attr, self->target, self->other);

	attr.disabled = 1;
	attr.sample_period = PERIOD;
	attr.sample_type = PERF_SAMPLE_READ;
	attr.read_format |= PERF_FORMAT_GROUP | PERF_FORMAT_ID;
	self->leader = open_event(_metadata, &t->a, &attr, self->target);
	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_ID, &self->id[0]));
	for (i = 0; i < NR_SIBLINGS; i++) {
		self->sibling[i] = open_in_group(_metadata, &t->a, &self->attr[i],
						 self->target, self->leader);
		ASSERT_EQ(0, ioctl(self->sibling[i], PERF_EVENT_IOC_ID, &self->id[1 + i]));
	}
	attr = reference(user_instructions());
	self->ref = open_event(_metadata, &t->filler, &attr, self->target);
	if (!variant->other_first)
		open_others(_metadata, &t->b, self->attr, self->target, self->other);

	map_ring(_metadata, &self->ring, self->leader, RING_PAGES);
}

FIXTURE_TEARDOWN(dup_sample_read)
{
	dup_teardown(_metadata, &self->t);
}

/*
 * Checks all records, and the group's last read against them. Leader and first
 * sibling stand still while the kernel makes a record of them.
 */
static void check_records(struct __test_metadata *_metadata, struct ring *ring, int leader,
			  const __u64 *id)
{
	struct group_read *group, last = {};
	struct perf_event_header *header;
	unsigned int samples = 0;
	int i;

	while ((header = next_record(_metadata, ring, PERF_RECORD_SAMPLE))) {
		ASSERT_EQ(header->size, sizeof(struct sample));
		group = &((struct sample *)header)->group;
		ASSERT_EQ(1U + NR_SIBLINGS, group->nr);
		EXPECT_EQ(group->enabled, group->running);
		EXPECT_GE(group->enabled, last.enabled);
		EXPECT_EQ(group->member[0].value, group->member[1].value);
		for (i = 0; i <= NR_SIBLINGS; i++) {
			EXPECT_EQ(id[i], group->member[i].id);
			EXPECT_GT(group->member[i].value, last.member[i].value);
		}
		/* The kernel's instructions come on top. */
		EXPECT_GE(group->member[3].value - last.member[3].value,
			  group->member[1].value - last.member[1].value);
		last = *group;
		samples++;
		EXPECT_GE(group->member[0].value, (__u64)samples * PERIOD);
		if (!__test_passed(_metadata)) {
			TH_LOG("in sample %u", samples);
			return;
		}
	}

	EXPECT_GE(samples, MANY_LOOPS / PERIOD);
	ring->pos = 0;
	EXPECT_EQ(NULL, next_record(_metadata, ring, PERF_RECORD_THROTTLE));

	group = malloc(sizeof(*group));
	ASSERT_EQ((ssize_t)sizeof(*group), read(leader, group, sizeof(*group)));
	EXPECT_EQ(group->member[0].value, group->member[1].value);
	for (i = 0; i <= NR_SIBLINGS; i++)
		EXPECT_GE(group->member[i].value, last.member[i].value);
	EXPECT_LT(group->member[0].value, (samples + 1ULL) * (PERIOD + PERIOD / 100));
	free(group);
}

TEST_F(dup_sample_read, records)
{
	struct bracket from, to, group_from, group_to;
	struct dup_test *t = &self->t;
	int i;

	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_ENABLE, 0));
	from = read_bracket(_metadata, self->ref, self->other[0]);
	group_from = read_bracket(_metadata, self->ref, self->sibling[0]);
	worker_does(_metadata, &t->worker, WORK_CALL, MANY_LOOPS);
	group_to = read_bracket(_metadata, self->ref, self->sibling[0]);
	to = read_bracket(_metadata, self->ref, self->other[0]);
	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_DISABLE, 0));

	check_records(_metadata, &self->ring, self->leader, self->id);
	expect_bracketed(_metadata, group_from, group_to);
	expect_bracketed(_metadata, from, to);
	EXPECT_GE(to.inner - from.inner, MANY_LOOPS);
	for (i = 0; i < NR_SIBLINGS; i++)
		EXPECT_TRUE(runs_always(self->other[i]));
	EXPECT_TRUE(runs_always(self->leader));
}

/* The other one's events come and go while samples are taken. */
TEST_F(dup_sample_read, others_come_and_go)
{
	struct bracket group_from, group_to, from, to;
	struct dup_test *t = &self->t;
	unsigned int rounds = 0;
	int i;

	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_ENABLE, 0));
	group_from = read_bracket(_metadata, self->ref, self->sibling[0]);
	worker_begins(_metadata, &t->worker, WORK_CALL, MANY_LOOPS);
	for (; !worker_is_ready(&t->worker); rounds++) {
		from = read_bracket(_metadata, self->ref, self->other[0]);
		usleep(2000);
		to = read_bracket(_metadata, self->ref, self->other[0]);
		expect_bracketed(_metadata, from, to);
		for (i = 0; i < NR_SIBLINGS; i++)
			close(self->other[i]);
		usleep(2000);
		open_others(_metadata, &t->b, self->attr, self->target, self->other);
	}
	worker_ready(_metadata, &t->worker);
	group_to = read_bracket(_metadata, self->ref, self->sibling[0]);
	ASSERT_EQ(0, ioctl(self->leader, PERF_EVENT_IOC_DISABLE, 0));

	ASSERT_GT(rounds, 3U);
	check_records(_metadata, &self->ring, self->leader, self->id);
	expect_bracketed(_metadata, group_from, group_to);
	EXPECT_TRUE(runs_always(self->leader));
}

TEST_HARNESS_MAIN
