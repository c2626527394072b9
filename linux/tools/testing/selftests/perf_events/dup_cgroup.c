// SPDX-License-Identifier: GPL-2.0
/*
 * cgroup events live on the CPU: those of two openers share, on one cgroup, on
 * different ones and with CPU-wide events. The tasks of the cgroups do not run
 * while the counts are read.
 */
#include <limits.h>
#include <mntent.h>

#include <sys/mount.h>
#include <sys/stat.h>

#include "dup.h"

struct cgroup {
	char			path[PATH_MAX / 2];
	int			fd;
};

FIXTURE(dup_cgroup)
{
	struct dup_test		t;
	struct worker		other;
	/* Where cgroup2 is mounted. */
	char			root[PATH_MAX / 4];
	bool			mounted;
	struct cgroup		parent;
	struct cgroup		child[2];
};

/* Finds cgroup2, or mounts it for the time of the test. */
static bool find_cgroup2(char *root, size_t size, bool *mounted)
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

static int write_cgroup_file(const char *cgroup, const char *name, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", cgroup, name);
	return write_string(path, text);
}

/*
 * New cgroups have the controller of perf events, which is not named anywhere,
 * once some other controller was enabled for the children of the root.
 */
static bool enable_controllers(const char *root)
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

static void make_cgroup(struct __test_metadata *_metadata, struct cgroup *cgroup,
			const char *parent, const char *name)
{
	int len;

	len = snprintf(cgroup->path, sizeof(cgroup->path), "%s/%s", parent, name);
	ASSERT_LT(len, (int)sizeof(cgroup->path));
	ASSERT_EQ(0, mkdir(cgroup->path, 0755));
	cgroup->fd = open(cgroup->path, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(cgroup->fd, 0);
}

static void move_to(struct __test_metadata *_metadata, struct worker *worker,
		    const char *cgroup)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", worker->pid);
	ASSERT_EQ(0, write_cgroup_file(cgroup, "cgroup.procs", pid));
}

FIXTURE_SETUP(dup_cgroup)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	char name[32];
	int fd;

	if (!dup_setup(_metadata, t))
		return;
	if (!find_cgroup2(self->root, sizeof(self->root), &self->mounted))
		SKIP(return, "no cgroup2 and no permission to mount it");
	if (!enable_controllers(self->root))
		SKIP(return, "cannot enable a controller for new cgroups");

	snprintf(name, sizeof(name), "dup_cgroup.%d", getpid());
	make_cgroup(_metadata, &self->parent, self->root, name);
	make_cgroup(_metadata, &self->child[0], self->parent.path, "0");
	make_cgroup(_metadata, &self->child[1], self->parent.path, "1");

	fd = try_open(_metadata, &t->a, &attr, on_cgroup(self->parent.fd, t->cpu), -1);
	if (fd == -EINVAL || fd == -ENOENT)
		SKIP(return, "no cgroup events: %s", strerror(-fd));
	ASSERT_GE(fd, 0);
	close(fd);

	start_worker(_metadata, &self->other, t->cpu);
	wait_for_sleep(_metadata, &self->other);
}

static void stop(struct worker *worker)
{
	if (worker->pid <= 0)
		return;
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
}

FIXTURE_TEARDOWN(dup_cgroup)
{
	stop(&self->t.worker);
	stop(&self->other);
	rmdir(self->child[0].path);
	rmdir(self->child[1].path);
	rmdir(self->parent.path);
	if (self->mounted) {
		umount(self->root);
		rmdir(self->root);
	}
	dup_teardown(_metadata, &self->t);
}

TEST_F(dup_cgroup, two_openers)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_cgroup(self->parent.fd, t->cpu);
	int a, b, ref, i;
	__u64 value;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->a, &ref_attr, target);

	move_to(_metadata, &t->worker, self->parent.path);
	for (i = 1; i <= 5; i++) {
		worker_runs(_metadata, &t->worker);
		value = read_value(_metadata, ref);
		EXPECT_GE(value, i * LOOPS);
		EXPECT_EQ(value, read_value(_metadata, a));
		EXPECT_EQ(value, read_value(_metadata, b));
	}
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	/* Others do not count. */
	worker_runs(_metadata, &self->other);
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));

	move_to(_metadata, &t->worker, self->root);
	value = read_value(_metadata, ref);
	worker_runs(_metadata, &t->worker);
	EXPECT_EQ(value, read_value(_metadata, ref));
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
}

/* The CPU-wide event counts what the cgroup counts, and more. */
TEST_F(dup_cgroup, beside_cpu_wide)
{
	struct perf_event_attr attr = instructions();
	struct dup_test *t = &self->t;
	__u64 from, to;
	int cpu, cgroup;

	leave_counters(_metadata, t, t->cpu, 1);
	cpu = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	cgroup = open_event(_metadata, &t->b, &attr, on_cgroup(self->parent.fd, t->cpu));

	move_to(_metadata, &t->worker, self->parent.path);
	from = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	to = read_value(_metadata, cpu);

	EXPECT_GE(read_value(_metadata, cgroup), LOOPS);
	EXPECT_LT(read_value(_metadata, cgroup), to - from);
	EXPECT_TRUE(runs_always(cpu));
	EXPECT_TRUE(runs_always(cgroup));

	worker_runs(_metadata, &self->other);
	EXPECT_GE(read_value(_metadata, cpu), to + LOOPS);
	EXPECT_LT(read_value(_metadata, cgroup), to - from);
}

