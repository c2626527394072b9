// SPDX-License-Identifier: GPL-2.0
/*
 * What it takes to open a CPU-wide event: one that no other event shares with,
 * and the next ones of the same kind, each opened by another process.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS	200
#define EVENTS	4

static unsigned long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);

	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* Opens one event and tells how long that took; the event stays until @gate closes. */
static void open_one(unsigned long long *took, int ready, int gate)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_HARDWARE,
		.size		= sizeof(attr),
		.config		= PERF_COUNT_HW_INSTRUCTIONS,
	};
	unsigned long long start = now();
	char c;

	if (syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC) < 0)
		_exit(1);
	*took += now() - start;
	write(ready, "", 1);
	read(gate, &c, 1);
	_exit(0);
}

int main(void)
{
	unsigned long long *took = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, round, i;
	char c;

	for (round = 0; round < ROUNDS; round++) {
		int ready[2], gate[2];

		if (pipe(ready) || pipe(gate))
			return 1;
		for (i = 0; i < EVENTS; i++) {
			if (!fork()) {
				close(gate[1]);
				open_one(&took[i], ready[1], gate[0]);
			}
			if (read(ready[0], &c, 1) != 1)
				return 1;
		}
		close(gate[1]);
		while (wait(&status) > 0) {
			if (status)
				return 1;
		}
		close(gate[0]);
		close(ready[0]);
		close(ready[1]);
	}

	for (i = 0; i < EVENTS; i++)
		printf("event %d: %.2f us\n", i + 1, took[i] / 1000.0 / ROUNDS);

	return 0;
}
