// SPDX-License-Identifier: GPL-2.0
/*
 * Allocations fail, one at a time, while events are opened that could share a
 * counter, and while a task with many of them forks. Sharing must not be the
 * reason for an error: an event that can not share has a counter of its own.
 *
 * It is the n-th allocation of one system call that fails, for all n, by
 * /proc/self/fail-nth (see Documentation/fault-injection/fault-injection.rst).
 * The task that makes the call writes this itself, just before.
 */
#include <dirent.h>
#include <limits.h>

#include <sys/stat.h>

#include "dup.h"

#define FAILSLAB	"/sys/kernel/debug/failslab/"
#define SLABS		"/sys/kernel/slab"

/* More than a fork with many events makes. */
#define MAX_ALLOCATIONS	2000U

/* What leaks each time is told from what else goes on in the kernel. */
#define LEAK_ROUNDS	100
#define FORK_ROUNDS	3
#define MANY_OBJECTS	60

/* A process that opens an event or forks while an allocation fails. */
struct culprit {
	pid_t			pid;
	int			sock;
};

struct fail_request {
	/* Fork when there is no attr. */
	struct open_request	open;
	unsigned int		nth;
	unsigned long		loops;
};

struct fail_result {
	/* A file descriptor, a pid or a negative error number. */
	int			result;
	/* Whether there were that many allocations at all. */
	bool			failed;
};

static const struct {
	const char		*path;
	const char		*value;
} settings[] = {
	/* Allocations that may sleep are the ones that are meant. */
	{ FAILSLAB "ignore-gfp-wait", "N" },
	/* No stack dumps. */
	{ FAILSLAB "verbose", "0" },
	/* Nothing fails but for fail-nth. */
	{ FAILSLAB "probability", "0" },
};

#define NR_SETTINGS	ARRAY_SIZE(settings)

struct fail_test {
	struct dup_test		t;
	struct culprit		culprit;
	char			saved[NR_SETTINGS][32];
	unsigned int		nr_saved;
};

FIXTURE(dup_fail)
{
	struct fail_test	f;
};

/*
 * The process that fails
 */

static void write_nth(int fd, unsigned int nth)
{
	char text[16];
	int len;

	len = snprintf(text, sizeof(text), "%u", nth);
	if (pwrite(fd, text, len, 0) != len)
		_exit(1);
}

static unsigned int read_nth(int fd)
{
	char text[16] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		_exit(1);

	return strtoul(text, NULL, 10);
}

/* Not by fork(), whose handlers may do something. */
static void *do_fork(struct fail_request *req)
{
	int pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!pid) {
		burn(req->loops);
		_exit(0);
	}
	req->open.result = pid < 0 ? -errno : pid;

	return NULL;
}

