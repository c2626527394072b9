/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for the tests of counters that events share (kernel.perf_event_dup).
 *
 * Sharing has no ABI, so it is observed from outside. Pinned events of a filler
 * take all counters of a CPU but a known number; events that then run all of
 * their time have found room in what was left. Two events with one counter left:
 * both run always if they share it, and at most one of them if they do not.
 *
 * Openers are processes of their own, because who opened an event matters. They
 * hand the file descriptors to the test, which alone uses them.
 *
 * The test and its worker run on the same CPU, the test with a real-time
 * priority. So the worker does not run while the test does, and events on the
 * worker stand still between two reads: their counts are compared for equality.
 * CPU-wide events go on counting; their counts are compared by bracketing.
 */
#ifndef _SELFTESTS_PERF_EVENTS_DUP_H
#define _SELFTESTS_PERF_EVENTS_DUP_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <linux/perf_event.h>

#include "kselftest_harness.h"

#define DUP_SYSCTL	"/proc/sys/kernel/perf_event_dup"
#define DUP_FORCE	"PERF_EVENT_DUP_FORCE"
#define TAINTED		"/proc/sys/kernel/tainted"

#define READ_TIMES	(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING)

/* More than any PMU has. */
#define MAX_COUNTERS	64

/* Enough for counts that can not be taken for the overhead of a read. */
#define LOOPS		200000UL

/* A process that opens events. */
struct opener {
	pid_t			pid;
	int			sock;
};

/* A process that works when it is told to, and sleeps otherwise. */
struct worker {
	pid_t			pid;
	int			sock;
};

/* A process that was sent to another CPU, and where it was allowed to run. */
struct moved {
	pid_t			pid;
	cpu_set_t		allowed;
};

#define MAX_MOVED	1024

struct dup_test {
	struct opener		a;
	struct opener		b;
	struct opener		filler;
	struct worker		worker;
	int			filler_fd[MAX_COUNTERS];
	/* Fillers below @nr_general can be released one by one. */
	unsigned int		nr_general;
	long			sysctl;
	long			tainted;
	int			cpu;
	struct moved		moved[MAX_MOVED];
	unsigned int		nr_moved;
};

/* What an event counts on. A cgroup takes the place of the task. */
struct target {
	int			pid;
	int			cpu;
	bool			cgroup;
};

struct counts {
	__u64			value;
	__u64			enabled;
	__u64			running;
};

struct open_request {
	struct perf_event_attr	attr;
	struct target		target;
	/* Descriptors come in this order, both are optional. */
	bool			has_cgroup;
	bool			has_group;
	/* Open by a thread other than the first one. */
	bool			by_thread;
	int			cgroup_fd;
	int			group_fd;
	int			result;
};

enum work {
	WORK_LOOP,
	WORK_CALL,
	WORK_FORK,
	WORK_FAMILY,
	WORK_TURNS,
	WORK_EXEC,
	WORK_STOP_AT_EXEC,
	WORK_FORK_EXEC,
	WORK_FORK_STOP,
	WORK_GO_ON,
	WORK_EXIT,
};

struct work_order {
	enum work		what;
	unsigned long		loops;
	/* In the answer to WORK_FORK_EXEC and WORK_FORK_STOP. */
	pid_t			child;
};

static inline long read_long(const char *path)
{
	char buf[32] = "";
	int fd, len;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);

	return len > 0 ? strtol(buf, NULL, 0) : -EIO;
}

static inline int write_string(const char *path, const char *text)
{
	ssize_t len = strlen(text);
	int fd, ret = 0;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != len)
		ret = errno ? -errno : -EIO;
	close(fd);

	return ret;
}

static inline int write_long(const char *path, long value)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%ld", value);
	return write_string(path, buf);
}

static inline __u64 nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static inline int bind_to_cpu(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(pid, sizeof(set), &set);
}

