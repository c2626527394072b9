/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cgroups for the tests of counters that events share: one with two children,
 * below the root of cgroup2.
 */
#ifndef _SELFTESTS_PERF_EVENTS_DUP_CGROUP_H
#define _SELFTESTS_PERF_EVENTS_DUP_CGROUP_H

#include <limits.h>
#include <mntent.h>

#include <sys/mount.h>
#include <sys/stat.h>

#include "dup.h"

struct cgroup {
	char			path[PATH_MAX / 2];
	int			fd;
};

struct cgroups {
	/* Where cgroup2 is mounted. */
	char			root[PATH_MAX / 4];
	bool			mounted;
	struct cgroup		parent;
	struct cgroup		child[2];
};

/* Finds cgroup2, or mounts it for the time of the test. */
static inline bool find_cgroup2(char *root, size_t size, bool *mounted)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *mount_point;

	while (mounts && (mount_point = getmntent(mounts))) {
		if (strcmp(mount_point->mnt_type, "cgroup2"))
			continue;
		snprintf(root, size, "%s", mount_point->mnt_dir);
		endmntent(mounts);
		return true;
	}
	if (mounts)
		endmntent(mounts);

	snprintf(root, size, "/tmp/dup_cgroup.XXXXXX");
	if (!mkdtemp(root))
		return false;
	*mounted = !mount("none", root, "cgroup2", 0, NULL);
	if (!*mounted)
		rmdir(root);

	return *mounted;
}

static inline int write_cgroup_file(const char *cgroup, const char *name, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", cgroup, name);
	return write_string(path, text);
}

/*
 * New cgroups have the controller of perf events, which is not named anywhere,
 * once some other controller was enabled for the children of the root.
 */
static inline bool enable_controllers(const char *root)
{
	char path[PATH_MAX], name[64], enable[sizeof(name) + 1];
	FILE *file;
	int ret;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", root);
	file = fopen(path, "r");
	if (!file)
		return false;
	ret = fscanf(file, "%63s", name);
	fclose(file);
	if (ret != 1)
		return false;

	snprintf(enable, sizeof(enable), "+%s", name);
	return !write_cgroup_file(root, "cgroup.subtree_control", enable);
}

static inline void make_cgroup(struct __test_metadata *_metadata, struct cgroup *cgroup,
			       const char *parent, const char *name)
{
	int len;

	len = snprintf(cgroup->path, sizeof(cgroup->path), "%s/%s", parent, name);
	ASSERT_LT(len, (int)sizeof(cgroup->path));
	ASSERT_EQ(0, mkdir(cgroup->path, 0755));
	cgroup->fd = open(cgroup->path, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(cgroup->fd, 0);
}

static inline void move_to(struct __test_metadata *_metadata, struct worker *worker,
			   const char *cgroup)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", worker->pid);
	ASSERT_EQ(0, write_cgroup_file(cgroup, "cgroup.procs", pid));
}

/* Returns false after a skip. */
static inline bool cgroups_setup(struct __test_metadata *_metadata, struct cgroups *c,
				 struct dup_test *t)
{
	struct perf_event_attr attr = instructions();
	char name[32];
	int fd;

	if (!find_cgroup2(c->root, sizeof(c->root), &c->mounted))
		SKIP(return false, "no cgroup2 and no permission to mount it");
	if (!enable_controllers(c->root))
		SKIP(return false, "cannot enable a controller for new cgroups");

	snprintf(name, sizeof(name), "dup_cgroup.%d", getpid());
	make_cgroup(_metadata, &c->parent, c->root, name);
	make_cgroup(_metadata, &c->child[0], c->parent.path, "0");
	make_cgroup(_metadata, &c->child[1], c->parent.path, "1");

	fd = try_open(_metadata, &t->a, &attr, on_cgroup(c->parent.fd, t->cpu), -1);
	if (fd == -EINVAL || fd == -ENOENT)
		SKIP(return false, "no cgroup events: %s", strerror(-fd));
	ASSERT_GE(fd, 0);
	close(fd);

	return true;
}

static inline void stop(struct worker *worker)
{
	if (worker->pid <= 0)
		return;
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
}

/* After stop() of all that is in them. */
static inline void cgroups_teardown(struct cgroups *c)
{
	rmdir(c->child[0].path);
	rmdir(c->child[1].path);
	rmdir(c->parent.path);
	if (c->mounted) {
		umount(c->root);
		rmdir(c->root);
	}
}

#endif /* _SELFTESTS_PERF_EVENTS_DUP_CGROUP_H */
