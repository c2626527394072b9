// SPDX-License-Identifier: GPL-2.0
/*
 * A token goes round between a process in one cgroup and one in another, so that
 * each of its hops is a switch of cgroups. Nothing else runs on that CPU in user
 * space. The cgroups' counts then add up to the CPU-wide ones to the instruction,
 * and each equals a reference on the process.
 */
#include <sys/mman.h>

#include "dup_cgroup.h"

/* Equal events of a cgroup and of the CPU. */
#define NR_EVENTS	NR_TWINS

#define NR_HOPS		50
#define HOP_LOOPS	500

#define NR_PLAYERS	2

struct player {
	struct worker		worker;
	/* Where it waits for the token, and the end to hand it over. */
	int			token[2];
	/* An event of its own on it. */
	int			ref;
	__u64			ref_last;
};

struct switching {
	struct dup_test		t;
	struct cgroups		c;
	/* Below the first one. */
	struct cgroup		nested;
	struct opener		opener;
	struct player		player[NR_PLAYERS];
	int			cpu[NR_EVENTS];
	__u64			cpu_last[NR_EVENTS];
	/* The events of the cgroups, and what they read last. */
	int			fd[NR_PLAYERS][NR_EVENTS];
	__u64			last[NR_PLAYERS][NR_EVENTS];
	int			ref;
	__u64			ref_last;
};

FIXTURE(dup_cgroup_switch)
{
	struct switching	s;
};

FIXTURE_VARIANT(dup_cgroup_switch)
{
	/* With the same events on the CPU. */
	bool			cpu_wide;
	/* With events on the tasks, which are switched as well. */
	bool			on_tasks;
};

FIXTURE_VARIANT_ADD(dup_cgroup_switch, alone)
{
	.cpu_wide = false,
};

FIXTURE_VARIANT_ADD(dup_cgroup_switch, cpu_wide)
{
	.cpu_wide = true,
};

FIXTURE_VARIANT_ADD(dup_cgroup_switch, with_tasks)
{
	.on_tasks = true,
};

FIXTURE_VARIANT_ADD(dup_cgroup_switch, cpu_wide_with_tasks)
{
	.cpu_wide = true,
	.on_tasks = true,
};

/* Twice as much in the second one, so that the two can not be taken for each other. */
static void play(int sock, int from, int to, int nr)
{
	struct work_order order;
	unsigned long hop;
	char token;

	/* See wait_for_sleep(). */
	while (syscall(SYS_recvfrom, sock, &order, sizeof(order), 0, NULL, NULL) ==
	       sizeof(order)) {
		for (hop = 0; hop < order.loops; hop++) {
			if (read(from, &token, 1) != 1)
				_exit(1);
			burn(HOP_LOOPS << nr);
			if (write(to, &token, 1) != 1)
				_exit(1);
		}
		send(sock, &order, sizeof(order), MSG_NOSIGNAL);
	}
}

