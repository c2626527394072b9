// SPDX-License-Identifier: GPL-2.0
/*
 * Count tasks with cgroup events: perf stat --create-cgroup
 *
 * Model
 * -----
 *
 * The kernel schedules events of a task and events of a CPU apart from each
 * other. An event of a cgroup is an event of a CPU which counts only while a
 * task of the cgroup runs. To count tasks that way, perf makes a cgroup that has
 * just these tasks inside:
 *
 *	/a/b		the cgroup that the targets are in: the parent
 *	/a/b/perf-stat-N-T-P-S
 *			the cgroup that perf makes below: the child
 *
 * As the child is below the parent, all limits of the parent stay in force. As
 * nothing is written to cgroup.subtree_control, a child on cgroup v2 has no
 * controllers with limits of its own, except those that its parent passes on.
 * Only the root cgroup can do that and have tasks at the same time.
 *
 * The perf_event controller cannot be named in cgroup.subtree_control: it sets
 * implicit_on_dfl, thus each cgroup of the v2 hierarchy has it unless a v1
 * hierarchy has it. But the kernel sees to that only when some controller is
 * enabled or disabled for the children of the root. On a machine where nobody
 * ever did that, new cgroups are without it, see check_controller(). And it sets
 * threaded, thus it can tell threads of a process apart.
 *
 *			v1 perf_event	v2		v2, threaded
 *	move in, -p	cgroup.procs	cgroup.procs	cgroup.procs
 *	move in, -t	tasks		(threaded)	cgroup.threads
 *	list, move out	tasks		cgroup.procs	cgroup.threads
 *
 * The child is threaded for -t, and if the parent is in a threaded subtree.
 *
 * Undo
 * ----
 *
 * No task may stay in the child when perf ends, for whatever reason. There is
 * no list of what was moved: all that is inside the child came from the parent,
 * or was forked by a task that did. So undo() lists what is inside, moves that
 * to the parent, and removes the child, until that succeeds. Tasks that
 * somebody else took out of the child meanwhile are not inside and stay where
 * they are.
 *
 * undo() is right at any time after the child's name was chosen, whether the
 * child exists or not, and it may be interrupted by itself. So signals do not
 * have to be blocked anywhere: fatal_signal() does the whole undo() between any
 * two system calls of set-up and tear-down, and does not return to them. That
 * is why undo() and what it calls must be async-signal-safe, and why they only
 * use descriptors that were opened, and names that were written, before
 * undo_state.armed was set.
 *
 * Nothing helps against SIGKILL. The next run finds what it left by the name of
 * the cgroup, see cgroup_target_owner. If the process does not exist any more,
 * its cgroup is undone in the same way, see reap(). Of a process in another
 * namespace it cannot tell, and leaves its cgroup alone.
 */
#include "cgroup-target.h"
#include "cgroup.h"
#include "debug.h"
#include "perf-sys.h"
#include "target.h"
#include "thread_map.h"

#include <api/fs/fs.h>
#include <internal/threadmap.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/zalloc.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHILD_PREFIX	"perf-stat-"
#define CHILD_NAME_MAX	96
#define MEMBERS_MAX	(CHILD_NAME_MAX + sizeof("/cgroup.threads"))

/*
 * How often undo() tries, with a pause of a millisecond after each failure. What
 * somebody else left must not hold up others for long.
 */
#define UNDO_TRIES	2000
#define REAP_TRIES	50

/* What undo() needs to know about one child. */
struct undo_state {
	int			armed;
	int			tries;
	pid_t			owner;
	/* the parent's directory */
	int			parent_fd;
	/* the parent's file that takes tasks back */
	int			back_fd;
	/* the child's name, and the child's file that lists tasks, in parent_fd */
	char			name[CHILD_NAME_MAX];
	char			members[MEMBERS_MAX];
};

static struct cgroup_target {
	/* where the hierarchy is mounted */
	char			mnt[PATH_MAX];
	/* the parent and the child, as in /proc/PID/cgroup */
	char			parent[PATH_MAX];
	char			child[PATH_MAX];
	bool			v2;
	/* -t: move threads, not processes */
	bool			by_tid;
	/* the child's file that takes tasks */
	int			attach_fd;
	/* the targets, NULL for a workload */
	struct perf_thread_map	*threads;
	struct undo_state	undo;
} ct = {
	.attach_fd	= -1,
	.undo		= { .parent_fd = -1, .back_fd = -1, },
};

/*
 * Parsing
 */

/**
 * cgroup_target__on_v1 - is perf_event in a v1 hierarchy?
 * @text: contents of /proc/PID/cgroup
 *
 * Return: true if it is in one.
 */
