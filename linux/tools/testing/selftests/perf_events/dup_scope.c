// SPDX-License-Identifier: GPL-2.0
/*
 * Events on tasks count through the counters of equal CPU-wide events. Sessions
 * of all kinds, from an opener each, find one counter for all: on the CPU, on a
 * task, on a task and its children, and on two cgroups. They come and go in all
 * orders.
 *
 * The tasks are alone with their CPU, the test and its openers are on another one,
 * and only instructions of user space are counted. So all counts have to be equal
 * to what a reference on that CPU says: CPU-wide events always, and the others
 * when one of their tasks ran.
 */
#include <sys/mman.h>

#include "dup_cgroup.h"

#define USER_ACCESS	"/proc/sys/kernel/perf_user_access"

enum {
	ON_CPU,
	ON_TASK,
	/* With its children. */
	ON_FAMILY,
	/* On the cgroup of the task, and on another one. */
	ON_CGROUP,
	ON_OTHER,
	NR_SESSIONS,
};

/* In how many orders they can come. */
#define NR_ORDERS	120

/* So many variants share these among them. */
#define NR_COMBINATIONS	4

struct session {
	struct opener		opener;
	int			fd;
	/* What it read last, while the CPU was idle. */
	__u64			last;
};

struct scope {
	struct dup_test		t;
	struct cgroups		c;
	/* In the other cgroup. */
	struct worker		other;
	struct session		session[NR_SESSIONS];
	/* On the CPU. */
	int			ref;
	__u64			ref_last;
	long			user_access;
	bool			cpu_pinned;
	bool			task_pinned;
};

FIXTURE(dup_scope)
{
	struct scope		s;
};

FIXTURE_VARIANT(dup_scope)
{
	bool			cpu_pinned;
	bool			task_pinned;
	unsigned int		first_order;
};

FIXTURE_VARIANT_ADD(dup_scope, flexible)
{
	.first_order = 0,
};

FIXTURE_VARIANT_ADD(dup_scope, task_pinned)
{
	.task_pinned = true,
	.first_order = 1,
};

FIXTURE_VARIANT_ADD(dup_scope, cpu_pinned)
{
	.cpu_pinned = true,
	.first_order = 2,
};

FIXTURE_VARIANT_ADD(dup_scope, both_pinned)
{
	.cpu_pinned = true,
	.task_pinned = true,
	.first_order = 3,
};

/* One counter is left. */
FIXTURE_SETUP(dup_scope)
{
	struct perf_event_attr attr = reference(user_instructions());
	struct scope *s = &self->s;
	struct dup_test *t = &s->t;
	int i;

	s->cpu_pinned = variant->cpu_pinned;
	s->task_pinned = variant->task_pinned;
	s->user_access = -1;
	for (i = 0; i < NR_SESSIONS; i++)
		s->session[i].fd = -1;
	if (!dup_setup(_metadata, t) || !cgroups_setup(_metadata, &s->c, t))
		return;
	if (!leave_cpu_to_workers(_metadata, t))
		SKIP(return, "needs two CPUs");

	start_worker(_metadata, &s->other, t->cpu);
	wait_for_sleep(_metadata, &s->other);
	for (i = 0; i < NR_SESSIONS; i++)
		start_opener(_metadata, &s->session[i].opener);
	move_to(_metadata, &t->worker, s->c.child[0].path);
	move_to(_metadata, &s->other, s->c.child[1].path);

	leave_counters(_metadata, t, t->cpu, 2);
	s->ref = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));
	s->ref_last = read_value(_metadata, s->ref);
}

FIXTURE_TEARDOWN(dup_scope)
{
	struct scope *s = &self->s;

	if (s->user_access >= 0)
		EXPECT_EQ(0, write_long(USER_ACCESS, s->user_access));
	stop(&s->t.worker);
	stop(&s->other);
	cgroups_teardown(&s->c);
	dup_teardown(_metadata, &s->t);
}

static bool is_on_task(int what)
{
	return what == ON_TASK || what == ON_FAMILY;
}

static struct target session_target(struct scope *s, int what)
{
	int cpu = s->t.cpu;