/* No event is open yet: a player has no need to close what it inherits. */
static void start_player(struct __test_metadata *_metadata, struct switching *s, int nr)
{
	struct player *player = &s->player[nr];
	int to = s->player[(nr + 1) % NR_PLAYERS].token[1];
	int ends[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
	player->worker.sock = ends[0];
	player->worker.pid = fork();
	ASSERT_GE(player->worker.pid, 0);
	if (!player->worker.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		play(ends[1], player->token[0], to, nr);
		_exit(0);
	}
	close(ends[1]);
	ASSERT_EQ(0, bind_to_cpu(player->worker.pid, s->t.cpu));
	wait_for_sleep(_metadata, &player->worker);
}

/*
 * As many counters are left as the events of one kind need, one for the reference
 * and one for the reference on the task that runs.
 */
FIXTURE_SETUP(dup_cgroup_switch)
{
	struct perf_event_attr attr = reference(user_instructions());
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	struct player *player;
	int i;

	if (!dup_setup(_metadata, t) || !cgroups_setup(_metadata, &s->c, t))
		return;
	if (!leave_cpu_to_workers(_metadata, t))
		SKIP(return, "needs two CPUs");

	make_cgroup(_metadata, &s->nested, s->c.child[0].path, "x");
	start_opener(_metadata, &s->opener);
	for (i = 0; i < NR_PLAYERS; i++)
		ASSERT_EQ(0, pipe2(s->player[i].token, O_CLOEXEC));
	for (i = 0; i < NR_PLAYERS; i++) {
		start_player(_metadata, s, i);
		move_to(_metadata, &s->player[i].worker, s->c.child[i].path);
	}
	ASSERT_EQ(1, write(s->player[0].token[1], "", 1));

	leave_counters(_metadata, t, t->cpu, NR_EVENTS + 1 + variant->on_tasks);
	s->ref = open_event(_metadata, &t->filler, &attr, on_cpu(t->cpu));
	for (i = 0; i < NR_PLAYERS; i++) {
		player = &s->player[i];
		player->ref = -1;
		if (variant->on_tasks)
			player->ref = open_event(_metadata, &t->filler, &attr,
						 on_task(player->worker.pid));
	}
	for (i = 0; i < NR_EVENTS; i++) {
		attr = twin(i);
		s->cpu[i] = -1;
		if (variant->cpu_wide)
			s->cpu[i] = open_event(_metadata, &s->opener, &attr, on_cpu(t->cpu));
	}
	memset(s->fd, -1, sizeof(s->fd));
}

FIXTURE_TEARDOWN(dup_cgroup_switch)
{
	struct switching *s = &self->s;
	int i;

	for (i = 0; i < NR_PLAYERS; i++)
		stop(&s->player[i].worker);
	stop(&s->t.worker);
	if (*s->nested.path)
		rmdir(s->nested.path);
	cgroups_teardown(&s->c);
	dup_teardown(_metadata, &s->t);
}

static void open_on_cgroup(struct __test_metadata *_metadata, struct switching *s, int nr,
			   int from, int to)
{
	struct target target = on_cgroup(s->c.child[nr].fd, s->t.cpu);
	struct opener *opener = nr ? &s->t.b : &s->t.a;
	struct perf_event_attr attr;
	int i;

	for (i = from; i < to; i++) {
		attr = twin(i);
		s->fd[nr][i] = open_event(_metadata, opener, &attr, target);
	}
}

static void begin_round(struct __test_metadata *_metadata, struct switching *s,
			unsigned long hops)
{
	int i;

	for (i = 0; i < NR_PLAYERS; i++)
		worker_begins(_metadata, &s->player[i].worker, WORK_LOOP, hops);
}

static void end_round(struct __test_metadata *_metadata, struct switching *s)
{
	int i;

	for (i = 0; i < NR_PLAYERS; i++)
		worker_ready(_metadata, &s->player[i].worker);
}

/* Returns what an event counted since the last time, or -1 if there is none. */
static __s64 advance(struct __test_metadata *_metadata, int fd, __u64 *last)
{
	__u64 value;

	if (fd < 0)
		return -1;

	value = read_value(_metadata, fd) - *last;
	*last += value;

	return value;
}

/* What was counted on the CPU: all of its events agree. */
static __s64 check_cpu(struct __test_metadata *_metadata, struct switching *s)
{
	__s64 all = advance(_metadata, s->ref, &s->ref_last);
	int i;

	for (i = 0; i < NR_EVENTS; i++) {
		if (s->cpu[i] < 0)
			continue;
		EXPECT_EQ(all, advance(_metadata, s->cpu[i], &s->cpu_last[i]));
		EXPECT_TRUE(runs_always(s->cpu[i]));
	}

	return all;
}

/* All of a cgroup's events counted what the one on its process did. */
static __s64 check_cgroup(struct __test_metadata *_metadata, struct switching *s, int nr)
{
	__s64 value = advance(_metadata, s->player[nr].ref, &s->player[nr].ref_last);
	__s64 delta;
	int i;

	for (i = 0; i < NR_EVENTS; i++) {
		delta = advance(_metadata, s->fd[nr][i], &s->last[nr][i]);
		if (delta < 0)
			continue;
		if (value < 0)
			value = delta;
		EXPECT_EQ(value, delta)
			TH_LOG("event %d of cgroup %d", i, nr);
		EXPECT_TRUE(runs_always(s->fd[nr][i]));
	}

	return value;
}

static void check(struct __test_metadata *_metadata, struct switching *s)
{
	__s64 value[NR_PLAYERS], all;
	int i;

	all = check_cpu(_metadata, s);
	for (i = 0; i < NR_PLAYERS; i++) {
		value[i] = check_cgroup(_metadata, s, i);
		EXPECT_GE(value[i], NR_HOPS * (HOP_LOOPS << i));
	}
	EXPECT_EQ(all, value[0] + value[1]);
}

/* A round of which the counts are known. */
static void play_round(struct __test_metadata *_metadata, struct switching *s)
{
	begin_round(_metadata, s, NR_HOPS);
	end_round(_metadata, s);
	check(_metadata, s);
}

/* What was counted until now does not matter: all events of a test are open. */
static void start(struct __test_metadata *_metadata, struct switching *s)
{
	int i, j;

	advance(_metadata, s->ref, &s->ref_last);
	for (i = 0; i < NR_EVENTS; i++)
		advance(_metadata, s->cpu[i], &s->cpu_last[i]);
	for (i = 0; i < NR_PLAYERS; i++) {
		advance(_metadata, s->player[i].ref, &s->player[i].ref_last);
		for (j = 0; j < NR_EVENTS; j++)
			advance(_metadata, s->fd[i][j], &s->last[i][j]);
	}
}

/*
 * All masters run on at each hop: the leavers' last value is the joiners' first
 * one. To read a counter for each of them, or not at all for a joiner, is to give
 * to one what the other did.
 */
TEST_F(dup_cgroup_switch, equal_sets)
{
	struct switching *s = &self->s;
	int i;

	for (i = 0; i < NR_PLAYERS; i++)
		open_on_cgroup(_metadata, s, i, 0, NR_EVENTS);
	start(_metadata, s);
	for (i = 0; i < 5; i++)
		play_round(_metadata, s);
}

/* Without the CPU's events no master but those of two events in common runs on. */
TEST_F(dup_cgroup_switch, different_sets)
{
	struct switching *s = &self->s;
	int i;

	open_on_cgroup(_metadata, s, 0, 0, 3);
	open_on_cgroup(_metadata, s, 1, 1, NR_EVENTS);
	start(_metadata, s);
	for (i = 0; i < 5; i++)
		play_round(_metadata, s);
}

/* There are no events on one of the cgroups: what leaves is not what comes. */
TEST_F(dup_cgroup_switch, one_of_two)
{
	struct switching *s = &self->s;
	__s64 all, value;
	int i, nr;

	for (nr = 0; nr < NR_PLAYERS; nr++) {
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
		start(_metadata, s);
		for (i = 0; i < 3; i++) {
			begin_round(_metadata, s, NR_HOPS);
			end_round(_metadata, s);
			all = check_cpu(_metadata, s);
			value = check_cgroup(_metadata, s, nr);
			EXPECT_GE(value, NR_HOPS * (HOP_LOOPS << nr));
			EXPECT_GE(all - value, NR_HOPS * (HOP_LOOPS << !nr));
			/* The other one's reference. */
			advance(_metadata, s->player[!nr].ref,
				&s->player[!nr].ref_last);
		}
		for (i = 0; i < NR_EVENTS; i++) {
			close(s->fd[nr][i]);
			s->fd[nr][i] = -1;
			s->last[nr][i] = 0;
		}
	}
}

/* Two groups in each cgroup; the members of one read the same. */
TEST_F(dup_cgroup_switch, groups)
{
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	struct perf_event_attr attr;
	int nr, i;

	for (nr = 0; nr < NR_PLAYERS; nr++) {
		for (i = 0; i < NR_EVENTS; i++) {
			attr = twin(nr ? NR_EVENTS - 1 - i : i);
			s->fd[nr][i] = open_in_group(_metadata, nr ? &t->b : &t->a, &attr,
						     on_cgroup(s->c.child[nr].fd, t->cpu),
						     i % 2 ? s->fd[nr][i - 1] : -1);
		}
	}
	start(_metadata, s);
	for (i = 0; i < 5; i++)
		play_round(_metadata, s);
}

/* Pinned ones in one cgroup, flexible ones in the other. */
TEST_F(dup_cgroup_switch, pinned_and_flexible)
{
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	struct perf_event_attr attr;
	int i;

	for (i = 0; i < NR_EVENTS; i++) {
		attr = twin(i);
		attr.pinned = 1;
		s->fd[0][i] = open_event(_metadata, &t->a, &attr,
					 on_cgroup(s->c.child[0].fd, t->cpu));
	}
	open_on_cgroup(_metadata, s, 1, 0, NR_EVENTS);
	start(_metadata, s);
	for (i = 0; i < 5; i++)
		play_round(_metadata, s);
}

/*
 * Events that can not be switched by their masters alone, and come and go while
 * the token goes round: a software event and one with a page. One that lost its
 * page while it was on, where user space may read it (x86), is on the list of the
 * pages of its counter until it is scheduled out. If it was switched by its master
 * before that (perf_dup_can_switch_out() without the look at hlist_entry), it would
 * be freed on that list, for KASAN to see. Elsewhere nothing must be lost.
 */
TEST_F(dup_cgroup_switch, others_among_them)
{
	struct perf_event_attr software = {
		.type		= PERF_TYPE_SOFTWARE,
		.size		= sizeof(software),
		.config		= PERF_COUNT_SW_CONTEXT_SWITCHES,
		.read_format	= READ_TIMES,
	};
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	long size = sysconf(_SC_PAGESIZE);
	int fd, nr, i;
	void *page;

	for (nr = 0; nr < NR_PLAYERS; nr++)
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
	start(_metadata, s);

	for (nr = 0; nr < NR_PLAYERS; nr++) {
		fd = open_event(_metadata, &t->a, &software,
				on_cgroup(s->c.child[nr].fd, t->cpu));
		play_round(_metadata, s);
		/* Each hop leaves it. */
		EXPECT_GE(read_value(_metadata, fd), NR_HOPS - 1U);
		EXPECT_TRUE(runs_always(fd));
		close(fd);
		play_round(_metadata, s);

		page = mmap(NULL, size, PROT_READ, MAP_SHARED, s->fd[nr][1], 0);
		ASSERT_NE(MAP_FAILED, page);
		play_round(_metadata, s);
		munmap(page, size);
		play_round(_metadata, s);
	}

	begin_round(_metadata, s, 20 * NR_HOPS);
	for (i = 0; i < 10; i++) {
		fd = open_event(_metadata, &t->filler, &software,
				on_cgroup(s->c.child[i % 2].fd, t->cpu));
		usleep(300);
		close(fd);
	}
	end_round(_metadata, s);
	check(_metadata, s);

	begin_round(_metadata, s, 20 * NR_HOPS);
	for (i = 0; i < 16; i++) {
		page = mmap(NULL, size, PROT_READ, MAP_SHARED, s->fd[i % 2][1], 0);
		ASSERT_NE(MAP_FAILED, page);
		usleep(200);
		munmap(page, size);
		usleep(100);
	}
	end_round(_metadata, s);
	check(_metadata, s);

	/* Others with that counter go on. */
	for (nr = 0; nr < NR_PLAYERS; nr++) {
		close(s->fd[nr][1]);
		s->fd[nr][1] = -1;
		play_round(_metadata, s);
	}
}

/*
 * A disabled event stands still, and one that is enabled again counts from then
 * on. A switch that forgets the state of an event goes on with it, or gives it
 * what its counter counted meanwhile.
 */
TEST_F(dup_cgroup_switch, enable_and_disable)
{
	struct switching *s = &self->s;
	int nr, i, fd;

	for (nr = 0; nr < NR_PLAYERS; nr++)
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
	start(_metadata, s);

	for (i = 0; i < 2 * NR_EVENTS; i++) {
		nr = i % 2;
		fd = s->fd[nr][i / 2];
		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_DISABLE, 0));
		s->fd[nr][i / 2] = -1;
		play_round(_metadata, s);
		EXPECT_EQ(s->last[nr][i / 2], read_value(_metadata, fd));

		ASSERT_EQ(0, ioctl(fd, PERF_EVENT_IOC_ENABLE, 0));
		s->fd[nr][i / 2] = fd;
		play_round(_metadata, s);
	}
}

