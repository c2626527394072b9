// SPDX-License-Identifier: GPL-2.0
/*
 * Families of tasks with many events: two processes count several kinds of events
 * in a task, its children and their children. Tasks whose inherited events are
 * alike exchange their contexts when the CPU goes from one to the other.
 */
#include "dup_ring.h"

/* As many as fit beside a reference, and more than there are counters. */
#define NR_FIT		5
#define NR_MANY		8

FIXTURE(dup_fork)
{
	struct dup_test		t;
	struct target		target;
	int			a[NR_KINDS];
	int			b[NR_KINDS];
	/* Equal to the first kind. */
	int			ref;
};

FIXTURE_VARIANT(dup_fork)
{
	unsigned int		nr;
	bool			inherit_stat;
};

FIXTURE_VARIANT_ADD(dup_fork, fit)
{
	.nr = NR_FIT,
};

FIXTURE_VARIANT_ADD(dup_fork, inherit_stat)
{
	.nr = NR_FIT,
	.inherit_stat = true,
};

/* The order in which both open their events makes no difference. */
FIXTURE_SETUP(dup_fork)
{
	struct perf_event_attr attr;
	struct dup_test *t = &self->t;
	unsigned int i;

	if (!dup_setup(_metadata, t))
		return;

	self->target = on_task(t->worker.pid);
	/* For the rings of inherited events. */
	self->target.cpu = t->cpu;
	leave_counters(_metadata, t, t->cpu, NR_FIT + 1);

	/*
	 * Pinned, so it comes first: events are inherited in that order, and
	 * inherit_stat exchanges the counts of events at the same place in two
	 * contexts.
	 */
	attr = event_kind(0);
	attr.inherit = 1;
	attr.inherit_stat = variant->inherit_stat;
	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, self->target);

	for (i = 0; i < 2 * variant->nr; i++) {
		attr = event_kind(i / 2);
		attr.inherit = 1;
		attr.inherit_stat = variant->inherit_stat;
		if (i % 2)
			self->a[i / 2] = open_event(_metadata, &t->a, &attr, self->target);
		else
			self->b[i / 2] = open_event(_metadata, &t->b, &attr, self->target);
	}
}

FIXTURE_TEARDOWN(dup_fork)
{
	dup_teardown(_metadata, &self->t);
}

/* Whether all events count the same as their like; @loops is the least. */
#define EXPECT_COUNTS(loops) do {						\
	__u64 value = read_value(_metadata, self->ref);				\
	unsigned int i;								\
										\
	EXPECT_GE(value, loops);						\
	EXPECT_EQ(value, read_value(_metadata, self->a[0]));			\
	for (i = 0; i < variant->nr; i++) {					\
		struct counts counts = read_counts(_metadata, self->a[i]);	\
										\
		EXPECT_GT(counts.value, 0U);					\
		EXPECT_EQ(counts.value, read_value(_metadata, self->b[i]))	\
			TH_LOG("kind %u", i);					\
		EXPECT_TRUE(runs_always(self->a[i]));				\
		EXPECT_TRUE(runs_always(self->b[i]));				\
	}									\
} while (0)

TEST_F(dup_fork, children)
{
	struct dup_test *t = &self->t;
	int round;

	for (round = 1; round <= 3; round++) {
		worker_does(_metadata, &t->worker, WORK_FORK, LOOPS);
		EXPECT_COUNTS(round * LOOPS);
	}
}

TEST_F(dup_fork, grandchildren)
{
	struct dup_test *t = &self->t;
	int round;

	for (round = 1; round <= 3; round++) {
		worker_does(_metadata, &t->worker, WORK_FAMILY, LOOPS);
		EXPECT_COUNTS(round * LOOPS);
	}
	worker_ends(_metadata, &t->worker, WORK_EXIT);
	EXPECT_COUNTS(3 * LOOPS);
}

/* One opener closes its events while others hold those of the children. */
TEST_F(dup_fork, close_while_children_run)
{
	struct dup_test *t = &self->t;
	unsigned int i;

	worker_begins(_metadata, &t->worker, WORK_FAMILY, 50 * LOOPS);
	usleep(20000);
	for (i = 0; i < variant->nr; i++) {
		close(self->a[i]);
		self->a[i] = self->b[i];
	}
	EXPECT_FALSE(worker_is_ready(&t->worker));
	worker_ready(_metadata, &t->worker);
	EXPECT_COUNTS(50 * LOOPS);
}

/* Killed in the middle of its work, events and all. */
TEST_F(dup_fork, killed)
{
	struct dup_test *t = &self->t;

	worker_begins(_metadata, &t->worker, WORK_LOOP, 10000 * LOOPS);
	usleep(20000);
	ASSERT_FALSE(worker_is_ready(&t->worker));
	ASSERT_EQ(0, kill(t->worker.pid, SIGKILL));
	ASSERT_EQ(t->worker.pid, waitpid(t->worker.pid, NULL, 0));
	EXPECT_COUNTS(LOOPS);
}

/* The sum of children that take turns is exact, whoever has which context. */
TEST_F(dup_fork, turns)
{
	struct dup_test *t = &self->t;

	worker_does(_metadata, &t->worker, WORK_TURNS, LOOPS);
	EXPECT_COUNTS(85 * LOOPS);
	worker_does(_metadata, &t->worker, WORK_TURNS, LOOPS);
	EXPECT_COUNTS(170 * LOOPS);
}

/* PERF_RECORD_READ: what a task counted, written when it exits. */
struct read_record {
	struct perf_event_header header;
	__u32			pid;
	__u32			tid;
	struct counts		counts;
};

