// SPDX-License-Identifier: GPL-2.0
/*
 * Several processes do at random what can be done with events that share
 * counters: open and close them, on tasks, CPUs and cgroups, read and map them,
 * by all ioctls, while tasks fork, exec, exit and move, and CPUs go and come.
 *
 * Most of what can go wrong is for the kernel's own checks to find. But counts
 * never go back, an event counts no more than what happened while it ran, and
 * runs no longer than it is enabled. And when all is over, events share as ever.
 *
 * DUP_STRESS_SECONDS and DUP_STRESS_SEED in the environment say how long to go on,
 * and with which random numbers.
 */
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "dup.h"

#define SYSCTL		"/proc/sys/kernel/perf_"
#define USER_ACCESS	SYSCTL "user_access"

#define NR_PROCESSES	4
#define NR_VICTIMS	2
#define NR_SLOTS	32

#define DEFAULT_SECONDS	5
#define MAX_SECONDS	3600

/*
 * No counter is faster than that per nanosecond. Counter and clock are not read
 * at one instant, and a virtual CPU may have to wait in between.
 */
#define MAX_RATE	16
#define MAX_DELAY	500000000ULL

/*
 * Where arm64 starts counters below zero. About one event in ten thousand on
 * QEMU's arm64, with CPUs that come and go, is given as much because its counter
 * reads zero instead, with kernel.perf_event_dup at 0 as well. One that came later
 * than its counter was started is given less, by what was counted before that.
 */
#define START_32	0x7fffffffULL
#define START_64	0x7fffffffffffffffULL
#define MAX_STARTS	2

/*
 * Set for the time of the test, in this order. Sampling events shall be throttled
 * but leave time for something else, and the limit of that shall stay.
 */
static const struct {
	const char		*path;
	long			value;
} settings[] = {
	{ SYSCTL "event_max_sample_rate", 2000 },
	{ SYSCTL "cpu_time_max_percent", 0 },
	{ USER_ACCESS, 1 },
};

#define NR_SETTINGS	ARRAY_SIZE(settings)

/* cgroup2, and some that exist at times. */
static const char * const cgroups[] = {
	"/sys/fs/cgroup",
	"/sys/fs/cgroup/dup_stress",
	"/sys/fs/cgroup/dup_stress/a",
	"/sys/fs/cgroup/dup_stress/b",
};

#define NR_CGROUPS	ARRAY_SIZE(cgroups)

/* One event of a process. */
struct slot {
	int			fd;
	__u64			id;
	/* The id of its leader, which may be closed by now. */
	__u64			group;
	__u64			last;
	void			*pages;
	bool			inherit;
	bool			inherit_stat;
	bool			group_format;
};

struct summary {
	unsigned long		done;
	unsigned long		opened;
	unsigned long		checked;
	unsigned long		wrong;
	unsigned long		lost;
};

/* What the processes tell each other. */
struct shared {
	struct summary		of[NR_PROCESSES];
	pid_t			victim[NR_VICTIMS];
	/* May have ended. */
	pid_t			grandchild[NR_VICTIMS];
};

struct stress {
	struct shared		*shared;
	struct summary		*sum;
	struct slot		slot[NR_SLOTS];
	unsigned int		number;
	unsigned int		nr_cpus;
	bool			has_cgroups;
	__u64			random;
};

FIXTURE(dup_stress)
{
	struct dup_test		t;
	struct shared		*shared;
	unsigned int		nr_cpus;
	bool			has_cgroups;
	long			saved[NR_SETTINGS];
	unsigned int		nr_saved;
	long			seconds;
	__u64			seed;
};

/* xorshift64* */
static __u64 next_random(struct stress *s)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;

	return s->random * 0x2545F4914F6CDD1DULL >> 32;
}

static unsigned int below(struct stress *s, unsigned int n)
{
	return next_random(s) % n;
}

static bool one_in(struct stress *s, unsigned int n)
{
	return !below(s, n);
}

static pid_t any_victim(struct stress *s)
{
	return s->shared->victim[below(s, NR_VICTIMS)];
}

static const char *any_cgroup(struct stress *s)
{
	return cgroups[1 + below(s, NR_CGROUPS - 1)];
}

static __printf(2, 3) void complain(struct stress *s, const char *format, ...)
{
	char text[256];
	va_list args;

	s->sum->wrong++;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	ksft_print_msg("process %u: %s\n", s->number, text);
}