	if (is_on_task(what))
		return on_task(s->t.worker.pid);
	if (what == ON_CPU)
		return on_cpu(cpu);
	return on_cgroup(s->c.child[what == ON_OTHER].fd, cpu);
}

static struct perf_event_attr session_attr(const struct scope *s, int what,
					   struct perf_event_attr attr)
{
	attr.pinned = is_on_task(what) ? s->task_pinned : s->cpu_pinned;
	attr.inherit = what == ON_FAMILY;

	return attr;
}

/*
 * Where a counter runs already, an event that comes must not be given what that
 * counted before: it has to read the counter first.
 */
static void open_session(struct __test_metadata *_metadata, struct scope *s, int what)
{
	struct perf_event_attr attr = session_attr(s, what, user_instructions());
	struct session *session = &s->session[what];

	session->fd = open_event(_metadata, &session->opener, &attr,
				 session_target(s, what));
	session->last = read_value(_metadata, session->fd);
	EXPECT_EQ(0U, session->last);
}

static void close_session(struct scope *s, int what)
{
	close(s->session[what].fd);
	s->session[what].fd = -1;
}

static void open_sessions(struct __test_metadata *_metadata, struct scope *s)
{
	int what;

	for (what = 0; what < NR_SESSIONS; what++)
		open_session(_metadata, s, what);
}

/* What a session counts when the task worked, or the one in the other cgroup. */
static bool is_counted(int what, bool other)
{
	return what == ON_CPU || (what == ON_OTHER) == other;
}

/* Returns what was counted on the CPU since the last time. */
static __u64 advance(struct __test_metadata *_metadata, struct scope *s)
{
	__u64 last = s->ref_last;

	s->ref_last = read_value(_metadata, s->ref);

	return s->ref_last - last;
}

/*
 * All who count the one that worked counted the same, which is what there was;
 * others nothing: no event is left with another task's counts.
 */
static void check_sessions(struct __test_metadata *_metadata, struct scope *s, bool other)
{
	__u64 value = advance(_metadata, s);
	struct session *session;
	struct counts counts;
	int what;

	for (what = 0; what < NR_SESSIONS; what++) {
		session = &s->session[what];
		if (session->fd < 0)
			continue;

		counts = read_counts(_metadata, session->fd);
		EXPECT_EQ(is_counted(what, other) ? value : 0, counts.value - session->last)
			TH_LOG("session %d", what);
		EXPECT_EQ(counts.enabled, counts.running)
			TH_LOG("session %d", what);
		if (is_counted(what, other))
			EXPECT_NE(0U, counts.running);
		session->last = counts.value;
	}
}

static void run_and_check(struct __test_metadata *_metadata, struct scope *s)
{
	__u64 before;
	int i;

	for (i = 0; i < 2; i++) {
		before = s->ref_last;
		worker_does(_metadata, i ? &s->other : &s->t.worker, WORK_LOOP, LOOPS / 10);
		check_sessions(_metadata, s, i);
		EXPECT_GE(s->ref_last - before, LOOPS / 10);
	}
}

/* One of all the orders in which five can come. */
static void nth_order(unsigned int nr, int order[NR_SESSIONS])
{
	int left[NR_SESSIONS], i, j, pick;

	for (i = 0; i < NR_SESSIONS; i++)
		left[i] = i;
	for (i = 0; i < NR_SESSIONS; i++) {
		pick = nr % (NR_SESSIONS - i);
		nr /= NR_SESSIONS - i;
		order[i] = left[pick];
		for (j = pick; j < NR_SESSIONS - i - 1; j++)
			left[j] = left[j + 1];
	}
}

/*
 * All orders of opening and all of closing, over the variants. The task works
 * between any two steps. A borrower that is not handed back when the CPU's events
 * are gone, or a CPU-wide event that starts at the count of a borrower's counter,
 * is off from the next step on.
 */
