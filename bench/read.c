// SPDX-License-Identifier: GPL-2.0
/*
 * What read() of a counting event costs, alone and beside equal events of other
 * processes, with which it shares a counter where the kernel does that.
 *
 * The process is bound to CPU 0, and reads events of that CPU (local), of CPU 1
 * (remote) and of itself (self):
 *
 *	alone		one event
 *	sharers-1	the same, and another process has an equal one
 *	sharers-7	the same with seven processes
 *	group		a group of eight: cycles, six that need a programmable counter,
 *			and a software event
 *	group-sharers-1	the same, and another process has an equal group
 *	borrowed	an event of itself, and another process has an equal one of CPU 0
 *
 * It prints
 *
 *	CASE NANOSECONDS RUNNING
 *
 * the mean of a read(), and for which part of the time the event ran, in percent:
 * one that has to wait for a counter is cheap to read.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP	100
#define READS	10000
#define MEMBERS	8
#define SHARERS	7

/* What is read: PERF_FORMAT_GROUP and both times */
struct values {
	unsigned long long nr, enabled, running, count[MEMBERS];
};

struct target {
	const char *name;
	pid_t pid;
	int cpu;
};

/* Seven counters, as QEMU's PMU has, and what takes none. */
static const struct perf_event_attr members[MEMBERS] = {
	{ .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CPU_CYCLES },
	{ .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS },
	{ .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS,
	  .exclude_kernel = 1 },
	{ .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS,
	  .exclude_user = 1 },
	{ .type = PERF_TYPE_RAW, .config = 0x11, .exclude_kernel = 1 },
	{ .type = PERF_TYPE_RAW, .config = 0x11, .exclude_user = 1 },
	{ .type = PERF_TYPE_RAW, .config = 0x08 },
	{ .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY },
};

static unsigned long long now(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_MONOTONIC, &t))
		err(1, "clock_gettime");

	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* The first @count of @members as a group; returns its leader. */
static int open_group(const struct target *target, int count)
{
	int i, fd, leader = -1;

	for (i = 0; i < count; i++) {
		struct perf_event_attr attr = members[i];

		attr.size = sizeof(attr);
		attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED |
				   PERF_FORMAT_TOTAL_TIME_RUNNING;

		fd = syscall(SYS_perf_event_open, &attr, target->pid, target->cpu, leader,
			     PERF_FLAG_FD_CLOEXEC);
		if (fd < 0)
			err(1, "%s: cannot open event %d of the group", target->name, i + 1);
		if (leader < 0)
			leader = fd;
	}

	return leader;
}

static void read_group(int fd, int count, struct values *values)
{
	ssize_t size = (3 + count) * sizeof(values->nr);
	ssize_t got = read(fd, values, sizeof(*values));

	if (got < 0)
		err(1, "read");
	if (got != size)
		errx(1, "read %zd bytes, expected %zd", got, size);
}

static void start_sharer(const struct target *target, int count, const int *gate)
{
	int ready[2];
	pid_t pid;
	char c = 0;

	if (pipe(ready))
		err(1, "pipe");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		open_group(target, count);
		if (write(ready[1], &c, 1) != 1)
			err(1, "write");
		if (close(ready[0]) || close(ready[1]) || close(gate[1]))
			err(1, "close");
		if (read(gate[0], &c, 1))
			err(1, "read");
		_exit(0);
	}
	if (close(ready[1]))
		err(1, "close");
	if (read(ready[0], &c, 1) != 1)
		errx(1, "%s: a sharer has failed", target->name);
	if (close(ready[0]))
		err(1, "close");
}

static void end_sharers(const int *gate)
{
	int status;

	if (close(gate[0]) || close(gate[1]))
		err(1, "close");
	while (wait(&status) > 0) {
		if (status)
			errx(1, "a sharer has failed");
	}
	if (errno != ECHILD)
		err(1, "wait");
}

/* In a process of its own, with which all events of it go. */
static void measure(const struct target *target, const char *name, int count)
{
	unsigned long long start, took;
	struct values first, last;
	int i, fd;

	fd = open_group(target, count);
	for (i = 0; i < WARM_UP; i++)
		read_group(fd, count, &first);

	start = now();
	for (i = 0; i < READS; i++)
		read_group(fd, count, &last);
	took = now() - start;

	if (last.enabled == first.enabled)
		errx(1, "%s-%s: no time has passed", target->name, name);
	printf("%s-%s %.1f %.1f\n", target->name, name, (double)took / READS,
	       100.0 * (last.running - first.running) / (last.enabled - first.enabled));
	if (fflush(stdout))
		err(1, "stdout");
}

/* @sharers have equal events of @theirs. */
static void run(const struct target *target, const struct target *theirs,
		const char *name, int count, int sharers)
{
	int i, status, gate[2];
	pid_t pid;

	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		struct target shared = *theirs;

		/* The reader, not the sharer */
		if (!shared.pid)
			shared.pid = getpid();
		if (pipe(gate))
			err(1, "pipe");
		for (i = 0; i < sharers; i++)
			start_sharer(&shared, count, gate);
		measure(target, name, count);
		end_sharers(gate);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		err(1, "waitpid");
	if (status)
		errx(1, "%s-%s has failed", target->name, name);
}

static void run_all(const struct target *target)
{
	run(target, target, "alone", 1, 0);
	run(target, target, "sharers-1", 1, 1);
	run(target, target, "sharers-7", 1, SHARERS);
	run(target, target, "group", MEMBERS, 0);
	run(target, target, "group-sharers-1", MEMBERS, 1);
}

int main(void)
{
	static const struct target local = { "local", -1, 0 };
	static const struct target remote = { "remote", -1, 1 };
	static const struct target self = { "self", 0, -1 };
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		err(1, "sched_setaffinity");

	run_all(&local);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		run_all(&remote);
	else if (puts("remote skipped: there is one CPU") < 0 || fflush(stdout))
		err(1, "stdout");
	run_all(&self);
	run(&self, &local, "borrowed", 1, 1);

	return 0;
}