/*
 * Checks
 */

static struct slot *find_slot(struct stress *s, __u64 id)
{
	int i;

	for (i = 0; i < NR_SLOTS; i++) {
		if (s->slot[i].fd >= 0 && s->slot[i].id == id)
			return &s->slot[i];
	}

	return NULL;
}

/* What a count would be that does not have what its counter starts with. */
static __u64 without_start(__u64 value, __u64 start)
{
	return value > start ? value - start : 0;
}

/* Has an event counted more than there was? */
static bool too_much(struct stress *s, __u64 value, __u64 running)
{
	__u64 max = MAX_RATE * running + MAX_DELAY;
	int i;

	if (value <= max)
		return false;

	if (value >= START_64 / 2)
		value = without_start(value, START_64);
	for (i = 0; i < MAX_STARTS && value > max && value >= START_32 / 2; i++)
		value = without_start(value, START_32);
	s->sum->lost += value <= max;

	return value > max;
}

/*
 * Reads twice. The second time bounds what the first one says where that is not
 * one snapshot: for an event that runs on another CPU.
 */
static void read_alone(struct stress *s, struct slot *slot)
{
	struct {
		__u64		value;
		__u64		enabled;
		__u64		running;
		__u64		id;
	} one, two;

	/* Nothing comes from a pinned event that lost its counter. */
	if (read(slot->fd, &one, sizeof(one)) != sizeof(one) ||
	    read(slot->fd, &two, sizeof(two)) != sizeof(two))
		return;

	s->sum->checked++;
	if (one.id != slot->id)
		complain(s, "event %llu has the id %llu", slot->id, one.id);
	/* Two tasks may be just about to exchange their counts. */
	if (slot->inherit_stat)
		return;

	if (one.value < slot->last || two.value < one.value || two.enabled < one.enabled ||
	    two.running < one.running || one.running > two.enabled ||
	    too_much(s, one.value, two.running))
		complain(s, "event %llu: %llu, %llu (%llu of %llu ns), %llu (%llu of %llu)",
			 slot->id, slot->last, one.value, one.running, one.enabled, two.value,
			 two.running, two.enabled);
	slot->last = two.value;
}

static void read_group(struct stress *s, struct slot *slot)
{
	struct {
		__u64			nr;
		__u64			enabled;
		__u64			running;
		struct {
			__u64		value;
			__u64		id;
		}			member[NR_SLOTS];
	} data;
	struct slot *leader, *member;
	ssize_t len;
	__u64 i;

	/* Nothing comes from a pinned event, an error while children come and go. */
	len = read(slot->fd, &data, sizeof(data));
	if (len <= 0)
		return;

	s->sum->checked++;
	if (data.nr > NR_SLOTS || (size_t)len != offsetof(typeof(data), member[data.nr])) {
		complain(s, "group of %llu: %zd bytes with %llu members", slot->id, len, data.nr);
		return;
	}
	/* The members of children are added up one by one, not at one instant. */
	leader = find_slot(s, data.member[0].id);
	if (leader && !leader->inherit && data.running > data.enabled)
		complain(s, "group of %llu is enabled for %llu and runs %llu", slot->id,
			 data.enabled, data.running);
	for (i = 0; i < data.nr; i++) {
		/* The leader may be closed, and its members are just leaving. */
		member = find_slot(s, data.member[i].id);
		if (!member || member->inherit)
			continue;
		if (data.member[i].value < member->last)
			complain(s, "event %llu in a group went from %llu to %llu", member->id,
				 member->last, data.member[i].value);
		member->last = data.member[i].value;
	}
}

/*
 * What the processes do
 */

static struct slot *any_slot(struct stress *s, bool used)
{
	struct slot *slot;
	int i;

	for (i = 0; i < NR_SLOTS; i++) {
		slot = &s->slot[below(s, NR_SLOTS)];
		if (slot->fd >= 0 ? used : !used)
			return slot;
	}

	return NULL;
}