/* Goes to any other CPU; returns false when there is none. */
static inline bool leave_cpu(int cpu)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	CPU_CLR(cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set);
}

/* Messages with up to two file descriptors. */

static inline bool send_message(int sock, void *buf, size_t len, const int *fds, int nr)
{
	union {
		struct cmsghdr	hdr;
		char		buf[CMSG_SPACE(2 * sizeof(int))];
	} control = {};
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nr) {
		control.hdr.cmsg_level = SOL_SOCKET;
		control.hdr.cmsg_type = SCM_RIGHTS;
		control.hdr.cmsg_len = CMSG_LEN(nr * sizeof(int));
		memcpy(CMSG_DATA(&control.hdr), fds, nr * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
	}

	return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Returns the number of descriptors that came along, or -1. */
static inline int recv_message(int sock, void *buf, size_t len, int *fds)
{
	union {
		struct cmsghdr	hdr;
		char		buf[CMSG_SPACE(2 * sizeof(int))];
	} control = {};
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov	= &iov,
		.msg_iovlen	= 1,
		.msg_control	= &control,
		.msg_controllen	= sizeof(control),
	};
	struct cmsghdr *cmsg;
	int nr;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)len)
		return -1;

	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS)
		return 0;
	nr = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(cmsg), nr * sizeof(int));

	return nr;
}

/*
 * Forks a child at the other end of a socket; returns 0 in the child, which has
 * no other file descriptors: those of events would keep them open.
 */
static inline pid_t fork_child(int *sock)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -1;

	pid = fork();
	*sock = ends[!pid];
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (*sock > STDERR_FILENO + 1)
			syscall(SYS_close_range, STDERR_FILENO + 1, *sock - 1, 0);
		syscall(SYS_close_range, *sock + 1, ~0U, 0);
	} else {
		close(ends[1]);
	}

	return pid;
}

/* Openers */

static inline void *do_open(void *arg)
{
	unsigned long flags = PERF_FLAG_FD_CLOEXEC;
	struct open_request *req = arg;
	int pid = req->target.pid;

	if (req->has_cgroup) {
		pid = req->cgroup_fd;
		flags |= PERF_FLAG_PID_CGROUP;
	}

	req->result = syscall(SYS_perf_event_open, &req->attr, pid, req->target.cpu,
			      req->has_group ? req->group_fd : -1, flags);
	if (req->result < 0)
		req->result = -errno;

	return NULL;
}

static inline void serve_requests(int sock)
{
	struct open_request req;
	pthread_t thread;
	int fds[2], nr;

	while ((nr = recv_message(sock, &req, sizeof(req), fds)) >= 0) {
		int i = 0;

		if (req.has_cgroup)
			req.cgroup_fd = fds[i++];
		if (req.has_group)
			req.group_fd = fds[i++];

		if (!req.by_thread)
			do_open(&req);
		else if (pthread_create(&thread, NULL, do_open, &req) ||
			 pthread_join(thread, NULL))
			req.result = -EAGAIN;

		send_message(sock, &req.result, sizeof(req.result), &req.result,
			     req.result >= 0);
		if (req.result >= 0)
			close(req.result);
		while (nr > 0)
			close(fds[--nr]);
		/* The event is in the hands of the test alone. */
		send_message(sock, &req.result, sizeof(req.result), NULL, 0);
	}
}

static inline void start_opener(struct __test_metadata *_metadata, struct opener *opener)
{
	opener->pid = fork_child(&opener->sock);
	ASSERT_GE(opener->pid, 0);
	if (!opener->pid) {
		serve_requests(opener->sock);
		_exit(0);
	}
}

static inline void end_opener(struct __test_metadata *_metadata, struct opener *opener)
{
	ASSERT_EQ(0, kill(opener->pid, SIGKILL));
	ASSERT_EQ(opener->pid, waitpid(opener->pid, NULL, 0));
	close(opener->sock);
}

