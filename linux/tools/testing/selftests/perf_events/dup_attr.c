// SPDX-License-Identifier: GPL-2.0
/*
 * Which fields of the attr make two events share and which keep them apart. One
 * opener's event has the plain attr, the other opener's event one that differs in
 * one respect, and there is one counter for both.
 */
#include <time.h>

#include "dup.h"

FIXTURE(dup_attr)
{
	struct dup_test		t;
};

FIXTURE_VARIANT(dup_attr)
{
	void			(*change)(struct perf_event_attr *attr);
	/* The counters with which both run when they do not share, 0: shared. */
	unsigned int		apart;
	/* The changed event lets no other run beside it. */
	bool			alone;
};

#define SPLITS(name, counters, code)				\
	static void change_##name(struct perf_event_attr *attr)	\
	{							\
		code;						\
	}							\
	FIXTURE_VARIANT_ADD(dup_attr, name)			\
	{							\
		.change = change_##name,			\
		.apart = counters,				\
	}

#define SHARES(name, code)	SPLITS(name, 0, code)

#if defined(__aarch64__) || defined(__arm__)
#define RAW_INSTRUCTIONS	0x08
#elif defined(__x86_64__) || defined(__i386__)
#define RAW_INSTRUCTIONS	0xc0
#endif

/* What the hardware counts. */
SPLITS(config, 2, attr->config = PERF_COUNT_HW_CPU_CYCLES);
#ifdef RAW_INSTRUCTIONS
SPLITS(type, 2, attr->type = PERF_TYPE_RAW; attr->config = RAW_INSTRUCTIONS);
#endif
/* On arm64 a counter of 64 bits, which may be two counters. */
SPLITS(config1, 3, attr->config1 = 1);
SPLITS(config2, 2, attr->config2 = 1);
SPLITS(config3, 2, attr->config3 = 1);
SPLITS(config4, 2, attr->config4 = 1);
SPLITS(exclude_user, 2, attr->exclude_user = 1);
SPLITS(exclude_kernel, 2, attr->exclude_kernel = 1);
SPLITS(exclude_hv, 2, attr->exclude_hv = 1);
SPLITS(exclude_idle, 2, attr->exclude_idle = 1);
SPLITS(exclude_host, 2, attr->exclude_host = 1);
SPLITS(exclude_guest, 2, attr->exclude_guest = 1);
SPLITS(precise_ip, 2, attr->precise_ip = 1);

/* What needs a counter of its own for other reasons. */
SPLITS(sample_period, 2, attr->sample_period = 1ULL << 62);

static void change_branch_stack(struct perf_event_attr *attr)
{
	attr->sample_type = PERF_SAMPLE_BRANCH_STACK;
	attr->branch_sample_type = PERF_SAMPLE_BRANCH_ANY;
}

FIXTURE_VARIANT_ADD(dup_attr, branch_stack)
{
	.change = change_branch_stack,
	.apart = 2,
};

static void change_exclusive(struct perf_event_attr *attr)
{
	attr->exclusive = 1;
}

FIXTURE_VARIANT_ADD(dup_attr, exclusive)
{
	.change = change_exclusive,
	.apart = 2,
	.alone = true,
};

/* What happens to the count, and what the records of the event contain. */
SHARES(nothing, (void)attr);
SHARES(disabled, attr->disabled = 1);
SHARES(inherit, attr->inherit = 1);
SHARES(pinned, attr->pinned = 1);
SHARES(enable_on_exec, attr->enable_on_exec = 1);
SHARES(remove_on_exec, attr->remove_on_exec = 1);
SHARES(read_format, attr->read_format |= PERF_FORMAT_ID | PERF_FORMAT_LOST);
SHARES(read_group, attr->read_format |= PERF_FORMAT_GROUP);
SHARES(wakeup_events, attr->wakeup_events = 10);
SHARES(mmap, attr->mmap = 1);
SHARES(mmap_data, attr->mmap_data = 1);
SHARES(comm, attr->comm = 1);
SHARES(task, attr->task = 1);
SHARES(context_switch, attr->context_switch = 1);
SHARES(sample_id_all, attr->sample_id_all = 1);
SHARES(inherit_stat, attr->inherit = 1; attr->inherit_stat = 1);
SHARES(inherit_thread, attr->inherit = 1; attr->inherit_thread = 1);

/* perf stat, cAdvisor and others set it on counting events. */
static void change_sample_type(struct perf_event_attr *attr)
{
	attr->sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			    PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_READ |
			    PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_CALLCHAIN;
}

FIXTURE_VARIANT_ADD(dup_attr, sample_type)
{
	.change = change_sample_type,
};

SHARES(exclude_callchain, attr->exclude_callchain_user = 1; attr->exclude_callchain_kernel = 1);
SHARES(watermark, attr->watermark = 1; attr->wakeup_watermark = 4096);
SHARES(clockid, attr->use_clockid = 1; attr->clockid = CLOCK_MONOTONIC);

FIXTURE_SETUP(dup_attr)
{
	dup_setup(_metadata, &self->t);
}

FIXTURE_TEARDOWN(dup_attr)
{
	dup_teardown(_metadata, &self->t);
}

/* Whether two events run all the time. Some event runs in any case. */
static bool both_run(struct __test_metadata *_metadata, struct dup_test *t,
		     const struct perf_event_attr *first,
		     const struct perf_event_attr *second, struct target target)
{
	bool always;
	int a, b;

	a = open_event(_metadata, &t->a, first, target);
	b = open_event(_metadata, &t->b, second, target);
	EXPECT_EQ(0, ioctl(a, PERF_EVENT_IOC_ENABLE, 0));
	EXPECT_EQ(0, ioctl(b, PERF_EVENT_IOC_ENABLE, 0));
	worker_runs(_metadata, &t->worker);

	always = runs_always(a) && runs_always(b);
	EXPECT_TRUE(runs_sometimes(a) || runs_sometimes(b));
	close(a);
	close(b);

	return always;
}

/* In both orders: the counter is set up for the first of the two. */
static void check_variant(struct __test_metadata *_metadata, struct dup_test *t,
			  void (*change)(struct perf_event_attr *attr),
			  unsigned int apart, bool alone, struct target target)
{
	struct perf_event_attr plain = instructions();
	struct perf_event_attr changed = plain;
	unsigned int nr;
	int fd;

	change(&changed);
	fd = try_open(_metadata, &t->b, &changed, target, -1);
	if (fd < 0)
		SKIP(return, "the PMU refuses the event: %s", strerror(-fd));
	close(fd);

	leave_counters(_metadata, t, t->cpu, 1);
	EXPECT_EQ(!apart, both_run(_metadata, t, &plain, &changed, target));
	EXPECT_EQ(!apart, both_run(_metadata, t, &changed, &plain, target));

	if (!apart || alone)
		return;

	/* A counter each is what they lacked. */
	for (nr = 1; nr < apart; nr++)
		release_counter(_metadata, t);
	EXPECT_TRUE(both_run(_metadata, t, &plain, &changed, target));
}

TEST_F(dup_attr, on_cpu)
{
	check_variant(_metadata, &self->t, variant->change, variant->apart,
		      variant->alone, on_cpu(self->t.cpu));
}

TEST_F(dup_attr, on_task)
{
	check_variant(_metadata, &self->t, variant->change, variant->apart,
		      variant->alone, on_task(self->t.worker.pid));
}

TEST_HARNESS_MAIN