static struct perf_event_attr random_attr(struct stress *s)
{
	/* Few kinds, so that many are equal. The last one is no hardware event. */
	static const struct { __u32 type, config; } kinds[] = {
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND },
		{ PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK },
	};
	unsigned int kind = below(s, ARRAY_SIZE(kinds));
	struct perf_event_attr attr = {
		.type		= kinds[kind].type,
		.config		= kinds[kind].config,
		.size		= sizeof(attr),
		.read_format	= READ_TIMES | PERF_FORMAT_ID,
	};

	attr.exclude_user = one_in(s, 4);
	attr.exclude_kernel = !attr.exclude_user && one_in(s, 3);
	attr.disabled = one_in(s, 3);
	attr.pinned = one_in(s, 5);
	attr.exclusive = one_in(s, 20);
	attr.inherit = one_in(s, 3);
	attr.inherit_stat = attr.inherit && one_in(s, 4);
	attr.inherit_thread = attr.inherit && one_in(s, 8);
	attr.enable_on_exec = attr.disabled && one_in(s, 2);
	attr.remove_on_exec = !attr.enable_on_exec && one_in(s, 6);
	if (one_in(s, 3))
		attr.read_format |= PERF_FORMAT_GROUP;
	/* The driver of arm64: 64 bits wide, to be read in user space. */
	if (one_in(s, 6))
		attr.config1 = below(s, 4);
	if (one_in(s, 6)) {
		attr.sample_period = 200000 + below(s, 5000000);
		attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID;
		/* Children would share one ring buffer. */
		if (!attr.inherit && one_in(s, 2))
			attr.sample_type |= PERF_SAMPLE_READ;
		attr.wakeup_events = below(s, 3);
	}

	return attr;
}

enum { ON_CPU, ON_CGROUP, ON_TASK };

static void open_on(struct stress *s, struct perf_event_attr attr, unsigned int where)
{
	struct slot *slot = any_slot(s, false), *leader = NULL;
	unsigned long flags = PERF_FLAG_FD_CLOEXEC;
	int cpu = below(s, s->nr_cpus);
	int pid = -1, cgroup_fd = -1;

	if (!slot)
		return;

	switch (where) {
	case ON_CPU:
		break;
	case ON_CGROUP:
		cgroup_fd = open(any_cgroup(s), O_RDONLY | O_CLOEXEC);
		pid = cgroup_fd;
		flags |= PERF_FLAG_PID_CGROUP;
		break;
	default:
		if (one_in(s, 3))
			pid = 0;
		else if (one_in(s, 2))
			pid = any_victim(s);
		else
			pid = s->shared->grandchild[below(s, NR_VICTIMS)];
		if (!one_in(s, 4))
			cpu = -1;
	}
	if (one_in(s, 3))
		leader = any_slot(s, true);
	/* Which siblings can not be. */
	attr.pinned &= !leader;
	attr.exclusive &= !leader;

	slot->fd = syscall(SYS_perf_event_open, &attr, pid, cpu, leader ? leader->fd : -1,
			   flags);
	if (cgroup_fd >= 0)
		close(cgroup_fd);
	if (slot->fd < 0)
		return;

	s->sum->opened++;
	if (ioctl(slot->fd, PERF_EVENT_IOC_ID, &slot->id))
		complain(s, "an event has no id: %s", strerror(errno));
	slot->group = leader ? leader->group : slot->id;
	slot->last = 0;
	slot->pages = MAP_FAILED;
	slot->inherit = attr.inherit;
	slot->inherit_stat = attr.inherit_stat;
	slot->group_format = attr.read_format & PERF_FORMAT_GROUP;
}

static void op_open(struct stress *s)
{
	unsigned int where = below(s, ON_TASK + 2);

	open_on(s, random_attr(s), where);
}

/* The same on a CPU, a cgroup and a task, which is where scopes meet. */
static void op_scopes(struct stress *s)
{
	struct perf_event_attr attr = random_attr(s);
	unsigned int first = below(s, 3), i;

	attr.sample_period = 0;
	attr.sample_type = 0;
	attr.exclusive = 0;
	for (i = 0; i < 3; i++) {
		attr.pinned = one_in(s, 4);
		open_on(s, attr, (first + i) % 3);
	}
}

static void unmap(struct slot *slot)
{
	if (slot->pages != MAP_FAILED)
		munmap(slot->pages, 2 * sysconf(_SC_PAGESIZE));
	slot->pages = MAP_FAILED;
}

static void op_close(struct stress *s)
{
	struct slot *slot = any_slot(s, true);

	if (!slot)
		return;
	/* Or else the mapping keeps the event. */
	if (one_in(s, 2))
		unmap(slot);
	close(slot->fd);
	slot->fd = -1;
	unmap(slot);
}