/* Events on a cgroup count what runs in its children, too. */
TEST_F(dup_cgroup, nested)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	int parent, child, ref_parent, ref_child, i;
	__u64 value = 0;

	/* A counter for each reference and one to share. */
	leave_counters(_metadata, t, t->cpu, 3);
	parent = open_event(_metadata, &t->a, &attr, on_cgroup(self->parent.fd, t->cpu));
	child = open_event(_metadata, &t->b, &attr, on_cgroup(self->child[0].fd, t->cpu));
	ref_parent = open_event(_metadata, &t->b, &ref_attr,
				on_cgroup(self->parent.fd, t->cpu));
	ref_child = open_event(_metadata, &t->a, &ref_attr,
			       on_cgroup(self->child[0].fd, t->cpu));

	for (i = 0; i < 4; i++) {
		move_to(_metadata, &t->worker, i % 2 ? self->parent.path : self->child[0].path);
		worker_runs(_metadata, &t->worker);
		EXPECT_EQ(read_value(_metadata, ref_parent), read_value(_metadata, parent));
		EXPECT_EQ(read_value(_metadata, ref_child), read_value(_metadata, child));
		EXPECT_GE(read_value(_metadata, parent), (i + 1) * LOOPS);
		EXPECT_EQ(i % 2, read_value(_metadata, child) == value);
		value = read_value(_metadata, child);
	}
	EXPECT_TRUE(runs_always(parent));
	EXPECT_TRUE(runs_always(child));
}

/* Two cgroups take turns on the CPU, two openers count each of them. */
TEST_F(dup_cgroup, take_turns)
{
	struct work_order order = { .what = WORK_LOOP, .loops = 50 * LOOPS };
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct worker *worker[2] = { &t->worker, &self->other };
	int a[2], b[2], ref[2], cpu, i;
	struct target target;
	__u64 value;

	/* One for the reference of the cgroup that runs and one to share. */
	leave_counters(_metadata, t, t->cpu, 2);
	for (i = 0; i < 2; i++) {
		target = on_cgroup(self->child[i].fd, t->cpu);
		move_to(_metadata, worker[i], self->child[i].path);
		a[i] = open_event(_metadata, &t->a, &attr, target);
		b[i] = open_event(_metadata, &t->b, &attr, target);
		ref[i] = open_event(_metadata, &t->a, &ref_attr, target);
	}
	cpu = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));

	for (i = 0; i < 2; i++) {
		ASSERT_EQ((ssize_t)sizeof(order),
			  send(worker[i]->sock, &order, sizeof(order), 0));
	}
	for (i = 0; i < 2; i++) {
		ASSERT_EQ((ssize_t)sizeof(order),
			  recv(worker[i]->sock, &order, sizeof(order), 0));
		wait_for_sleep(_metadata, worker[i]);
	}

	for (i = 0; i < 2; i++) {
		value = read_value(_metadata, ref[i]);
		EXPECT_GE(value, 50 * LOOPS);
		EXPECT_EQ(value, read_value(_metadata, a[i]));
		EXPECT_EQ(value, read_value(_metadata, b[i]));
		EXPECT_TRUE(runs_always(a[i]));
		EXPECT_TRUE(runs_always(b[i]));
	}
	EXPECT_GE(read_value(_metadata, cpu),
		  read_value(_metadata, a[0]) + read_value(_metadata, a[1]));
	EXPECT_TRUE(runs_always(cpu));
}

/* A cgroup that is removed leaves its events with what they counted. */
TEST_F(dup_cgroup, removed)
{
	struct perf_event_attr attr = instructions();
	struct perf_event_attr ref_attr = reference(attr);
	struct dup_test *t = &self->t;
	struct target target = on_cgroup(self->child[0].fd, t->cpu);
	int a, b, ref, cpu;
	__u64 value, before;

	leave_counters(_metadata, t, t->cpu, 2);
	a = open_event(_metadata, &t->a, &attr, target);
	b = open_event(_metadata, &t->b, &attr, target);
	ref = open_event(_metadata, &t->a, &ref_attr, target);
	cpu = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));

	move_to(_metadata, &t->worker, self->child[0].path);
	worker_runs(_metadata, &t->worker);
	move_to(_metadata, &t->worker, self->root);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, LOOPS);

	close(self->child[0].fd);
	ASSERT_EQ(0, rmdir(self->child[0].path));
	before = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, cpu), before + LOOPS);
	EXPECT_EQ(value, read_value(_metadata, ref));
	EXPECT_EQ(value, read_value(_metadata, a));
	EXPECT_EQ(value, read_value(_metadata, b));
	EXPECT_TRUE(runs_always(a));
	EXPECT_TRUE(runs_always(b));

	close(a);
	close(ref);
	EXPECT_EQ(value, read_value(_metadata, b));
	close(b);
	before = read_value(_metadata, cpu);
	worker_runs(_metadata, &t->worker);
	EXPECT_GE(read_value(_metadata, cpu), before + LOOPS);
	EXPECT_TRUE(runs_always(cpu));
}

TEST_HARNESS_MAIN