bool cgroup_target__on_v1(const char *text)
{
	char path[PATH_MAX];

	return !cgroup_target__parse_proc_cgroup(text, /*v2=*/false, path, sizeof(path));
}

/* Is @name one of the comma separated names from @list up to @end? */
static bool list_has(const char *list, const char *end, const char *name)
{
	size_t len = strlen(name);

	while (list < end) {
		size_t n = strcspn(list, ",:");

		if (n == len && !strncmp(list, name, n))
			return true;
		list += n + 1;
	}
	return false;
}

/**
 * cgroup_target__parse_proc_cgroup - find a task's cgroup
 * @text: contents of /proc/PID/cgroup
 * @v2: look for the v2 hierarchy, else for the v1 hierarchy with perf_event
 * @path: result, it starts with a slash
 * @size: size of @path
 *
 * The lines are HIERARCHY:CONTROLLERS:PATH. HIERARCHY is 0 and CONTROLLERS is
 * empty for v2. PATH can have colons inside.
 *
 * Return: 0, -ENOENT if there is none, or -ENAMETOOLONG.
 */
int cgroup_target__parse_proc_cgroup(const char *text, bool v2, char *path, size_t size)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		const char *end = text + len;
		const char *controllers = memchr(text, ':', len);
		const char *name = NULL;

		if (controllers) {
			controllers++;
			name = memchr(controllers, ':', end - controllers);
		}
		if (name) {
			bool found;

			if (v2)
				found = strstarts(text, "0::");
			else
				found = list_has(controllers, name, "perf_event");
			name++;
			if (found && *name == '/') {
				if ((size_t)(end - name) >= size)
					return -ENAMETOOLONG;
				memcpy(path, name, end - name);
				path[end - name] = '\0';
				return 0;
			}
		}
		text = *end ? end + 1 : end;
	}
	return -ENOENT;
}

/**
 * cgroup_target__parse_stat - find the state of a process and when it started
 * @text: contents of /proc/PID/stat
 * @state: result, one letter
 * @starttime: result, in clock ticks since boot
 *
 * The second field is the name in parentheses, with anything inside. The state
 * is the field after it, the start is field 22.
 *
 * Return: 0, or -EINVAL.
 */
int cgroup_target__parse_stat(const char *text, char *state, unsigned long long *starttime)
{
	const char *p = strrchr(text, ')');
	int field;

	if (!p || p[1] != ' ' || !p[2])
		return -EINVAL;

	*state = p[2];
	for (field = 2; field < 22; field++) {
		p = strchr(p, ' ');
		if (!p)
			return -EINVAL;
		p++;
	}
	return sscanf(p, "%llu", starttime) == 1 ? 0 : -EINVAL;
}

int cgroup_target__scnprintf_name(char *name, size_t size,
				  const struct cgroup_target_owner *owner)
{
	return scnprintf(name, size, CHILD_PREFIX "%llu-%llu-%d-%llu", owner->pid_ns,
			 owner->time_ns, owner->pid, owner->starttime);
}

/**
 * cgroup_target__parse_name - find who made a cgroup
 * @name: name of the cgroup, without the cgroups above
 * @owner: result
 *
 * Fails for any name that cgroup_target__scnprintf_name() does not make.
 *
 * Return: 0, or -EINVAL.
 */
int cgroup_target__parse_name(const char *name, struct cgroup_target_owner *owner)
{
	char again[CHILD_NAME_MAX];

	if (sscanf(name, CHILD_PREFIX "%llu-%llu-%d-%llu", &owner->pid_ns,
		   &owner->time_ns, &owner->pid, &owner->starttime) != 4)
		return -EINVAL;

	/* sscanf() takes spaces, signs, leading zeroes and what follows. */
	cgroup_target__scnprintf_name(again, sizeof(again), owner);
	if (owner->pid <= 0 || strcmp(name, again))
		return -EINVAL;
	return 0;
}

/**
 * cgroup_target__split - tell a cgroup's name from the cgroup above
 * @path: starts with a slash
 * @above: result, it starts with a slash, too
 * @size: size of @above
 *
 * Return: the last component of @path, NULL if there is none.
 */
const char *cgroup_target__split(const char *path, char *above, size_t size)
{
	const char *slash = strrchr(path, '/');
	size_t len;

	if (!slash || !slash[1])
		return NULL;

	/* The root keeps its slash. */
	len = slash == path ? 1 : slash - path;
	if (len >= size)
		return NULL;
	memcpy(above, path, len);
	above[len] = '\0';
	return slash + 1;
}