static void op_read(struct stress *s)
{
	struct slot *slot = any_slot(s, true);

	if (!slot)
		return;
	if (slot->group_format)
		read_group(s, slot);
	else
		read_alone(s, slot);
}

static void op_control(struct stress *s)
{
	static const unsigned long requests[] = {
		PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_DISABLE,
		PERF_EVENT_IOC_RESET, PERF_EVENT_IOC_REFRESH, PERF_EVENT_IOC_PERIOD,
		PERF_EVENT_IOC_SET_OUTPUT, PERF_EVENT_IOC_PAUSE_OUTPUT,
	};
	unsigned long request = requests[below(s, ARRAY_SIZE(requests))];
	/* PERF_IOC_FLAG_GROUP or not, pause or go on, or how many samples. */
	unsigned long arg = below(s, 2);
	struct slot *slot = any_slot(s, true), *other = any_slot(s, true);
	__u64 period = 200000 + below(s, 5000000);
	int i;

	if (!slot || !other)
		return;

	if (request == PERF_EVENT_IOC_SET_OUTPUT)
		arg = arg ? other->fd : -1;
	else if (request == PERF_EVENT_IOC_PERIOD)
		arg = (unsigned long)&period;
	ioctl(slot->fd, request, arg);

	for (i = 0; i < NR_SLOTS && request == PERF_EVENT_IOC_RESET; i++) {
		other = &s->slot[i];
		if (other == slot || (arg && other->group == slot->group))
			other->last = 0;
	}
}

static void op_map(struct stress *s)
{
	struct slot *slot = any_slot(s, true);

	if (!slot)
		return;
	if (slot->pages != MAP_FAILED) {
		unmap(slot);
		return;
	}

	slot->pages = mmap(NULL, 2 * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED,
			   slot->fd, 0);
}

static void op_work(struct stress *s)
{
	burn_and_call(1000 + below(s, 20000));
}

static void run_myself(void)
{
	execl("/proc/self/exe", "/proc/self/exe", BURN_ARGUMENT, NULL);
	_exit(1);
}

/* The child has the file descriptors and the inherited events. */
static void op_fork(struct stress *s)
{
	pid_t pid = fork();

	if (pid > 0) {
		if (one_in(s, 2))
			op_read(s);
		waitpid(pid, NULL, 0);
	}
	if (pid)
		return;

	op_read(s);
	op_work(s);
	if (one_in(s, 2))
		run_myself();
	_exit(0);
}

static void op_move(struct stress *s)
{
	/* Refused when there is only a CPU that is away. */
	bind_to_cpu(one_in(s, 2) ? 0 : any_victim(s), below(s, s->nr_cpus));
}

static void move_process(const char *cgroup, pid_t pid)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	write_long(path, pid);
}

static void op_cgroup(struct stress *s)
{
	const char *cgroup = any_cgroup(s);

	if (!s->has_cgroups)
		return;

	switch (below(s, 4)) {
	case 0:
		mkdir(cgroup, 0755);
		return;
	case 1:
		/* Fails while a task is there. */
		rmdir(cgroup);
		return;
	case 2:
		cgroup = cgroups[0];
		break;
	}
	move_process(cgroup, one_in(s, 3) ? getpid() : any_victim(s));
}

/* What concerns the whole machine is for one process to do. */
static void op_machine(struct stress *s)
{
	char online[64];

	if (s->number)
		return;

	if (one_in(s, 4)) {
		write_long(DUP_SYSCTL, below(s, 3));
	} else if (one_in(s, 4)) {
		write_long(USER_ACCESS, below(s, 2));
	} else if (one_in(s, 4) && s->nr_cpus > 1) {
		snprintf(online, sizeof(online), "/sys/devices/system/cpu/cpu%u/online",
			 1 + below(s, s->nr_cpus - 1));
		if (write_string(online, "0"))
			return;
		op_open(s);
		op_close(s);
		op_read(s);
		if (write_string(online, "1"))
			complain(s, "%s can not be 1", online);
	}
}

