// SPDX-License-Identifier: GPL-2.0
/*
 * Events that share can be read from user space like others: the page of each
 * leads to the value that read() returns. The test counts itself.
 */
#include "dup.h"

/* More pages than the kernel keeps up to date for one counter. */
#define NR_PAGES	20

#define USER_ACCESS	"/proc/sys/kernel/perf_user_access"

/* An event and its page. */
struct mapped {
	int				fd;
	struct perf_event_mmap_page	*page;
};

FIXTURE(dup_rdpmc)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	long			user_access;
	struct mapped		a;
	struct mapped		b;
};

#if defined(__aarch64__)

#define CYCLE_INDEX	31

#define READ_COUNTER(n)							\
	case n:								\
		asm volatile("mrs %0, pmevcntr" #n "_el0" : "=r" (value)); \
		break

static __u64 read_counter(unsigned int index)
{
	__u64 value;

	switch (index) {
	case CYCLE_INDEX:
		asm volatile("mrs %0, pmccntr_el0" : "=r" (value));
		break;
	READ_COUNTER(0);
	READ_COUNTER(1);
	READ_COUNTER(2);
	READ_COUNTER(3);
	READ_COUNTER(4);
	READ_COUNTER(5);
	READ_COUNTER(6);
	READ_COUNTER(7);
	READ_COUNTER(8);
	READ_COUNTER(9);
	READ_COUNTER(10);
	READ_COUNTER(11);
	READ_COUNTER(12);
	READ_COUNTER(13);
	READ_COUNTER(14);
	READ_COUNTER(15);
	READ_COUNTER(16);
	READ_COUNTER(17);
	READ_COUNTER(18);
	READ_COUNTER(19);
	READ_COUNTER(20);
	READ_COUNTER(21);
	READ_COUNTER(22);
	READ_COUNTER(23);
	READ_COUNTER(24);
	READ_COUNTER(25);
	READ_COUNTER(26);
	READ_COUNTER(27);
	READ_COUNTER(28);
	READ_COUNTER(29);
	READ_COUNTER(30);
	default:
		abort();
	}

	return value;
}

/* The event asks for access, and it is not given by default. */
#define CONFIG1_ACCESS	2
#define CAN_READ	1

#elif defined(__x86_64__)

static __u64 read_counter(unsigned int index)
{
	__u32 low, high;

	asm volatile("rdpmc" : "=a" (low), "=d" (high) : "c" (index));
	return low | (__u64)high << 32;
}

#define CONFIG1_ACCESS	0
#define CAN_READ	1

#else

static __u64 read_counter(unsigned int index)
{
	(void)index;
	return 0;
}

#define CONFIG1_ACCESS	0
#define CAN_READ	0

#endif

static void barrier(void)
{
	asm volatile("" : : : "memory");
}

/* Returns false when the counter can not be read from user space now. */
static bool read_page(const struct perf_event_mmap_page *page, __u64 *value)
{
	__u32 seq, index;
	__s64 counter;

	do {
		seq = page->lock;
		barrier();
		index = page->index;
		*value = page->offset;
		if (page->cap_user_rdpmc && index) {
			counter = read_counter(index - 1) << (64 - page->pmc_width);
			*value += counter >> (64 - page->pmc_width);
		}
		barrier();
	} while (page->lock != seq);

	return page->cap_user_rdpmc && index;
}

static void open_mapped(struct __test_metadata *_metadata, struct mapped *event,
			struct opener *opener, const struct perf_event_attr *attr)
{
	event->fd = open_event(_metadata, opener, attr, on_task(getpid()));
	event->page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED,
			   event->fd, 0);
	ASSERT_NE(event->page, MAP_FAILED);
}

static void close_mapped(struct mapped *event)
{
	munmap(event->page, sysconf(_SC_PAGESIZE));
	close(event->fd);
}

FIXTURE_SETUP(dup_rdpmc)
{
	struct dup_test *t = &self->t;
	__u64 value;

	self->user_access = -1;
	if (!dup_setup(_metadata, t))
		return;
	if (!CAN_READ)
		SKIP(return, "the test can not read counters of this architecture");

	if (CONFIG1_ACCESS) {
		self->user_access = read_long(USER_ACCESS);
		if (write_long(USER_ACCESS, 1))
			SKIP(return, "cannot write " USER_ACCESS);
	}

	self->attr = user_instructions();
	self->attr.config1 = CONFIG1_ACCESS;

	open_mapped(_metadata, &self->a, &t->a, &self->attr);
	if (!read_page(self->a.page, &value))
		SKIP(return, "the PMU can not be read from user space");
	close_mapped(&self->a);

	leave_counters(_metadata, t, t->cpu, 1);
	open_mapped(_metadata, &self->a, &t->a, &self->attr);
	open_mapped(_metadata, &self->b, &t->b, &self->attr);
}

FIXTURE_TEARDOWN(dup_rdpmc)
{
	if (self->user_access >= 0)
		EXPECT_EQ(0, write_long(USER_ACCESS, self->user_access));
	dup_teardown(_metadata, &self->t);
}

