// SPDX-License-Identifier: GPL-2.0
/*
 * Readers on another CPU than that of the events, which are groups whose members
 * share with another opener's. The members count instructions of user space, of
 * which there are none while the CPU answers: they must be equal in each read.
 */
#include "dup.h"

#define NR_MEMBERS	3
#define NR_READS	300

struct group_read {
	__u64			nr;
	__u64			enabled;
	__u64			running;
	__u64			value[NR_MEMBERS];
};

FIXTURE(dup_remote)
{
	struct dup_test		t;
	struct target		target;
	int			a[NR_MEMBERS];
	int			b[NR_MEMBERS];
	int			ref;
};

FIXTURE_VARIANT(dup_remote)
{
	bool			cpu_wide;
};

FIXTURE_VARIANT_ADD(dup_remote, task)
{
	.cpu_wide = false,
};

FIXTURE_VARIANT_ADD(dup_remote, cpu)
{
	.cpu_wide = true,
};

static void open_group(struct __test_metadata *_metadata, struct opener *opener,
		       struct target target, int *fd)
{
	struct perf_event_attr attr;
	int i;

	for (i = 0; i < NR_MEMBERS; i++) {
		attr = twin(i);
		attr.disabled = !i;
		attr.read_format = READ_TIMES | (i ? 0 : PERF_FORMAT_GROUP);
		fd[i] = open_in_group(_metadata, opener, &attr, target, i ? fd[0] : -1);
	}
	/* All members begin at the same time. */
	ASSERT_EQ(0, ioctl(fd[0], PERF_EVENT_IOC_ENABLE, 0));
}

FIXTURE_SETUP(dup_remote)
{
	struct perf_event_attr attr = user_instructions();
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t))
		return;

	self->target = variant->cpu_wide ? on_cpu(t->cpu) : on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, NR_MEMBERS + 1);
	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, self->target);
	open_group(_metadata, &t->a, self->target, self->a);
	open_group(_metadata, &t->b, self->target, self->b);
	if (!leave_cpu(t->cpu))
		SKIP(return, "needs two CPUs");
}

FIXTURE_TEARDOWN(dup_remote)
{
	dup_teardown(_metadata, &self->t);
}

/* Returns what the members counted, after a check of them. */
static __u64 read_group(struct __test_metadata *_metadata, int leader, __u64 last)
{
	struct group_read group;
	int i;

	ASSERT_EQ((ssize_t)sizeof(group), read(leader, &group, sizeof(group)));
	EXPECT_EQ(NR_MEMBERS, group.nr);
	EXPECT_EQ(group.enabled, group.running);
	EXPECT_GE(group.value[0], last);
	for (i = 1; i < NR_MEMBERS; i++)
		EXPECT_EQ(group.value[0], group.value[i]);

	return group.value[0];
}

TEST_F(dup_remote, groups)
{
	__u64 start_before, start, start_after, before, value, after, last = 0;
	struct dup_test *t = &self->t;
	unsigned int moves = 0;
	int i;

	worker_begins(_metadata, &t->worker, WORK_CALL, 200 * LOOPS);
	start_before = read_value(_metadata, self->ref);
	start = read_group(_metadata, self->a[0], 0);
	start_after = read_value(_metadata, self->ref);
	for (i = 0; i < NR_READS && __test_passed(_metadata); i++) {
		before = read_value(_metadata, self->ref);
		value = read_group(_metadata, self->a[0], last);
		after = read_value(_metadata, self->ref);
		EXPECT_GE(value - start, before - start_after);
		EXPECT_LE(value - start, after - start_before);
		moves += value != last;
		last = value;
	}
	ASSERT_GE(moves, NR_READS / 10U);

	worker_ready(_metadata, &t->worker);
	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));
	if (variant->cpu_wide)
		return;
	value = read_value(_metadata, self->ref);
	EXPECT_EQ(value, read_group(_metadata, self->a[0], last));
	EXPECT_EQ(value, read_group(_metadata, self->b[0], 0));
}

struct reader {
	struct __test_metadata	*_metadata;
	pthread_t		thread;
	int			leader;
	int			cpu;
	__u64			last;
	unsigned int		moves;
};

static void *read_often(void *arg)
{
	struct reader *reader = arg;
	struct __test_metadata *_metadata = reader->_metadata;
	__u64 value;
	int i;

	EXPECT_EQ(0, bind_to_cpu(0, reader->cpu));
	for (i = 0; i < NR_READS && __test_passed(_metadata); i++) {
		value = read_group(_metadata, reader->leader, reader->last);
		reader->moves += value != reader->last;
		reader->last = value;
		if (i % 16 == 0)
			usleep(1000);
	}

	return NULL;
}

/* Two at once on the events of each opener, on the events' CPU and on another. */
TEST_F(dup_remote, many_readers)
{
	struct dup_test *t = &self->t;
	struct reader reader[4];
	int i, other = sched_getcpu();
	__u64 value;

	ASSERT_NE(other, t->cpu);
	worker_begins(_metadata, &t->worker, WORK_CALL, 200 * LOOPS);
	for (i = 0; i < 4; i++) {
		reader[i] = (struct reader) {
			._metadata	= _metadata,
			.leader		= i % 2 ? self->a[0] : self->b[0],
			.cpu		= i / 2 ? t->cpu : other,
		};
		ASSERT_EQ(0, pthread_create(&reader[i].thread, NULL, read_often, &reader[i]));
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(reader[i].thread, NULL));
		EXPECT_GE(reader[i].moves, 5U);
	}
	worker_ready(_metadata, &t->worker);
	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));

	if (variant->cpu_wide)
		return;
	value = read_value(_metadata, self->ref);
	EXPECT_GE(value, 200 * LOOPS);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(value, read_group(_metadata, reader[i].leader, reader[i].last));
}

TEST_HARNESS_MAIN
