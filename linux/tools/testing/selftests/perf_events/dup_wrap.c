// SPDX-License-Identifier: GPL-2.0
/*
 * A shared counter of 32 bits wraps several times while it is in use, with an
 * interrupt at least each time. Cycles of a CPU go on while it sleeps, and a
 * counter of 64 bits tells how many there were.
 */
#include "dup.h"

/* Cycles until a counter of 32 bits is back where it was. */
#define WRAP		0x100000000ULL

FIXTURE(dup_wrap)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct target		target;
	int			ref;
};

FIXTURE_SETUP(dup_wrap)
{
	struct perf_event_attr attr;
	struct dup_test *t = &self->t;

	if (!dup_setup(_metadata, t))
		return;

	self->attr = instructions();
	self->attr.config = PERF_COUNT_HW_CPU_CYCLES;
	self->target = on_cpu(t->cpu);
	/* The counter of 64 bits that only counts cycles is not among them. */
	leave_counters(_metadata, t, t->cpu, 3);

	/*
	 * What config1 asks for is only known for arm64, where the reference may
	 * need two counters; elsewhere, the counters are wider.
	 */
	attr = self->attr;
#ifdef __aarch64__
	attr.config1 = 1;
#endif
	attr = reference(attr);
	self->ref = open_event(_metadata, &t->filler, &attr, self->target);
	ASSERT_TRUE(runs_always(self->ref));
}

FIXTURE_TEARDOWN(dup_wrap)
{
	dup_teardown(_metadata, &self->t);
}

/* Sleeps until the reference has counted that much more. */
static void sleep_cycles(struct __test_metadata *_metadata, int ref, __u64 cycles)
{
	__u64 start = read_value(_metadata, ref);
	int i;

	for (i = 0; i < 600; i++) {
		if (read_value(_metadata, ref) - start >= cycles)
			return;
		usleep(100000);
	}
	ASSERT_FALSE(true)
		TH_LOG("not so many cycles within a minute");
}

TEST_F(dup_wrap, both_all_the_time)
{
	struct bracket from_a, to_a, from_b, to_b;
	struct dup_test *t = &self->t;
	int a, b, i;

	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	from_a = read_bracket(_metadata, self->ref, a);
	from_b = read_bracket(_metadata, self->ref, b);
	/* The one is read before each wrap, the other one after five halves. */
	for (i = 0; i < 5; i++) {
		sleep_cycles(_metadata, self->ref, WRAP / 2);
		to_a = read_bracket(_metadata, self->ref, a);
		expect_bracketed(_metadata, from_a, to_a);
	}
	to_b = read_bracket(_metadata, self->ref, b);
	expect_bracketed(_metadata, from_b, to_b);
	EXPECT_GE(to_b.inner - from_b.inner, 2 * WRAP);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

/* Others come and go between wraps; nobody gets what was before. */
TEST_F(dup_wrap, come_and_go)
{
	struct bracket from_a, to_a, from_b, to_b;
	struct dup_test *t = &self->t;
	struct opener *second = &t->b;
	__u64 before;
	int a, b, i;

	a = open_event(_metadata, &t->a, &self->attr, self->target);
	from_a = read_bracket(_metadata, self->ref, a);
	for (i = 0; i < 3; i++) {
		sleep_cycles(_metadata, self->ref, 3 * WRAP / 4);
		before = read_value(_metadata, self->ref);
		b = open_event(_metadata, second, &self->attr, self->target);
		from_b = read_bracket(_metadata, self->ref, b);
		EXPECT_LE(from_b.inner, from_b.end - before);
		sleep_cycles(_metadata, self->ref, 3 * WRAP / 4);
		to_b = read_bracket(_metadata, self->ref, b);
		expect_bracketed(_metadata, from_b, to_b);
		EXPECT_TRUE(runs_always(b));

		/* Once the first one goes, and the second one stays. */
		if (i == 1) {
			to_a = read_bracket(_metadata, self->ref, a);
			expect_bracketed(_metadata, from_a, to_a);
			close(a);
			a = b;
			from_a = from_b;
			/* The next one has to be of the other opener. */
			second = &t->a;
		} else {
			close(b);
		}
	}
	to_a = read_bracket(_metadata, self->ref, a);
	expect_bracketed(_metadata, from_a, to_a);
	EXPECT_GE(to_a.inner - from_a.inner, 2 * WRAP);
	EXPECT_TRUE(runs_always(a));
}

/* Disabled and enabled again, with a wrap in between and after it. */
TEST_F(dup_wrap, pauses)
{
	struct bracket from_b, to_b, from, to;
	struct dup_test *t = &self->t;
	__u64 value;
	int a, b;

	a = open_event(_metadata, &t->a, &self->attr, self->target);
	b = open_event(_metadata, &t->b, &self->attr, self->target);
	from_b = read_bracket(_metadata, self->ref, b);
	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_DISABLE, 0));
	value = read_value(_metadata, a);
	sleep_cycles(_metadata, self->ref, WRAP + WRAP / 4);
	EXPECT_EQ(value, read_value(_metadata, a));
	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_ENABLE, 0));
	from = read_bracket(_metadata, self->ref, a);
	sleep_cycles(_metadata, self->ref, WRAP + WRAP / 4);
	to = read_bracket(_metadata, self->ref, a);
	expect_bracketed(_metadata, from, to);
	to_b = read_bracket(_metadata, self->ref, b);
	expect_bracketed(_metadata, from_b, to_b);
	EXPECT_GE(to_b.inner - from_b.inner, 2 * WRAP);
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
}

TEST_HARNESS_MAIN