/* The page is right when its value is between those of two system calls. */
static void check_page(struct __test_metadata *_metadata, const struct mapped *event)
{
	__u64 before, value, after;
	bool readable;

	before = read_value(_metadata, event->fd);
	readable = read_page(event->page, &value);
	after = read_value(_metadata, event->fd);

	EXPECT_TRUE(readable);
	EXPECT_LE(before, value);
	EXPECT_LE(value, after);
}

static void check_pages(struct __test_metadata *_metadata, const struct mapped *a,
			const struct mapped *b)
{
	check_page(_metadata, a);
	check_page(_metadata, b);
	EXPECT_TRUE(runs_always(a->fd));
	EXPECT_TRUE(runs_always(b->fd));
}

/* Both pages name the same counter and give the same differences. */
TEST_F(dup_rdpmc, same_counter)
{
	__u64 a[4], b[2];
	int i;

	check_pages(_metadata, &self->a, &self->b);
	EXPECT_EQ(self->a.page->index, self->b.page->index);
	EXPECT_EQ(self->a.page->pmc_width, self->b.page->pmc_width);

	for (i = 0; i < 2; i++) {
		EXPECT_TRUE(read_page(self->a.page, &a[2 * i]));
		EXPECT_TRUE(read_page(self->b.page, &b[i]));
		EXPECT_TRUE(read_page(self->a.page, &a[2 * i + 1]));
		burn(LOOPS);
	}
	EXPECT_GE(b[1] - b[0], LOOPS);
	EXPECT_GE(b[1] - b[0], a[2] - a[1]);
	EXPECT_LE(b[1] - b[0], a[3] - a[0]);
}

/* The task leaves the CPU and comes back. */
TEST_F(dup_rdpmc, reschedule)
{
	int i;

	for (i = 0; i < 10; i++) {
		usleep(1000);
		check_pages(_metadata, &self->a, &self->b);
		burn(LOOPS);
		check_pages(_metadata, &self->a, &self->b);
	}
}

/* One that comes when the other has counted much has its own offset. */
TEST_F(dup_rdpmc, join)
{
	__u64 value;

	burn(10 * LOOPS);
	close_mapped(&self->b);
	check_page(_metadata, &self->a);
	open_mapped(_metadata, &self->b, &self->t.b, &self->attr);

	check_pages(_metadata, &self->a, &self->b);
	EXPECT_TRUE(read_page(self->b.page, &value));
	EXPECT_LT(value, 10 * LOOPS);
	burn(LOOPS);
	check_pages(_metadata, &self->a, &self->b);
}

/* The counter goes on, but the count starts again. */
TEST_F(dup_rdpmc, reset)
{
	__u64 value;

	burn(10 * LOOPS);
	ASSERT_EQ(0, ioctl(self->a.fd, PERF_EVENT_IOC_RESET, 0));
	check_pages(_metadata, &self->a, &self->b);
	EXPECT_TRUE(read_page(self->a.page, &value));
	EXPECT_LT(value, LOOPS);
	EXPECT_TRUE(read_page(self->b.page, &value));
	EXPECT_GE(value, 10 * LOOPS);
	burn(LOOPS);
	check_pages(_metadata, &self->a, &self->b);
}

/* The same of an event with a counter of its own. */
TEST_F(dup_rdpmc, reset_alone)
{
	__u64 value;

	close_mapped(&self->a);
	close_mapped(&self->b);
	open_mapped(_metadata, &self->a, &self->t.a, &self->attr);
	burn(10 * LOOPS);
	/* The count is read, and with it what the kernel knows of the counter. */
	check_page(_metadata, &self->a);
	ASSERT_EQ(0, ioctl(self->a.fd, PERF_EVENT_IOC_RESET, 0));
	check_page(_metadata, &self->a);
	EXPECT_TRUE(read_page(self->a.page, &value));
	EXPECT_LT(value, LOOPS);
}

/* One that does not count has no counter to read, the other one still has. */
TEST_F(dup_rdpmc, disable)
{
	__u64 value, before;

	burn(LOOPS);
	ASSERT_EQ(0, ioctl(self->a.fd, PERF_EVENT_IOC_DISABLE, 0));
	before = read_value(_metadata, self->a.fd);
	burn(LOOPS);
	EXPECT_FALSE(read_page(self->a.page, &value));
	EXPECT_EQ(before, value);
	EXPECT_EQ(before, read_value(_metadata, self->a.fd));
	check_page(_metadata, &self->b);

	ASSERT_EQ(0, ioctl(self->a.fd, PERF_EVENT_IOC_ENABLE, 0));
	burn(LOOPS);
	check_pages(_metadata, &self->a, &self->b);
}

/* The one for which the counter was set up first leaves. */
TEST_F(dup_rdpmc, close)
{
	close_mapped(&self->a);
	check_page(_metadata, &self->b);
	burn(LOOPS);
	usleep(1000);
	check_page(_metadata, &self->b);
	EXPECT_TRUE(runs_always(self->b.fd));
}