TEST_F_TIMEOUT(dup_scope, orders, 200)
{
	int come[NR_SESSIONS], go[NR_SESSIONS], i;
	struct scope *s = &self->s;
	unsigned int nr;

	for (nr = variant->first_order; nr < NR_ORDERS; nr += NR_COMBINATIONS) {
		nth_order(nr, come);
		/* Without a common factor, so that each comes up once. */
		nth_order((7 * nr + 59) % NR_ORDERS, go);

		for (i = 0; i < NR_SESSIONS; i++) {
			open_session(_metadata, s, come[i]);
			run_and_check(_metadata, s);
		}
		for (i = 0; i < NR_SESSIONS; i++) {
			close_session(s, go[i]);
			if (i < NR_SESSIONS - 1)
				run_and_check(_metadata, s);
		}
		if (__test_passed(_metadata))
			continue;
		TH_LOG("opened %d %d %d %d %d, closed %d %d %d %d %d", come[0], come[1],
		       come[2], come[3], come[4], go[0], go[1], go[2], go[3], go[4]);
		break;
	}
}

/*
 * Equal events of one opener have counters of their own on each target, and the
 * first of them on the task meets the first of them on the CPU.
 */
TEST_F(dup_scope, one_opener)
{
	struct scope *s = &self->s;
	struct perf_event_attr cpu_attr = session_attr(s, ON_CPU, user_instructions());
	struct perf_event_attr task_attr = session_attr(s, ON_TASK, user_instructions());
	struct dup_test *t = &s->t;
	int cpu[2], task[2], i, round;
	__u64 value[2] = {}, delta;

	/* Two are left. */
	release_counter(_metadata, t);
	for (i = 0; i < 2; i++) {
		cpu[i] = open_event(_metadata, &t->a, &cpu_attr, on_cpu(t->cpu));
		task[i] = open_event(_metadata, &t->a, &task_attr, on_task(t->worker.pid));
	}

	for (round = 0; round < 4; round++) {
		advance(_metadata, s);
		for (i = 0; i < 2; i++)
			value[i] = read_value(_metadata, cpu[i]);
		worker_runs(_metadata, &t->worker);
		delta = advance(_metadata, s);
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(delta, read_value(_metadata, cpu[i]) - value[i]);
			EXPECT_TRUE(runs_always(cpu[i]));
			EXPECT_TRUE(runs_always(task[i]));
		}
		EXPECT_GE(delta, LOOPS);
		EXPECT_EQ(read_value(_metadata, task[0]), read_value(_metadata, task[1]));
	}
}

/* The task goes where there is no CPU-wide event, and comes back. */
TEST_F(dup_scope, migrates)
{
	struct perf_event_attr attr = reference(user_instructions());
	int here = sched_getcpu(), on_other_cpu, ref, i;
	struct scope *s = &self->s;
	struct dup_test *t = &s->t;
	__u64 value = 0, cpu = 0, last, delta;

	/* One to share and one for the task's reference. */
	release_counter(_metadata, t);
	ref = open_event(_metadata, &t->filler, &attr, on_task(t->worker.pid));
	open_session(_metadata, s, ON_TASK);
	open_session(_metadata, s, ON_CPU);
	open_session(_metadata, s, ON_FAMILY);

	for (i = 0; i < 12; i++) {
		on_other_cpu = i % 3 == 1;
		ASSERT_EQ(0, bind_to_cpu(t->worker.pid, on_other_cpu ? here : t->cpu));
		last = value;
		worker_runs(_metadata, &t->worker);
		value = read_value(_metadata, ref);
		EXPECT_GE(value, last + LOOPS);
		EXPECT_EQ(value, read_value(_metadata, s->session[ON_TASK].fd));
		EXPECT_EQ(value, read_value(_metadata, s->session[ON_FAMILY].fd));
		delta = advance(_metadata, s);
		EXPECT_EQ(on_other_cpu ? 0 : value - last, delta);
		cpu += delta;
		EXPECT_EQ(cpu, read_value(_metadata, s->session[ON_CPU].fd));
	}

	/* It is moved while it works. */
	worker_begins(_metadata, &t->worker, WORK_CALL, 50 * LOOPS);
	for (i = 0; i < 12; i++) {
		usleep(2000);
		ASSERT_EQ(0, bind_to_cpu(t->worker.pid, i % 2 ? t->cpu : here));
	}
	worker_ready(_metadata, &t->worker);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, 50 * LOOPS);
	EXPECT_EQ(value, read_value(_metadata, s->session[ON_TASK].fd));
	EXPECT_EQ(value, read_value(_metadata, s->session[ON_FAMILY].fd));
	cpu += advance(_metadata, s);
	EXPECT_EQ(cpu, read_value(_metadata, s->session[ON_CPU].fd));
	EXPECT_TRUE(runs_always(s->session[ON_CPU].fd));
	EXPECT_TRUE(runs_always(s->session[ON_TASK].fd));
	EXPECT_TRUE(runs_always(s->session[ON_FAMILY].fd));
}

