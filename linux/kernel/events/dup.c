// SPDX-License-Identifier: GPL-2.0
/*
 * Compatible perf events share a hardware counter
 *
 *			Model
 *
 * Two perf events are compatible when the PMU would program the same thing for
 * both. The counting events of a perf_event_context that are compatible share
 * one hardware counter:
 *
 *	perf_event_context::dups
 *	  |
 *	  +-- perf_event_dup "cycles:u"			PMU driver
 *	  |     master  - - - - - - - - - - - - - - - > counter 3
 *	  |     users: event A (opened by process 1)
 *	  |            event B (opened by process 2)
 *	  |
 *	  +-- perf_event_dup "instructions"
 *	        first:  event C (opened by process 1) > counter 0
 *
 * A perf_event_dup is the entry for one configuration (struct perf_dup_key) in
 * the dup table of a context. While a single event of a task is linked to it,
 * that event counts as if there were no dups, or with the CPU's, see below. The
 * second one brings a master: a virtual event that has no file descriptor, no
 * user and no group, and that is the only one of them which the PMU driver ever
 * gets to see. Events that count through a master are attached to the dup; core.c
 * reaches their PMU by event_pmu_add() and its siblings, which come here for an
 * attached event.
 *
 * The first attached event that is scheduled in adds the master to the PMU, the
 * last one that is scheduled out deletes it. So the master runs when any of its
 * events does, and no event is stopped because another one is.
 *
 * Where perf core schedules events out in order to schedule others in, those
 * often count the same. So there, from perf_dup_keep_idle() to
 * perf_dup_end_idle(), a master that nobody uses stays on the PMU: it is idle.
 * Then the PMU has to be touched for what differs only. Nothing is to be the
 * worse for that: when a group does not fit all idle masters are deleted, and it
 * is tried again. At the end of the section no master is idle.
 *
 * A switch between cgroups can do without scheduling, see
 * perf_cgroup_switch_light(): what counts for the one cgroup ends at the value of
 * master->count at which what counts for the other begins.
 *
 * Programs count the counters of a PMU by opening equal events until they
 * multiplex. They can go on: the k-th equal event that one process (the opener)
 * has on one target (the task, the CPU, or the cgroup on the CPU) belongs to the
 * dup with ordinal k. An opener's events on one target thus have distinct
 * counters, and share them with other openers, or with its own on a task that
 * runs on the CPU: there equal ordinals meet. Events of one task that are bound to
 * different CPUs are on one target; they get distinct ordinals though they never
 * meet.
 *
 *			Counting
 *
 * A driver adds what its counter counts to master->count. What an event counted
 * is the difference between two values of that, so each running event has a
 * base: the value of master->count up to which it has been served.
 *
 *	                      master->count  A base/count   B base/count
 *	A and B are attached,
 *	  A is scheduled in              0        0 /   0        - /   0
 *	the counter counts 700
 *	B is scheduled in              700        0 /   0      700 /   0
 *	the counter counts 300
 *	B is read                     1000        0 /   0     1000 / 300
 *	A is scheduled out            1000     1000 /1000     1000 / 300
 *
 * A joins when the master is added and takes the base as it is. B joins a master
 * that runs: it has to read the counter first, or it would be given what A
 * counted. To leave is to read, to fold the difference and to be gone.
 *
 * perf_event::dup_run is set for the time between the two, after the base and
 * before the first count. An NMI can read an event at any moment, for instance
 * by perf_event_read_local(); it finds an event either running with a base that
 * fits, or not running and then leaves it alone. It never falls back to the
 * hw_perf_event of an attached event. The base only moves by what the event has
 * been given (see perf_dup_fold()), so that an NMI between any two instructions
 * does no harm.
 *
 * A master that was just added may have no counter yet: x86 assigns them when
 * the PMU is enabled again, and what hw.idx says until then is the counter of
 * somebody else. The master is not read before the PMU was enabled once after
 * the add; perf_cpu_pmu_context::enable_gen tells.
 *
 * Groups are scheduled in and out with the PMU disabled, so where that freezes
 * all counters at one instant the members of a group take their bases at that
 * instant. Where a PMU can not be frozen the counters of a group differ by what
 * is counted between the reads of two of them, as they do without sharing; and so
 * they do where a switch between cgroups goes without scheduling, on all PMUs.
 *
 * User space may read the counter itself, by what the event's mmap()ed page says
 * (perf_event_update_userpage()). For an attached event that is the master's
 * counter, and the offset to the event's count is
 *
 *	count - dup_base + master->count - master->hw.prev_count
 *
 * where reads change nothing: they move the first two by one amount and the last
 * two by another. It changes when the driver programs the counter, which it
 * tells by updating the page of the master, that has none; then the pages of the
 * active events are written. There can be a thousand sharers, and this may be
 * an NMI, so only PERF_DUP_MAX_PAGES of them name the counter. All others, and
 * those for which it can not be said for certain, have index 0: use read().
 *
 *			Life time
 *
 * perf_dup_event_init() decides whether a new event may share. perf_dup_attach()
 * runs in process context before the event is installed: it takes the snapshot
 * of what the event counts, looks for the dup of the same key and ordinal, and
 * links the event to it (perf_event::dup_link). The first event of a kind brings
 * the dup. In the context of a CPU it brings the master as well; else, or if that
 * failed, the second one does, and has the first handed over to it, see
 * perf_dup_take_over(). Whatever fails on the way: the event has a counter of its
 * own, as it would have without all this.
 *
 * perf_dup_detach() unlinks an event that is removed from its context; the dup
 * leaves the table with its last event. The event keeps its reference, which is
 * put in process context, before the event puts those on its context, its task
 * and its PMU. So a master does not outlive the last of its events, and needs
 * neither a work item nor a reference on the context.
 *
 *			Tasks and CPUs
 *
 * An event of a task and one of the CPU that the task runs on are in different
 * contexts, but what runs on a CPU at one time is that CPU's affair. So the dups
 * of a CPU's context can be borrowed: an event of a task that is scheduled in
 * counts through the dup of the same key and ordinal of that CPU, if there is
 * one, and perf_event::dup says so until it is scheduled out. For that, a dup of
 * a CPU's context has a master from its first event on.
 *
 * The events of the CPU can come and go meanwhile. One that comes makes perf
 * schedule, unless its counter runs, and then the task borrows. When the last one
 * goes, the dup can not be borrowed any more, but whoever does counts on until he
 * is scheduled out; so that the dup can be freed, perf_dup_put() sees to that.
 *
 * A task that can read counters from user space does not borrow: it would see
 * what its CPU counted for others. One that comes to read them by mapping an event
 * has given back when mmap() returns. Another one of its process has from when its
 * events are scheduled in next, and so has one that a change of
 * /sys/devices/cpu/rdpmc lets read them. (Where two tasks whose contexts are clones
 * follow each other, they swap the contexts and nothing is scheduled. On x86 the
 * one may be able to read counters and the other one not.) The page of an event
 * that has borrowed has index 0.
 *
 *			Locking
 *
 * 1. The table, perf_event_dup::{node,users,nr_linked,master}, change under
 *    ctx->lock and ctx->mutex; one of the two suffices to look.
 *    perf_event_dup::first, perf_event::dup, and for a CPU's context
 *    perf_dup_cpu::{lends,nr_lends}, change under ctx->lock, and are looked at
 *    under it or, the first two, by the CPU that the event is ACTIVE on. The
 *    context of a task that is being forked can not be found by anybody who would
 *    link events there, only by those who remove them, when an inherited event is
 *    closed. So the fork does without ctx->mutex, and looks under ctx->lock.
 *    perf_event::dup_taken goes down as the table changes, and up where a place for
 *    an event is looked for, under the one that keeps others from doing so.
 *
 * 2. What runs, that is perf_event_dup::{nr_active,nr_pinned,nr_lent,added_gen,
 *    added_group,refused,idle_node,switch_seq,switch_count,pages,nr_pages} and
 *    perf_event::dup_run, belongs to the CPU on which the context is active, with
 *    interrupts off; an event that is ACTIVE is attached on that CPU. So an event
 *    of a task may be scheduled out of the dup of a CPU though only the task's
 *    context is locked; to be scheduled into it, it has to find it, for which both
 *    are. An unlink on any other CPU is of an event that is not ACTIVE. The list
 *    of pages changes with the PMU disabled and in the order of RCU, since NMIs
 *    of the PMU walk it. A dup is idle only while its context is locked, so none
 *    is unlinked that is.
 *
 * 3. perf_dup_read(), perf_dup_start() and perf_dup_stop() may nest inside of
 *    all others and inside of themselves, from NMI, on that CPU.
 *
 * 4. Nothing is allocated or freed under ctx->lock. The static key changes
 *    outside of ctx->mutex, since static_branch_inc() takes cpus_read_lock()
 *    and CPU hotplug takes the two the other way round.
 */