/* The same while the token goes round; the other events must not notice. */
TEST_F(dup_cgroup_switch, enable_and_disable_running)
{
	struct switching *s = &self->s;
	int nr, i, fd, round;
	__u64 before;

	/*
	 * An event that is enabled and does not find its counter running makes perf
	 * schedule. When that takes the events of a task off, the time of the cgroup
	 * goes on, although that of the context stands still. Without sharing too.
	 */
	if (variant->on_tasks && !variant->cpu_wide)
		SKIP(return, "time_enabled starts before time_running where a task has events");

	for (nr = 0; nr < NR_PLAYERS; nr++)
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
	start(_metadata, s);

	for (round = 0; round < NR_EVENTS; round++) {
		nr = round % 2;
		fd = s->fd[nr][round];
		s->fd[nr][round] = -1;
		before = s->player[nr].ref_last;
		begin_round(_metadata, s, 20 * NR_HOPS);
		for (i = 0; i < 8; i++) {
			ASSERT_EQ(0, ioctl(fd, i % 2 ? PERF_EVENT_IOC_ENABLE :
					   PERF_EVENT_IOC_DISABLE, 0));
			usleep(200);
		}
		end_round(_metadata, s);
		check(_metadata, s);
		if (variant->on_tasks)
			EXPECT_LE(read_value(_metadata, fd) - s->last[nr][round],
				  s->player[nr].ref_last - before);
		EXPECT_TRUE(runs_always(fd));
		s->last[nr][round] = read_value(_metadata, fd);
		s->fd[nr][round] = fd;
		play_round(_metadata, s);
	}
}

