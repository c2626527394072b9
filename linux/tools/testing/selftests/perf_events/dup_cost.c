// SPDX-License-Identifier: GPL-2.0
/*
 * What it costs to open and to close an event does not depend on how many share
 * its counter. All events are the test's own, which share with kernel.perf_event_dup
 * at 2.
 */
#include "dup.h"

#define FEW		8
#define MANY		400
#define ROUNDS		20

/* Within an eighth, as some of it is for trees that are searched. */
#define MARGIN		8

FIXTURE(dup_cost)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	int			fd[MANY];
	unsigned int		nr;
};

FIXTURE_VARIANT(dup_cost)
{
	bool			on_cpu;
	bool			disabled;
	bool			pinned;
};

FIXTURE_VARIANT_ADD(dup_cost, cpu)
{
	.on_cpu = true,
};

FIXTURE_VARIANT_ADD(dup_cost, cpu_enabled_later)
{
	.on_cpu = true,
	.disabled = true,
};

FIXTURE_VARIANT_ADD(dup_cost, cpu_pinned)
{
	.on_cpu = true,
	.pinned = true,
};

FIXTURE_VARIANT_ADD(dup_cost, task)
{
};

FIXTURE_SETUP(dup_cost)
{
	self->nr = 0;
	if (!dup_setup(_metadata, &self->t))
		return;

	if (self->t.sysctl >= 0)
		ASSERT_EQ(0, write_long(DUP_SYSCTL, 2));
	self->attr = instructions();
	self->attr.disabled = variant->disabled;
	self->attr.pinned = variant->pinned;
}

FIXTURE_TEARDOWN(dup_cost)
{
	while (self->nr)
		close(self->fd[--self->nr]);
	dup_teardown(_metadata, &self->t);
}

static int open_own(struct __test_metadata *_metadata, const struct perf_event_attr *attr,
		    bool on_cpu, int cpu)
{
	int fd;

	fd = syscall(SYS_perf_event_open, attr, on_cpu ? -1 : 0, on_cpu ? cpu : -1, -1,
		     PERF_FLAG_FD_CLOEXEC);
	ASSERT_GE(fd, 0);
	if (attr->disabled)
		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_ENABLE, 0));

	return fd;
}

/* The least of several times, in nanoseconds, beside the events that are open. */
static __u64 open_and_close(struct __test_metadata *_metadata,
			    const struct perf_event_attr *attr, bool on_cpu, int cpu)
{
	__u64 start, took, least = ~0ULL;
	int i, fd;

	for (i = 0; i < ROUNDS; i++) {
		start = nanoseconds();
		fd = open_own(_metadata, attr, on_cpu, cpu);
		close(fd);
		took = nanoseconds() - start;
		if (took < least)
			least = took;
	}

	return least;
}

TEST_F(dup_cost, open_and_close)
{
	__u64 few = 0, many;
	unsigned int i;

	while (self->nr < MANY) {
		if (self->nr == FEW)
			few = open_and_close(_metadata, &self->attr, variant->on_cpu,
					     self->t.cpu);
		self->fd[self->nr] = open_own(_metadata, &self->attr, variant->on_cpu,
					      self->t.cpu);
		self->nr++;
	}
	many = open_and_close(_metadata, &self->attr, variant->on_cpu, self->t.cpu);
	TH_LOG("beside %d events %llu ns, beside %d events %llu ns", FEW, few, MANY, many);
	EXPECT_LE(many, few + few / MARGIN);

	for (i = 0; i < self->nr; i++)
		EXPECT_TRUE(runs_always(self->fd[i]));
}

TEST_HARNESS_MAIN