#include <linux/hash.h>
#include <linux/jhash.h>
#include <linux/perf_event.h>
#include <linux/pid.h>
#include <linux/rbtree.h>
#include <linux/slab.h>
#include <linux/sysctl.h>

#include "internal.h"

/* Counted up by each event that may share: that has a perf_event::dup_link. */
DEFINE_STATIC_KEY_DEFERRED_FALSE(perf_dup_enabled, HZ);

/* So many user pages of one dup can say where its counter is. */
#define PERF_DUP_MAX_PAGES	8

/* perf_event::dup_link of an event that may share and was not linked so far. */
#define PERF_DUP_UNLINKED	((struct perf_event_dup *)1UL)

/* kernel.perf_event_dup: */
enum {
	PERF_DUP_OFF,		/* nothing is shared */
	PERF_DUP_OPENERS,	/* different openers share */
	PERF_DUP_ALL,		/* equal events of one opener share, too */
};

int sysctl_perf_event_dup __read_mostly = PERF_DUP_OPENERS;

DEFINE_PER_CPU(struct perf_dup_cpu, perf_dup_cpu) = { .freed = 1 };

static const struct ctl_table perf_dup_sysctl_table[] = {
	{
		.procname	= "perf_event_dup",
		.data		= &sysctl_perf_event_dup,
		.maxlen		= sizeof(sysctl_perf_event_dup),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_TWO,
	},
};

static int __init perf_dup_sysctl_init(void)
{
	register_sysctl_init("kernel", perf_dup_sysctl_table);
	return 0;
}
core_initcall(perf_dup_sysctl_init);

/*
 * Who may share, and with whom
 */

static bool perf_dup_wants_own_counter(struct perf_event *event)
{
	/* Other kinds of events have something else in place of hw.flags. */
	if (!(event->pmu->capabilities & PERF_PMU_CAP_SHARE))
		return false;

	return event->hw.flags & PERF_EVENT_FLAG_NO_SHARE ||
	       event->event_caps & PERF_EV_CAP_SIBLING;
}

/* Does the driver want each event of @leader's group to have its own counter? */
static bool perf_dup_group_wants_own(struct perf_event *leader)
{
	struct perf_event *sibling;

	if (perf_dup_wants_own_counter(leader))
		return true;

	for_each_sibling_event(sibling, leader) {
		if (perf_dup_wants_own_counter(sibling))
			return true;
	}

	return false;
}

static bool perf_dup_eligible(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;

	/* Only PMUs whose driver somebody has read for this. */
	if (!(event->pmu->capabilities & PERF_PMU_CAP_SHARE))
		return false;

	/* A sampling event has its own period. */
	if (is_sampling_event(event))
		return false;

	/*
	 * State per event: the branch records, which are programmed also for an
	 * event that does not sample, data of the task, and the AUX buffer.
	 */
	if (has_branch_stack(event) ||
	    event->attach_state & (PERF_ATTACH_TASK_DATA | PERF_ATTACH_SCHED_CB) ||
	    attr->aux_output || attr->aux_action || attr->aux_sample_size)
		return false;

	/* The group wants the PMU for itself; only a leader can ask for that. */
	if (event->group_leader->attr.exclusive)
		return false;

	/* Read on other CPUs, without ctx->lock. */
	if (event->event_caps & (PERF_EV_CAP_READ_ACTIVE_PKG | PERF_EV_CAP_READ_SCOPE))
		return false;

	return !perf_dup_wants_own_counter(event);
}

/* Compared with memcmp(), and not always zeroed before. */
static_assert(sizeof(struct perf_dup_key) ==
	      sizeof(struct pmu *) + sizeof(unsigned long) + 8 * sizeof(u64) + 2 * sizeof(u32));

static void perf_dup_key_init(struct perf_dup_key *key, struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;

	*key = (struct perf_dup_key) {
		.pmu		= event->pmu,
		.config		= attr->config,
		.config1	= attr->config1,
		.config2	= attr->config2,
		.config3	= attr->config3,
		.config4	= attr->config4,
		.hw_config	= event->hw.config & ~event->pmu->share_ignore,
		.extra		= event->hw.extra_reg.config,
		.extra_reg	= event->hw.extra_reg.reg,
		.type		= attr->type,
		.orig_type	= event->orig_type,
		.flags		= attr->exclude_user |
				  attr->exclude_kernel << 1 |
				  attr->exclude_hv << 2 |
				  attr->exclude_idle << 3 |
				  attr->exclude_host << 4 |
				  attr->exclude_guest << 5 |
				  attr->precise_ip << 6,
	};
}

static struct perf_event_dup *perf_dup_alloc(const struct perf_dup_key *key,
					     unsigned int ordinal)
{
	struct perf_event_dup *dup;

	dup = kzalloc_obj(*dup);
	if (!dup)
		return NULL;

	RB_CLEAR_NODE(&dup->node);
	dup->users = RB_ROOT;
	dup->key = *key;
	dup->ordinal = ordinal;
	/* Of what mostly differs. */
	dup->hash = jhash_3words(key->config ^ key->config >> 32, key->config1,
				 ordinal, key->flags);
	dup->cpu = -1;
	refcount_set(&dup->refs, 1);

	return dup;
}