static const struct {
	void			(*func)(struct stress *s);
	unsigned int		weight;
} ops[] = {
	{ op_open,	24 },
	{ op_scopes,	3 },
	{ op_close,	18 },
	{ op_read,	30 },
	{ op_control,	25 },
	{ op_map,	8 },
	{ op_work,	6 },
	{ op_fork,	1 },
	{ op_move,	3 },
	{ op_cgroup,	4 },
	{ op_machine,	2 },
};

static void run_process(struct stress *s, unsigned int number, long seconds)
{
	__u64 end = nanoseconds() + seconds * 1000000000ULL;
	unsigned int total = 0, draw, i;

	s->number = number;
	s->sum = &s->shared->of[number];
	for (i = 0; i < NR_SLOTS; i++)
		s->slot[i].fd = -1;
	for (i = 0; i < ARRAY_SIZE(ops); i++)
		total += ops[i].weight;

	while (nanoseconds() < end) {
		draw = below(s, total);
		for (i = 0; draw >= ops[i].weight; i++)
			draw -= ops[i].weight;
		ops[i].func(s);
		s->sum->done++;
	}
}

/* Parent and child take turns: with equal contexts, they exchange these. */
static void take_turns(int from, int to, unsigned int turns, bool first)
{
	char byte = 0;

	while (turns--) {
		if (first && write(to, &byte, 1) != 1)
			return;
		if (read(from, &byte, 1) != 1)
			return;
		burn(500);
		if (!first && write(to, &byte, 1) != 1)
			return;
	}
}

/* A task that others count. */
static void run_victim(struct stress *s, unsigned int number)
{
	int there[2], back[2];
	pid_t pid;

	if (pipe(there) || pipe(back))
		return;

	for (;;) {
		op_work(s);
		usleep(below(s, 20000));
		if (one_in(s, 2))
			bind_to_cpu(0, below(s, s->nr_cpus));

		pid = fork();
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			/* With another cgroup, each turn is a switch of cgroups. */
			if (s->has_cgroups && one_in(s, 2))
				move_process(any_cgroup(s), getpid());
			take_turns(there[0], back[1], 30, false);
			if (s->random & 1)
				run_myself();
			_exit(0);
		}
		s->shared->grandchild[number] = pid;
		take_turns(back[0], there[1], 30, true);
		waitpid(pid, NULL, 0);
		next_random(s);
	}
}

static void remove_cgroups(void)
{
	int i, tries;

	/* The last tasks may still be about to leave. */
	for (i = NR_CGROUPS - 1; i > 0; i--) {
		for (tries = 0; tries < 100 && rmdir(cgroups[i]) && errno == EBUSY; tries++)
			usleep(50000);
	}
}

static struct perf_event_attr cycles(void)
{
	struct perf_event_attr attr = instructions();

	attr.config = PERF_COUNT_HW_CPU_CYCLES;
	return attr;
}