/* Another opener's events on one of the cgroups come and go meanwhile. */
TEST_F(dup_cgroup_switch, open_and_close_running)
{
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	struct perf_event_attr attr;
	int nr, i, fd;

	for (nr = 0; nr < NR_PLAYERS; nr++)
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
	start(_metadata, s);

	begin_round(_metadata, s, 20 * NR_HOPS);
	for (i = 0; i < 16; i++) {
		attr = twin(i % NR_EVENTS);
		attr.pinned = i % 3 == 0;
		fd = open_event(_metadata, &t->filler, &attr,
				i % 4 == 3 ? on_cpu(t->cpu) :
				on_cgroup(s->c.child[i % 2].fd, t->cpu));
		usleep(200);
		close(fd);
	}
	end_round(_metadata, s);
	check(_metadata, s);
	play_round(_metadata, s);
}

/*
 * Who is where: the first cgroup has one below it. What is counted there is
 * counted in both, and the first one's events are left alone when the token goes
 * from one to the other.
 */
TEST_F(dup_cgroup_switch, nested)
{
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	const char *place[3] = { s->c.child[0].path, s->nested.path,
				 s->c.child[1].path };
	int fd[NR_EVENTS], parent[NR_EVENTS];
	__u64 fd_last[NR_EVENTS] = {}, parent_last[NR_EVENTS] = {};
	struct perf_event_attr attr;
	__s64 all, first, second, below;
	int nr, i, j;

	for (nr = 0; nr < NR_PLAYERS; nr++)
		open_on_cgroup(_metadata, s, nr, 0, NR_EVENTS);
	for (i = 0; i < NR_EVENTS; i++) {
		attr = twin(i);
		fd[i] = open_event(_metadata, &s->opener, &attr,
				   on_cgroup(s->nested.fd, t->cpu));
		parent[i] = open_event(_metadata, &t->a, &attr,
				       on_cgroup(s->c.parent.fd, t->cpu));
	}

	for (i = 0; i < 9; i++) {
		for (nr = 0; nr < NR_PLAYERS; nr++)
			move_to(_metadata, &s->player[nr].worker,
				place[nr ? i / 3 : i % 3]);
		start(_metadata, s);
		begin_round(_metadata, s, NR_HOPS);
		end_round(_metadata, s);

		all = check_cpu(_metadata, s);
		first = advance(_metadata, s->fd[0][0], &s->last[0][0]);
		second = advance(_metadata, s->fd[1][0], &s->last[1][0]);
		below = advance(_metadata, fd[0], &fd_last[0]);
		EXPECT_EQ(all, first + second);
		EXPECT_EQ(all, advance(_metadata, parent[0], &parent_last[0]));
		/* Who is there counts. */
		EXPECT_EQ(i % 3 == 2 || i / 3 == 2, second > 0);
		EXPECT_EQ(i % 3 == 1 || i / 3 == 1, below > 0);
		if (i % 3 == 1 && i / 3 == 1)
			EXPECT_EQ(first, below);
		if (i / 3 == 1)
			EXPECT_GE(below, NR_HOPS * (HOP_LOOPS << 1));
		EXPECT_LE(below, first);

		for (j = 1; j < NR_EVENTS; j++) {
			EXPECT_EQ(first, advance(_metadata, s->fd[0][j], &s->last[0][j]));
			EXPECT_EQ(second, advance(_metadata, s->fd[1][j], &s->last[1][j]));
			EXPECT_EQ(below, advance(_metadata, fd[j], &fd_last[j]));
			EXPECT_EQ(all, advance(_metadata, parent[j], &parent_last[j]));
		}
		EXPECT_TRUE(runs_always(parent[0]));
		if (__test_passed(_metadata))
			continue;
		TH_LOG("the first one is in %s, the other one in %s", place[i % 3], place[i / 3]);
		break;
	}
}

