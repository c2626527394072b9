// SPDX-License-Identifier: GPL-2.0
/*
 * Groups whose members share with the events of another opener are enabled,
 * disabled and reset as a whole and member by member. Each member counts user
 * instructions, so a model tells from a reference what each has to read.
 */
#include "dup.h"

#define NR_MEMBERS	3
#define NR_STEPS	120

/* What read() gives for a group with all that read_format has. */
struct group_read {
	__u64			nr;
	__u64			enabled;
	__u64			running;
	struct {
		__u64		value;
		__u64		id;
		__u64		lost;
	}			member[NR_MEMBERS + 1];
};

#define READ_GROUP	(READ_TIMES | PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST)

/*
 * Bounds of what a member has counted. On a task that sleeps the reference has
 * the same value before and after a step, and the bounds are one value.
 */
struct model {
	bool			enabled;
	bool			counts;
	__u64			min;
	__u64			max;
	/* The reference before and after it began to count. */
	__u64			before;
	__u64			after;
};

FIXTURE(dup_group)
{
	struct dup_test		t;
	struct target		target;
	/* The group that the test changes. */
	int			fd[NR_MEMBERS];
	__u64			id[NR_MEMBERS];
	struct model		model[NR_MEMBERS];
	/* The other opener's group, and a third one's events of their own. */
	struct opener		third;
	int			group[NR_MEMBERS];
	int			lone[NR_MEMBERS];
	int			ref;
};

FIXTURE_VARIANT(dup_group)
{
	bool			cpu_wide;
	/* The others are there before the group. */
	bool			others_first;
};

FIXTURE_VARIANT_ADD(dup_group, task)
{
	.cpu_wide = false,
};

FIXTURE_VARIANT_ADD(dup_group, task_others_first)
{
	.others_first = true,
};

FIXTURE_VARIANT_ADD(dup_group, cpu)
{
	.cpu_wide = true,
};

FIXTURE_VARIANT_ADD(dup_group, cpu_others_first)
{
	.cpu_wide = true,
	.others_first = true,
};

static void open_group(struct __test_metadata *_metadata, struct opener *opener,
		       struct target target, int *fd, int nr)
{
	struct perf_event_attr attr;
	int i;

	for (i = 0; i < nr; i++) {
		attr = twin(i);
		attr.read_format = i ? READ_TIMES : READ_GROUP;
		fd[i] = open_in_group(_metadata, opener, &attr, target, i ? fd[0] : -1);
	}
}

FIXTURE_SETUP(dup_group)
{
	struct perf_event_attr attr = user_instructions();
	struct dup_test *t = &self->t;
	int i;

	if (!dup_setup(_metadata, t))
		return;

	start_opener(_metadata, &self->third);
	self->target = variant->cpu_wide ? on_cpu(t->cpu) : on_task(t->worker.pid);
	leave_counters(_metadata, t, t->cpu, NR_MEMBERS + 1);

	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, self->target);
	if (!variant->others_first)
		open_group(_metadata, &t->a, self->target, self->fd, NR_MEMBERS);
	open_group(_metadata, &t->b, self->target, self->group, NR_MEMBERS);
	for (i = 0; i < NR_MEMBERS; i++) {
		attr = twin(i);
		self->lone[i] = open_event(_metadata, &self->third, &attr, self->target);
	}
	if (variant->others_first)
		open_group(_metadata, &t->a, self->target, self->fd, NR_MEMBERS);

	for (i = 0; i < NR_MEMBERS; i++)
		ASSERT_EQ(0, ioctl(self->fd[i], PERF_EVENT_IOC_ID, &self->id[i]));
}

FIXTURE_TEARDOWN(dup_group)
{
	dup_teardown(_metadata, &self->t);
}

/* The others' events never stop. */
static void expect_undisturbed(struct __test_metadata *_metadata, int ref, int fd,
			       struct bracket *from)
{
	struct bracket to = read_bracket(_metadata, ref, fd);

	expect_bracketed(_metadata, *from, to);
	EXPECT_TRUE(runs_always(fd));
	*from = to;
}

/* The sibling's own read, which the group's read_format does not matter to. */
static __u64 read_member(struct __test_metadata *_metadata, int fd, bool leader)
{
	struct group_read group;

	if (!leader)
		return read_value(_metadata, fd);

	EXPECT_LT(0, read(fd, &group, sizeof(group)));
	return group.member[0].value;
}