/* Returns the event's file descriptor or a negative error number. */
static inline int request_event(struct __test_metadata *_metadata, struct opener *opener,
				struct open_request *req)
{
	int fds[2], none[2], nr = 0, result, done;

	if (req->has_cgroup)
		fds[nr++] = req->cgroup_fd;
	if (req->has_group)
		fds[nr++] = req->group_fd;

	ASSERT_TRUE(send_message(opener->sock, req, sizeof(*req), fds, nr));
	nr = recv_message(opener->sock, &result, sizeof(result), fds);
	ASSERT_GE(nr, 0);
	ASSERT_EQ(0, recv_message(opener->sock, &done, sizeof(done), none));
	if (result < 0)
		return result;
	ASSERT_EQ(nr, 1);

	return fds[0];
}

/* Opens an event, in the group of the event @group if that is not -1. */
static inline int try_open(struct __test_metadata *_metadata, struct opener *opener,
			   const struct perf_event_attr *attr, struct target target,
			   int group)
{
	struct open_request req = {
		.attr		= *attr,
		.target		= target,
		.has_cgroup	= target.cgroup,
		.cgroup_fd	= target.pid,
		.has_group	= group >= 0,
		.group_fd	= group,
	};

	return request_event(_metadata, opener, &req);
}

static inline int open_in_group(struct __test_metadata *_metadata, struct opener *opener,
				const struct perf_event_attr *attr, struct target target,
				int group)
{
	int fd = try_open(_metadata, opener, attr, target, group);

	ASSERT_GE(fd, 0)
		TH_LOG("perf_event_open: %s", strerror(-fd));

	return fd;
}

static inline int open_event(struct __test_metadata *_metadata, struct opener *opener,
			     const struct perf_event_attr *attr, struct target target)
{
	return open_in_group(_metadata, opener, attr, target, -1);
}

/* Events */

/* Instructions in all modes: what it counts does not depend on the machine. */
static inline struct perf_event_attr instructions(void)
{
	return (struct perf_event_attr) {
		.type		= PERF_TYPE_HARDWARE,
		.size		= sizeof(struct perf_event_attr),
		.config		= PERF_COUNT_HW_INSTRUCTIONS,
		.read_format	= READ_TIMES,
	};
}

/* Instructions of user space: nothing is counted while the kernel reads. */
static inline struct perf_event_attr user_instructions(void)
{
	struct perf_event_attr attr = instructions();

	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;

	return attr;
}

/*
 * Events of which no two share though they count the same: user instructions, of
 * modes that do not exist where the tests run.
 */
#define NR_TWINS	4

static inline struct perf_event_attr twin(unsigned int nr)
{
	struct perf_event_attr attr = user_instructions();

	attr.exclude_hv = !(nr & 1);
	attr.exclude_guest = nr >> 1;

	return attr;
}

/* Events that count different things. */
#define NR_KINDS	12

static inline struct perf_event_attr event_kind(unsigned int nr)
{
	struct perf_event_attr attr = instructions();

	if (nr % 2)
		attr.config = PERF_COUNT_HW_CPU_CYCLES;
	attr.exclude_kernel = nr / 2 % 3 == 0;
	attr.exclude_user = nr / 2 % 3 == 1;
	attr.exclude_hv = nr < NR_KINDS / 2;

	return attr;
}

/*
 * An event that counts the same and always has a counter of its own: sampling
 * events do not share. The period is too long for a sample.
 */
static inline struct perf_event_attr reference(struct perf_event_attr attr)
{
	attr.sample_period = 1ULL << 62;
	attr.pinned = 1;

	return attr;
}

static inline struct target on_task(pid_t pid)
{
	return (struct target) { .pid = pid, .cpu = -1 };
}

static inline struct target on_cpu(int cpu)
{
	return (struct target) { .pid = -1, .cpu = cpu };
}

static inline struct target on_cgroup(int cgroup_fd, int cpu)
{
	return (struct target) { .pid = cgroup_fd, .cpu = cpu, .cgroup = true };
}