/* Drivers may obey a sysctl, so look at what became of the master. */
static struct perf_event *perf_dup_alloc_master(struct perf_event *event,
						const struct perf_dup_key *key)
{
	struct perf_event *master = perf_event_alloc_master(event);
	struct perf_dup_key made __uninitialized;

	if (!master)
		return NULL;

	perf_dup_key_init(&made, master);
	if (perf_dup_eligible(master) && !memcmp(&made, key, sizeof(made)))
		return master;

	perf_event_free_master(master);
	return NULL;
}

static void perf_dup_put(struct perf_event_dup *dup)
{
	might_sleep();

	if (dup == PERF_DUP_UNLINKED || !refcount_dec_and_test(&dup->refs))
		return;

	/*
	 * It was unlinked under the lock of the CPU's context, which whoever
	 * borrows holds. So this can only drop, and pairs with the release in
	 * __perf_dup_go_home(): after that, that CPU does not look at the dup.
	 */
	if (smp_load_acquire(&dup->nr_lent))
		perf_event_return_dup(dup);

	WARN_ON_ONCE(dup->nr_active || dup->nr_pinned || dup->nr_linked);

	/* Without a master nobody has ever looked at it without a lock. */
	if (!dup->master) {
		kfree(dup);
		return;
	}

	perf_event_free_master(dup->master);
	kfree_rcu(dup, rcu_head);
}

/**
 * perf_dup_event_init - let a new event take part in sharing
 * @event: an event of the system call, after pmu::event_init()
 * @opener: the thread group that opens it
 *
 * Context: process context, without ctx->mutex, since the static key may change.
 */
void perf_dup_event_init(struct perf_event *event, struct pid *opener)
{
	int mode = READ_ONCE(sysctl_perf_event_dup);

	if (mode == PERF_DUP_OFF || !perf_dup_eligible(event))
		return;

	/* No opener: one that need not tell its own events apart. */
	if (mode == PERF_DUP_OPENERS)
		event->dup_opener = get_pid(opener);

	event->dup_link = PERF_DUP_UNLINKED;
	/* Without cpus_read_lock(), unless this is the first one. */
	if (!static_key_fast_inc_not_disabled(&perf_dup_enabled.key.key))
		static_branch_deferred_inc(&perf_dup_enabled);
}

/**
 * __perf_dup_event_free - give up what an event holds for sharing
 * @event: an event that may share, in no context or in one that nobody can reach
 *
 * Context: process context, before @event puts its task, context and PMU.
 */
void __perf_dup_event_free(struct perf_event *event)
{
	struct perf_event_dup *dup = event->dup_link;

	/* Linked, but then never installed. */
	if (!RB_EMPTY_NODE(&event->dup_node)) {
		guard(raw_spinlock_irq)(&event->ctx->lock);
		perf_dup_detach(event, event->ctx);
	}

	WRITE_ONCE(event->dup, NULL);
	event->dup_link = NULL;
	put_pid(event->dup_opener);
	event->dup_opener = NULL;
	perf_dup_put(dup);

	static_branch_slow_dec_deferred(&perf_dup_enabled);
}

/*
 * The dup table
 */

#define __node_2_dup(n)		rb_entry((n), struct perf_event_dup, node)
#define __node_2_user(n)	rb_entry((n), struct perf_event, dup_node)

static int perf_dup_cmp(const struct perf_dup_key *key, unsigned int ordinal,
			const struct perf_event_dup *dup)
{
	if (ordinal != dup->ordinal)
		return ordinal < dup->ordinal ? -1 : 1;
	/* Most differ in these, and what is inline costs less than a call. */
	if (key->config != dup->key.config)
		return key->config < dup->key.config ? -1 : 1;
	if (key->flags != dup->key.flags)
		return key->flags < dup->key.flags ? -1 : 1;

	return memcmp(key, &dup->key, sizeof(*key));
}

/* A place in the table: what is there or, when that is NULL, where it would be. */
struct perf_dup_place {
	unsigned int		ordinal;
	struct perf_event_dup	*dup;
	struct rb_node		*parent;
	struct rb_node		**link;
};

/* Returns what is at @place, which holds for as long as the table can not change. */
static struct perf_event_dup *
perf_dup_find(struct perf_event_context *ctx, const struct perf_dup_key *key,
	      unsigned int ordinal, struct perf_dup_place *place)
{
	struct rb_node **link = &ctx->dups.rb_node, *parent = NULL;
	struct perf_event_dup *dup = NULL;

	lockdep_assert(lockdep_is_held(&ctx->lock) || lockdep_is_held(&ctx->mutex));

	while (*link) {
		int cmp;

		parent = *link;
		dup = __node_2_dup(parent);
		cmp = perf_dup_cmp(key, ordinal, dup);
		if (!cmp)
			break;
		link = cmp < 0 ? &parent->rb_left : &parent->rb_right;
		dup = NULL;
	}

	place->ordinal = ordinal;
	place->dup = dup;
	place->parent = parent;
	place->link = link;

	return dup;
}

static void *perf_dup_cgroup(const struct perf_event *event)
{
#ifdef CONFIG_CGROUP_PERF
	return event->cgrp;
#else
	return NULL;
#endif
}

static int perf_dup_user_cmp(const void *key, const struct rb_node *node)
{
	const struct perf_event *a = key, *b = __node_2_user(node);

	if (a->dup_opener != b->dup_opener)
		return a->dup_opener < b->dup_opener ? -1 : 1;
	if (perf_dup_cgroup(a) != perf_dup_cgroup(b))
		return perf_dup_cgroup(a) < perf_dup_cgroup(b) ? -1 : 1;

	return 0;
}

static bool perf_dup_user_less(struct rb_node *a, const struct rb_node *b)
{
	return perf_dup_user_cmp(__node_2_user(a), b) < 0;
}

/* The event of the same opener on the same target as @event in @dup, or NULL. */
static struct perf_event *perf_dup_user(const struct perf_event *event,
					const struct perf_event_dup *dup)
{
	struct rb_node *node = rb_find_first(event, &dup->users, perf_dup_user_cmp);

	return node ? __node_2_user(node) : NULL;
}

/*
 * Find the place of the smallest ordinal that the opener of @event does not use on
 * its target.
 *
 * Those of other openers do not matter, and the event with ordinal 0 remembers up
 * to where all are in use. So it takes more than a few look-ups only to get past
 * those in use behind a gap that has been filled, once for each gap.
 */
static void perf_dup_find_free(struct perf_event *event,
			       struct perf_event_context *ctx,
			       const struct perf_dup_key *key,
			       struct perf_dup_place *place)
{
	struct perf_event_dup *dup = perf_dup_find(ctx, key, 0, place);
	struct perf_event *zeroth = NULL;
	unsigned int ordinal;