static void start_model(struct model *model, __u64 before, __u64 after)
{
	model->before = before;
	model->after = after;
	model->counts = true;
}

static void stop_model(struct model *model, __u64 before, __u64 after)
{
	if (before > model->after)
		model->min += before - model->after;
	model->max += after - model->before;
	model->counts = false;
}

/* A member counts while it is enabled and its leader is. */
static void update_model(struct model *model, int nr, __u64 before, __u64 after)
{
	int i;

	for (i = 0; i < nr; i++) {
		bool counts = model[i].enabled && model[0].enabled;

		if (counts && !model[i].counts)
			start_model(&model[i], before, after);
		else if (!counts && model[i].counts)
			stop_model(&model[i], before, after);
	}
}

static void reset_model(struct model *model, __u64 before, __u64 after)
{
	model->min = 0;
	model->max = 0;
	if (model->counts)
		start_model(model, before, after);
}

static const unsigned long requests[] = {
	PERF_EVENT_IOC_ENABLE,
	PERF_EVENT_IOC_DISABLE,
	PERF_EVENT_IOC_RESET,
};

static void change(struct __test_metadata *_metadata, const int *fd, int ref,
		   struct model *model, int nr, unsigned int what)
{
	unsigned int request = what % 3, member = what / 3 % nr, i;
	bool group = what / 3 / nr % 4 == 0;
	__u64 before, after;

	before = read_value(_metadata, ref);
	ASSERT_EQ(0, ioctl(fd[member], requests[request], group ? PERF_IOC_FLAG_GROUP : 0));
	after = read_value(_metadata, ref);

	for (i = 0; i < nr; i++) {
		if (!group && i != member)
			continue;
		if (request == 2)
			reset_model(&model[i], before, after);
		else
			model[i].enabled = !request;
	}
	update_model(model, nr, before, after);
}

static void check(struct __test_metadata *_metadata, const int *fd, const __u64 *id, int ref,
		  struct model *model, int nr)
{
	struct group_read group;
	__u64 before, after;
	int i;

	before = read_value(_metadata, ref);
	ASSERT_LT(0, read(fd[0], &group, sizeof(group)));
	after = read_value(_metadata, ref);

	ASSERT_EQ(nr, group.nr);
	EXPECT_EQ(group.enabled, group.running);
	for (i = 0; i < nr; i++) {
		__u64 min = model[i].min, max = model[i].max, value = group.member[i].value;

		if (model[i].counts) {
			min += before > model[i].after ? before - model[i].after : 0;
			max += after - model[i].before;
		}
		EXPECT_GE(value, min);
		EXPECT_LE(value, max);
		EXPECT_EQ(id[i], group.member[i].id);
		EXPECT_EQ(0U, group.member[i].lost);
		/* No user instruction happens during the read. */
		if (model[i].counts && model[0].counts &&
		    model[i].before == model[0].before && model[i].max == model[0].max)
			EXPECT_EQ(value, group.member[0].value);
		/* One that stands still is the same in all reads. */
		if (!model[i].counts)
			EXPECT_EQ(value, read_member(_metadata, fd[i], !i));
	}
}

TEST_F(dup_group, random_steps)
{
	struct bracket from[2 * NR_MEMBERS];
	struct dup_test *t = &self->t;
	__u32 random = 0x2545f491;
	struct group_read group;
	int i, step;

	for (i = 0; i < NR_MEMBERS; i++) {
		self->model[i].enabled = true;
		start_model(&self->model[i], 0, read_value(_metadata, self->ref));
		from[i] = read_bracket(_metadata, self->ref, self->lone[i]);
		if (i)
			from[NR_MEMBERS + i] = read_bracket(_metadata, self->ref, self->group[i]);
	}
	ASSERT_EQ(0, ioctl(self->fd[0], PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP));
	for (i = 0; i < NR_MEMBERS; i++)
		reset_model(&self->model[i], 0, read_value(_metadata, self->ref));

	for (step = 0; step < NR_STEPS; step++) {
		random ^= random << 13;
		random ^= random >> 17;
		random ^= random << 5;
		change(_metadata, self->fd, self->ref, self->model, NR_MEMBERS, random >> 8);
		if (step % 4 < 3)
			worker_does(_metadata, &t->worker, WORK_LOOP, LOOPS / 100);
		check(_metadata, self->fd, self->id, self->ref, self->model, NR_MEMBERS);

		/* The other group's members start and stop as one. */
		ASSERT_LT(0, read(self->group[0], &group, sizeof(group)));
		ASSERT_EQ(NR_MEMBERS, group.nr);
		EXPECT_TRUE(runs_always(self->group[0]));
		for (i = 1; i < NR_MEMBERS; i++)
			expect_undisturbed(_metadata, self->ref, self->group[i],
					   &from[NR_MEMBERS + i]);
		for (i = 0; i < NR_MEMBERS; i++)
			expect_undisturbed(_metadata, self->ref, self->lone[i], &from[i]);
		if (__test_passed(_metadata))
			continue;
		TH_LOG("in step %d", step);
		break;
	}
}