/*
 * Undo: only async-signal-safe functions from here on
 */

/* snprintf() is not async-signal-safe. */
static int write_pid(int fd, pid_t pid)
{
	char buf[16], *p = buf + sizeof(buf);
	ssize_t len;

	do {
		*--p = '0' + pid % 10;
		pid /= 10;
	} while (pid);

	len = buf + sizeof(buf) - p;
	return write(fd, p, len) == len ? 0 : -errno;
}

/*
 * Move what is inside the child to the parent, once. A task can fork while this
 * runs, so there can be more afterwards.
 *
 * Return: the number of tasks that were listed, or an error. The error of a
 * task that could not be moved is in @err, unless the task has gone.
 */
static int move_members_back(const struct undo_state *undo, int *err)
{
	int fd = openat(undo->parent_fd, undo->members, O_RDONLY | O_CLOEXEC);
	int nr = 0, pid = -1, ret = 0;
	char buf[1024];
	ssize_t i, len;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;

	while ((len = read(fd, buf, sizeof(buf))) > 0) {
		for (i = 0; i < len; i++) {
			if (buf[i] >= '0' && buf[i] <= '9') {
				pid = (pid < 0 ? 0 : pid * 10) + buf[i] - '0';
				continue;
			}
			/*
			 * 0 is a task that this PID namespace cannot see. To
			 * write it would move perf.
			 */
			if (pid > 0)
				ret = write_pid(undo->back_fd, pid);
			else if (pid == 0)
				ret = -EXDEV;
			if (pid >= 0)
				nr++;
			if (ret && ret != -ESRCH)
				*err = ret;
			ret = 0;
			pid = -1;
		}
	}
	/* ENODEV: the child was removed after it was opened. */
	if (len < 0 && errno != ENODEV)
		ret = -errno;
	close(fd);
	return ret ?: nr;
}

/*
 * Move all that is inside the child to the parent.
 *
 * Each round moves all tasks that exist when it starts. What they forked before
 * is inside the child, what they fork afterwards is not. So a few rounds do. A
 * task that exits is listed for a moment but cannot be moved.
 */
static int undo_move(const struct undo_state *undo)
{
	int tries, nr, err = 0;

	for (tries = 0; tries < undo->tries; tries++) {
		err = 0;
		nr = move_members_back(undo, &err);
		if (!nr)
			return 0;
		if (nr < 0)
			err = nr;
		/* The tasks that the last rounds found are about to exit. */
		if (err || tries > 3)
			poll(NULL, 0, 1);
	}
	return err ?: -EBUSY;
}

/* Move all that is inside the child to the parent and remove the child. */
static int undo_all(const struct undo_state *undo)
{
	int tries, nr, err = 0;

	for (tries = 0; tries < undo->tries; tries++) {
		err = 0;
		nr = move_members_back(undo, &err);
		if (nr < 0)
			err = nr;

		if (!unlinkat(undo->parent_fd, undo->name, AT_REMOVEDIR) || errno == ENOENT)
			return 0;
		if (!err)
			err = -errno;
		/* Tasks that are on their way out keep it busy for a moment. */
		poll(NULL, 0, 1);
	}
	return err;
}

/* A signal handler of this thread sees all that was written before. */
static void arm(struct undo_state *undo, int armed)
{
	barrier();
	WRITE_ONCE(undo->armed, armed);
	barrier();
}

static bool undo_armed(const struct undo_state *undo)
{
	/* A workload that could not be executed gets here on its way out. */
	return READ_ONCE(undo->armed) && undo->owner == getpid();
}

static void tell(const char *text)
{
	/* There is nobody else to tell if this fails. */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

static void fatal_signal(int sig)
{
	sigset_t set;

	if (undo_armed(&ct.undo) && undo_all(&ct.undo)) {
		tell("--create-cgroup: cannot remove ");
		tell(ct.undo.name);
		tell("\n");
	}

	signal(sig, SIG_DFL);
	kill(getpid(), sig);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + sig);
}

/*
 * End of what must be async-signal-safe
 */

static void undo_atexit(void)
{
	if (undo_armed(&ct.undo))
		cgroup_target__remove();
}

/*
 * Undo before any signal that would end perf. Those which are ignored, which do
 * not end it, or which perf stat handles itself because it goes on after them,
 * are left alone.
 */