static void fail_on_request(int sock)
{
	struct fail_request req;
	struct fail_result res;
	int fail_fd, none[2];
	bool is_open;

	fail_fd = open("/proc/self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_fd < 0)
		_exit(1);

	while (recv_message(sock, &req, sizeof(req), none) >= 0) {
		is_open = req.open.attr.size;

		write_nth(fail_fd, req.nth);
		if (is_open)
			do_open(&req.open);
		else
			do_fork(&req);
		res.failed = req.nth && !read_nth(fail_fd);
		write_nth(fail_fd, 0);
		res.result = req.open.result;

		if (!is_open && res.result > 0)
			waitpid(res.result, NULL, 0);
		burn(req.loops);
		send_message(sock, &res, sizeof(res), &res.result,
			     is_open && res.result >= 0);
		if (is_open && res.result >= 0)
			close(res.result);
		/* The event is in the hands of the test alone. */
		send_message(sock, &res, sizeof(res), NULL, 0);
	}
}

static void start_culprit(struct __test_metadata *_metadata, struct culprit *culprit, int cpu)
{
	culprit->pid = fork_child(&culprit->sock);
	ASSERT_GE(culprit->pid, 0);
	if (!culprit->pid) {
		fail_on_request(culprit->sock);
		_exit(0);
	}
	ASSERT_EQ(0, bind_to_cpu(culprit->pid, cpu));
}

static struct fail_result request_failure(struct __test_metadata *_metadata,
					  struct culprit *culprit, struct fail_request *req)
{
	struct fail_result res, done;
	int fds[2], none[2], nr;

	ASSERT_TRUE(send_message(culprit->sock, req, sizeof(*req), NULL, 0));
	nr = recv_message(culprit->sock, &res, sizeof(res), fds);
	ASSERT_GE(nr, 0);
	ASSERT_EQ(0, recv_message(culprit->sock, &done, sizeof(done), none));
	if (nr)
		res.result = fds[0];

	return res;
}

/* Opens an event while the @nth allocation fails; none does if that is 0. */
static struct fail_result open_failing(struct __test_metadata *_metadata,
				       struct culprit *culprit,
				       const struct perf_event_attr *attr,
				       struct target target, unsigned int nth)
{
	struct fail_request req = {
		.open.attr	= *attr,
		.open.target	= target,
		.nth		= nth,
	};

	return request_failure(_metadata, culprit, &req);
}

/* See wait_for_sleep(). */
static void wait_for_culprit(struct __test_metadata *_metadata, struct culprit *culprit)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/syscall", culprit->pid);
	do {
		usleep(5000);
	} while (read_long(path) != SYS_recvmsg);
}

/* The child works and exits before this returns, and its parent sleeps. */
static struct fail_result fork_failing(struct __test_metadata *_metadata,
				       struct culprit *culprit, unsigned int nth,
				       unsigned long loops)
{
	struct fail_request req = { .nth = nth, .loops = loops };
	struct fail_result res;

	res = request_failure(_metadata, culprit, &req);
	wait_for_culprit(_metadata, culprit);

	return res;
}

FIXTURE_SETUP(dup_fail)
{
	struct dup_test *t = &self->f.t;
	unsigned int i;
	int fd;

	if (access("/proc/self/fail-nth", W_OK) || access(settings[0].path, W_OK))
		SKIP(return, "no /proc/self/fail-nth, or no " FAILSLAB);
	if (!dup_setup(_metadata, t))
		return;

	for (i = 0; i < NR_SETTINGS; i++) {
		fd = open(settings[i].path, O_RDONLY | O_CLOEXEC);
		ASSERT_GE(fd, 0);
		ASSERT_GT(read(fd, self->f.saved[i], sizeof(self->f.saved[i]) - 1), 0);
		close(fd);
		ASSERT_EQ(0, write_string(settings[i].path, settings[i].value));
		self->f.nr_saved++;
	}

	start_culprit(_metadata, &self->f.culprit, t->cpu);
	wait_for_culprit(_metadata, &self->f.culprit);
}

FIXTURE_TEARDOWN(dup_fail)
{
	unsigned int i;

	for (i = 0; i < self->f.nr_saved; i++)
		EXPECT_EQ(0, write_string(settings[i].path, self->f.saved[i]));
	dup_teardown(_metadata, &self->f.t);
}

/*
 * Leaks
 */

struct slab {
	char			name[64];
	long			objects;
};

struct slabs {
	unsigned int		nr;
	struct slab		slab[512];
};

/* The objects of all slabs, without those that are free but kept for later. */
static void count_objects(struct slabs *slabs)
{
	DIR *dir = opendir(SLABS);
	struct dirent *ent;
	char path[PATH_MAX];

	slabs->nr = 0;
	while (dir && (ent = readdir(dir)) && slabs->nr < ARRAY_SIZE(slabs->slab)) {
		struct slab *slab = &slabs->slab[slabs->nr];

		/* Of the checks of the kernel, which fill it ahead. */
		if (!strcmp(ent->d_name, "debug_objects_cache"))
			continue;
		if (snprintf(slab->name, sizeof(slab->name), "%s", ent->d_name) >=
		    (int)sizeof(slab->name))
			continue;
		snprintf(path, sizeof(path), SLABS "/%s/shrink", slab->name);
		write_string(path, "1");
		snprintf(path, sizeof(path), SLABS "/%s/objects", slab->name);
		slab->objects = read_long(path);
		slabs->nr += slab->objects >= 0;
	}
	if (dir)
		closedir(dir);
}