static inline struct counts read_counts(struct __test_metadata *_metadata, int fd)
{
	struct counts counts = {};

	ASSERT_EQ((ssize_t)sizeof(counts), read(fd, &counts, sizeof(counts)));

	return counts;
}

static inline __u64 read_value(struct __test_metadata *_metadata, int fd)
{
	return read_counts(_metadata, fd).value;
}

/*
 * Whether an event had a counter whenever it was enabled. The times are at the
 * same place in all formats. A pinned event that lost its counter reads as the
 * end of the file.
 */
static inline bool runs_always(int fd)
{
	__u64 words[64];

	if (read(fd, words, sizeof(words)) < (ssize_t)(3 * sizeof(*words)))
		return false;

	return words[1] && words[1] == words[2];
}

static inline bool runs_sometimes(int fd)
{
	__u64 words[64];

	return read(fd, words, sizeof(words)) > 0 && words[2];
}

/*
 * Two events can not be read at one instant: one is read before and after the
 * other. What the inner one counted between two brackets is then at least what
 * the outer one counted from the end of the first to the start of the second,
 * and at most what it counted from the start of the first to the end of the
 * second.
 */
struct bracket {
	__u64			start;
	__u64			inner;
	__u64			end;
};

static inline struct bracket read_bracket(struct __test_metadata *_metadata, int outer,
					  int inner)
{
	struct bracket bracket;

	bracket.start = read_value(_metadata, outer);
	bracket.inner = read_value(_metadata, inner);
	bracket.end = read_value(_metadata, outer);

	return bracket;
}

static inline void expect_bracketed(struct __test_metadata *_metadata, struct bracket from,
				    struct bracket to)
{
	EXPECT_GE(to.inner - from.inner, to.start - from.end);
	EXPECT_LE(to.inner - from.inner, to.end - from.start);
}

/* Counters */

/*
 * Opens equal pinned events until one gets no counter, and returns the number of
 * those that got one. A process never sees more counters than the PMU has.
 */
static inline unsigned int take_counters(struct __test_metadata *_metadata,
					 struct opener *opener,
					 const struct perf_event_attr *attr,
					 struct target target, int *fds,
					 unsigned int max)
{
	struct perf_event_attr pinned = *attr;
	unsigned int nr;

	pinned.pinned = 1;
	for (nr = 0; nr < max; nr++) {
		fds[nr] = open_event(_metadata, opener, &pinned, target);
		if (!runs_always(fds[nr])) {
			close(fds[nr]);
			return nr;
		}
	}

	ASSERT_LT(nr, max)
		TH_LOG("the PMU never runs out of counters");
	return nr;
}

static inline void release_counter(struct __test_metadata *_metadata, struct dup_test *t)
{
	ASSERT_GT(t->nr_general, 0U);
	close(t->filler_fd[--t->nr_general]);
}

/*
 * What takes the counters that count anything. On riscv the firmware gives a
 * fixed counter to the last one who asks: there it is an event that no fixed
 * counter counts, and no test either.
 */
static inline struct perf_event_attr general_filler(void)
{
	struct perf_event_attr attr = user_instructions();

	attr.exclude_user = 1;
	attr.config = PERF_COUNT_HW_CPU_CYCLES;
#ifdef __riscv
	attr.type = PERF_TYPE_HW_CACHE;
	attr.config = PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
		      PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
#endif

	return attr;
}

/*
 * Takes all counters of @cpu but @nr_free of those that count anything. The
 * fillers count in no mode, so no other event is equal to them. Elsewhere than
 * on riscv cycles come first and take the counter that only counts cycles, where
 * there is one, then all that any event can use; a counter for cycles or for
 * instructions alone goes to the next fillers.
 */