static void catch_signals(void)
{
	static const int harmless[] = {
		SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGKILL,
	};
	struct sigaction old, act = {
		.sa_handler = fatal_signal,
	};
	size_t i;
	int sig;

	sigfillset(&act.sa_mask);
	for (sig = 1; sig <= SIGRTMAX; sig++) {
		for (i = 0; i < ARRAY_SIZE(harmless) && sig != harmless[i]; i++)
			;
		/* Those of the C library are refused. */
		if (i == ARRAY_SIZE(harmless) && !sigaction(sig, NULL, &old) &&
		    !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
			sigaction(sig, &act, NULL);
	}
}

static const char *hint(int err)
{
	switch (err) {
	case EACCES:
	case EPERM:
		return "Run perf as root, or as a user whom the cgroup is delegated to.";
	case EROFS:
		return "Remount the cgroup file system read-write, or run perf elsewhere.";
	case EAGAIN:
		return "Raise cgroup.max.descendants or cgroup.max.depth of the cgroups above.";
	case ENOENT:
		return "Is all of the cgroup hierarchy mounted?";
	default:
		return NULL;
	}
}

static int report(int err, const char *what, const char *path, const char *file)
{
	char buf[STRERR_BUFSIZE];
	const char *todo = hint(err);

	/* The root, whose slash is that before the file. */
	if (file && !strcmp(path, "/"))
		path = "";

	pr_err("--create-cgroup: cannot %s %s%s%s%s: %s\n", what, ct.mnt, path,
	       file ? "/" : "", file ?: "", str_error_r(err, buf, sizeof(buf)));
	if (todo)
		pr_err("%s\n", todo);
	return -err;
}

/* The child's file that lists tasks, and the parent's that takes them back. */
static const char *members_file(bool v2, bool threaded)
{
	if (!v2)
		return "tasks";
	return threaded ? "cgroup.threads" : "cgroup.procs";
}

static const char *attach_file(void)
{
	if (!ct.by_tid)
		return "cgroup.procs";
	return ct.v2 ? "cgroup.threads" : "tasks";
}

/* What is in /proc/PID/NAME, NULL if the task is gone. */
static char *read_task_file(pid_t pid, const char *name)
{
	char entry[64], *text;
	size_t len;

	scnprintf(entry, sizeof(entry), "%d/%s", pid, name);
	if (procfs__read_str(entry, &text, &len) < 0)
		return NULL;

	/* It can be gone after the file was opened: empty then. */
	if (!len)
		zfree(&text);
	return text;
}

static int read_task_cgroup(pid_t tid, char *path, size_t size)
{
	char *text = read_task_file(tid, "cgroup");
	int ret;

	if (!text)
		return -ESRCH;

	ret = cgroup_target__parse_proc_cgroup(text, ct.v2, path, size);
	free(text);
	return ret;
}

static int read_stat(pid_t pid, char *state, unsigned long long *starttime)
{
	char *text = read_task_file(pid, "stat");
	int ret;

	if (!text)
		return -ESRCH;

	ret = cgroup_target__parse_stat(text, state, starttime);
	free(text);
	return ret;
}

/* Has the task exited, though somebody has yet to wait for it? */
static bool is_dead(pid_t tid)
{
	unsigned long long starttime;
	char state;

	return !read_stat(tid, &state, &starttime) && (state == 'Z' || state == 'X');
}

/* The inode of one of our namespaces. */
static int read_namespace(const char *name, unsigned long long *inode)
{
	char path[PATH_MAX];
	struct stat st;

	scnprintf(path, sizeof(path), "%s/self/ns/%s", procfs__mountpoint(), name);
	if (stat(path, &st))
		return -errno;

	*inode = st.st_ino;
	return 0;
}

static int read_self(struct cgroup_target_owner *self)
{
	char state;
	int ret;

	ret = read_namespace("pid", &self->pid_ns);
	if (ret)
		return ret;
	/* Not all kernels have these. */
	if (read_namespace("time", &self->time_ns))
		self->time_ns = 0;

	self->pid = getpid();
	return read_stat(self->pid, &state, &self->starttime);
}

/* Do its pid and its start mean something here? */
static bool owner_is_known(const struct cgroup_target_owner *owner)
{
	struct cgroup_target_owner self;

	return !read_self(&self) && self.pid_ns == owner->pid_ns &&
	       self.time_ns == owner->time_ns;
}

/*
 * The owner is known to be gone if there is no such pid, if that has exited, or
 * if it started at another time.
 */
static bool owner_is_dead(const struct cgroup_target_owner *owner)
{
	unsigned long long starttime;
	char state;

	if (!owner_is_known(owner))
		return false;
	if (kill(owner->pid, 0) && errno == ESRCH)
		return true;
	return !read_stat(owner->pid, &state, &starttime) &&
	       (state == 'Z' || state == 'X' || starttime != owner->starttime);
}

/* On v2, is the cgroup @name in @dir_fd part of a threaded subtree? */
static bool is_threaded(int dir_fd, const char *name)
{
	char path[MEMBERS_MAX], type[32];
	bool threaded = false;
	ssize_t len;
	int fd;

	scnprintf(path, sizeof(path), "%s/cgroup.type", name);
	fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;

	len = read(fd, type, sizeof(type) - 1);
	if (len > 0) {
		type[len] = '\0';
		/* "threaded", or "domain invalid" which can only become that */
		threaded = strstarts(type, "threaded") || strstarts(type, "domain invalid");
	}
	close(fd);
	return threaded;
}

/* Undo what a dead perf left: the cgroup @name in the cgroup @parent. */
static int reap(const char *parent, const char *name)
{
	struct undo_state undo = { .tries = REAP_TRIES, };
	char path[PATH_MAX * 2];
	const char *members;
	int ret;

	scnprintf(path, sizeof(path), "%s%s", ct.mnt, parent);
	undo.parent_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (undo.parent_fd < 0)
		return -errno;

	members = members_file(ct.v2, ct.v2 && is_threaded(undo.parent_fd, name));
	scnprintf(undo.name, sizeof(undo.name), "%s", name);
	scnprintf(undo.members, sizeof(undo.members), "%s/%s", name, members);
	undo.back_fd = openat(undo.parent_fd, members, O_WRONLY | O_CLOEXEC);
	if (undo.back_fd < 0) {
		ret = -errno;
	} else {
		ret = undo_all(&undo);
		close(undo.back_fd);
	}
	close(undo.parent_fd);

	scnprintf(path, sizeof(path), "%s%s/%s", ct.mnt, parent[1] ? parent : "", name);
	if (ret)
		pr_warning("cannot remove cgroup %s that a killed perf left behind: %s\n",
			   path, strerror(-ret));
	else
		pr_warning("removed cgroup %s that a killed perf left behind\n", path);
	return ret;
}

static void reap_children(int parent_fd)
{
	struct cgroup_target_owner owner;
	struct dirent *entry;
	int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (!cgroup_target__parse_name(entry->d_name, &owner) && owner_is_dead(&owner))
			reap(ct.parent, entry->d_name);
	}
	closedir(dir);
}