	if (dup && event->dup_opener)
		zeroth = perf_dup_user(event, dup);
	if (!zeroth)
		return;

	ordinal = zeroth->dup_taken;
	while ((dup = perf_dup_find(ctx, key, ordinal, place)) && perf_dup_user(event, dup))
		ordinal++;
	zeroth->dup_taken = ordinal;
}

/* The ordinal of @event, in @dup, is not in use any more. */
static void perf_dup_free_ordinal(struct perf_event *event,
				  struct perf_event_context *ctx,
				  struct perf_event_dup *dup)
{
	struct perf_dup_place place;
	struct perf_event *zeroth;

	if (!event->dup_opener || !dup->ordinal ||
	    !perf_dup_find(ctx, &dup->key, 0, &place))
		return;

	zeroth = perf_dup_user(event, place.dup);
	if (zeroth && zeroth->dup_taken > dup->ordinal)
		zeroth->dup_taken = dup->ordinal;
}

static void perf_dup_link(struct perf_event *event, struct perf_event_dup *dup)
{
	lockdep_assert_held(&event->ctx->lock);

	/* Behind its equals: perf_dup_user() goes on to find the same one. */
	rb_add(&event->dup_node, &dup->users, perf_dup_user_less);
	dup->nr_linked++;
	event->dup_taken = 1;
}

/**
 * __perf_dup_detach - unlink an event from the dup table of its context
 * @event: an event that is not ACTIVE; it need not be linked
 * @ctx: its context, locked
 *
 * Can be called twice, e.g. when a task exits or a CPU goes away, and for the
 * close. The event keeps its reference on the dup until perf_dup_event_free().
 */
void __perf_dup_detach(struct perf_event *event, struct perf_event_context *ctx)
{
	struct perf_event_dup *dup = event->dup_link;

	lockdep_assert_held(&ctx->lock);

	if (RB_EMPTY_NODE(&event->dup_node))
		return;

	WARN_ON_ONCE(event->dup_run);

	rb_erase(&event->dup_node, &dup->users);
	RB_CLEAR_NODE(&event->dup_node);
	perf_dup_free_ordinal(event, ctx, dup);

	if (dup->first == event)
		dup->first = NULL;

	if (!--dup->nr_linked) {
		rb_erase(&dup->node, &ctx->dups);
		RB_CLEAR_NODE(&dup->node);
		if (!hlist_unhashed(&dup->hash_node)) {
			hlist_del_init(&dup->hash_node);
			WRITE_ONCE(per_cpu(perf_dup_cpu, dup->cpu).nr_lends,
				   per_cpu(perf_dup_cpu, dup->cpu).nr_lends - 1);
		}
	}
}

/**
 * perf_dup_leave - make an event use a counter of its own from now on
 * @event: an event that is not ACTIVE; it need not be linked
 * @ctx: its context, locked
 */
void perf_dup_leave(struct perf_event *event, struct perf_event_context *ctx)
{
	perf_dup_detach(event, ctx);
	WRITE_ONCE(event->dup, NULL);
}

/**
 * perf_dup_visit_flexible - visit the groups that share with an event
 * @event: the event; if it is not attached there are none
 * @ctx: its context, locked
 * @func: called with the leader of each ACTIVE flexible group that has an event
 *	on the same dup and comes before the group of @event
 *
 * A group that has several such events is visited for each of them, unless @func
 * moves it behind the group of @event. The walk is as long as the number of
 * sharers, those of other cgroups included.
 */
void perf_dup_visit_flexible(struct perf_event *event,
			     struct perf_event_context *ctx,
			     void (*func)(struct perf_event *leader,
					  struct perf_event_context *ctx))
{
	struct rb_node *node;

	lockdep_assert_held(&ctx->lock);

	if (!perf_dup_attached(event))
		return;

	/* Not those on the CPU's dup, if it counts through that one. */
	for (node = rb_first(&event->dup_link->users); node; node = rb_next(node)) {
		struct perf_event *leader = __node_2_user(node)->group_leader;

		if (leader->attr.pinned || leader->state != PERF_EVENT_STATE_ACTIVE ||
		    leader->group_index >= event->group_leader->group_index)
			continue;

		func(leader, ctx);
	}
}

/*
 * Counters of the CPU
 */

static struct hlist_head *perf_dup_bucket(int cpu, u32 hash)
{
	return &per_cpu(perf_dup_cpu, cpu).lends[hash_32(hash, PERF_DUP_HASH_BITS)];
}

/* @dup, of a CPU's context, has its master: from now on tasks can borrow it. */
static void perf_dup_lend(struct perf_event_dup *dup, int cpu)
{
	dup->cpu = cpu;
	hlist_add_head(&dup->hash_node, perf_dup_bucket(cpu, dup->hash));
	WRITE_ONCE(per_cpu(perf_dup_cpu, cpu).nr_lends,
		   per_cpu(perf_dup_cpu, cpu).nr_lends + 1);
}

/*
 * Can the task of @ctx read counters of @pmu from user space? It is not to see there
 * what it counts by somebody else's event.
 */
static bool perf_dup_user_access(struct perf_event_context *ctx, struct pmu *pmu)
{
	if (pmu->user_access)
		return pmu->user_access(ctx->task);

	/* Where the flag comes with mmap(), on riscv, only its end is counted. */
	return ctx->nr_user > 0;
}

/* The dup of this CPU's context with the key and the ordinal of @event, or NULL. */
static struct perf_event_dup *perf_dup_of_cpu(struct perf_event *event)
{
	struct perf_event_dup *dup, *own = event->dup_link;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);
	perf_assert_cpu_ctx_locked();

	/* Without its place in the table it does not share, or not any more. */
	if (RB_EMPTY_NODE(&event->dup_node) || perf_dup_user_access(event->ctx, event->pmu))
		return NULL;

	hlist_for_each_entry(dup, perf_dup_bucket(smp_processor_id(), own->hash), hash_node) {
		if (dup->hash == own->hash && !perf_dup_cmp(&own->key, own->ordinal, dup))
			return dup;
	}

	return NULL;
}

/**
 * perf_dup_to_use - which counter is an event of a task to count through?
 * @event: an event with a perf_event::dup_link, whose task is current
 *
 * That of the CPU, unless that would be one more because only that of the
 * task's context runs.
 *
 * Context: the contexts of the task and of the CPU are locked.
 *
 * Return: the dup, or NULL when it is to have a counter of its own.
 */
struct perf_event_dup *perf_dup_to_use(struct perf_event *event)
{
	struct perf_event_dup *own = event->dup, *dup = perf_dup_of_cpu(event);

	if (dup && (dup->nr_active || !own || !own->nr_active))
		return dup;

	return own;
}