static inline void leave_counters(struct __test_metadata *_metadata, struct dup_test *t,
				  int cpu, unsigned int nr_free)
{
	const __u64 fixed[] = { PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS };
	struct perf_event_attr attr = general_filler();
	unsigned int i, nr;

	t->nr_general = take_counters(_metadata, &t->filler, &attr, on_cpu(cpu),
				      t->filler_fd, MAX_COUNTERS);
	nr = t->nr_general;
	attr.type = PERF_TYPE_HARDWARE;
	for (i = 0; i < ARRAY_SIZE(fixed); i++) {
		attr.config = fixed[i];
		nr += take_counters(_metadata, &t->filler, &attr, on_cpu(cpu),
				    t->filler_fd + nr, MAX_COUNTERS - nr);
	}

	while (nr_free--)
		release_counter(_metadata, t);
}

/* Workers */

static inline void burn(unsigned long loops)
{
	while (loops--)
		asm volatile("" : : : "memory");
}

/* The same with many system calls. */
static inline void burn_and_call(unsigned long loops)
{
	for (; loops >= 1000; loops -= 1000) {
		burn(1000);
		syscall(SYS_getppid);
	}
}

/* Several children at a time, each with its share of the work. */
#define NR_CHILDREN	4

static inline void burn_in_children(unsigned long loops, int generations)
{
	int i;

	for (i = 0; i < NR_CHILDREN; i++) {
		if (fork())
			continue;
		if (generations > 1)
			burn_in_children(loops / NR_CHILDREN, generations - 1);
		else
			burn(loops / NR_CHILDREN);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
}

/*
 * Children hand a token round: one runs at a time, and the CPU goes directly from
 * one to the next. Each does four times as much as the one before it.
 */
#define NR_TURNS	20

static inline void burn_in_turns(unsigned long loops)
{
	int token[NR_CHILDREN][2], i, turn;
	char c = 0;

	for (i = 0; i < NR_CHILDREN; i++) {
		if (pipe(token[i]))
			_exit(1);
	}

	for (i = 0; i < NR_CHILDREN; i++) {
		if (fork())
			continue;
		for (turn = 0; turn < NR_TURNS; turn++) {
			if (read(token[i][0], &c, 1) != 1)
				_exit(1);
			burn((loops / NR_TURNS) << (2 * i));
			if (write(token[(i + 1) % NR_CHILDREN][1], &c, 1) != 1)
				_exit(1);
		}
		_exit(0);
	}

	if (write(token[0][1], &c, 1) != 1)
		_exit(1);
	while (wait(NULL) > 0)
		;
	for (i = 0; i < NR_CHILDREN; i++) {
		close(token[i][0]);
		close(token[i][1]);
	}
}

/* The argument with which a test program only works. */
#define BURN_ARGUMENT	"burn"

static inline void exec_burn(void)
{
	execl("/proc/self/exe", "/proc/self/exe", BURN_ARGUMENT, NULL);
	_exit(1);
}

/* From now on: before the first instruction of the new program. */
static inline void stop_at_exec(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(1);
}

static inline void work(int sock)
{
	struct work_order order;
	pid_t child = 0;

	/* See wait_for_sleep(). */
	while (syscall(SYS_recvfrom, sock, &order, sizeof(order), 0, NULL, NULL) ==
	       sizeof(order)) {
		switch (order.what) {
		case WORK_LOOP:
			burn(order.loops);
			break;
		case WORK_CALL:
			burn_and_call(order.loops);
			break;
		case WORK_FORK:
			burn_in_children(order.loops, 1);
			break;
		case WORK_FAMILY:
			burn_in_children(order.loops, 2);
			break;
		case WORK_TURNS:
			burn_in_turns(order.loops);
			break;
		case WORK_EXEC:
			burn(order.loops);
			exec_burn();
			break;
		case WORK_STOP_AT_EXEC:
			stop_at_exec();
			burn(order.loops);
			exec_burn();
			break;
		case WORK_FORK_EXEC:
		case WORK_FORK_STOP:
			child = fork();
			if (!child) {
				stop_at_exec();
				if (order.what == WORK_FORK_STOP)
					raise(SIGSTOP);
				burn(order.loops);
				exec_burn();
			}
			waitpid(child, NULL, 0);
			order.child = child;
			break;
		case WORK_GO_ON:
			ptrace(PTRACE_CONT, child, NULL, NULL);
			waitpid(child, NULL, 0);
			break;
		case WORK_EXIT:
			_exit(0);
		}
		send(sock, &order, sizeof(order), MSG_NOSIGNAL);
	}
}

static inline void start_worker(struct __test_metadata *_metadata, struct worker *worker,
				int cpu)
{
	worker->pid = fork_child(&worker->sock);
	ASSERT_GE(worker->pid, 0);
	if (!worker->pid) {
		work(worker->sock);
		_exit(0);
	}
	ASSERT_EQ(0, bind_to_cpu(worker->pid, cpu));
}

/*
 * Waits until the worker has left the CPU, for which the state of the task is no
 * proof. /proc/PID/syscall tells the number of the system call in which a task
 * sleeps after wait_task_inactive().
 */
static inline void wait_for_sleep(struct __test_metadata *_metadata, struct worker *worker)
{
	char path[64], text[32];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", worker->pid);
	do {
		usleep(5000);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		ASSERT_GE(fd, 0);
		len = read(fd, text, sizeof(text) - 1);
		ASSERT_GT(len, 0);
		text[len] = 0;
		close(fd);
	} while (!isdigit(text[0]) || strtol(text, NULL, 10) != SYS_recvfrom);
}

/* The worker begins to work; worker_ready() waits until it sleeps again. */
static inline void worker_begins(struct __test_metadata *_metadata, struct worker *worker,
				 enum work what, unsigned long loops)
{
	struct work_order order = { .what = what, .loops = loops };

	ASSERT_EQ((ssize_t)sizeof(order), send(worker->sock, &order, sizeof(order), 0));
}

static inline bool worker_is_ready(struct worker *worker)
{
	struct work_order order;

	return recv(worker->sock, &order, sizeof(order), MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Returns a child that stopped in the middle of its work. */
static inline pid_t worker_ready(struct __test_metadata *_metadata, struct worker *worker)
{
	struct work_order order;

	ASSERT_EQ((ssize_t)sizeof(order), recv(worker->sock, &order, sizeof(order), 0));
	wait_for_sleep(_metadata, worker);

	return order.child;
}

/* The worker does its work and sleeps again. */
static inline pid_t worker_does(struct __test_metadata *_metadata, struct worker *worker,
				enum work what, unsigned long loops)
{
	worker_begins(_metadata, worker, what, loops);
	return worker_ready(_metadata, worker);
}

static inline void worker_runs(struct __test_metadata *_metadata, struct worker *worker)
{
	worker_does(_metadata, worker, WORK_LOOP, LOOPS);
}

/* The worker does its work and is no more. */
static inline void worker_ends(struct __test_metadata *_metadata, struct worker *worker,
			       enum work what)
{
	struct work_order order = { .what = what, .loops = LOOPS };
	int status;

	ASSERT_EQ((ssize_t)sizeof(order), send(worker->sock, &order, sizeof(order), 0));
	ASSERT_EQ(worker->pid, waitpid(worker->pid, &status, 0));
	ASSERT_EQ(0, status);
	close(worker->sock);
	worker->pid = 0;
}

/* Set-up */

/* Returns false after a skip. */
static inline bool dup_setup(struct __test_metadata *_metadata, struct dup_test *t)
{
	struct sched_param param = { .sched_priority = 1 };
	struct perf_event_attr attr = instructions();
	cpu_set_t set;
	int fd;

	t->sysctl = read_long(DUP_SYSCTL);
	if (t->sysctl < 0 && !getenv(DUP_FORCE))
		SKIP(return false, "kernel without shared counters");
	if (t->sysctl >= 0 && write_long(DUP_SYSCTL, 1))
		SKIP(return false, "no permission to write " DUP_SYSCTL);

	ASSERT_EQ(0, sched_getaffinity(0, sizeof(set), &set));
	for (t->cpu = 0; !CPU_ISSET(t->cpu, &set); t->cpu++)
		;
	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param))
		SKIP(return false, "no permission for a real-time priority");

	t->tainted = read_long(TAINTED);

	start_opener(_metadata, &t->a);
	start_opener(_metadata, &t->b);
	start_opener(_metadata, &t->filler);
	start_worker(_metadata, &t->worker, t->cpu);
	wait_for_sleep(_metadata, &t->worker);

	fd = try_open(_metadata, &t->a, &attr, on_cpu(t->cpu), -1);
	if (fd < 0)
		SKIP(return false, "no event for instructions: %s", strerror(-fd));
	close(fd);

	return true;
}

/* The parent of a process; 2 for that of the kernel's own. */
static inline pid_t parent_of(pid_t pid)
{
	char path[64], text[256] = "", *end;
	pid_t parent = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) > 0) {
		/* Behind the name, in which may be anything. */
		end = strrchr(text, ')');
		if (end)
			sscanf(end, ") %*c %d", &parent);
	}
	close(fd);

	return parent;
}