/*
 * CPU-wide events come and go in the midst of the task's work. The counter that
 * it borrowed must neither stop with the last of them nor be counted twice. And it
 * borrows at once when one comes, whoever is pinned: what it counts with until
 * then is the last counter.
 */
TEST_F(dup_scope, cpu_comes_and_goes)
{
	struct scope *s = &self->s;
	struct perf_event_attr cpu_attr = session_attr(s, ON_CPU, user_instructions());
	struct perf_event_attr attr = reference(user_instructions());
	struct dup_test *t = &s->t;
	__u64 before, value;
	int ref, cpu, i;

	release_counter(_metadata, t);
	ref = open_event(_metadata, &t->filler, &attr, on_task(t->worker.pid));
	open_session(_metadata, s, ON_TASK);
	worker_begins(_metadata, &t->worker, WORK_CALL, 100 * LOOPS);

	for (i = 0; i < 50 && !worker_is_ready(&t->worker); i++) {
		before = read_value(_metadata, s->ref);
		cpu = open_event(_metadata, &t->a, &cpu_attr, on_cpu(t->cpu));
		/* Two at a time: one that goes leaves another. */
		if (i % 3 == 0) {
			close(cpu);
			cpu = open_event(_metadata, &t->b, &cpu_attr, on_cpu(t->cpu));
		}
		usleep(1500);
		EXPECT_TRUE(runs_always(cpu));
		value = read_value(_metadata, cpu);
		EXPECT_LE(value, read_value(_metadata, s->ref) - before);
		close(cpu);
		if (i % 2)
			usleep(1000);
	}
	EXPECT_GE(i, 10);

	worker_ready(_metadata, &t->worker);
	value = read_value(_metadata, ref);
	EXPECT_GE(value, 100 * LOOPS);
	EXPECT_EQ(value, read_value(_metadata, s->session[ON_TASK].fd));
	EXPECT_TRUE(runs_always(s->session[ON_TASK].fd));
}

/*
 * What the task shares goes on when there is something to borrow that does not
 * run: an equal event of the CPU that is disabled. It comes while the task works. A
 * pinned event then holds the task's own counter, the only one; if the flexible one
 * that shares with it was to use the CPU's when it is scheduled in again
 * (perf_dup_to_use() without a look at who runs), it would wait for one more. It is
 * scheduled in by rotation, for one waits that never fits, and with the task.
 */
TEST_F(dup_scope, cpu_is_disabled)
{
	struct scope *s = &self->s;
	struct perf_event_attr cpu_attr = session_attr(s, ON_CPU, user_instructions());
	struct target target = on_task(s->t.worker.pid);
	struct perf_event_attr attr = user_instructions();
	__u64 from = s->ref_last, value;
	struct dup_test *t = &s->t;
	int own[2], waiting, cpu, i, j;

	for (i = 0; i < 2; i++) {
		/* The pinned one comes first, or the other one. */
		attr.pinned = i != s->task_pinned;
		own[i] = open_event(_metadata, i ? &t->b : &t->a, &attr, target);
	}
	attr = twin(1);
	waiting = open_event(_metadata, &t->a, &attr, target);

	worker_begins(_metadata, &t->worker, WORK_LOOP, 400 * LOOPS);
	usleep(5000);
	cpu_attr.disabled = 1;
	cpu = open_event(_metadata, &t->a, &cpu_attr, on_cpu(t->cpu));
	for (i = 0; i < 5; i++) {
		/* Some turns long. */
		usleep(20000);
		for (j = 0; j < 2; j++)
			EXPECT_TRUE(runs_always(own[j]))
				TH_LOG("round %d, event %d", i, j);
		/* Then all count through the CPU's counter, also after it is disabled. */
		if (i)
			EXPECT_TRUE(runs_always(cpu));
		if (i < 4)
			ASSERT_EQ(0, ioctl(cpu, i % 2 ? PERF_EVENT_IOC_DISABLE :
					   PERF_EVENT_IOC_ENABLE, 0));
	}
	worker_ready(_metadata, &t->worker);

	/* It is disabled now, and closed later. */
	for (i = 0; i < 6; i++) {
		if (i == 4)
			close(cpu);
		worker_does(_metadata, &t->worker, i % 2 ? WORK_LOOP : WORK_CALL, 20 * LOOPS);
		value = read_value(_metadata, s->ref) - from;
		for (j = 0; j < 2; j++) {
			EXPECT_EQ(value, read_value(_metadata, own[j]));
			EXPECT_TRUE(runs_always(own[j]));
		}
	}
	EXPECT_FALSE(runs_sometimes(waiting));
}