/**
 * perf_dup_must_return - has a task borrowed what it must not use any more?
 * @ctx: a context that is active on this CPU
 * @pmu: whose counters it may have been given access to
 *
 * Context: the context is locked.
 *
 * Return: whether its events have to be scheduled.
 */
bool perf_dup_must_return(struct perf_event_context *ctx, struct pmu *pmu)
{
	return ctx->task && __this_cpu_read(perf_dup_cpu.nr_lent) &&
	       pmu->capabilities & PERF_PMU_CAP_SHARE && perf_dup_user_access(ctx, pmu);
}

/**
 * __perf_dup_go_home - let an event belong to the dup of its own context again
 * @event: an event that is not on the PMU any more, and that nobody can read
 *
 * Context: the event's context is locked, interrupts are off.
 */
void __perf_dup_go_home(struct perf_event *event)
{
	struct perf_event_dup *dup = event->dup, *own = event->dup_link;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	if (!dup || dup == own)
		return;

	/* A master that came meanwhile: there is nothing to be handed over. */
	if (own->first == event && own->master)
		own->first = NULL;

	/* Against NMIs on this CPU: not ACTIVE by now. */
	barrier();
	WRITE_ONCE(event->dup, own->master ? own : NULL);

	__this_cpu_dec(perf_dup_cpu.nr_lent);
	/* Pairs with the load in perf_dup_put(). */
	smp_store_release(&dup->nr_lent, dup->nr_lent - 1);
}

/*
 * Counting
 */

/* Has the master a counter that can be read? See "Counting" above. */
static __always_inline bool perf_dup_assigned(struct perf_event_dup *dup)
{
	return READ_ONCE(dup->added_gen) != this_cpc(dup->key.pmu)->enable_gen;
}

static __always_inline void perf_dup_set_unassigned(struct perf_event_dup *dup)
{
	WRITE_ONCE(dup->added_gen, this_cpc(dup->key.pmu)->enable_gen);
	/* Against NMIs on this CPU: not read before add() and after del(). */
	barrier();
}

static __always_inline void perf_dup_read_master(struct perf_event_dup *dup)
{
	if (perf_dup_assigned(dup))
		dup->key.pmu->read(dup->master);
}

/* Give @event what was counted since it was last served. */
static __always_inline void perf_dup_fold(struct perf_event *event,
					  struct perf_event_dup *dup)
{
	u64 prev, now;

	prev = local64_read(&event->dup_base);
	do {
		/*
		 * After prev: an NMI in between may have read the counter, given
		 * the difference to the event and moved the base.
		 */
		now = local64_read(&dup->master->count);
	} while (!local64_try_cmpxchg(&event->dup_base, &prev, now));

	local64_add(now - prev, &event->count);
}

/* Start to count through @dup, from what the master counts after this. */
static __always_inline void perf_dup_join(struct perf_event *event,
					  struct perf_event_dup *dup)
{
	local64_set(&event->dup_base, local64_read(&dup->master->count));
	/* Against NMIs on this CPU: the base fits before it is used. */
	barrier();
	WRITE_ONCE(event->dup_run, dup);
}

/*
 * User pages
 */

/*
 * @event is scheduled in: may its page, if it has one, name the counter? Drivers
 * decide by event who may read; what the event may, the master need not.
 */
static void perf_dup_show_page(struct perf_event *event,
			       struct perf_event_dup *dup)
{
	if (hlist_unhashed(&event->hlist_entry) &&
	    refcount_read(&event->mmap_count) &&
	    dup == event->dup_link &&
	    event->hw.flags & dup->master->hw.flags & PERF_EVENT_FLAG_USER_READ_CNT &&
	    dup->nr_pages < PERF_DUP_MAX_PAGES) {
		dup->nr_pages++;
		hlist_add_head_rcu(&event->hlist_entry, &dup->pages);
	}

	perf_event_update_userpage(event);
}

/* @event was scheduled out. */
static void perf_dup_hide_page(struct perf_event *event,
			       struct perf_event_dup *dup)
{
	if (!hlist_unhashed(&event->hlist_entry)) {
		hlist_del_init_rcu(&event->hlist_entry);
		dup->nr_pages--;
	}

	perf_event_update_userpage(event);
}

/**
 * perf_dup_update_userpage - update the page of an event that may be attached
 * @event: the event; its page can be new
 *
 * Context: any but NMI, on the CPU of the event; when it is attached and runs on
 * another one its page has index 0 after this.
 */
void perf_dup_update_userpage(struct perf_event *event)
{
	if (!READ_ONCE(event->rb))
		return;

	guard(irqsave)();

	/* If it is scheduled in here, that does not change from now on. */
	if (READ_ONCE(event->oncpu) != smp_processor_id() ||
	    !READ_ONCE(event->dup_run)) {
		perf_event_update_userpage(event);
		return;
	}

	/* Against the PMU's NMI, that may write the page or walk the list. */
	perf_pmu_disable(event->pmu);
	perf_dup_show_page(event, event->dup);
	perf_pmu_enable(event->pmu);
}

/**
 * perf_dup_user_counter - whose counter leads to the count of an attached event
 * @event: the event
 *
 * Return: the master, or NULL when the user page can not name its counter.
 *
 * Context: any
 */
struct perf_event *perf_dup_user_counter(struct perf_event *event)
{
	struct perf_event_dup *dup = READ_ONCE(event->dup_run);

	if (!dup || dup == PERF_DUP_STOPPED || hlist_unhashed(&event->hlist_entry))
		return NULL;

	/* What the offset is made of can only be read on the CPU of the event. */
	if (READ_ONCE(event->oncpu) != raw_smp_processor_id())
		return NULL;

	return dup->master;
}

/**
 * perf_dup_user_offset - what user space adds to the counter to have the count
 * @event: the event
 * @master: its perf_dup_user_counter()
 * @width: number of bits that user space reads, whose sign it extends
 *
 * Context: as for perf_dup_user_counter(), with preemption disabled
 *
 * Return: the offset; it holds until the counter is programmed again.
 */
u64 perf_dup_user_offset(struct perf_event *event, struct perf_event *master,
			 u16 width)
{
	u64 base, prev, offset;

	do {
		base = local64_read(&event->dup_base);
		prev = local64_read(&master->hw.prev_count);
		offset = perf_event_count(event, false) - base +
			 local64_read(&master->count) -
			 perf_user_counter(prev, width);
		/* A read from interrupt or NMI moves the one and then the other. */
	} while (base != local64_read(&event->dup_base) ||
		 prev != local64_read(&master->hw.prev_count));

	return offset;
}

/**
 * perf_dup_update_userpages - the counter of a master was programmed
 * @master: the master
 *
 * Context: with the PMU disabled or from its interrupt, also NMI, on the CPU of
 * the master, under rcu_read_lock()
 */
void perf_dup_update_userpages(struct perf_event *master)
{
	struct perf_event_dup *dup = master->dup_run;
	struct perf_event *event;

	hlist_for_each_entry_rcu(event, &dup->pages, hlist_entry)
		perf_event_update_userpage(event);
}