/*
 * Find the cgroup of a task, after moving it out of a cgroup that a killed perf
 * left it in.
 */
static int find_task_cgroup(pid_t tid, char *path, size_t size)
{
	struct cgroup_target_owner owner;
	char above[PATH_MAX];
	const char *name;
	int ret, tries;

	if (is_dead(tid))
		return -ESRCH;

	for (tries = 0; ; tries++) {
		ret = read_task_cgroup(tid, path, size);
		if (ret == -ENOENT) {
			pr_err("--create-cgroup: perf_event is not in /proc/%d/cgroup\n", tid);
			return ret;
		}
		if (ret)
			return ret;
		if (!strncmp(path, "/..", 3)) {
			pr_err("--create-cgroup: task %d is outside of the cgroup namespace: %s\n",
			       tid, path);
			return -EXDEV;
		}

		name = cgroup_target__split(path, above, sizeof(above));
		if (!name || cgroup_target__parse_name(name, &owner))
			return 0;
		if (!owner_is_known(&owner)) {
			pr_err("--create-cgroup: task %d is in cgroup %s of a perf in another namespace\n"
			       "If that perf is gone, move what is inside to %s%s, and remove it.\n",
			       tid, path, ct.mnt, above);
			return -EBUSY;
		}
		if (!owner_is_dead(&owner)) {
			pr_err("--create-cgroup: perf with pid %d counts task %d in cgroup %s already\n",
			       owner.pid, tid, path);
			return -EBUSY;
		}
		if (tries == 3)
			return -EBUSY;
		ret = reap(above, name);
		if (ret)
			return ret;
	}
}

/* Name each cgroup once, with its first task. */
static int report_different_cgroups(void)
{
	char path[PATH_MAX], other[PATH_MAX];
	int i, j;

	pr_err("--create-cgroup: the targets are in different cgroups:\n");
	for (i = 0; i < perf_thread_map__nr(ct.threads); i++) {
		if (read_task_cgroup(perf_thread_map__pid(ct.threads, i), path, sizeof(path)))
			continue;
		for (j = 0; j < i; j++) {
			if (!read_task_cgroup(perf_thread_map__pid(ct.threads, j), other,
					      sizeof(other)) && !strcmp(path, other))
				break;
		}
		if (j == i)
			pr_err("  %s (task %d)\n", path, perf_thread_map__pid(ct.threads, i));
	}
	pr_err("Count the targets of each cgroup with a perf stat of their own.\n");
	return -EINVAL;
}