/*
 * What children counted through the CPU's counter comes back to the event of
 * their parent: those that take turns exchange contexts with borrowers in them.
 */
TEST_F(dup_scope, children)
{
	static const enum work works[] = { WORK_FORK, WORK_TURNS, WORK_FAMILY, WORK_LOOP };
	struct perf_event_attr attr = user_instructions();
	struct scope *s = &self->s;
	struct session *session = s->session;
	struct dup_test *t = &s->t;
	__u64 value = 0, task = 0, last, delta;
	unsigned int i;
	int ref;

	attr.inherit = 1;
	attr = reference(attr);
	release_counter(_metadata, t);
	ref = open_event(_metadata, &t->filler, &attr, on_task(t->worker.pid));
	open_sessions(_metadata, s);

	for (i = 0; i <= 2 * ARRAY_SIZE(works); i++) {
		/* With the CPU-wide events, and without. */
		if (i == ARRAY_SIZE(works))
			close_session(s, ON_CPU);
		last = value;
		advance(_metadata, s);
		if (i == 2 * ARRAY_SIZE(works))
			worker_ends(_metadata, &t->worker, WORK_EXEC);
		else
			worker_does(_metadata, &t->worker, works[i % ARRAY_SIZE(works)],
				    LOOPS / 5);

		value = read_value(_metadata, ref);
		EXPECT_GE(value, last + LOOPS / 5);
		EXPECT_EQ(value, read_value(_metadata, session[ON_FAMILY].fd));
		EXPECT_EQ(value, read_value(_metadata, session[ON_CGROUP].fd));
		EXPECT_EQ(0U, read_value(_metadata, session[ON_OTHER].fd));
		EXPECT_EQ(value - last, advance(_metadata, s));
		if (session[ON_CPU].fd >= 0) {
			EXPECT_EQ(value, read_value(_metadata, session[ON_CPU].fd));
			EXPECT_TRUE(runs_always(session[ON_CPU].fd));
		}
		/* What the task itself does is all, or less. */
		delta = read_value(_metadata, session[ON_TASK].fd) - task;
		task += delta;
		if (works[i % ARRAY_SIZE(works)] == WORK_LOOP)
			EXPECT_EQ(value - last, delta);
		EXPECT_LE(delta, value - last);
	}
	EXPECT_TRUE(runs_always(session[ON_TASK].fd));
	EXPECT_TRUE(runs_always(session[ON_FAMILY].fd));
	EXPECT_TRUE(runs_always(session[ON_CGROUP].fd));
}

/* The task goes to the other cgroup and back, and its events with it. */
TEST_F(dup_scope, moves)
{
	struct scope *s = &self->s;
	struct dup_test *t = &s->t;
	struct session *session = s->session;
	__u64 last[NR_SESSIONS] = {}, value, delta;
	int what, i;

	open_sessions(_metadata, s);
	for (i = 0; i < 6; i++) {
		move_to(_metadata, &t->worker, s->c.child[i % 2].path);
		advance(_metadata, s);
		worker_runs(_metadata, &t->worker);
		delta = advance(_metadata, s);
		EXPECT_GE(delta, LOOPS);
		for (what = 0; what < NR_SESSIONS; what++) {
			value = read_value(_metadata, session[what].fd);
			EXPECT_EQ(what == (i % 2 ? ON_CGROUP : ON_OTHER) ? 0 : delta,
				  value - last[what]);
			last[what] = value;
		}
	}
	for (what = 0; what < NR_SESSIONS; what++)
		EXPECT_TRUE(runs_always(session[what].fd));
}