static void perf_dup_master_off(struct perf_event_dup *dup)
{
	dup->nr_active = 0;
	dup->master->state = PERF_EVENT_STATE_INACTIVE;
	dup->master->oncpu = -1;
}

static void perf_dup_master_del(struct perf_event_dup *dup, int flags)
{
	perf_dup_set_unassigned(dup);
	dup->key.pmu->del(dup->master, flags);
	perf_dup_count_freed(dup->master);
	perf_dup_master_off(dup);
}

/*
 * Shall the master stay on the PMU, though nobody uses it any more? Not what the
 * group brought that does not fit: drivers undo in a transaction what was added
 * in it, and that only. Nor what is unlinked, for it may go at any time once it
 * is not lent any more.
 */
static bool perf_dup_keep(struct perf_event_dup *dup)
{
	struct perf_dup_cpu *cpu = this_cpu_ptr(&perf_dup_cpu);

	return cpu->keep && dup->added_group != cpu->group &&
	       !RB_EMPTY_NODE(&dup->node);
}

/**
 * __perf_dup_keep_idle - events are about to be scheduled out and in
 *
 * From now to __perf_dup_end_idle() masters stay on the PMU.
 *
 * Context: the contexts of these events are locked, interrupts are off, their
 * PMUs are disabled if anything is added to them.
 */
void __perf_dup_keep_idle(void)
{
	struct perf_dup_cpu *cpu = this_cpu_ptr(&perf_dup_cpu);

	lockdep_assert_irqs_disabled();
	WARN_ON_ONCE(!hlist_empty(&cpu->idle));

	cpu->keep = true;
	/* What was added by the last group so far is as good as any other. */
	cpu->group++;
}

/**
 * __perf_dup_drop_idle - delete the masters that nobody uses
 * @pmu: of this PMU, or NULL for all
 *
 * Context: as for __perf_dup_keep_idle(), outside of transactions
 *
 * Return: whether there were any.
 */
bool __perf_dup_drop_idle(struct pmu *pmu)
{
	struct perf_dup_cpu *cpu = this_cpu_ptr(&perf_dup_cpu);
	struct perf_event_dup *dup;
	struct hlist_node *next;
	bool dropped = false;

	lockdep_assert_irqs_disabled();

	hlist_for_each_entry_safe(dup, next, &cpu->idle, idle_node) {
		if (pmu && dup->key.pmu != pmu)
			continue;

		dropped = true;
		hlist_del_init(&dup->idle_node);
		perf_pmu_disable(dup->key.pmu);
		perf_dup_master_del(dup, 0);
		perf_pmu_enable(dup->key.pmu);
	}

	return dropped;
}

/**
 * __perf_dup_end_idle - events were scheduled out and in
 *
 * Context: as for __perf_dup_keep_idle()
 *
 * Return: whether masters were left that nobody uses any more.
 */
bool __perf_dup_end_idle(void)
{
	bool dropped = __perf_dup_drop_idle(NULL);

	__this_cpu_write(perf_dup_cpu.keep, false);

	return dropped;
}

/*
 * Attach the event that was alone once it is scheduled out, if it could not be
 * handed over while it was ACTIVE.
 */
static void perf_dup_adopt(struct perf_event_dup *dup)
{
	struct perf_event *first = dup->first;

	if (first->state == PERF_EVENT_STATE_ACTIVE)
		return;

	dup->first = NULL;
	WRITE_ONCE(first->dup, dup);
}

/* Let @event count through @dup from now on. */
static int __perf_dup_add(struct perf_event *event, struct perf_event_dup *dup,
			  int flags)
{
	struct perf_event *master = dup->master;
	int ret;

	if (dup->nr_active || !hlist_unhashed(&dup->idle_node)) {
		hlist_del_init(&dup->idle_node);
		/* Not credited with what others counted before. */
		perf_dup_read_master(dup);
		dup->nr_active++;
		perf_dup_join(event, dup);
	} else {
		/*
		 * Running before the add: some drivers start the counter inside
		 * of it. The PMU is disabled, so it is zero that is missed.
		 */
		perf_dup_set_unassigned(dup);
		perf_dup_join(event, dup);

		dup->nr_active = 1;
		dup->added_group = __this_cpu_read(perf_dup_cpu.group);
		master->oncpu = smp_processor_id();
		master->state = PERF_EVENT_STATE_ACTIVE;

		ret = master->pmu->add(master, flags);
		if (ret) {
			WRITE_ONCE(event->dup_run, NULL);
			perf_dup_master_off(dup);
			return ret;
		}
	}

	if (event->group_leader->attr.pinned)
		dup->nr_pinned++;

	/* The driver does this for the events that it knows. */
	if (unlikely(READ_ONCE(event->rb)))
		perf_dup_show_page(event, dup);

	return 0;
}

/**
 * perf_dup_add - schedule an event in that is attached or may borrow
 * @event: the event
 * @flags: PERF_EF_START
 *
 * Context: the event's context and that of the CPU are locked and active on this
 * CPU, interrupts are off, the PMU is disabled.
 *
 * Return: 0, or the error of the PMU that has no room for the master.
 */
int perf_dup_add(struct perf_event *event, int flags)
{
	struct perf_event_dup *dup = event->dup;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	if (perf_dup_may_borrow(event))
		dup = perf_dup_to_use(event);
	if (!dup)
		return event->pmu->add(event, flags);

	if (unlikely(dup->first))
		perf_dup_adopt(dup);

	/* Undone by __perf_dup_go_home() in any case. */
	if (dup != event->dup) {
		WRITE_ONCE(event->dup, dup);
		WRITE_ONCE(dup->nr_lent, dup->nr_lent + 1);
		__this_cpu_inc(perf_dup_cpu.nr_lent);
	}

	return __perf_dup_add(event, dup, flags);
}

/*
 * From one cgroup's events to another's
 */

/**
 * perf_dup_begin_switch - some events are about to end where others begin
 *
 * Context: as for perf_dup_switch_out()
 *
 * Return: the number of this switch.
 */
unsigned long perf_dup_begin_switch(void)
{
	return __this_cpu_inc_return(perf_dup_cpu.switch_seq);
}

static noinline void perf_dup_switch_read(struct perf_event_dup *dup, unsigned long seq)
{
	perf_dup_read_master(dup);
	dup->switch_count = local64_read(&dup->master->count);
	dup->switch_seq = seq;
}

/* What the master of @dup had counted when switch @seq came upon it. */
static __always_inline u64 perf_dup_switch_count(struct perf_event_dup *dup,
						 unsigned long seq)
{
	if (dup->switch_seq != seq)
		perf_dup_switch_read(dup, seq);

	return dup->switch_count;
}