/* An event that is mapped while it counts already. */
TEST_F(dup_rdpmc, map_late)
{
	munmap(self->b.page, sysconf(_SC_PAGESIZE));
	burn(LOOPS);
	self->b.page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED,
			    self->b.fd, 0);
	ASSERT_NE(self->b.page, MAP_FAILED);
	check_pages(_metadata, &self->a, &self->b);
	burn(LOOPS);
	check_pages(_metadata, &self->a, &self->b);
}

/* A thread that stays on its CPU, and reads a page as soon as it gets one. */
struct spinner {
	pthread_t			thread;
	int				cpu;
	pid_t				tid;
	struct perf_event_mmap_page	*page;
	bool				readable;
	__u64				value;
};

static void *spin(void *arg)
{
	struct spinner *spinner = arg;
	struct perf_event_mmap_page *page;

	bind_to_cpu(0, spinner->cpu);
	__atomic_store_n(&spinner->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!(page = __atomic_load_n(&spinner->page, __ATOMIC_ACQUIRE)))
		burn(1000);
	burn(LOOPS);
	spinner->readable = read_page(page, &spinner->value);

	return NULL;
}

/* The event runs on another CPU when it is mapped, and is not scheduled in later. */
TEST_F(dup_rdpmc, map_from_other_cpu)
{
	struct spinner spinner = { .cpu = self->t.cpu + 1 };
	struct mapped a, b;
	int page_size = sysconf(_SC_PAGESIZE);

	if (spinner.cpu >= sysconf(_SC_NPROCESSORS_ONLN))
		SKIP(return, "one CPU is not enough");
	close_mapped(&self->a);
	close_mapped(&self->b);

	ASSERT_EQ(0, pthread_create(&spinner.thread, NULL, spin, &spinner));
	while (!__atomic_load_n(&spinner.tid, __ATOMIC_ACQUIRE))
		usleep(1000);
	a.fd = open_event(_metadata, &self->t.a, &self->attr, on_task(spinner.tid));
	b.fd = open_event(_metadata, &self->t.b, &self->attr, on_task(spinner.tid));
	usleep(1000);
	a.page = mmap(NULL, page_size, PROT_READ, MAP_SHARED, a.fd, 0);
	b.page = mmap(NULL, page_size, PROT_READ, MAP_SHARED, b.fd, 0);
	ASSERT_NE(a.page, MAP_FAILED);
	ASSERT_NE(b.page, MAP_FAILED);

	__atomic_store_n(&spinner.page, b.page, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(spinner.thread, NULL));
	EXPECT_TRUE(spinner.readable);
	EXPECT_GE(spinner.value, LOOPS);
	EXPECT_LE(spinner.value, read_value(_metadata, b.fd));
	close_mapped(&a);
	close_mapped(&b);
	open_mapped(_metadata, &self->a, &self->t.a, &self->attr);
	open_mapped(_metadata, &self->b, &self->t.b, &self->attr);
}

/* The event had a counter of its own, and that was read, before the other came. */
TEST_F(dup_rdpmc, hand_over)
{
	close_mapped(&self->a);
	close_mapped(&self->b);
	open_mapped(_metadata, &self->a, &self->t.a, &self->attr);
	burn(LOOPS);
	check_page(_metadata, &self->a);
	open_mapped(_metadata, &self->b, &self->t.b, &self->attr);
	check_pages(_metadata, &self->a, &self->b);
	burn(LOOPS);
	check_pages(_metadata, &self->a, &self->b);
}

/*
 * There is a limit to the pages that the kernel keeps up to date. Beyond it a page
 * says that there is no counter, and to use read().
 */
TEST_F(dup_rdpmc, many_pages)
{
	struct opener openers[NR_PAGES];
	struct mapped events[NR_PAGES];
	__u64 value, before, after;
	unsigned int readable = 0;
	int i;

	for (i = 0; i < NR_PAGES; i++) {
		start_opener(_metadata, &openers[i]);
		open_mapped(_metadata, &events[i], &openers[i], &self->attr);
	}

	burn(LOOPS);
	for (i = 0; i < NR_PAGES; i++) {
		EXPECT_TRUE(runs_always(events[i].fd));
		before = read_value(_metadata, events[i].fd);
		if (!read_page(events[i].page, &value)) {
			EXPECT_EQ(0, events[i].page->index);
			EXPECT_FALSE((bool)events[i].page->cap_user_rdpmc);
			continue;
		}
		after = read_value(_metadata, events[i].fd);
		EXPECT_LE(before, value);
		EXPECT_LE(value, after);
		readable++;
	}
	EXPECT_GT(readable, 0);
	EXPECT_LT(readable, NR_PAGES);

	/* There is room again when others leave. */
	for (i = 0; i < NR_PAGES; i++) {
		close_mapped(&events[i]);
		end_opener(_metadata, &openers[i]);
	}
	close_mapped(&self->b);
	open_mapped(_metadata, &self->b, &self->t.b, &self->attr);
	check_pages(_metadata, &self->a, &self->b);
}

TEST_HARNESS_MAIN