/* Equal events of the cgroups of the players and of those that have both. */
enum { ON_FIRST, ON_SECOND, ON_PARENT, ON_ROOT, NR_PLACES };

/* One read of all of them; the ancestors are read before and after the others. */
struct family {
	struct counts		start[NR_PLACES];
	struct counts		end[NR_PLACES];
};

static struct family read_family(struct __test_metadata *_metadata, const int fd[NR_PLACES])
{
	struct family family;
	int i;

	for (i = NR_PLACES - 1; i >= 0; i--)
		family.start[i] = read_counts(_metadata, fd[i]);
	for (i = 0; i < NR_PLACES; i++)
		family.end[i] = i > ON_SECOND ? read_counts(_metadata, fd[i]) : family.start[i];

	return family;
}

static struct counts difference(struct counts to, struct counts from)
{
	return (struct counts) {
		.value		= to.value - from.value,
		.enabled	= to.enabled - from.enabled,
		.running	= to.running - from.running,
	};
}

/* What the two did is what their ancestors saw: at least, and no more in the parent. */
static void check_family(struct __test_metadata *_metadata, const struct family *from,
			 const struct family *to)
{
	struct counts child[NR_PLAYERS], most, least;
	int i;

	for (i = 0; i < NR_PLAYERS; i++) {
		child[i] = difference(to->end[i], from->end[i]);
		EXPECT_EQ(child[i].enabled, child[i].running);
	}
	for (i = ON_PARENT; i <= ON_ROOT; i++) {
		most = difference(to->end[i], from->start[i]);
		EXPECT_LE(child[0].value + child[1].value, most.value);
		EXPECT_LE(child[0].enabled + child[1].enabled, most.enabled);
		EXPECT_EQ(most.enabled, most.running);
	}
	least = difference(to->start[ON_PARENT], from->end[ON_PARENT]);
	EXPECT_GE(child[0].value + child[1].value, least.value);
	EXPECT_GE(child[0].enabled + child[1].enabled, least.enabled);
}