/* Finds a slab that has @more objects than before. */
static const struct slab *find_leak(struct slabs *before, struct slabs *now, long more)
{
	unsigned int i, j;

	for (i = 0; i < now->nr; i++) {
		for (j = 0; j < before->nr; j++) {
			if (!strcmp(before->slab[j].name, now->slab[i].name) &&
			    now->slab[i].objects >= before->slab[j].objects + more)
				return &now->slab[i];
		}
	}

	return NULL;
}

static void expect_no_leak(struct __test_metadata *_metadata, struct slabs *before, long more)
{
	static struct slabs now;
	const struct slab *leak;
	int i;

	ASSERT_GT(before->nr, 0U)
		TH_LOG("no " SLABS);

	/* Much is freed after a grace period of RCU only. */
	for (i = 0; i < 20; i++) {
		usleep(200000);
		count_objects(&now);
		leak = find_leak(before, &now, more);
		if (!leak)
			return;
	}
	EXPECT_EQ(NULL, leak)
		TH_LOG("%s leaks: it has %ld objects", leak->name, leak->objects);
}

/*
 * Tests
 */

struct outcomes {
	unsigned int		refused;
	unsigned int		unshared;
	unsigned int		shared;
};

struct open_case {
	struct target		target;
	/* Which of the two is opened with failures. */
	bool			first;
	/* A counter of the PMU for each event, or one for both. */
	bool			roomy;
	int			ref;
};

/* Two pinned events; returns false when no allocation was left to fail. */
static bool open_both(struct __test_metadata *_metadata, struct fail_test *f,
		      const struct open_case *c, unsigned int nth, struct outcomes *outcomes)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &f->t;
	struct bracket from, to;
	struct fail_result res;
	int a = -1, fd[2], i;

	attr.pinned = 1;
	if (!c->first)
		a = open_event(_metadata, &t->a, &attr, c->target);
	res = open_failing(_metadata, &f->culprit, &attr, c->target, nth);
	if (c->first)
		a = open_event(_metadata, &t->a, &attr, c->target);
	fd[0] = c->first && res.result >= 0 ? res.result : a;
	fd[1] = fd[0] == a ? res.result : a;

	/* Until here a sleeping task has not tried to put them on the PMU. */
	worker_does(_metadata, &t->worker, WORK_LOOP, 1);

	if (res.result < 0) {
		outcomes->refused++;
		EXPECT_EQ(-ENOMEM, res.result);
		EXPECT_TRUE(res.failed);
	} else if (runs_always(fd[1])) {
		outcomes->shared++;
	} else {
		outcomes->unshared++;
		EXPECT_TRUE(res.failed);
		EXPECT_FALSE(c->roomy);
		close(fd[1]);
		fd[1] = -1;
	}

	for (i = 0; i < 2 && fd[i] >= 0; i++) {
		from = read_bracket(_metadata, c->ref, fd[i]);
		worker_does(_metadata, &t->worker, WORK_LOOP, LOOPS / 10);
		to = read_bracket(_metadata, c->ref, fd[i]);
		EXPECT_GE(to.inner - from.inner, LOOPS / 10);
		/* On a task, which stands still meanwhile, the brackets are equal. */
		expect_bracketed(_metadata, from, to);
		EXPECT_TRUE(runs_always(fd[i]));
	}
	for (i = 0; i < 2 && fd[i] >= 0; i++)
		close(fd[i]);

	return res.failed;
}

static unsigned int open_all(struct __test_metadata *_metadata, struct fail_test *f,
			     const struct open_case *c, struct outcomes *outcomes)
{
	unsigned int nth = 1;

	while (open_both(_metadata, f, c, nth, outcomes))
		ASSERT_LT(++nth, MAX_ALLOCATIONS);

	TH_LOG("%s of two, %s: %u refused, %u without sharing, %u shared",
	       c->first ? "first" : "second", c->roomy ? "room for both" : "one counter",
	       outcomes->refused, outcomes->unshared, outcomes->shared);

	return nth;
}