/* Find the one cgroup that all targets are in, and one task that is inside. */
static int find_parent(pid_t *member)
{
	char path[PATH_MAX];
	int i, ret;

	*member = -1;
	if (!ct.threads) {
		/* A workload starts where perf is. */
		*member = getpid();
		return find_task_cgroup(*member, ct.parent, sizeof(ct.parent));
	}

	for (i = 0; i < perf_thread_map__nr(ct.threads); i++) {
		pid_t tid = perf_thread_map__pid(ct.threads, i);

		ret = find_task_cgroup(tid, path, sizeof(path));
		if (ret == -ESRCH)
			continue;
		if (ret)
			return ret;
		if (*member == -1) {
			strcpy(ct.parent, path);
			*member = tid;
		} else if (strcmp(ct.parent, path)) {
			return report_different_cgroups();
		}
	}
	if (*member == -1) {
		pr_err("--create-cgroup: no target exists any more\n");
		return -ESRCH;
	}
	return 0;
}

/*
 * The path in /proc/PID/cgroup is from the root of the hierarchy, or of the
 * cgroup namespace. If something else is mounted, it would name another cgroup.
 */
static int check_member(pid_t member)
{
	const char *file = ct.v2 ? "cgroup.threads" : "tasks";
	int fd = openat(ct.undo.parent_fd, file, O_RDONLY | O_CLOEXEC);
	FILE *fp = fd < 0 ? NULL : fdopen(fd, "r");
	bool found = false;
	int pid;

	if (!fp) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return report(err, "read", ct.parent, file);
	}
	while (!found && fscanf(fp, "%d", &pid) == 1)
		found = pid == member;
	fclose(fp);

	if (!found && !kill(member, 0) && !is_dead(member)) {
		pr_err("--create-cgroup: task %d is not in %s%s/%s\n"
		       "Is all of the cgroup hierarchy mounted, in this cgroup namespace?\n",
		       member, ct.mnt, ct.parent[1] ? ct.parent : "", file);
		return -ENOENT;
	}
	return 0;
}

static int find_hierarchy(void)
{
	size_t len;
	char *text;
	int v2;

	if (cgroupfs_find_mountpoint(ct.mnt, sizeof(ct.mnt), "perf_event")) {
		pr_err("--create-cgroup: no cgroup file system is mounted in /proc/mounts\n"
		       "Mount one: mount -t cgroup2 none /sys/fs/cgroup\n");
		return -ENOENT;
	}
	v2 = cgroup_is_v2("perf_event");
	if (v2 < 0)
		return report(errno, "access", "", NULL);

	ct.v2 = v2;
	if (procfs__read_str("self/cgroup", &text, &len) < 0) {
		pr_err("--create-cgroup: cannot read /proc/self/cgroup: %m\n");
		return -errno;
	}
	if (ct.v2 && len && cgroup_target__on_v1(text)) {
		pr_err("--create-cgroup: perf_event is in a cgroup v1 hierarchy that is not mounted\n"
		       "Mount it: mount -t cgroup -o perf_event none DIRECTORY\n");
		free(text);
		return -ENOENT;
	}
	free(text);
	return 0;
}