/*
 * The times of all of them advance, in whatever order they are enabled, and
 * whether the token goes round then or not. The first one that is enabled starts the
 * time of the current cgroup and of those above it. With the same event on the CPU
 * all of them are let in on the spot, and all that comes after that are switches
 * which leave common ancestors alone: what was not started then does not start
 * before somebody else runs.
 */
TEST_F_TIMEOUT(dup_cgroup_switch, times, 60)
{
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	struct counts delta[NR_PLACES];
	struct perf_event_attr attr = twin(0);
	int place[NR_PLACES], fd[NR_PLACES];
	struct family from, to;
	bool running, works;
	int i, j, k;
	__u64 begun;
	__s64 all;

	place[ON_FIRST] = s->c.child[0].fd;
	place[ON_SECOND] = s->c.child[1].fd;
	place[ON_PARENT] = s->c.parent.fd;
	place[ON_ROOT] = open(s->c.root, O_RDONLY | O_CLOEXEC);
	ASSERT_GE(place[ON_ROOT], 0);
	attr.disabled = 1;

	/* Each is the first one once, and the others follow, up or down; running or not. */
	for (i = 0; i < 2 * NR_PLACES; i++) {
		running = i < NR_PLACES;
		for (j = 0; j < NR_PLACES; j++)
			fd[j] = open_event(_metadata, &t->a, &attr, on_cgroup(place[j], t->cpu));

		if (running) {
			begin_round(_metadata, s, 10 * NR_HOPS);
			usleep(1000);
		}
		begun = nanoseconds();
		for (j = 0; j < NR_PLACES; j++) {
			k = (i % 2 ? i + j : i + NR_PLACES - j) % NR_PLACES;
			ASSERT_EQ(0, ioctl(fd[k], PERF_EVENT_IOC_ENABLE, 0));
		}
		if (!running)
			begin_round(_metadata, s, 10 * NR_HOPS);

		/* One turn of each, or more. */
		usleep(1000);
		from = read_family(_metadata, fd);
		usleep(2000);
		to = read_family(_metadata, fd);
		works = !worker_is_ready(&s->player[0].worker);
		check_family(_metadata, &from, &to);
		for (j = 0; j < NR_PLACES; j++) {
			EXPECT_LE(to.end[j].enabled, nanoseconds() - begun);
			if (works)
				EXPECT_LT(from.start[j].enabled, to.end[j].enabled)
					TH_LOG("event %d", j);
			/* See enable_and_disable_running. */
			if (variant->cpu_wide || !variant->on_tasks)
				EXPECT_EQ(to.end[j].enabled, to.end[j].running);
		}
		end_round(_metadata, s);

		/* When all stand still they have to agree. */
		start(_metadata, s);
		from = read_family(_metadata, fd);
		begin_round(_metadata, s, NR_HOPS);
		end_round(_metadata, s);
		to = read_family(_metadata, fd);
		all = check_cpu(_metadata, s);
		for (j = 0; j < NR_PLACES; j++) {
			delta[j] = difference(to.start[j], from.end[j]);
			EXPECT_NE(0U, delta[j].enabled);
			EXPECT_EQ(delta[j].enabled, delta[j].running);
		}
		for (j = 0; j < NR_PLAYERS; j++)
			EXPECT_GE(delta[j].value, NR_HOPS * (HOP_LOOPS << j));
		EXPECT_EQ(delta[ON_PARENT].value, delta[ON_FIRST].value + delta[ON_SECOND].value);
		EXPECT_EQ(delta[ON_PARENT].enabled,
			  delta[ON_FIRST].enabled + delta[ON_SECOND].enabled);
		EXPECT_EQ(all, delta[ON_PARENT].value);
		EXPECT_EQ(all, delta[ON_ROOT].value);
		EXPECT_GE(delta[ON_ROOT].enabled, delta[ON_PARENT].enabled);

		/* With the last of them the cgroup is forgotten. */
		for (j = 0; j < NR_PLACES; j++)
			close(fd[j]);
		if (__test_passed(_metadata))
			continue;
		TH_LOG("enabled in the order %d", i);
		break;
	}
	close(place[ON_ROOT]);
}