/*
 * An event opens with ENOMEM, where it does without sharing, or it shares, or it
 * has a counter of its own; and what runs counts right.
 */
static void try_opens(struct __test_metadata *_metadata, struct fail_test *f,
		      struct target target)
{
	struct perf_event_attr attr = reference(instructions());
	struct open_case c = { .target = target };
	struct outcomes tight, roomy;
	struct dup_test *t = &f->t;
	bool allocates;
	int i, round;

	leave_counters(_metadata, t, t->cpu, 2);
	c.ref = open_event(_metadata, &t->b, &attr, target);

	for (i = 0; i < 2; i++) {
		c.first = i;
		tight = (struct outcomes) {};
		/* On a CPU the first one brings all, and the second one finds it. */
		allocates = i || target.pid >= 0;
		/* Not each time an open makes the same allocations. */
		round = 0;
		do
			open_all(_metadata, f, &c, &tight);
		while (allocates && !tight.unshared && ++round < 10);
		EXPECT_GE(tight.refused, 1U);
		/* With no memory for what sharing needs. */
		EXPECT_EQ(allocates, !!tight.unshared);
		/* At least when nothing failed. */
		EXPECT_GE(tight.shared, 1U);
	}

	/* Again, where those that do not share have counters of their own. */
	c.roomy = true;
	release_counter(_metadata, t);
	for (i = 0; i < 2; i++) {
		c.first = i;
		roomy = (struct outcomes) {};
		open_all(_metadata, f, &c, &roomy);
	}
}

TEST_F_TIMEOUT(dup_fail, open_on_task, 120)
{
	try_opens(_metadata, &self->f, on_task(self->f.t.worker.pid));
}

TEST_F_TIMEOUT(dup_fail, open_on_cpu, 120)
{
	try_opens(_metadata, &self->f, on_cpu(self->f.t.cpu));
}

/* Whichever allocation of an open fails, what was allocated before is freed. */
TEST_F_TIMEOUT(dup_fail, open_leaks_nothing, 120)
{
	struct target target = on_task(self->f.t.worker.pid);
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->f.t;
	static struct slabs before;
	struct fail_result res;
	unsigned int i, nth;
	int a;

	for (i = 0; i <= LEAK_ROUNDS; i++) {
		/* Not the first round: some things are allocated once. */
		if (i <= 1)
			count_objects(&before);
		nth = 1;
		do {
			ASSERT_LT(nth, MAX_ALLOCATIONS);
			a = open_event(_metadata, &t->a, &attr, target);
			res = open_failing(_metadata, &self->f.culprit, &attr, target, nth++);
			if (res.result >= 0)
				close(res.result);
			close(a);
		} while (res.failed);
	}
	expect_no_leak(_metadata, &before, MANY_OBJECTS);
}

/*
 * Fork
 */

#define NR_INHERITED	4
#define NR_OPENERS	3

struct family {
	int			event[NR_OPENERS][NR_INHERITED];
	int			ref;
};

/* Many inherited events on the process that forks. */
static void open_family(struct __test_metadata *_metadata, struct fail_test *f,
			struct family *family)
{
	struct opener *openers[NR_OPENERS] = { &f->t.a, &f->t.b, &f->t.filler };
	struct target target = on_task(f->culprit.pid);
	struct perf_event_attr attr;
	int i, kind;

	for (i = 0; i < NR_OPENERS; i++) {
		for (kind = 0; kind < NR_INHERITED; kind++) {
			attr = instructions();
			attr.inherit = 1;
			attr.exclude_user = kind == 1;
			attr.exclude_kernel = kind == 2;
			if (kind == 3)
				attr.config = PERF_COUNT_HW_CPU_CYCLES;
			family->event[i][kind] = open_event(_metadata, openers[i], &attr,
							    target);
		}
	}