/* Make the child a threaded cgroup if the targets need that. */
static int make_threaded(void)
{
	char file[MEMBERS_MAX];
	int fd, err = 0;

	scnprintf(file, sizeof(file), "%s/cgroup.type", ct.undo.name);
	fd = openat(ct.undo.parent_fd, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return report(errno, "open", ct.child, "cgroup.type");

	if (write(fd, "threaded", strlen("threaded")) < 0)
		err = errno;
	close(fd);

	if (err == EOPNOTSUPP) {
		pr_err("--create-cgroup: %s%s cannot have a threaded cgroup, so its threads cannot be counted apart\n"
		       "It passes controllers on that do not know threads (cgroup.subtree_control), or has\n"
		       "cgroups with processes below. Use -p to count all threads of a process.\n",
		       ct.mnt, ct.parent);
		return -err;
	}
	return err ? report(err, "write", ct.child, "cgroup.type") : 0;
}

static int make_child(void)
{
	struct undo_state *undo = &ct.undo;
	struct cgroup_target_owner self;
	const char *members;
	char path[MEMBERS_MAX];
	struct stat st;
	bool threaded;
	int ret;

	ret = read_self(&self);
	if (ret) {
		pr_err("--create-cgroup: cannot read %s/self\n", procfs__mountpoint());
		return ret;
	}
	cgroup_target__scnprintf_name(undo->name, sizeof(undo->name), &self);
	if (snprintf(ct.child, sizeof(ct.child), "%s/%s", ct.parent[1] ? ct.parent : "",
		     undo->name) >= (int)sizeof(ct.child))
		return report(ENAMETOOLONG, "create", ct.parent, undo->name);

	/* Never undo what somebody else made. */
	if (!fstatat(undo->parent_fd, undo->name, &st, 0))
		return report(EEXIST, "create", ct.child, NULL);

	/*
	 * Whether the child has to be threaded is known for sure only when it
	 * exists, but undo() has to know how to list what is inside before.
	 * A new child below a threaded cgroup, or beside one, is threaded.
	 */
	threaded = ct.v2 && (ct.by_tid || is_threaded(undo->parent_fd, "."));
again:
	members = members_file(ct.v2, threaded);
	scnprintf(undo->members, sizeof(undo->members), "%s/%s", undo->name, members);

	/* Know that there is a way back before anything moves. */
	undo->back_fd = openat(undo->parent_fd, members, O_WRONLY | O_CLOEXEC);
	if (undo->back_fd < 0)
		return report(errno, "open", ct.parent, members);

	undo->owner = self.pid;
	undo->tries = UNDO_TRIES;
	arm(undo, true);

	if (mkdirat(undo->parent_fd, undo->name, 0755)) {
		ret = errno;
		arm(undo, false);
		return report(ret, "create", ct.child, NULL);
	}

	if (ct.v2 && !threaded && is_threaded(undo->parent_fd, undo->name)) {
		/* The parent has other threaded cgroups below. Start again. */
		ret = undo_all(undo);
		if (ret)
			return report(-ret, "remove", ct.child, NULL);
		arm(undo, false);
		close(undo->back_fd);
		threaded = true;
		goto again;
	}
	if (threaded) {
		ret = make_threaded();
		if (ret)
			return ret;
	}

	scnprintf(path, sizeof(path), "%s/%s", undo->name, attach_file());
	ct.attach_fd = openat(undo->parent_fd, path, O_WRONLY | O_CLOEXEC);
	if (ct.attach_fd < 0)
		return report(errno, "open", ct.child, attach_file());
	return 0;
}

/*
 * Has the child the controller? If not then to open an event on it fails with
 * ENOENT, which perf stat takes for an event that is not supported. All other
 * errors are told better by those events.
 */
static int check_controller(void)
{
	struct perf_event_attr attr = {
		.type	  = PERF_TYPE_SOFTWARE,
		.config	  = PERF_COUNT_SW_DUMMY,
		.size	  = sizeof(attr),
		.disabled = 1,
	};
	int dir, fd, err;

	dir = openat(ct.undo.parent_fd, ct.undo.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return report(errno, "open", ct.child, NULL);

	fd = sys_perf_event_open(&attr, dir, sched_getcpu(), -1,
				 PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC);
	err = errno;
	close(dir);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 || err != ENOENT)
		return 0;

	pr_err("--create-cgroup: new cgroups in %s lack the perf_event controller\n", ct.mnt);
	if (ct.v2)
		pr_err("They will have it once any controller was enabled for them, for example:\n"
		       "echo +pids > %s/cgroup.subtree_control\n", ct.mnt);
	return -err;
}

/**
 * cgroup_target__create - create a cgroup below that of the targets
 * @target: tells processes from threads
 * @threads: the targets, NULL for a workload that starts later
 *
 * Nothing is moved yet. Whatever happens from here on, the cgroup is removed
 * when perf ends. Errors are reported.
 *
 * Return: 0, or a negative error number.
 */
int cgroup_target__create(const struct target *target, struct perf_thread_map *threads)
{
	static bool registered;
	char path[PATH_MAX * 2];
	pid_t member;
	int ret;

	ct.threads = perf_thread_map__get(threads);
	ct.by_tid = target->tid && !target->pid;

	ret = find_hierarchy();
	if (ret)
		goto out;
	ret = find_parent(&member);
	if (ret)
		goto out;

	scnprintf(path, sizeof(path), "%s%s", ct.mnt, ct.parent);
	ct.undo.parent_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ct.undo.parent_fd < 0) {
		ret = report(errno, "open", ct.parent, NULL);
		goto out;
	}
	ret = check_member(member);
	if (ret)
		goto out;

	reap_children(ct.undo.parent_fd);

	if (!registered) {
		registered = true;
		atexit(undo_atexit);
		catch_signals();
	}
	ret = make_child();
	if (!ret)
		ret = check_controller();
out:
	if (ret)
		cgroup_target__remove();
	return ret;
}

