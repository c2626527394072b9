/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CGROUP_TARGET_H
#define __PERF_CGROUP_TARGET_H

#include <stdbool.h>
#include <sys/types.h>

struct perf_thread_map;
struct target;

/*
 * Who made a cgroup, as its name tells: the process, when it started (in clock
 * ticks, a reused pid has another one), and the PID and time namespaces in which
 * the one and the other mean something.
 */
struct cgroup_target_owner {
	pid_t			pid;
	unsigned long long	starttime;
	unsigned long long	pid_ns;
	unsigned long long	time_ns;
};

int cgroup_target__create(const struct target *target, struct perf_thread_map *threads);
int cgroup_target__attach(pid_t workload);
int cgroup_target__detach(void);
int cgroup_target__remove(void);

/* The name of the cgroup as cgroup__new() wants it, NULL if there is none. */
const char *cgroup_target__name(void);

/* Helpers that perf test looks at. */
int cgroup_target__parse_proc_cgroup(const char *text, bool v2, char *path, size_t size);
bool cgroup_target__on_v1(const char *text);
int cgroup_target__parse_stat(const char *text, char *state, unsigned long long *starttime);
int cgroup_target__scnprintf_name(char *name, size_t size,
				  const struct cgroup_target_owner *owner);
int cgroup_target__parse_name(const char *name, struct cgroup_target_owner *owner);
const char *cgroup_target__split(const char *path, char *above, size_t size);

#endif /* __PERF_CGROUP_TARGET_H */