static void open_group(struct __test_metadata *_metadata, struct scope *s, int what,
		       int first, int second, int fd[2])
{
	struct perf_event_attr attr = session_attr(s, what, twin(first));
	struct opener *opener = &s->session[what].opener;

	fd[0] = open_event(_metadata, opener, &attr, session_target(s, what));
	attr = twin(second);
	attr.inherit = what == ON_FAMILY;
	fd[1] = open_in_group(_metadata, opener, &attr, session_target(s, what), fd[0]);
}

/* Groups, of which one has a member that nobody else counts on the CPU. */
TEST_F(dup_scope, groups)
{
	struct scope *s = &self->s;
	struct dup_test *t = &s->t;
	__u64 last[NR_SESSIONS][2] = {}, value, delta;
	int fd[NR_SESSIONS][2], what, i, round;

	/* Three are left, for twins 0 to 2. */
	release_counter(_metadata, t);
	release_counter(_metadata, t);
	open_group(_metadata, s, ON_TASK, 1, 0, fd[ON_TASK]);
	open_group(_metadata, s, ON_CPU, 0, 1, fd[ON_CPU]);
	open_group(_metadata, s, ON_FAMILY, 0, 2, fd[ON_FAMILY]);
	open_group(_metadata, s, ON_CGROUP, 1, 0, fd[ON_CGROUP]);
	open_group(_metadata, s, ON_OTHER, 0, 1, fd[ON_OTHER]);

	for (round = 0; round < 6; round++) {
		if (round == 4) {
			close(fd[ON_CPU][1]);
			close(fd[ON_CPU][0]);
		}
		worker_does(_metadata, round % 2 ? &s->other : &t->worker, WORK_LOOP, LOOPS);
		delta = advance(_metadata, s);
		EXPECT_GE(delta, LOOPS);
		for (what = round < 4 ? ON_CPU : ON_TASK; what < NR_SESSIONS; what++) {
			for (i = 0; i < 2; i++) {
				value = read_value(_metadata, fd[what][i]);
				EXPECT_EQ(is_counted(what, round % 2) ? delta : 0,
					  value - last[what][i])
					TH_LOG("round %d, session %d", round, what);
				last[what][i] = value;
				if (round)
					EXPECT_TRUE(runs_always(fd[what][i]));
			}
		}
	}
}

/* Opened while the task works: nothing from before, and what comes is exact. */
TEST_F(dup_scope, late)
{
	struct scope *s = &self->s;
	struct perf_event_attr task_attr = session_attr(s, ON_TASK, user_instructions());
	struct perf_event_attr attr = reference(user_instructions());
	struct target target = on_task(s->t.worker.pid);
	struct dup_test *t = &s->t;
	__u64 before, value;
	struct counts end;
	int ref, late, i;

	release_counter(_metadata, t);
	open_session(_metadata, s, ON_CPU);
	open_session(_metadata, s, ON_CGROUP);
	worker_does(_metadata, &t->worker, WORK_LOOP, 10 * LOOPS);
	open_session(_metadata, s, ON_TASK);
	ref = open_event(_metadata, &t->filler, &attr, target);

	worker_begins(_metadata, &t->worker, WORK_CALL, 100 * LOOPS);
	for (i = 0; i < 10; i++) {
		before = read_value(_metadata, ref);
		late = open_event(_metadata, i % 2 ? &t->a : &t->b, &task_attr, target);
		value = read_value(_metadata, late);
		EXPECT_LE(value, read_value(_metadata, ref) - before);
		usleep(1000);
		end = read_counts(_metadata, late);
		EXPECT_LE(end.value, read_value(_metadata, ref) - before);
		EXPECT_GE(end.value, value);
		EXPECT_EQ(end.enabled, end.running);
		close(late);
	}
	EXPECT_FALSE(worker_is_ready(&t->worker));
	worker_ready(_metadata, &t->worker);

	value = read_value(_metadata, ref);
	EXPECT_EQ(value, read_value(_metadata, s->session[ON_TASK].fd));
	EXPECT_GE(value, 100 * LOOPS);
	EXPECT_TRUE(runs_always(s->session[ON_TASK].fd));
	EXPECT_EQ(read_value(_metadata, s->session[ON_CPU].fd),
		  read_value(_metadata, s->session[ON_CGROUP].fd));
}