	/* For the first kind only: counters are few. */
	attr = reference(instructions());
	attr.inherit = 1;
	family->ref = open_event(_metadata, &f->t.a, &attr, target);

	/* They are enabled from when the process runs. */
	fork_failing(_metadata, &f->culprit, 0, 1);
}

static void close_family(struct family *family)
{
	int i, kind;

	for (i = 0; i < NR_OPENERS; i++) {
		for (kind = 0; kind < NR_INHERITED; kind++)
			close(family->event[i][kind]);
	}
	close(family->ref);
}

/* All events of a kind are equal. Returns what those of the first kind counted. */
static __u64 read_family(struct __test_metadata *_metadata, struct family *family)
{
	__u64 value = read_value(_metadata, family->ref);
	int i, kind;

	EXPECT_EQ(value, read_value(_metadata, family->event[0][0]));
	for (i = 0; i < NR_OPENERS; i++) {
		for (kind = 0; kind < NR_INHERITED; kind++) {
			EXPECT_TRUE(runs_always(family->event[i][kind]));
			EXPECT_EQ(read_value(_metadata, family->event[0][kind]),
				  read_value(_metadata, family->event[i][kind]));
		}
	}

	return value;
}

/* Forks, and expects the parent, and the child if there is one, to be counted. */
static struct fail_result fork_family(struct __test_metadata *_metadata,
				      struct fail_test *f, struct family *family,
				      unsigned int nth)
{
	__u64 from = read_family(_metadata, family);
	unsigned long loops = LOOPS / 10;
	struct fail_result res;
	__u64 counted;

	res = fork_failing(_metadata, &f->culprit, nth, loops);
	counted = read_family(_metadata, family) - from;
	EXPECT_GE(counted, res.result > 0 ? 2 * loops : loops);

	return res;
}

/*
 * Each of the events may be the one for which there is no memory. Either the fork
 * fails, and leaves no trace, or a child's event has a counter of its own.
 */
TEST_F_TIMEOUT(dup_fail, fork, 300)
{
	unsigned int nth, refused = 0, unnoticed = 0;
	struct family family;
	struct fail_result res;

	open_family(_metadata, &self->f, &family);
	for (nth = 1, res.failed = true; res.failed; nth++) {
		ASSERT_LT(nth, MAX_ALLOCATIONS);
		res = fork_family(_metadata, &self->f, &family, nth);
		if (res.result > 0 && res.failed) {
			/*
			 * Parent and child may have exchanged their contexts, and
			 * then it is the parent that has a counter more.
			 */
			unnoticed++;
			close_family(&family);
			open_family(_metadata, &self->f, &family);
		}
		if (res.result > 0)
			continue;

		refused++;
		EXPECT_EQ(-ENOMEM, res.result);
		EXPECT_TRUE(res.failed);
		res = fork_family(_metadata, &self->f, &family, 0);
		EXPECT_GT(res.result, 0);
		res.failed = true;
	}

	TH_LOG("%u allocations: %u forks refused, %u not", nth - 2, refused, unnoticed);
	/* Each event of a child has to be allocated. */
	EXPECT_GE(refused, (unsigned int)NR_OPENERS * NR_INHERITED);
	/* A child's dups and masters may be missing. */
	EXPECT_GE(unnoticed, 2U * NR_INHERITED);
}

/* Whichever allocation of a fork fails, what was allocated before is freed. */
TEST_F_TIMEOUT(dup_fail, fork_leaks_nothing, 300)
{
	static struct slabs before;
	struct family family;
	struct fail_result res;
	unsigned int i, nth;

	open_family(_metadata, &self->f, &family);
	for (i = 0; i <= FORK_ROUNDS; i++) {
		if (i <= 1)
			count_objects(&before);
		nth = 1;
		do {
			ASSERT_LT(nth, MAX_ALLOCATIONS);
			res = fork_failing(_metadata, &self->f.culprit, nth++, 1);
		} while (res.failed);
	}
	expect_no_leak(_metadata, &before, MANY_OBJECTS);
}

TEST_HARNESS_MAIN