/* What the tasks counted for an event; returns how many of them wrote a record. */
static unsigned int read_records(struct __test_metadata *_metadata, struct ring *ring,
				 struct read_record *records)
{
	struct perf_event_header *header;
	unsigned int nr = 0;

	while ((header = next_record(_metadata, ring, PERF_RECORD_READ))) {
		ASSERT_EQ(header->size, sizeof(*records));
		ASSERT_LT(nr, NR_CHILDREN);
		memcpy(&records[nr++], header, sizeof(*records));
	}

	return nr;
}

/*
 * A task that exits can be interrupted by another one between the records of two
 * events, so the rings need not have their tasks in the same order.
 */
static struct read_record *record_of(struct read_record *records, unsigned int nr, __u32 tid)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (records[i].tid == tid)
			return &records[i];
	}

	return NULL;
}

/*
 * With inherit_stat, counts stay with the tasks when the contexts are exchanged.
 * Without, there are none per task and no records.
 * The child that has the context of the parent in the end writes no record.
 */
TEST_F(dup_fork, per_task)
{
	struct read_record ref[NR_CHILDREN], a[NR_CHILDREN], b[NR_CHILDREN];
	struct ring ring_a, ring_b, ring_ref;
	struct dup_test *t = &self->t;
	unsigned int nr, i, j;

	map_ring(_metadata, &ring_a, self->a[0], 8);
	map_ring(_metadata, &ring_b, self->b[0], 8);
	map_ring(_metadata, &ring_ref, self->ref, 8);
	worker_does(_metadata, &t->worker, WORK_TURNS, LOOPS);

	nr = read_records(_metadata, &ring_ref, ref);
	ASSERT_EQ(nr, read_records(_metadata, &ring_a, a));
	ASSERT_EQ(nr, read_records(_metadata, &ring_b, b));
	EXPECT_GE(nr, variant->inherit_stat ? NR_CHILDREN - 1U : 0U);
	EXPECT_LE(nr, variant->inherit_stat ? NR_CHILDREN : 0U);

	for (i = 0; i < nr; i++) {
		struct read_record *of_a = record_of(a, nr, ref[i].tid);
		struct read_record *of_b = record_of(b, nr, ref[i].tid);

		ASSERT_TRUE(of_a && of_b);
		EXPECT_EQ(ref[i].counts.value, of_a->counts.value);
		EXPECT_EQ(ref[i].counts.value, of_b->counts.value);
		EXPECT_EQ(of_a->counts.enabled, of_a->counts.running);

		/* Each does four times as much as the one that was forked before it. */
		EXPECT_GE(ref[i].counts.value, LOOPS);
		for (j = 0; j < nr; j++) {
			if (ref[j].tid > ref[i].tid)
				EXPECT_GT(ref[j].counts.value, 3 * ref[i].counts.value);
		}
	}
	EXPECT_COUNTS(85 * LOOPS);
}

/* More kinds than counters: nobody counts too much, all count sometimes. */
FIXTURE(dup_fork_many)
{
	struct dup_test		t;
};

FIXTURE_SETUP(dup_fork_many)
{
	dup_setup(_metadata, &self->t);
}

FIXTURE_TEARDOWN(dup_fork_many)
{
	dup_teardown(_metadata, &self->t);
}

TEST_F(dup_fork_many, grandchildren)
{
	struct perf_event_attr attr = user_instructions();
	struct perf_event_attr ref_attr;
	struct dup_test *t = &self->t;
	struct counts counts, ref_counts;
	int fd[2][NR_MANY], ref, i, j;

	leave_counters(_metadata, t, t->cpu, 3);
	attr.inherit = 1;
	ref_attr = reference(attr);
	ref = open_event(_metadata, &t->filler, &ref_attr, on_task(t->worker.pid));
	for (j = 0; j < 2; j++) {
		for (i = 0; i < NR_MANY; i++) {
			attr = event_kind(i);
			attr.inherit = 1;
			fd[j][i] = open_event(_metadata, j ? &t->b : &t->a, &attr,
					      on_task(t->worker.pid));
		}
	}

	for (i = 0; i < 5; i++)
		worker_does(_metadata, &t->worker, WORK_FAMILY, 50 * LOOPS);

	ref_counts = read_counts(_metadata, ref);
	EXPECT_TRUE(runs_always(ref));
	for (j = 0; j < 2; j++) {
		for (i = 0; i < NR_MANY; i++) {
			counts = read_counts(_metadata, fd[j][i]);
			EXPECT_LE(counts.running, counts.enabled);
			EXPECT_GT(counts.running, 0U)
				TH_LOG("opener %d, kind %d", j, i);
			if (event_kind(i).config == PERF_COUNT_HW_INSTRUCTIONS &&
			    event_kind(i).exclude_kernel)
				EXPECT_LE(counts.value, ref_counts.value);
		}
	}
}

/* Equal events of one opener have counters of their own in children, too. */
TEST_F(dup_fork_many, ordinals)
{
	struct perf_event_attr attr = user_instructions();
	struct target target = on_task(self->t.worker.pid);
	struct dup_test *t = &self->t;
	struct counts first, second;
	int fd[2], i;

	leave_counters(_metadata, t, t->cpu, 1);
	attr.inherit = 1;
	for (i = 0; i < 2; i++)
		fd[i] = open_event(_metadata, &t->a, &attr, target);
	worker_does(_metadata, &t->worker, WORK_FORK, 50 * LOOPS);

	first = read_counts(_metadata, fd[0]);
	second = read_counts(_metadata, fd[1]);
	EXPECT_GT(first.value + second.value, 10 * LOOPS);
	/* There is one counter at any time. */
	EXPECT_LE(first.running + second.running, first.enabled);
}

TEST_HARNESS_MAIN