static int attach_task(pid_t tid)
{
	char buf[STRERR_BUFSIZE];
	int err = -write_pid(ct.attach_fd, tid);

	if (!err)
		return 0;
	if (err == ESRCH)
		return -err;

	report(err, "write to", ct.child, attach_file());
	pr_err("Task %d could not be moved there", tid);
	switch (err) {
	case EINVAL:
		pr_err(": is it a kernel thread, or a real-time task that another controller refuses?\n");
		break;
	case ENOSPC:
		pr_err(": %s has cpuset too, which needs CPUs and memory nodes first.\n", ct.mnt);
		break;
	case EOPNOTSUPP:
		pr_err(": somebody made a threaded cgroup beside it. Try again.\n");
		break;
	default:
		pr_err(": %s\n", str_error_r(err, buf, sizeof(buf)));
	}
	return -err;
}

/* Is the task where it is to be taken from? */
static int check_place(pid_t tid)
{
	char path[PATH_MAX];
	int ret;

	if (is_dead(tid))
		return -ESRCH;
	ret = read_task_cgroup(tid, path, sizeof(path));
	if (ret)
		return ret;
	if (!strcmp(path, ct.child))
		return -EALREADY;
	if (strcmp(path, ct.parent)) {
		pr_err("--create-cgroup: somebody moved task %d from %s to %s\n",
		       tid, ct.parent, path);
		return -EBUSY;
	}
	return 0;
}

/**
 * cgroup_target__attach - move the targets into the cgroup
 * @workload: the process to move if there are no other targets
 *
 * On failure all are moved back.
 *
 * Return: 0, or a negative error number.
 */
int cgroup_target__attach(pid_t workload)
{
	int i, ret, nr = 0;

	if (!ct.threads) {
		ret = check_place(workload);
		if (!ret)
			ret = attach_task(workload);
		if (ret == -ESRCH)
			pr_err("--create-cgroup: the workload is gone\n");
		return ret;
	}

	for (i = 0; i < perf_thread_map__nr(ct.threads); i++) {
		pid_t tid = perf_thread_map__pid(ct.threads, i);

		ret = check_place(tid);
		if (!ret)
			ret = attach_task(tid);
		/* Came with another thread of its process. */
		if (ret == -EALREADY)
			ret = 0;
		if (ret == -ESRCH)
			continue;
		if (ret)
			goto out_detach;
		nr++;
	}
	if (!nr) {
		pr_err("--create-cgroup: no target exists any more\n");
		ret = -ESRCH;
		goto out_detach;
	}
	return 0;

out_detach:
	cgroup_target__detach();
	return ret;
}

/**
 * cgroup_target__detach - move all that is inside the cgroup to where it was
 *
 * Return: 0, or a negative error number.
 */
int cgroup_target__detach(void)
{
	int ret;

	if (!undo_armed(&ct.undo))
		return 0;

	ret = undo_move(&ct.undo);
	if (ret) {
		report(-ret, "move tasks back from", ct.child, NULL);
		pr_err("Move them by hand to %s%s. It takes no tasks if somebody enabled\n"
		       "a controller in its cgroup.subtree_control meanwhile.\n",
		       ct.mnt, ct.parent);
	}
	return ret;
}

/**
 * cgroup_target__remove - move all back and remove the cgroup
 *
 * Also if cgroup_target__create() failed, or was never called.
 *
 * Return: 0, or a negative error number.
 */
int cgroup_target__remove(void)
{
	struct undo_state *undo = &ct.undo;
	int ret = 0;

	if (undo_armed(undo)) {
		ret = undo_all(undo);
		if (ret) {
			report(-ret, "remove", ct.child, NULL);
			pr_err("If there are cgroups below, remove them. The next perf stat --create-cgroup\n"
			       "in this cgroup tries again.\n");
		}
		arm(undo, false);
	}
	if (ct.attach_fd >= 0)
		close(ct.attach_fd);
	if (undo->back_fd >= 0)
		close(undo->back_fd);
	if (undo->parent_fd >= 0)
		close(undo->parent_fd);
	ct.attach_fd = -1;
	undo->back_fd = -1;
	undo->parent_fd = -1;
	perf_thread_map__put(ct.threads);
	ct.threads = NULL;
	return ret;
}

const char *cgroup_target__name(void)
{
	if (!undo_armed(&ct.undo))
		return NULL;
	/* cgroup__new() puts a slash in front */
	return ct.child + 1;
}