/**
 * perf_dup_switch_out - the count of an attached event ends, perhaps others begin
 * @event: an ACTIVE event for which perf_dup_can_switch_out() holds
 * @seq: the number of the switch
 *
 * All that go or come in one switch, and share a counter, do so at the same value
 * of it. For events of a CPU's context, that do not borrow. The counter is still
 * theirs until perf_dup_switch_end(), so that those that come find it running.
 *
 * Context: the event's context is locked and active on this CPU, interrupts are
 * off, between perf_dup_keep_idle() and perf_dup_end_idle().
 */
void perf_dup_switch_out(struct perf_event *event, unsigned long seq)
{
	struct perf_event_dup *dup = event->dup;
	u64 count = perf_dup_switch_count(dup, seq);
	u64 base;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	WRITE_ONCE(event->dup_run, NULL);
	/* Against NMIs on this CPU: from here on they leave the event alone. */
	barrier();

	base = local64_read(&event->dup_base);
	/* One may have given it more before, then others begin after that. */
	if ((s64)(count - base) < 0)
		dup->switch_count = base;
	else
		local64_add(count - base, &event->count);
}

/**
 * perf_dup_switch_in - an attached event comes
 * @event: an event for which perf_dup_can_switch_in() held; it is ACTIVE by now
 * @seq: the number of the switch
 *
 * Context: as for perf_dup_switch_out(); the counts of all that go have ended.
 */
void perf_dup_switch_in(struct perf_event *event, unsigned long seq)
{
	struct perf_event_dup *dup = event->dup;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	dup->nr_active++;
	if (event->group_leader->attr.pinned)
		dup->nr_pinned++;

	local64_set(&event->dup_base, perf_dup_switch_count(dup, seq));
	/* As in perf_dup_join() */
	barrier();
	WRITE_ONCE(event->dup_run, dup);
}

/**
 * perf_dup_switch_end - an attached event is gone
 * @event: an event that was given to perf_dup_switch_out()
 *
 * Context: as for perf_dup_switch_out(); all that come are there.
 */
void perf_dup_switch_end(struct perf_event *event)
{
	struct perf_event_dup *dup = event->dup;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	if (event->group_leader->attr.pinned)
		dup->nr_pinned--;
	if (!--dup->nr_active)
		hlist_add_head(&dup->idle_node, this_cpu_ptr(&perf_dup_cpu.idle));
}

static void __perf_dup_stop(struct perf_event *event)
{
	perf_dup_read(event);
	/* Against NMIs on this CPU: not running after the last fold. */
	barrier();
	WRITE_ONCE(event->dup_run, PERF_DUP_STOPPED);
}

/**
 * perf_dup_del - schedule an attached event out
 * @event: the event; it need not be scheduled in
 * @flags: for pmu::del()
 *
 * Context: as for perf_dup_add()
 */
void perf_dup_del(struct perf_event *event, int flags)
{
	struct perf_event_dup *dup = event->dup;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&event->ctx->lock);

	/* It may be another context's, which is not locked. */
	if (dup == event->dup_link && unlikely(dup->first))
		perf_dup_adopt(dup);

	/* The hand-over found no counter, see perf_dup_take_over(). */
	if (!event->dup_run)
		return;

	if (event->group_leader->attr.pinned)
		dup->nr_pinned--;

	/* Leaves master->count up to date, if it deletes the master. */
	if (dup->nr_active == 1 && !perf_dup_keep(dup))
		perf_dup_master_del(dup, flags);
	else if (!--dup->nr_active)
		hlist_add_head(&dup->idle_node, this_cpu_ptr(&perf_dup_cpu.idle));

	__perf_dup_stop(event);
	WRITE_ONCE(event->dup_run, NULL);

	/* It may have lost its buffer meanwhile. */
	if (unlikely(READ_ONCE(event->rb) || dup->nr_pages))
		perf_dup_hide_page(event, dup);
}

/**
 * perf_dup_unpin - an attached event is about to lose its leader, which is pinned
 * @event: the event; it need not be scheduled in
 *
 * Context: the event's context is locked; if the event is ACTIVE, on its CPU
 */
void perf_dup_unpin(struct perf_event *event)
{
	lockdep_assert_held(&event->ctx->lock);

	if (event->dup_run)
		event->dup->nr_pinned--;
}

/**
 * perf_dup_read - bring the count of an attached event up to date
 * @event: the event
 *
 * Does nothing for an event that is not running: its count is up to date.
 *
 * Context: on the CPU of the event, interrupts off, or from NMI
 */
void perf_dup_read(struct perf_event *event)
{
	struct perf_event_dup *dup = READ_ONCE(event->dup_run);

	if (!dup || dup == PERF_DUP_STOPPED)
		return;

	perf_dup_read_master(dup);
	perf_dup_fold(event, dup);
}

/**
 * perf_dup_stop - let an attached event not count, others go on
 * @event: the event
 * @flags: unused, for pmu::stop()
 *
 * Context: as for perf_dup_read()
 */
void perf_dup_stop(struct perf_event *event, int flags)
{
	struct perf_event_dup *dup = READ_ONCE(event->dup_run);

	if (!dup || dup == PERF_DUP_STOPPED)
		return;

	__perf_dup_stop(event);
	if (unlikely(dup->nr_pages))
		perf_event_update_userpage(event);
}

/**
 * perf_dup_start - let an attached event count again
 * @event: the event; nothing happens when it is not stopped
 * @flags: unused, for pmu::start()
 *
 * Context: as for perf_dup_read()
 */
void perf_dup_start(struct perf_event *event, int flags)
{
	struct perf_event_dup *dup = event->dup;

	if (READ_ONCE(event->dup_run) != PERF_DUP_STOPPED)
		return;

	perf_dup_read_master(dup);
	perf_dup_join(event, dup);
	if (unlikely(dup->nr_pages))
		perf_event_update_userpage(event);
}

/*
 * From a counter of its own to the master
 */

/*
 * Attach @event, which was alone so far, to the master of its dup.
 *
 * An event that is not ACTIVE is attached by a pointer. One that counts is
 * handed over, while the PMU is disabled:
 *
 *  [A] it becomes attached; since it does not run yet, reads do nothing
 *  [B] its own counter is folded into its count and given up
 *  [C] the master is told where the event was, for drivers that try that first
 *  [D] the master is added in its place
 *
 * [D] comes after [B], for the counter may be the only one that fits. It can
 * fail all the same, where CPUs share registers and another CPU is quick to take
 * what [B] gave up. Then
 *
 *  [E] the event gets its counter back; perf_dup_adopt() will try again
 *  [F] or that fails, too, and its group does not fit any more
 */
static void perf_dup_take_over(struct perf_event *event,
			       struct perf_cpu_context *cpuctx,
			       struct perf_event_context *ctx, void *info)
{
	struct perf_event_dup *dup = info;
	struct perf_event *master = dup->master;
	struct pmu *pmu = event->pmu;
	bool throttled;

	lockdep_assert_irqs_disabled();
	lockdep_assert_held(&ctx->lock);