/*
 * All that runs in user space goes to @cpu until the test ends: for instance those
 * who started it, who read what it says, and who wait for a time-out.
 */
static inline void move_others(struct dup_test *t, int cpu)
{
	struct dirent *entry;
	struct moved *moved;
	pid_t pid, parent;
	DIR *proc;

	proc = opendir("/proc");
	if (!proc)
		return;

	while (t->nr_moved < MAX_MOVED && (entry = readdir(proc))) {
		pid = atoi(entry->d_name);
		if (pid <= 0 || pid == getpid())
			continue;
		parent = parent_of(pid);
		if (pid == 2 || parent == 2 || parent == getpid())
			continue;
		moved = &t->moved[t->nr_moved];
		moved->pid = pid;
		if (!sched_getaffinity(pid, sizeof(moved->allowed), &moved->allowed) &&
		    !bind_to_cpu(pid, cpu))
			t->nr_moved++;
	}
	closedir(proc);
}

/*
 * The test, its openers and all others go to another CPU, so that on t->cpu nothing
 * but the workers runs in user space: what is counted there is what they do. Returns
 * false when there is no other CPU.
 */
static inline bool leave_cpu_to_workers(struct __test_metadata *_metadata, struct dup_test *t)
{
	struct opener *opener[] = { &t->a, &t->b, &t->filler };
	unsigned int i;
	int cpu;

	if (!leave_cpu(t->cpu))
		return false;

	cpu = sched_getcpu();
	ASSERT_NE(t->cpu, cpu);
	ASSERT_EQ(0, bind_to_cpu(0, cpu));
	for (i = 0; i < ARRAY_SIZE(opener); i++)
		ASSERT_EQ(0, bind_to_cpu(opener[i]->pid, cpu));
	move_others(t, cpu);
	/* They may have been about to go to sleep there. */
	usleep(5000);

	return true;
}

/* Processes and events go when the test exits. */
static inline void dup_teardown(struct __test_metadata *_metadata, struct dup_test *t)
{
	unsigned int i;

	for (i = 0; i < t->nr_moved; i++)
		sched_setaffinity(t->moved[i].pid, sizeof(t->moved[i].allowed),
				  &t->moved[i].allowed);
	if (t->sysctl >= 0)
		EXPECT_EQ(0, write_long(DUP_SYSCTL, t->sysctl));
	EXPECT_EQ(t->tainted, read_long(TAINTED))
		TH_LOG("the kernel reported a problem");
}

#endif /* _SELFTESTS_PERF_EVENTS_DUP_H */