static struct perf_event_mmap_page *map_page(struct __test_metadata *_metadata, int fd)
{
	void *page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);

	ASSERT_NE(MAP_FAILED, page);
	return page;
}

static __u32 page_index(const struct perf_event_mmap_page *page)
{
	return __atomic_load_n(&page->index, __ATOMIC_RELAXED);
}

/*
 * A borrower's page does not lead to the counter of the CPU-wide event. Nor does a
 * task borrow that reads counters itself: the driver zeroes those that are not in
 * use when it comes, but a borrowed one would tell it what the CPU-wide event has
 * counted for others. On arm64 no CPU-wide event can be read from user space, so
 * none equals what the task reads; what is looked at is another event of the task.
 */
TEST_F(dup_scope, user_page)
{
	struct scope *s = &self->s;
	struct perf_event_attr attr = session_attr(s, ON_CPU, user_instructions());
	struct perf_event_mmap_page *page;
	struct dup_test *t = &s->t;
	int cpu, borrower, readable;
	struct counts from, to;
	__u64 before;

#ifndef __aarch64__
	SKIP(return, "it is arm64 where events ask for access from user space");
#endif
	s->user_access = read_long(USER_ACCESS);
	if (s->user_access < 0 || write_long(USER_ACCESS, 1))
		SKIP(return, "cannot write " USER_ACCESS);
	/* The test counts itself. */
	ASSERT_EQ(0, bind_to_cpu(0, t->cpu));

	cpu = open_event(_metadata, &t->a, &attr, on_cpu(t->cpu));
	attr.pinned = 0;
	borrower = open_event(_metadata, &t->b, &attr, on_task(getpid()));
	page = map_page(_metadata, borrower);
	before = read_value(_metadata, borrower);
	burn(LOOPS);
	EXPECT_EQ(0U, page_index(page));
	EXPECT_GE(read_value(_metadata, borrower), before + LOOPS);
	EXPECT_TRUE(runs_always(borrower));
	EXPECT_TRUE(runs_always(cpu));

	/* A counter for the one that is read, and none for the borrower. */
	release_counter(_metadata, t);
	attr.pinned = 1;
	attr.config1 = 2;
	readable = try_open(_metadata, &t->a, &attr, on_task(getpid()), -1);
	if (readable < 0)
		SKIP(return, "no access from user space: %s", strerror(-readable));
	page = map_page(_metadata, readable);
	from = read_counts(_metadata, borrower);
	burn(LOOPS);
	EXPECT_EQ(1, (int)page->cap_user_rdpmc);
	EXPECT_NE(0U, page_index(page));
	to = read_counts(_metadata, borrower);
	EXPECT_EQ(from.value, to.value);
	EXPECT_EQ(from.running, to.running);
	EXPECT_GT(to.enabled, from.enabled);
	EXPECT_TRUE(runs_always(readable));
	EXPECT_TRUE(runs_always(cpu));

	/* Nobody reads: it borrows again. */
	munmap(page, sysconf(_SC_PAGESIZE));
	close(readable);
	attr = reference(user_instructions());
	readable = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));
	ASSERT_TRUE(runs_always(readable));
	usleep(1000);
	from = read_counts(_metadata, borrower);
	burn(LOOPS);
	to = read_counts(_metadata, borrower);
	EXPECT_GE(to.value, from.value + LOOPS);
	EXPECT_EQ(to.enabled - from.enabled, to.running - from.running);
	EXPECT_TRUE(runs_always(cpu));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], BURN_ARGUMENT)) {
		burn(LOOPS);
		return 0;
	}

	return test_harness_run(argc, argv);
}
