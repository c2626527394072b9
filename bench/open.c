// SPDX-License-Identifier: GPL-2.0
/*
 * What it takes to open and to close a counting event while more and more events
 * of the same kind are open on the same target.
 *
 *	open cpu|task many|one|keys
 *
 * The target is CPU 0, or a process that sleeps. Who opens:
 *
 *	many	each event has an opener, a process, of its own: with the sysctl
 *		kernel.perf_event_dup at 1 or 2 all of them share one counter
 *	one	this process opens all: at 1 none of them share, at 2 all do
 *	keys	this process opens events no two of which count the same
 *
 * Measured at i means: i - 1 events are open, and the next one is opened and closed
 * again some times. That prints
 *
 *	TARGET OPENERS INDEX NANOSECONDS OPEN CLOSE
 *
 * the medians of both together and of each, since some openings meet a timer tick or
 * have RCU free what was closed before. Then the i-th event is opened to stay.
 *
 * One more event, of a kind of its own, is open all the time, so that no opening is the
 * first one on the target and none patches the kernel's static keys.
 */
#include <err.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EVENTS	1000
#define KEYS	64
#define ROUNDS	16

/* Raw numbers from here on, each with and without exclude_user, are the keys. */
#define FIRST_RAW	0x20

struct cost {
	unsigned long long both, open, close;
};

enum openers { MANY, ONE, KINDS };

static const char * const openers_names[] = {
	[MANY] = "many", [ONE] = "one", [KINDS] = "keys",
};

static pid_t target_pid = -1;
static int target_cpu = -1;
static enum openers openers;

static unsigned long long now(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_MONOTONIC, &t))
		err(1, "clock_gettime");

	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static int event_open(struct perf_event_attr *attr)
{
	return syscall(SYS_perf_event_open, attr, target_pid, target_cpu, -1,
		       PERF_FLAG_FD_CLOEXEC);
}

/* The kind of the @index-th event. */
static struct perf_event_attr kind(int index)
{
	struct perf_event_attr attr = {
		.type	= PERF_TYPE_HARDWARE,
		.size	= sizeof(attr),
		.config	= PERF_COUNT_HW_INSTRUCTIONS,
	};

	if (openers == KINDS) {
		attr.type = PERF_TYPE_RAW;
		attr.config = FIRST_RAW + (index - 1) / 2;
		attr.exclude_user = index & 1;
	}

	return attr;
}

static void keep_open(int index)
{
	struct perf_event_attr attr = kind(index);

	if (event_open(&attr) < 0)
		err(1, "cannot open event %d", index);
}

static bool measured(int index)
{
	return index <= 10 || index == KEYS || index == 100 || index == EVENTS;
}

static int compare(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a;
	unsigned long long y = *(const unsigned long long *)b;

	return (x > y) - (x < y);
}

static unsigned long long median(unsigned long long *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);

	return (values[ROUNDS / 2 - 1] + values[ROUNDS / 2]) / 2;
}

static struct cost measure(int index)
{
	unsigned long long both[ROUNDS], opens[ROUNDS], closes[ROUNDS];
	struct perf_event_attr attr = kind(index);
	int i;

	for (i = 0; i < ROUNDS; i++) {
		unsigned long long start, between, end;
		int fd;

		start = now();
		fd = event_open(&attr);
		between = now();
		if (fd < 0)
			err(1, "cannot open event %d", index);
		if (close(fd))
			err(1, "close");
		end = now();

		both[i] = end - start;
		opens[i] = between - start;
		closes[i] = end - between;
	}

	return (struct cost) { median(both), median(opens), median(closes) };
}

static void run(int index, struct cost *cost)
{
	if (measured(index))
		*cost = measure(index);
	keep_open(index);
}

/* Let a process do nothing until the other end of @gate is closed. */
static void wait_at(const int *gate)
{
	char c;

	if (close(gate[1]))
		err(1, "close");
	if (read(gate[0], &c, 1))
		err(1, "read");
	_exit(0);
}

static pid_t start_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");

	return pid;
}

/* Returns when the new opener has its event, and sleeps. */
static void run_opener(int index, struct cost *cost, const int *gate)
{
	int ready[2];
	char c = 0;

	if (pipe(ready))
		err(1, "pipe");
	if (!start_process()) {
		run(index, cost);
		if (write(ready[1], &c, 1) != 1)
			err(1, "write");
		if (close(ready[0]) || close(ready[1]))
			err(1, "close");
		wait_at(gate);
	}
	if (close(ready[1]))
		err(1, "close");
	if (read(ready[0], &c, 1) != 1)
		errx(1, "opener %d has failed", index);
	if (close(ready[0]))
		err(1, "close");
}

static void parse(int argc, char **argv)
{
	unsigned int i;

	if (argc != 3)
		goto usage;
	if (!strcmp(argv[1], "cpu"))
		target_cpu = 0;
	else if (strcmp(argv[1], "task"))
		goto usage;

	for (i = 0; i < sizeof(openers_names) / sizeof(*openers_names); i++) {
		if (!strcmp(argv[2], openers_names[i])) {
			openers = i;
			return;
		}
	}
usage:
	errx(1, "usage: open cpu|task many|one|keys");
}

int main(int argc, char **argv)
{
	struct rlimit files = { EVENTS + 64, EVENTS + 64 };
	struct perf_event_attr other = {
		.type	= PERF_TYPE_HARDWARE,
		.size	= sizeof(other),
		.config	= PERF_COUNT_HW_CPU_CYCLES,
	};
	int last, i, status, gate[2];
	struct cost *costs;
	pid_t pid;

	parse(argc, argv);
	last = openers == KINDS ? KEYS : EVENTS;

	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "cannot have %d open files", EVENTS + 64);
	costs = mmap(NULL, (EVENTS + 1) * sizeof(*costs), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (costs == MAP_FAILED)
		err(1, "mmap");

	if (pipe(gate))
		err(1, "pipe");
	if (target_cpu < 0) {
		target_pid = start_process();
		if (!target_pid)
			wait_at(gate);
		/* Until it sleeps. */
		if (usleep(10000))
			err(1, "usleep");
	}

	if (event_open(&other) < 0)
		err(1, "cannot open the event of another kind");
	for (i = 1; i <= last; i++) {
		if (openers == MANY)
			run_opener(i, &costs[i], gate);
		else
			run(i, &costs[i]);
	}

	if (close(gate[1]))
		err(1, "close");
	while ((pid = wait(&status)) > 0) {
		if (status)
			errx(1, "process %d has failed", pid);
	}
	if (errno != ECHILD)
		err(1, "wait");

	for (i = 1; i <= last; i++) {
		if (measured(i))
			printf("%s %s %d %llu %llu %llu\n", argv[1], argv[2], i,
			       costs[i].both, costs[i].open, costs[i].close);
	}
	if (fflush(stdout))
		err(1, "stdout");

	return 0;
}