static long number_from(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

FIXTURE_SETUP(dup_stress)
{
	struct perf_event_attr attr = cycles();
	struct dup_test *t = &self->t;
	unsigned int i;
	int fd;

	t->sysctl = read_long(DUP_SYSCTL);
	if (t->sysctl < 0 && !getenv(DUP_FORCE))
		SKIP(return, "kernel without shared counters");
	if (t->sysctl >= 0 && write_long(DUP_SYSCTL, 1))
		SKIP(return, "no permission to write " DUP_SYSCTL);
	fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		SKIP(return, "no event for cycles: %s", strerror(errno));
	close(fd);

	t->tainted = read_long(TAINTED);
	for (i = 0; i < NR_SETTINGS; i++) {
		self->saved[i] = read_long(settings[i].path);
		write_long(settings[i].path, settings[i].value);
	}
	self->nr_saved = i;
	self->nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	self->seconds = number_from("DUP_STRESS_SECONDS", DEFAULT_SECONDS);
	self->seed = number_from("DUP_STRESS_SEED", time(NULL));

	self->shared = mmap(NULL, sizeof(*self->shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->shared);
	self->has_cgroups = !access("/sys/fs/cgroup/cgroup.procs", W_OK);
}

FIXTURE_TEARDOWN(dup_stress)
{
	unsigned int i;

	if (self->has_cgroups)
		remove_cgroups();
	for (i = self->nr_saved; i-- > 0;) {
		/* Not every architecture has the last one. */
		if (self->saved[i] >= 0)
			EXPECT_EQ(0, write_long(settings[i].path, self->saved[i]));
	}
	dup_teardown(_metadata, &self->t);
}

/* Two openers' events on a task share the one counter that is left. */
static void share_again(struct __test_metadata *_metadata, struct dup_test *t)
{
	struct sched_param param = { .sched_priority = 1 };
	struct perf_event_attr attr = instructions();
	struct perf_event_attr filler = cycles();
	struct perf_event_attr ref_attr;
	struct target target;
	struct counts counts;
	int a, b, ref, i;
	bool exact;

	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param));
	start_opener(_metadata, &t->a);
	start_opener(_metadata, &t->b);
	start_opener(_metadata, &t->filler);
	start_worker(_metadata, &t->worker, t->cpu);
	wait_for_sleep(_metadata, &t->worker);
	target = on_task(t->worker.pid);

	/* Two counters of cycles are not read at one instant. */
	ref = try_open(_metadata, &t->a, &attr, target, -1);
	exact = ref >= 0;
	if (exact)
		close(ref);
	else
		attr = cycles();
	ref_attr = reference(attr);

	filler.exclude_user = 1;
	filler.exclude_kernel = 1;
	t->nr_general = take_counters(_metadata, &t->filler, &filler, on_cpu(t->cpu),
				      t->filler_fd, MAX_COUNTERS);
	release_counter(_metadata, t);
	release_counter(_metadata, t);

	ref = open_event(_metadata, &t->a, &ref_attr, target);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	worker_runs(_metadata, &t->worker);
	EXPECT_TRUE(runs_always(ref));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));
	EXPECT_EQ(read_value(_metadata, a), read_value(_metadata, b)) {
		int fds[] = { ref, a, b };

		for (i = 0; i < 3; i++) {
			counts = read_counts(_metadata, fds[i]);
			TH_LOG("%llu in %llu of %llu ns", counts.value, counts.running,
			       counts.enabled);
		}
	}
	if (exact)
		EXPECT_EQ(read_value(_metadata, ref), read_value(_metadata, a));
}

TEST_F_TIMEOUT(dup_stress, random, MAX_SECONDS + 600)
{
	pid_t pid[NR_PROCESSES + NR_VICTIMS];
	struct shared *shared = self->shared;
	static struct stress s;
	struct summary *sum;
	int i, status;

	ASSERT_GE(self->seconds, 1);
	ASSERT_LE(self->seconds, MAX_SECONDS);
	TH_LOG("seed %llu, %ld seconds, %u CPUs, %s", self->seed, self->seconds, self->nr_cpus,
	       self->has_cgroups ? "with cgroups" : "no cgroup2 in /sys/fs/cgroup");

	s.shared = shared;
	s.nr_cpus = self->nr_cpus;
	s.has_cgroups = self->has_cgroups;
	for (i = NR_PROCESSES + NR_VICTIMS - 1; i >= 0; i--) {
		s.random = (self->seed + i) * 0x9E3779B97F4A7C15ULL | 1;
		pid[i] = fork();
		ASSERT_GE(pid[i], 0);
		if (!pid[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i < NR_PROCESSES)
				run_process(&s, i, self->seconds);
			else
				run_victim(&s, i - NR_PROCESSES);
			_exit(0);
		}
		if (i >= NR_PROCESSES)
			shared->victim[i - NR_PROCESSES] = pid[i];
	}
	for (i = 0; i < NR_PROCESSES + NR_VICTIMS; i++) {
		if (i >= NR_PROCESSES)
			kill(pid[i], SIGKILL);
		ASSERT_EQ(pid[i], waitpid(pid[i], &status, 0));
		EXPECT_EQ(i < NR_PROCESSES ? 0 : SIGKILL, status);
	}

	for (i = 0; i < NR_PROCESSES; i++) {
		sum = &shared->of[i];
		TH_LOG("process %d: %lu operations, %lu opened, %lu reads, %lu off by a start",
		       i, sum->done, sum->opened, sum->checked, sum->lost);
		EXPECT_EQ(0UL, sum->wrong);
		EXPECT_GT(sum->opened, 0UL);
		EXPECT_GT(sum->checked, 0UL);
	}

	write_long(DUP_SYSCTL, 1);
	share_again(_metadata, &self->t);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], BURN_ARGUMENT)) {
		burn(LOOPS / 10);
		return 0;
	}

	return test_harness_run(argc, argv);
}