/* Members that were opened and enabled together read the same. */
TEST_F(dup_group, equal_members)
{
	struct dup_test *t = &self->t;
	struct group_read group;
	int i, round;

	ASSERT_EQ(0, ioctl(self->fd[0], PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP));
	ASSERT_EQ(0, ioctl(self->fd[0], PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP));
	for (round = 1; round <= 4; round++) {
		/* The members first: they begin with their leader. */
		for (i = NR_MEMBERS - 1; i >= 0; i--)
			ASSERT_EQ(0, ioctl(self->fd[i], PERF_EVENT_IOC_ENABLE, 0));
		worker_runs(_metadata, &t->worker);
		ASSERT_LT(0, read(self->fd[0], &group, sizeof(group)));
		ASSERT_EQ(NR_MEMBERS, group.nr);
		EXPECT_GE(group.member[0].value, round * LOOPS);
		EXPECT_EQ(group.member[0].value, group.member[1].value);
		EXPECT_EQ(group.member[0].value, group.member[2].value);

		/* It takes them along, too. */
		ASSERT_EQ(0, ioctl(self->fd[0], PERF_EVENT_IOC_DISABLE, 0));
		worker_runs(_metadata, &t->worker);
	}
	EXPECT_TRUE(runs_always(self->fd[0]));
}

/* A sibling that comes late, to a leader that shares its counter. */
TEST_F(dup_group, late_sibling)
{
	struct perf_event_attr attr = twin(NR_MEMBERS);
	struct dup_test *t = &self->t;
	struct group_read group;
	struct bracket from, to;
	__u64 start, before, after;
	int late;

	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
	from = read_bracket(_metadata, self->ref, self->lone[0]);

	release_counter(_metadata, t);
	start = read_value(_metadata, self->ref);
	late = open_in_group(_metadata, &t->a, &attr, self->target, self->fd[0]);
	EXPECT_LE(read_value(_metadata, late), read_value(_metadata, self->ref) - start);

	before = read_value(_metadata, self->ref);
	worker_runs(_metadata, &t->worker);
	after = read_value(_metadata, self->ref);
	ASSERT_LT(0, read(self->fd[0], &group, sizeof(group)));
	ASSERT_EQ(NR_MEMBERS + 1, group.nr);
	EXPECT_GE(group.member[NR_MEMBERS].value, LOOPS);
	EXPECT_GE(group.member[NR_MEMBERS].value, after - before);
	EXPECT_LE(group.member[NR_MEMBERS].value, read_value(_metadata, self->ref) - start);
	EXPECT_GE(group.member[0].value, group.member[NR_MEMBERS].value + 10 * LOOPS);
	EXPECT_TRUE(runs_always(self->fd[0]));
	EXPECT_TRUE(runs_always(late));

	to = read_bracket(_metadata, self->ref, self->lone[0]);
	expect_bracketed(_metadata, from, to);
	EXPECT_TRUE(runs_always(self->lone[0]));
	EXPECT_TRUE(runs_always(self->group[0]));
}

/* The leader goes: its siblings count on as events of their own. */
TEST_F(dup_group, leader_closes)
{
	struct bracket from[NR_MEMBERS];
	struct dup_test *t = &self->t;
	int i, round;

	for (i = 1; i < NR_MEMBERS; i++)
		from[i] = read_bracket(_metadata, self->ref, self->fd[i]);
	for (round = 0; round < 3; round++) {
		worker_runs(_metadata, &t->worker);
		for (i = 1; i < NR_MEMBERS; i++)
			expect_undisturbed(_metadata, self->ref, self->fd[i], &from[i]);
		EXPECT_TRUE(runs_always(self->lone[0]));
		if (!round)
			close(self->fd[0]);
	}
}

TEST_HARNESS_MAIN