	if (dup->first != event)
		return;

	if (event->state != PERF_EVENT_STATE_ACTIVE) {
		perf_dup_adopt(dup);
		return;
	}

	/* It counts through a dup of the CPU, see __perf_dup_go_home(). */
	if (event->dup) {
		dup->first = NULL;
		return;
	}

	throttled = event->hw.interrupts == MAX_INTERRUPTS;
	perf_pmu_disable(pmu);

	/* [A] */
	WRITE_ONCE(event->dup, dup);
	barrier();
	/* [B] */
	pmu->del(event, 0);
	perf_dup_count_freed(event);

	/*
	 * [C] Not what else it had there, since registers are set up per event,
	 * nor that a master which ran before has been there.
	 */
	if (!dup->nr_active) {
		master->hw.idx = event->hw.idx;
		master->hw.last_cpu = -1;
	}

	/* [D] */
	if (!__perf_dup_add(event, dup, PERF_EF_START)) {
		dup->first = NULL;
		if (throttled)
			perf_dup_stop(event, 0);
	/* [E] */
	} else if (!pmu->add(event, throttled ? 0 : PERF_EF_START)) {
		barrier();
		WRITE_ONCE(event->dup, NULL);
		if (READ_ONCE(event->rb))
			perf_event_update_userpage(event);
	/* [F] */
	} else {
		dup->first = NULL;
		perf_event_group_unfit(event);
	}

	perf_pmu_enable(pmu);
}

/*
 * Is there a sibling, perhaps the one that is about to join, for which each
 * member of the group needs a counter of its own?
 */
static bool perf_dup_group_excluded(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader;

	/* The groups of a child are as its parent's were. */
	if (event->parent || leader == event)
		return false;

	return perf_dup_wants_own_counter(event) || perf_dup_group_wants_own(leader);
}

/*
 * Link @event to the dup at @place, or put one there. In the context of a task
 * that is being @forked the place is looked for again here: the table changes
 * whenever that is not locked.
 */
static void perf_dup_enter(struct perf_event *event,
			   struct perf_event_context *ctx,
			   const struct perf_dup_key *key,
			   struct perf_dup_place *place, bool forked)
{
	struct perf_event_dup *dup, *new = NULL, *old = event->dup_link;
	/* Tasks may borrow it. */
	bool lends = !ctx->task && key->pmu->task_ctx_nr != perf_invalid_context;
	struct perf_event *master = NULL, *first = NULL;

	/* Else @place would not hold while ctx->lock is dropped below. */
	if (!forked)
		lockdep_assert_held(&ctx->mutex);

	WRITE_ONCE(event->dup, NULL);

	for (;;) {
		raw_spin_lock_irq(&ctx->lock);
		if (forked)
			perf_dup_find(ctx, key, place->ordinal, place);
		dup = place->dup;
		if (dup ? dup->master || master : !!new)
			break;
		raw_spin_unlock_irq(&ctx->lock);

		if (!dup)
			new = perf_dup_alloc(key, place->ordinal);
		if (!master && (dup || (new && lends)))
			master = perf_dup_alloc_master(event, key);

		if (dup ? !master : !new) {
			/* Not shared. */
			if (master)
				perf_event_free_master(master);
			kfree(new);
			return;
		}
	}

	if (dup) {
		refcount_inc(&dup->refs);
	} else {
		dup = new;
		new = NULL;
		rb_link_node(&dup->node, place->parent, place->link);
		rb_insert_color(&dup->node, &ctx->dups);
	}

	if (!dup->master && master) {
		dup->master = master;
		master = NULL;
		dup->master->dup_run = dup;
		if (lends)
			perf_dup_lend(dup, event->cpu);
	}

	if (!dup->master) {
		dup->first = event;
	} else {
		WRITE_ONCE(event->dup, dup);

		first = dup->first;
		if (first && first->state != PERF_EVENT_STATE_ACTIVE) {
			perf_dup_adopt(dup);
			first = NULL;
		}
	}
	event->dup_link = dup;
	perf_dup_link(event, dup);
	raw_spin_unlock_irq(&ctx->lock);

	/* Somebody else was faster, or gone. */
	if (master)
		perf_event_free_master(master);
	kfree(new);
	/* The event was in another context. */
	perf_dup_put(old);

	/* Never for a child that is being forked: it does not run yet. */
	if (first)
		event_function_call(first, perf_dup_take_over, dup);
}

/**
 * __perf_dup_attach - prepare an event for its context
 * @event: an event that is about to be installed; it need not be able to share
 * @ctx: the context, which is set as event->ctx already
 *
 * Links the event to the dup of its key and ordinal. With the second event of a
 * dup come the master and the hand-over of the first. What fails here is not
 * shared.
 *
 * Context: process context, ctx->mutex is held.
 */
void __perf_dup_attach(struct perf_event *event, struct perf_event_context *ctx)
{
	struct perf_dup_key key __uninitialized;
	struct perf_dup_place place;

	lockdep_assert_held(&ctx->mutex);

	if (perf_dup_group_excluded(event)) {
		perf_event_unshare_group(event->group_leader);
		perf_dup_event_free(event);
	}

	if (!event->dup_link)
		return;

	/* Moved here: the driver may have rewritten what the key is made of. */
	if (event->dup_link != PERF_DUP_UNLINKED)
		key = event->dup_link->key;
	else
		perf_dup_key_init(&key, event);

	perf_dup_find_free(event, ctx, &key, &place);
	perf_dup_enter(event, ctx, &key, &place, false);
}

/**
 * perf_dup_inherit - prepare an inherited event for the context of a child
 * @event: the new event
 * @ctx: the context of the child, which does not run yet
 * @parent: the event of the parent task that is inherited
 *
 * Opener, ordinal and whether to share are as for the parent, whatever the
 * sysctl says by now.
 *
 * Context: process context, the mutex of @parent's context is held.
 */
void perf_dup_inherit(struct perf_event *event, struct perf_event_context *ctx,
		      struct perf_event *parent)
{
	struct perf_event_dup *dup = parent->dup_link;
	struct perf_dup_key key __uninitialized;
	struct perf_dup_place place;

	if (!dup || !perf_dup_eligible(event))
		return;

	/* Up already, for the parent; cpus_read_lock() can not be taken here. */
	if (!static_key_fast_inc_not_disabled(&perf_dup_enabled.key.key))
		return;

	event->dup_link = PERF_DUP_UNLINKED;
	event->dup_opener = get_pid(parent->dup_opener);

	perf_dup_key_init(&key, event);
	/* What could not be linked for the parent may well be here. */
	if (dup == PERF_DUP_UNLINKED) {
		guard(raw_spinlock_irq)(&ctx->lock);
		perf_dup_find_free(event, ctx, &key, &place);
	} else {
		place.ordinal = dup->ordinal;
	}

	perf_dup_enter(event, ctx, &key, &place, true);
}