/*
 * Instructions in all modes, the switch included: their parent counts all along,
 * and the two add up to it only if the one ends where the other begins. If
 * the counter was read for each of them, nobody would count what is between.
 */
TEST_F(dup_cgroup_switch, all_modes)
{
	struct perf_event_attr attr = instructions();
	__u64 parent_last = 0, last[NR_PLAYERS] = {};
	int parent, fd[NR_PLAYERS], cpu = -1, nr, i;
	struct switching *s = &self->s;
	struct dup_test *t = &s->t;
	__s64 all, value[NR_PLAYERS];
	struct bracket from, to;

	/* In place of one of the other kind: no counter is left for a fifth. */
	if (variant->cpu_wide) {
		close(s->cpu[NR_EVENTS - 1]);
		s->cpu[NR_EVENTS - 1] = -1;
		cpu = open_event(_metadata, &s->opener, &attr, on_cpu(t->cpu));
	}
	parent = open_event(_metadata, &s->opener, &attr,
			    on_cgroup(s->c.parent.fd, t->cpu));
	for (nr = 0; nr < NR_PLAYERS; nr++)
		fd[nr] = open_event(_metadata, nr ? &t->b : &t->a, &attr,
				    on_cgroup(s->c.child[nr].fd, t->cpu));

	for (i = 0; i < 5; i++) {
		if (cpu >= 0)
			from = read_bracket(_metadata, cpu, parent);
		begin_round(_metadata, s, NR_HOPS);
		end_round(_metadata, s);
		all = advance(_metadata, parent, &parent_last);
		for (nr = 0; nr < NR_PLAYERS; nr++) {
			value[nr] = advance(_metadata, fd[nr], &last[nr]);
			EXPECT_GE(value[nr], NR_HOPS * (HOP_LOOPS << nr));
			EXPECT_TRUE(runs_always(fd[nr]));
		}
		EXPECT_EQ(all, value[0] + value[1]);
		if (cpu < 0)
			continue;
		/* Which counts the idle task, too. */
		to = read_bracket(_metadata, cpu, parent);
		EXPECT_LE(to.inner - from.inner, to.end - from.start);
	}
	EXPECT_TRUE(runs_always(parent));
	if (cpu >= 0)
		EXPECT_TRUE(runs_always(cpu));
}

TEST_HARNESS_MAIN
