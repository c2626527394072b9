// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit test for perf events that share hardware counters.
 *
 * The tests open real perf events on a modelled PMU. Its counters count by a
 * clock that only a test advances, each configuration at a rate of its own, so
 * that every count is known and compared for equality. The model is also strict
 * about what a PMU driver may rely on: each call that breaks a rule fails the
 * test which is running.
 *
 *	the test advances the clock
 *	  |
 *	  +-> struct model: the counters of the CPU count, the driver is called
 *	  |					|
 *	  |				   perf core, dup.c
 *	  |					|
 *	  +-> struct dup_event: what each	v
 *	      event that is ACTIVE should  == perf_event_read_value()
 *	      have counted
 *
 * An event counts in the steps of the clock at which it is scheduled in. The
 * oracle takes nothing but that from the kernel, so it holds also for events
 * that rotate.
 *
 * The clock is perf's clock as well: a step is a nanosecond of the times for
 * which an event is enabled and running, and these are compared for equality,
 * too. Each CPU has counters, which only count in the steps that are made on it,
 * but there is one time.
 *
 * The last test does random operations. Its log has the seed; on the kernel's
 * command line dup_test_seed=N repeats that run, and dup_test_steps=N asks for
 * a longer one.
 */

#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/cgroup.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/pid.h>
#include <linux/prandom.h>
#include <linux/random.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/smp.h>

#include "internal.h"

/* ===== The modelled PMU ===== */

#define MODEL_COUNTERS		16
#define MODEL_SLOTS		64
#define MODEL_TEXTS		4

/**
 * struct model_type - a kind of PMU driver
 * @desc:  name of the kind
 * @width: bits in a counter; the model folds when one wraps, as drivers do in
 *	   their interrupt handler
 * @late:  counters are assigned when the PMU is enabled, and events then move
 *	   between counters, as on x86; else add() programs the counter, as on arm
 * @txn:   a group is added without looking, and checked when it is complete
 * @nmi:   whenever an event is added or deleted and when the PMU is enabled, an
 *	   NMI comes that reads all events, or is a counter's interrupt, in which
 *	   the driver brings the counts of its events up to date
 */
struct model_type {
	const char	*desc;
	int		width;
	bool		late;
	bool		txn;
	bool		nmi;
};

static const struct model_type model_types[] = {
	{ .desc = "immediate", .width = 32 },
	{ .desc = "immediate, 16 bits, NMI", .width = 16, .nmi = true },
	{ .desc = "late", .width = 48, .late = true },
	{ .desc = "late, transactions", .width = 48, .late = true, .txn = true },
	{ .desc = "late, transactions, NMI", .width = 32, .late = true, .txn = true, .nmi = true },
};

KUNIT_ARRAY_PARAM_DESC(model, model_types, desc);

/* One of each programming model, for what takes long. */
static const struct model_type few_model_types[] = {
	{ .desc = "immediate", .width = 32 },
	{ .desc = "late, transactions", .width = 48, .late = true, .txn = true },
};

KUNIT_ARRAY_PARAM_DESC(few_models, few_model_types, desc);

enum model_call {
	CALL_ADD,
	CALL_DEL,
	CALL_READ,
	CALL_START,
	CALL_STOP,
	CALL_ENABLE,
	NR_CALLS,
};

/* An event on the PMU, and its counter or -1. */
struct model_slot {
	struct perf_event	*event;
	int			idx;
	bool			stopped;
	/* Added in the transaction that is open. */
	bool			txn;
};

/* Belongs to the CPU, with interrupts off. */
struct model_cpu {
	struct model_slot	slots[MODEL_SLOTS];
	u64			counters[MODEL_COUNTERS];
	unsigned int		calls[NR_CALLS];
	unsigned int		txn_flags;
	unsigned int		shift;
	u64			noise;
	unsigned int		nmis;
	/* Where the last master that was added had a counter before, and its CPU. */
	int			hint;
	int			hint_cpu;
	/* How many there were when an exclusive event was added. */
	int			beside_exclusive;
	int			nr;
	bool			disabled;
	bool			added;
};

struct model {
	struct pmu			pmu;
	const struct model_type		*type;
	struct model_cpu __percpu	*cpus;
	int				nr_counters;

	/* event_init(): a user's event comes first, its master second. */
	bool				opening;
	bool				refuse_masters;
	/* What model_user_access() says, if that is the PMU's. */
	bool				user_access;
	bool				no_share;
	u64				hw_config;
	/* And what it sets in hw.flags, and makes different for a master. */
	int				user_flags;
	int				master_flags;
	u64				master_config;
	/* add(): how often to refuse, and a configuration to refuse, or 0. */
	int				refuse_master_adds;
	int				refuse_user_adds;
	u64				refuse_config;
	/* commit_txn(): how often the read of a group fails. */
	int				refuse_reads;

	atomic_t			nr_users;
	atomic_t			nr_masters;

	/* Called in add(), del() and pmu_enable(), where an NMI may come. */
	void				(*nmi)(struct model *m);
	/* Called at the end of a read(), once: the counters go on meanwhile. */
	void				(*after_read)(struct model *m);

	raw_spinlock_t			lock;
	int				nr_broken;
	char				broken[MODEL_TEXTS][120];
};

/* What perf_event::pmu_private of the model's events points to. */
static char model_user, model_master;

/* The one whose PMU has pmu::user_access(), which is not told. */
static struct model *model_with_access;

#define to_model(p)	container_of((p), struct model, pmu)

/* A rule was broken. Any context but NMI. */
static __printf(2, 3) void model_broken(struct model *m, const char *fmt, ...)
{
	va_list args;

	guard(raw_spinlock_irqsave)(&m->lock);

	if (m->nr_broken < MODEL_TEXTS) {
		va_start(args, fmt);
		vscnprintf(m->broken[m->nr_broken], sizeof(m->broken[0]), fmt, args);
		va_end(args);
	}
	m->nr_broken++;
}

static const char *model_whose(struct perf_event *event)
{
	return event->pmu_private == &model_master ? "a master" : "an event";
}

static bool model_is_master(struct perf_event *event)
{
	return event->pmu_private == &model_master;
}

/*
 * What a configuration counts at each step of the clock. Whatever may not be
 * mixed up has a weight of its own.
 */
static u64 model_rate(const struct perf_event_attr *attr, u64 hw_config)
{
	return 3 + 7 * attr->config + 101 * attr->config1 + 211 * attr->config2 +
	       401 * attr->config3 + 503 * attr->config4 + 601 * hw_config +
	       11 * attr->exclude_user + 13 * attr->exclude_kernel +
	       17 * attr->exclude_hv + 19 * attr->exclude_idle +
	       23 * attr->exclude_host + 29 * attr->exclude_guest +
	       31 * attr->precise_ip;
}

static u64 model_mask(struct model *m)
{
	return BIT_ULL(m->type->width) - 1;
}

/* A value that nobody expects, less than half of its range before the counter wraps. */
static u64 model_noise(struct model *m, struct model_cpu *c)
{
	c->noise = c->noise * 6364136223846793005ULL + 1442695040888963407ULL;

	return model_mask(m) - (c->noise >> 8) % (model_mask(m) / 2);
}

static struct model_slot *model_find(struct model_cpu *c, struct perf_event *event)
{
	for (int i = 0; i < c->nr; i++) {
		if (c->slots[i].event == event)
			return &c->slots[i];
	}

	return NULL;
}

/* As in any driver: safe against a read from NMI. */
static void model_update(struct model *m, struct model_cpu *c, struct model_slot *slot)
{
	struct hw_perf_event *hwc = &slot->event->hw;
	u64 prev, now;

	prev = local64_read(&hwc->prev_count);
	do {
		now = c->counters[slot->idx];
	} while (!local64_try_cmpxchg(&hwc->prev_count, &prev, now));

	local64_add((now - prev) & model_mask(m), &slot->event->count);
}

static void model_program(struct model *m, struct model_cpu *c, struct model_slot *slot)
{
	u64 start = model_noise(m, c);

	c->counters[slot->idx] = start;
	local64_set(&slot->event->hw.prev_count, start);
	slot->event->hw.idx = slot->idx;
	slot->event->hw.last_cpu = smp_processor_id();
	slot->event->hw.state = slot->stopped ? PERF_HES_STOPPED : 0;
	perf_event_update_userpage(slot->event);
}

static void model_tick(struct model *m, struct model_cpu *c, struct model_slot *slot, u64 ticks)
{
	u64 mask = model_mask(m), left = slot->event->hw.event_base * ticks;

	while (left) {
		u64 now = c->counters[slot->idx], step = min(left, mask - now + 1);

		c->counters[slot->idx] = (now + step) & mask;
		/* The interrupt of a counter that wraps: what is left fits in it again. */
		if (step > mask - now) {
			model_update(m, c, slot);
			model_program(m, c, slot);
		}
		left -= step;
	}
}

/* Let the clock of this CPU advance, with interrupts off. */
static void model_advance(struct model *m, u64 ticks)
{
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	lockdep_assert_irqs_disabled();

	if (c->disabled)
		model_broken(m, "PMU left disabled");

	for (int i = 0; i < c->nr; i++) {
		struct model_slot *slot = &c->slots[i];

		if (slot->idx < 0)
			model_broken(m, "PMU enabled, %s has no counter",
				     model_whose(slot->event));
		else if (!slot->stopped)
			model_tick(m, c, slot, ticks);
	}
}

static struct model_cpu *model_enter(struct perf_event *event, enum model_call call)
{
	struct model *m = to_model(event->pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);
	struct model_slot *slot = model_find(c, event);
	static const char *const name[NR_CALLS] = {
		[CALL_ADD] = "add", [CALL_DEL] = "del", [CALL_READ] = "read",
		[CALL_START] = "start", [CALL_STOP] = "stop",
	};

	c->calls[call]++;

	if (!irqs_disabled())
		model_broken(m, "%s with interrupts on", name[call]);
	if ((call == CALL_ADD || call == CALL_DEL) && !c->disabled)
		model_broken(m, "%s while the PMU is enabled", name[call]);
	if (call == CALL_ADD && slot)
		model_broken(m, "add of %s that is on the PMU", model_whose(event));
	if (call != CALL_ADD && !slot)
		model_broken(m, "%s of %s that is not on the PMU", name[call], model_whose(event));
	if (call != CALL_ADD && slot && slot->idx >= 0 && slot->idx != event->hw.idx)
		model_broken(m, "%s of %s in another counter", name[call], model_whose(event));

	/*
	 * Deleted while it is handed over, and added if it has to go back: no
	 * other call is for an event that counts through a master.
	 */
	if (event->dup && call != CALL_DEL && event->dup->first != event)
		model_broken(m, "%s of an event that shares", name[call]);

	return c;
}

/* A counter's interrupt: the driver finds out which one it is for. */
static void model_interrupt(struct model *m, struct model_cpu *c)
{
	for (int i = 0; i < c->nr; i++) {
		if (c->slots[i].idx >= 0 && !c->slots[i].stopped)
			model_update(m, c, &c->slots[i]);
	}
}

static void model_nmi(struct model *m)
{
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	if (!m->type->nmi || !m->nmi)
		return;

	/* By turns, such that each finds what the other has left undone. */
	if (c->nmis++ & 1)
		model_interrupt(m, c);
	else
		m->nmi(m);
}

static bool model_has_room(struct model *m, struct model_cpu *c)
{
	if (c->nr >= MODEL_SLOTS)
		return false;

	/* The check is for commit_txn() to make. */
	if (c->txn_flags == PERF_PMU_TXN_ADD)
		return true;

	return c->nr < m->nr_counters;
}

static int model_free_counter(struct model *m, struct model_cpu *c)
{
	unsigned long used = 0;

	for (int i = 0; i < c->nr; i++) {
		if (c->slots[i].idx >= 0)
			__set_bit(c->slots[i].idx, &used);
	}

	for (int i = 0; i < m->nr_counters; i++) {
		int idx = (i + c->shift) % m->nr_counters;

		if (!test_bit(idx, &used)) {
			c->shift++;
			return idx;
		}
	}

	return -1;
}

static bool model_refuses(struct model *m, struct perf_event *event)
{
	int *refuse = model_is_master(event) ? &m->refuse_master_adds : &m->refuse_user_adds;

	if (m->refuse_config && event->attr.config == m->refuse_config)
		return true;
	if (!*refuse)
		return false;

	(*refuse)--;
	return true;
}

static int model_add(struct perf_event *event, int flags)
{
	struct model_cpu *c = model_enter(event, CALL_ADD);
	struct model *m = to_model(event->pmu);
	struct model_slot *slot;
	int ret = -EAGAIN;

	/* As x86 does, which makes no difference but for the driver's calls. */
	perf_pmu_disable(event->pmu);
	model_nmi(m);

	if (model_refuses(m, event) || !model_has_room(m, c))
		goto out;

	slot = &c->slots[c->nr];
	*slot = (struct model_slot) {
		.event = event,
		.idx = -1,
		.stopped = !(flags & PERF_EF_START),
		.txn = c->txn_flags == PERF_PMU_TXN_ADD,
	};
	if (model_is_master(event)) {
		c->hint = event->hw.idx;
		c->hint_cpu = event->hw.last_cpu;
	}
	if (event->attr.exclusive)
		c->beside_exclusive = c->nr;
	event->hw.state = PERF_HES_STOPPED;
	/* As x86 does: what counts is what it was after event_init(). */
	event->hw.config ^= BIT_ULL(40);

	if (m->type->late) {
		c->added = true;
	} else {
		slot->idx = model_free_counter(m, c);
		model_program(m, c, slot);
	}
	c->nr++;
	ret = 0;
out:
	model_nmi(m);
	perf_pmu_enable(event->pmu);

	return ret;
}

static void model_del(struct perf_event *event, int flags)
{
	struct model_cpu *c = model_enter(event, CALL_DEL);
	struct model *m = to_model(event->pmu);
	struct model_slot *slot = model_find(c, event);

	perf_pmu_disable(event->pmu);
	model_nmi(m);

	if (!slot)
		goto out;

	if (c->txn_flags == PERF_PMU_TXN_ADD && !slot->txn)
		model_broken(m, "del of %s that the transaction did not add", model_whose(event));

	if (slot->idx >= 0) {
		model_update(m, c, slot);
		/* The counter is somebody else's now. */
		c->counters[slot->idx] = model_noise(m, c);
	}

	c->nr--;
	memmove(slot, slot + 1, (char *)&c->slots[c->nr] - (char *)slot);
	event->hw.state = PERF_HES_STOPPED;
	perf_event_update_userpage(event);
out:
	model_nmi(m);
	perf_pmu_enable(event->pmu);
}

static void model_start(struct perf_event *event, int flags)
{
	struct model_cpu *c = model_enter(event, CALL_START);
	struct model *m = to_model(event->pmu);
	struct model_slot *slot = model_find(c, event);

	if (!slot)
		return;

	if (!slot->stopped)
		model_broken(m, "start of %s that is not stopped", model_whose(event));
	if (slot->idx < 0)
		model_broken(m, "start of %s without a counter", model_whose(event));
	else if (flags & PERF_EF_RELOAD)
		model_program(m, c, slot);

	slot->stopped = false;
	event->hw.state = 0;
	perf_event_update_userpage(event);
}

static void model_stop(struct perf_event *event, int flags)
{
	struct model_cpu *c = model_enter(event, CALL_STOP);
	struct model *m = to_model(event->pmu);
	struct model_slot *slot = model_find(c, event);

	if (!slot)
		return;

	if (slot->idx < 0)
		model_broken(m, "stop of %s without a counter", model_whose(event));
	else if (flags & PERF_EF_UPDATE || !m->type->late)
		model_update(m, c, slot);

	slot->stopped = true;
	event->hw.state = PERF_HES_STOPPED;
}

static void model_read(struct perf_event *event)
{
	struct model_cpu *c = model_enter(event, CALL_READ);
	struct model *m = to_model(event->pmu);
	struct model_slot *slot = model_find(c, event);
	void (*after_read)(struct model *m);

	if (!slot)
		return;

	if (slot->idx < 0) {
		model_broken(m, "read of %s without a counter", model_whose(event));
		return;
	}

	model_update(m, c, slot);

	after_read = m->after_read;
	m->after_read = NULL;
	if (after_read)
		after_read(m);
}

static void model_pmu_disable(struct pmu *pmu)
{
	struct model *m = to_model(pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	if (c->disabled)
		model_broken(m, "PMU disabled twice");
	c->disabled = true;
}

/* Events get their counters, and those that have one may have to move. */
static void model_assign(struct model *m, struct model_cpu *c)
{
	for (int i = 0; i < c->nr; i++) {
		if (c->slots[i].idx >= 0)
			model_update(m, c, &c->slots[i]);
	}

	c->shift++;
	for (int i = 0; i < c->nr; i++) {
		c->slots[i].idx = (i + c->shift) % m->nr_counters;
		model_program(m, c, &c->slots[i]);
	}
}

static void model_pmu_enable(struct pmu *pmu)
{
	struct model *m = to_model(pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	c->calls[CALL_ENABLE]++;

	if (!c->disabled)
		model_broken(m, "PMU enabled twice");
	if (c->txn_flags)
		model_broken(m, "PMU enabled in a transaction");
	if (c->nr > m->nr_counters)
		model_broken(m, "%d events on %d counters", c->nr, m->nr_counters);

	model_nmi(m);
	if (c->added)
		model_assign(m, c);
	c->added = false;
	c->disabled = false;
	model_nmi(m);
}

static void model_start_txn(struct pmu *pmu, unsigned int txn_flags)
{
	struct model *m = to_model(pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	if (c->txn_flags)
		model_broken(m, "transaction in a transaction");

	c->txn_flags = txn_flags;
	if (txn_flags == PERF_PMU_TXN_ADD)
		perf_pmu_disable(pmu);
}

static void model_end_txn(struct model *m, struct model_cpu *c)
{
	unsigned int flags = c->txn_flags;

	if (!flags)
		model_broken(m, "end of no transaction");

	for (int i = 0; i < c->nr; i++)
		c->slots[i].txn = false;

	c->txn_flags = 0;
	if (flags == PERF_PMU_TXN_ADD)
		perf_pmu_enable(&m->pmu);
}

static int model_commit_txn(struct pmu *pmu)
{
	struct model *m = to_model(pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	if (c->txn_flags == PERF_PMU_TXN_ADD && c->nr > m->nr_counters)
		return -EAGAIN;

	if (c->txn_flags == PERF_PMU_TXN_READ && m->refuse_reads) {
		m->refuse_reads--;
		model_end_txn(m, c);
		return -EIO;
	}

	model_end_txn(m, c);
	return 0;
}

static void model_cancel_txn(struct pmu *pmu)
{
	struct model *m = to_model(pmu);
	struct model_cpu *c = this_cpu_ptr(m->cpus);

	for (int i = 0; i < c->nr; i++) {
		if (c->slots[i].txn)
			model_broken(m, "cancel with %s still added",
				     model_whose(c->slots[i].event));
	}

	model_end_txn(m, c);
}

static void model_destroy(struct perf_event *event)
{
	struct model *m = to_model(event->pmu);

	might_sleep();
	atomic_dec(model_is_master(event) ? &m->nr_masters : &m->nr_users);
}

static int model_event_init(struct perf_event *event)
{
	struct model *m = to_model(event->pmu);
	bool user = m->opening || event->parent;

	if (event->attr.type != m->pmu.type)
		return -ENOENT;

	m->opening = false;
	if (!user && m->refuse_masters)
		return -EBUSY;

	event->pmu_private = user ? &model_user : &model_master;
	atomic_inc(user ? &m->nr_users : &m->nr_masters);
	event->destroy = model_destroy;

	event->hw.config = m->hw_config ^ (user ? 0 : m->master_config);
	event->hw.flags = user ? m->user_flags : m->master_flags;
	event->hw.event_base = model_rate(&event->attr, m->hw_config);
	event->hw.idx = -1;
	if (m->no_share)
		event->hw.flags |= PERF_EVENT_FLAG_NO_SHARE;

	return 0;
}

/* As on x86: the task may read counters, whatever its events allow. */
static bool model_user_access(struct task_struct *task)
{
	struct model *m = READ_ONCE(model_with_access);

	if (task != current)
		model_broken(m, "access of a task that does not run");

	return READ_ONCE(m->user_access);
}

static void model_use_access(struct model *m, bool access)
{
	WRITE_ONCE(model_with_access, m);
	m->user_access = access;
	m->pmu.user_access = model_user_access;
}

/* As on powerpc, whoever may read it. */
static int model_event_idx(struct perf_event *event)
{
	return event->hw.idx + 1;
}

static int model_setup(struct model *m, const struct model_type *type)
{
	m->cpus = alloc_percpu(struct model_cpu);
	if (!m->cpus)
		return -ENOMEM;

	m->type = type;
	m->nr_counters = 4;
	raw_spin_lock_init(&m->lock);

	m->pmu.capabilities = PERF_PMU_CAP_SHARE;
	m->pmu.task_ctx_nr = perf_hw_context;
	m->pmu.event_init = model_event_init;
	m->pmu.pmu_enable = model_pmu_enable;
	m->pmu.pmu_disable = model_pmu_disable;
	m->pmu.add = model_add;
	m->pmu.del = model_del;
	m->pmu.start = model_start;
	m->pmu.stop = model_stop;
	m->pmu.read = model_read;
	m->pmu.event_idx = model_event_idx;
	if (type->txn) {
		m->pmu.start_txn = model_start_txn;
		m->pmu.commit_txn = model_commit_txn;
		m->pmu.cancel_txn = model_cancel_txn;
	}

	return perf_pmu_register(&m->pmu, "dup_model", -1);
}

/* Counters in use on a CPU. */
static int model_used(struct model *m, int cpu)
{
	return READ_ONCE(per_cpu_ptr(m->cpus, cpu)->nr);
}

static unsigned int model_calls(struct model *m, int cpu, enum model_call call)
{
	return READ_ONCE(per_cpu_ptr(m->cpus, cpu)->calls[call]);
}

/* ===== Events, and what they should have counted ===== */

#define NR_OPENERS	4
#define MAX_OPENERS	66
#define NR_CGROUPS	3
#define NR_EVENTS	128

struct dup_event {
	struct perf_event	*event;
	/* What it counts in a step of the clock, and has counted so far. */
	u64			rate;
	u64			expected;
	/* The last value that an NMI has read. */
	u64			seen;
	/* Steps of the clock in which it counted. */
	u64			ran;
	/* What perf calls its times. */
	u64			enabled;
	u64			running;
	/* That it counts for: one of cgroup_names[], or NO_CGROUP. */
	int			cgroup;
};

/* Keeps the task of a test running for as long as the test has something to do. */
struct busy {
	struct kthread_work	work;
	bool			stop;
};

struct dup_test {
	struct model		model;
	struct kunit		*test;
	struct dup_event	events[NR_EVENTS];
	struct kthread_worker	*worker;
	struct busy		busy;
	/* Where the events are that are not asked to be elsewhere. */
	int			cpu;
	/* That the next event is opened for, and the one of the test's task. */
	int			cgroup;
	int			task_cgroup;
	/* Counters in use when the clock last advanced in the test's task. */
	int			used_in_task;
	/* Siblings are opened without the cgroup of their leader. */
	bool			siblings_of_cpu;
	/* Not to compare for how long events of cgroups were enabled. */
	bool			ignore_cgroup_enabled;
	/* Nor what an NMI reads. */
	bool			ignore_nmi_values;
	/* Nor whether it reads less than another one did. */
	bool			resetting;
	/* Whether random events have user pages. */
	bool			random_pages;
	int			old_mode;
	bool			unregistered;
};

/* Processes that open events, and do nothing else. They are made when they are needed. */
static struct task_struct *openers[MAX_OPENERS];

#define NO_CGROUP	-1

/* The second one is a child of the first one. They are made when they are needed. */
static const char * const cgroup_names[NR_CGROUPS] = {
	"dup_test", "dup_test/child", "dup_test_other",
};

static struct vfsmount *cgroup_mnt;
static struct file *cgroup_dirs[NR_CGROUPS];
static bool cgroup_controls;

/* The first one that is open, or the next one. */
static struct dup_event *next_event(struct dup_test *t, struct dup_event *ev)
{
	for (ev = ev ? ev + 1 : t->events; ev < t->events + NR_EVENTS; ev++) {
		if (READ_ONCE(ev->event))
			return ev;
	}

	return NULL;
}

static struct dup_event *random_event(struct dup_test *t, struct rnd_state *rnd)
{
	struct dup_event *found = NULL;
	u32 nr = 0;

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (prandom_u32_state(rnd) % ++nr == 0)
			found = ev;
	}

	return found;
}

/* Each may be read at any time; no value is ahead of the clock. */
static void dup_test_nmi(struct model *m)
{
	struct dup_test *t = container_of(m, struct dup_test, model);

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		struct perf_event *event = READ_ONCE(ev->event);
		u64 value;

		/* Without sharing, it may come upon an event that add() or del() is busy with. */
		if (!READ_ONCE(event->dup) || READ_ONCE(event->oncpu) != smp_processor_id())
			continue;
		if (perf_event_read_local(event, &value, NULL, NULL) || t->ignore_nmi_values)
			continue;

		if (value > ev->expected)
			model_broken(m, "NMI read %llu, counted %llu", value, ev->expected);
		if (value < ev->seen && !READ_ONCE(t->resetting))
			model_broken(m, "NMI read %llu, then %llu", ev->seen, value);
		ev->seen = value;
	}
}

static bool dup_event_counts(struct dup_event *ev)
{
	struct perf_event *event = ev->event;

	return event->state == PERF_EVENT_STATE_ACTIVE &&
	       event->oncpu == smp_processor_id() &&
	       event->hw.interrupts != MAX_INTERRUPTS;
}

/* Is this time in which the event could run: that of its task, or cgroup? */
static bool dup_event_has_time(struct dup_event *ev)
{
	struct perf_event *event = ev->event;

	if (event->attach_state & PERF_ATTACH_TASK)
		return event->hw.target == current;

#ifdef CONFIG_CGROUP_PERF
	if (ev->cgroup != NO_CGROUP) {
		guard(rcu)();
		return event->cpu == smp_processor_id() &&
		       cgroup_is_descendant(task_cgroup(current, perf_event_cgrp_id),
					    event->cgrp->css.cgroup);
	}
#endif
	/*
	 * Perf starts the time of a CPU with the first event that can run there. One
	 * that is enabled beside events of other cgroups only does not do it.
	 */
	return READ_ONCE(event->ctx->is_active);
}

static void dup_event_advance(struct dup_event *ev, u64 ticks)
{
	struct perf_event *event = ev->event;
	int state = READ_ONCE(event->state), leader = READ_ONCE(event->group_leader->state);

	if (dup_event_counts(ev)) {
		ev->expected += ev->rate * ticks;
		ev->ran += ticks;
	}

	if (!dup_event_has_time(ev) || leader < PERF_EVENT_STATE_INACTIVE)
		return;
	if (state >= PERF_EVENT_STATE_INACTIVE)
		ev->enabled += ticks;
	if (state >= PERF_EVENT_STATE_ACTIVE)
		ev->running += ticks;
}

/* The page of an event that user space has mapped, or NULL. */
static struct perf_event_mmap_page *dup_event_page(struct dup_event *ev)
{
	struct perf_event *event = ev->event;

	return refcount_read(&event->mmap_count) ? event->rb->user_page : NULL;
}

/* On the CPU of the event: user space has from its page what it has counted, or nothing. */
static void check_user_page(struct model *m, struct dup_event *ev)
{
	const struct perf_event_mmap_page *page = dup_event_page(ev);
	u64 value, counter;
	int unused;

	if (!page || !page->index)
		return;

	if (!dup_event_counts(ev)) {
		if (ev->event->dup)
			model_broken(m, "page of an event that does not count has a counter");
		return;
	}

	counter = this_cpu_ptr(m->cpus)->counters[page->index - 1];
	unused = page->pmc_width ? 64 - page->pmc_width : 0;
	value = page->offset + ((s64)(counter << unused) >> unused);
	if (value != ev->expected)
		model_broken(m, "page says %llu, counted %llu", value, ev->expected);
}

/* On the CPU, with interrupts off. */
static void dup_test_advance(struct dup_test *t, u64 ticks)
{
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev))
		dup_event_advance(ev, ticks);

	atomic64_add(ticks, &perf_kunit_time);
	model_advance(&t->model, ticks);

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (ev->event->cpu == smp_processor_id())
			check_user_page(&t->model, ev);
	}
}

struct advance {
	struct dup_test		*t;
	u64			ticks;
	struct kthread_work	work;
};

static void advance_fn(void *info)
{
	struct advance *a = info;

	dup_test_advance(a->t, a->ticks);
}

static void advance_on(struct kunit *test, int cpu, u64 ticks)
{
	struct advance a = { .t = test->priv, .ticks = ticks };

	KUNIT_ASSERT_EQ(test, smp_call_function_single(cpu, advance_fn, &a, 1), 0);
}

/* Let the clock of the test's CPU advance. */
static void advance(struct kunit *test, u64 ticks)
{
	struct dup_test *t = test->priv;

	advance_on(test, t->cpu, ticks);
}

static void advance_work_fn(struct kthread_work *work)
{
	struct advance *a = container_of(work, struct advance, work);

	guard(irq)();
	a->t->used_in_task = model_used(&a->t->model, smp_processor_id());
	advance_fn(a);
}

/* Let the clock advance while the test's task runs. */
static void advance_in_task(struct kunit *test, u64 ticks)
{
	struct dup_test *t = test->priv;
	struct advance a = { .t = t, .ticks = ticks };

	kthread_init_work(&a.work, advance_work_fn);
	kthread_queue_work(t->worker, &a.work);
	kthread_flush_work(&a.work);
	/* And no longer. */
	wait_task_inactive(t->worker->task, TASK_INTERRUPTIBLE);
}

/*
 * For as long as a test is about what comes before a rotation. The timer goes off at
 * multiples of this since boot, of which the next one has to be far away.
 */
static void no_rotation(struct kunit *test)
{
	struct dup_test *t = test->priv;

	(*per_cpu_ptr(t->model.pmu.cpu_pmu_context, t->cpu))->hrtimer_interval =
		ms_to_ktime(24 * 60 * 60 * MSEC_PER_SEC);
}

static void rotate_fn(void *info)
{
	struct perf_cpu_pmu_context *cpc = info;

	guard(raw_spinlock)(&cpc->hrtimer_lock);
	cpc->hrtimer_active = 1;
	hrtimer_start(&cpc->hrtimer, 0, HRTIMER_MODE_REL_PINNED_HARD);
}

/* After no_rotation(): the timer goes off, once and now. */
static void rotate(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct perf_cpu_pmu_context *cpc = *per_cpu_ptr(t->model.pmu.cpu_pmu_context, t->cpu);
	struct hrtimer *timer = &cpc->hrtimer;

	KUNIT_ASSERT_EQ(test, smp_call_function_single(t->cpu, rotate_fn, cpc, 1), 0);
	for (int i = 0; i < 10000; i++) {
		if (!hrtimer_active(timer) || hrtimer_get_remaining(timer) > NSEC_PER_SEC)
			return;
		usleep_range(50, 100);
	}
	KUNIT_FAIL_AND_ABORT(test, "no rotation");
}

static void busy_work_fn(struct kthread_work *work)
{
	struct busy *busy = container_of(work, struct busy, work);

	while (!READ_ONCE(busy->stop)) {
		cond_resched();
		/* An emulator goes on with the other CPU. */
		cpu_relax();
	}
}

/* The task of the test runs from here to end_busy(). */
static void begin_busy(struct dup_test *t)
{
	WRITE_ONCE(t->busy.stop, false);
	kthread_init_work(&t->busy.work, busy_work_fn);
	kthread_queue_work(t->worker, &t->busy.work);
}

static void end_busy(struct dup_test *t)
{
	WRITE_ONCE(t->busy.stop, true);
	kthread_flush_work(&t->busy.work);
	sched_set_normal(t->worker->task, 0);
}

static void no_work_fn(struct kthread_work *work)
{
}

static struct task_struct *test_task(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct kthread_work work;

	if (!t->worker) {
		struct kthread_worker *worker = kthread_run_worker(0, "dup_test");

		KUNIT_ASSERT_FALSE(test, IS_ERR(worker));
		t->worker = worker;
		/* When it starts, it sets its affinity and may move to a cgroup. */
		kthread_init_work(&work, no_work_fn);
		kthread_queue_work(worker, &work);
		kthread_flush_work(&work);
		/* Not bound as a kthread is: those can not move. */
		KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(worker->task, cpumask_of(t->cpu)), 0);
	}

	return t->worker->task;
}

static int opener_fn(void *arg)
{
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);

	return 0;
}

/* The thread group of an opener. */
static struct pid *opener_pid(struct kunit *test, int opener)
{
	if (!openers[opener]) {
		struct task_struct *task = kthread_run(opener_fn, NULL, "dup_opener/%d", opener);

		KUNIT_ASSERT_FALSE(test, IS_ERR(task));
		openers[opener] = task;
	}

	return get_task_pid(openers[opener], PIDTYPE_TGID);
}

/* A file descriptor for a cgroup's directory, as users open it. */
static int cgroup_fd(struct kunit *test, int cgroup)
{
	int fd;

	if (cgroup == NO_CGROUP)
		return -1;

	fd = get_unused_fd_flags(O_CLOEXEC);
	KUNIT_ASSERT_GE(test, fd, 0);
	fd_install(fd, get_file(cgroup_dirs[cgroup]));

	return fd;
}

/* Open an event for one of the openers; a failure ends the test. */
static struct dup_event *open_event(struct kunit *test, int opener, struct perf_event_attr attr,
				    int cpu, struct task_struct *task, struct dup_event *leader)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev = t->events;
	struct perf_event *event;
	int cgroup, fd;
	struct pid *pid;

	while (ev->event)
		ev++;
	KUNIT_ASSERT_LT(test, ev - t->events, NR_EVENTS);

	if (!attr.type)
		attr.type = t->model.pmu.type;
	attr.size = sizeof(attr);

	pid = opener_pid(test, opener);
	cgroup = leader && !t->siblings_of_cpu ? leader->cgroup : t->cgroup;
	fd = cgroup_fd(test, cgroup);
	t->model.opening = true;
	event = perf_event_create_kunit_counter(&attr, cpu, task, leader ? leader->event : NULL,
						fd, pid);
	t->model.opening = false;
	if (fd >= 0)
		close_fd(fd);
	put_pid(pid);
	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(event), "open: %pe", event);

	*ev = (struct dup_event) {
		.rate = attr.type == PERF_TYPE_SOFTWARE ? 0 :
			model_rate(&attr, t->model.hw_config),
		.cgroup = cgroup,
	};
	WRITE_ONCE(ev->event, event);

	return ev;
}

#define ATTR(...)	((struct perf_event_attr){ __VA_ARGS__ })

/* An attr takes much of the stack of a function that has one. */
static noinline struct dup_event *open_plain(struct kunit *test, int opener, int cpu)
{
	return open_event(test, opener, ATTR(.config = 1), cpu, NULL, NULL);
}

/* On the CPU of the test. */
static struct dup_event *open_cpu(struct kunit *test, int opener, struct perf_event_attr attr)
{
	struct dup_test *t = test->priv;

	return open_event(test, opener, attr, t->cpu, NULL, NULL);
}

/*
 * On the CPU of the test, but without a master: the driver refuses that. The event
 * has a counter of its own until the next one comes, and is handed over then.
 */
static struct dup_event *open_alone(struct kunit *test, int opener, struct perf_event_attr attr)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev;

	t->model.refuse_masters = true;
	ev = open_cpu(test, opener, attr);
	t->model.refuse_masters = false;

	return ev;
}

/* On the target of its group. */
static struct dup_event *open_sibling(struct kunit *test, int opener, struct dup_event *leader,
				      struct perf_event_attr attr)
{
	struct perf_event *event = leader->event;

	return open_event(test, opener, attr, event->cpu, event->hw.target, leader);
}

/* As open_plain(), of a configuration. */
static noinline struct dup_event *open_config(struct kunit *test, int opener, u64 config)
{
	return open_cpu(test, opener, ATTR(.config = config));
}

static noinline struct dup_event *open_pinned(struct kunit *test, int opener, u64 config)
{
	return open_cpu(test, opener, ATTR(.config = config, .pinned = 1));
}

static noinline struct dup_event *open_member(struct kunit *test, struct dup_event *leader,
					      u64 config)
{
	return open_sibling(test, 1, leader, ATTR(.config = config));
}

/* On the task of the test while that is on the test's CPU. */
static noinline struct dup_event *open_on_both(struct kunit *test, int opener,
					       struct perf_event_attr attr)
{
	struct dup_test *t = test->priv;

	return open_event(test, opener, attr, t->cpu, test_task(test), NULL);
}

/* And without a master. */
static struct dup_event *open_alone_sibling(struct kunit *test, int opener,
					    struct dup_event *leader, struct perf_event_attr attr)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev;

	t->model.refuse_masters = true;
	ev = open_sibling(test, opener, leader, attr);
	t->model.refuse_masters = false;

	return ev;
}

/* On the task of the test. */
static struct dup_event *open_task(struct kunit *test, int opener, struct perf_event_attr attr)
{
	return open_event(test, opener, attr, -1, test_task(test), NULL);
}

/* On the CPU of the test, for what runs there in a cgroup. */
static struct dup_event *open_cgroup(struct kunit *test, int opener, int cgroup,
				     struct perf_event_attr attr)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev;

	t->cgroup = cgroup;
	ev = open_cpu(test, opener, attr);
	t->cgroup = NO_CGROUP;

	return ev;
}

/*
 * One that the driver never sees. For a cgroup it makes perf schedule all events of
 * the CPU when that comes or goes.
 */
static noinline struct dup_event *open_software(struct kunit *test, int cgroup)
{
	return open_cgroup(test, 0, cgroup, ATTR(.type = PERF_TYPE_SOFTWARE,
						 .config = PERF_COUNT_SW_DUMMY));
}

static void close_event(struct dup_event *ev)
{
	struct perf_event *event = ev->event, *sibling;
	u64 enabled, running;

	/*
	 * The siblings of a leader that is off are off as well. Perf does not
	 * look at the time when the leader goes, and they are not any more: it
	 * takes them to have been on since it last did.
	 */
	if (event->state < PERF_EVENT_STATE_INACTIVE && event->group_leader == event) {
		list_for_each_entry(sibling, &event->sibling_list, sibling_list)
			perf_event_read_value(sibling, &enabled, &running);
	}

	WRITE_ONCE(ev->event, NULL);
	perf_event_release_kernel(event);
}

/* All of them, in the order in which they were opened unless some were closed. */
static void close_events(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev))
		close_event(ev);
}

/*
 * Perf itself loses or adds some of the time for which an event of a cgroup is
 * enabled, with kernel.perf_event_dup=0 as well, when events move between CPUs.
 */
static bool knows_enabled(struct dup_test *t, struct dup_event *ev)
{
	return ev->cgroup == NO_CGROUP || !t->ignore_cgroup_enabled;
}

static void expect(struct kunit *test, struct dup_event *ev, int line, const char *what,
		   u64 value, u64 expected)
{
	struct perf_event *event = ev->event;
	struct dup_test *t = test->priv;

	KUNIT_EXPECT_EQ_MSG(test, value, expected,
			    "line %d: %s of event %td, config %llu, state %d, CPU %d, cgroup %d",
			    line, what, ev - t->events, event->attr.config, event->state,
			    event->cpu, ev->cgroup);
}

/* The count of one event, and its times, are exactly what the model says. */
static u64 __check_event(struct kunit *test, struct dup_event *ev, int line)
{
	struct dup_test *t = test->priv;
	u64 count, enabled, running;

	count = perf_event_read_value(ev->event, &enabled, &running);
	expect(test, ev, line, "count", count, ev->expected);
	if (knows_enabled(t, ev))
		expect(test, ev, line, "time enabled", enabled, ev->enabled);
	expect(test, ev, line, "time running", running, ev->running);

	return enabled - running;
}

#define check_event(test, ev)	__check_event(test, ev, __LINE__)

/* All of them are. */
static void __check_events(struct kunit *test, int line)
{
	struct dup_test *t = test->priv;

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev))
		__check_event(test, ev, line);
}

#define check_events(test)	__check_events(test, __LINE__)

/* And they always had a counter. */
static void __check_running(struct kunit *test, int line)
{
	struct dup_test *t = test->priv;

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		u64 lost = __check_event(test, ev, line);

		KUNIT_EXPECT_EQ_MSG(test, lost, 0, "line %d: event %td was not running",
				    line, ev - t->events);
	}
}

#define check_running(test)	__check_running(test, __LINE__)

/* What events have counted is taken for granted, to go on from there. */
static void believe_counts(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		ev->expected = perf_event_read_value(ev->event, &ev->enabled, &ev->running);
		ev->seen = 0;
	}
}

static u64 count_of(struct dup_event *ev)
{
	u64 enabled, running;

	return perf_event_read_value(ev->event, &enabled, &running);
}

/* Do they count through one counter? */
static bool shares(struct dup_event *a, struct dup_event *b)
{
	return a->event->dup && a->event->dup == b->event->dup && a->event->dup->master;
}

/* Would they, if they were scheduled in? */
static bool linked(struct dup_event *a, struct dup_event *b)
{
	return a->event->dup_link && a->event->dup_link == b->event->dup_link;
}

struct used {
	struct model		*m;
	int			nr;
};

static void used_fn(void *info)
{
	struct used *used = info;

	used->nr = model_used(used->m, smp_processor_id());
}

/* Counters in use on a CPU, not while it is busy to schedule. */
static int used_on(struct kunit *test, int cpu)
{
	struct dup_test *t = test->priv;
	struct used used = { .m = &t->model };

	KUNIT_ASSERT_EQ(test, smp_call_function_single(cpu, used_fn, &used, 1), 0);

	return used.nr;
}

static int used(struct kunit *test)
{
	struct dup_test *t = test->priv;

	return used_on(test, t->cpu);
}

static int masters(struct kunit *test)
{
	struct dup_test *t = test->priv;

	return atomic_read(&t->model.nr_masters);
}

static unsigned int calls(struct kunit *test, enum model_call call)
{
	struct dup_test *t = test->priv;

	return model_calls(&t->model, t->cpu, call);
}

/* What something costs, in calls of the driver. */
struct cost {
	unsigned int	calls[NR_CALLS];
};

static void get_calls(struct kunit *test, unsigned int *to)
{
	for (int i = 0; i < NR_CALLS; i++)
		to[i] = calls(test, i);
}

/* Since get_calls(). */
static void get_cost(struct kunit *test, const unsigned int *before, struct cost *cost)
{
	get_calls(test, cost->calls);
	for (int i = 0; i < NR_CALLS; i++)
		cost->calls[i] -= before[i];
}

/* It never starts or stops a counter. */
static void __check_cost(struct kunit *test, const struct cost *cost, int add, int del,
			 int enable, int line)
{
	KUNIT_EXPECT_EQ_MSG(test, cost->calls[CALL_ADD], add, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, cost->calls[CALL_DEL], del, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, cost->calls[CALL_ENABLE], enable, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, cost->calls[CALL_START], 0, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, cost->calls[CALL_STOP], 0, "line %d", line);
}

#define check_cost(test, cost, add, del, enable) \
	__check_cost(test, cost, add, del, enable, __LINE__)

static void set_counters(struct kunit *test, int nr)
{
	struct dup_test *t = test->priv;

	t->model.nr_counters = nr;
}

/* A CPU other than the test's, or a skip. */
static int other_cpu(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int cpu = cpumask_any_but(cpu_online_mask, t->cpu);

	if (cpu >= nr_cpu_ids)
		kunit_skip(test, "needs two CPUs");

	return cpu;
}

static void user_page_fn(void *info)
{
	perf_dup_update_userpage(info);
}

/* Whatever task runs there is the one that has mapped an event. */
static void give_access_fn(void *info)
{
	perf_event_give_access();
}

static void give_buffer(struct kunit *test, struct dup_event *ev)
{
	struct perf_event *event = ev->event;
	struct perf_buffer *rb = rb_alloc(0, 0, -1, 0);

	KUNIT_ASSERT_NOT_NULL(test, rb);
	scoped_guard(spinlock_irqsave, &rb->event_lock)
		list_add_rcu(&event->rb_entry, &rb->event_list);
	/* Pairs with rcu_dereference() of those who write the page. */
	smp_store_release(&event->rb, rb);
	smp_call_function_single(event->cpu, user_page_fn, event, 1);
}

/* What mmap() does to an event, by the task on the test's CPU; its buffer goes with it. */
static void map_event(struct kunit *test, struct dup_event *ev)
{
	struct dup_test *t = test->priv;

	give_buffer(test, ev);
	refcount_set(&ev->event->mmap_count, 1);
	smp_call_function_single(ev->event->cpu, user_page_fn, ev->event, 1);
	smp_call_function_single(t->cpu, give_access_fn, NULL, 1);
}

/* Can user space read the counter of a mapped event? */
static bool has_counter(struct dup_event *ev)
{
	return dup_event_page(ev)->index;
}

static void let_user_read(struct kunit *test)
{
	struct dup_test *t = test->priv;

	t->model.user_flags = PERF_EVENT_FLAG_USER_READ_CNT;
	t->model.master_flags = PERF_EVENT_FLAG_USER_READ_CNT;
}

static void interrupt_fn(void *info)
{
	struct model *m = info;

	model_interrupt(m, this_cpu_ptr(m->cpus));
}

/* A counter of the test's CPU interrupts. */
static void interrupt(struct kunit *test)
{
	struct dup_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, smp_call_function_single(t->cpu, interrupt_fn, &t->model, 1), 0);
}

/* Has the test's task been scheduled out, with its events? */
static void await_sleep(struct kunit *test, struct dup_event *ev)
{
	for (int i = 0; i < 1000 && READ_ONCE(ev->event->oncpu) != -1; i++)
		usleep_range(100, 200);

	KUNIT_ASSERT_EQ(test, READ_ONCE(ev->event->oncpu), -1);
}

struct local_read {
	struct perf_event	*event;
	u64			value, enabled, running;
	int			ret;
	struct kthread_work	work;
};

static void local_read_fn(void *info)
{
	struct local_read *r = info;

	r->ret = perf_event_read_local(r->event, &r->value, &r->enabled, &r->running);
}

static void local_read_work_fn(struct kthread_work *work)
{
	local_read_fn(container_of(work, struct local_read, work));
}

/* Read an event as BPF programs do: where it counts, and without a lock. */
static void __check_local(struct kunit *test, struct dup_event *ev, int ret, int line)
{
	struct local_read r = { .event = ev->event };
	struct dup_test *t = test->priv;

	if (ev->event->attach_state & PERF_ATTACH_TASK) {
		kthread_init_work(&r.work, local_read_work_fn);
		kthread_queue_work(t->worker, &r.work);
		kthread_flush_work(&r.work);
	} else {
		smp_call_function_single(ev->event->cpu, local_read_fn, &r, 1);
	}

	KUNIT_EXPECT_EQ_MSG(test, r.ret, ret, "line %d: event %td", line, ev - t->events);
	if (r.ret)
		return;
	expect(test, ev, line, "local count", r.value, ev->expected);
	if (knows_enabled(t, ev))
		expect(test, ev, line, "local time enabled", r.enabled, ev->enabled);
	expect(test, ev, line, "local time running", r.running, ev->running);
}

#define check_local(test, ev, ret)	__check_local(test, ev, ret, __LINE__)

#define GROUP_VALUES	(3 + NR_EVENTS)

/* Read a group in one go. */
static void __check_group(struct kunit *test, struct dup_event *leader, int ret, int line)
{
	struct dup_test *t = test->priv;
	struct perf_event *sibling;
	u64 *values, *value;

	values = kunit_kcalloc(test, GROUP_VALUES, sizeof(*values), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, values);

	KUNIT_EXPECT_EQ_MSG(test, perf_event_kunit_read_group(leader->event, values), ret,
			    "line %d", line);
	if (ret)
		goto out;

	if (knows_enabled(t, leader))
		KUNIT_EXPECT_EQ_MSG(test, values[1], leader->enabled, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, values[2], leader->running, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, values[3], leader->expected, "line %d", line);
	value = values + 4;
	/* Nobody but the test changes the group. */
	list_for_each_entry(sibling, &leader->event->sibling_list, sibling_list) {
		struct dup_event *ev = next_event(t, NULL);

		while (ev && ev->event != sibling)
			ev = next_event(t, ev);
		KUNIT_ASSERT_NOT_NULL(test, ev);
		KUNIT_EXPECT_EQ_MSG(test, *value++, ev->expected, "line %d: event %td", line,
				    ev - t->events);
	}
out:
	kunit_kfree(test, values);
}

#define check_group(test, ev, ret)	__check_group(test, ev, ret, __LINE__)

/* An event, or all of its group, is reset: what NMIs have seen and what is expected. */
static void forget_counts(struct kunit *test, struct dup_event *ev, bool group)
{
	struct dup_test *t = test->priv;

	for (struct dup_event *e = next_event(t, NULL); e; e = next_event(t, e)) {
		if (e != ev && (!group || e->event->group_leader != ev->event->group_leader))
			continue;
		e->expected = 0;
		e->seen = 0;
	}
}

/* The three that perf stat uses, on one event or on its group. */
static void event_ioctl(struct kunit *test, struct dup_event *ev, unsigned int cmd, bool group)
{
	unsigned long arg = group ? PERF_IOC_FLAG_GROUP : 0;
	struct dup_test *t = test->priv;

	/* There can be NMIs before it is over, which see the count before and after. */
	if (cmd == PERF_EVENT_IOC_RESET)
		WRITE_ONCE(t->resetting, true);
	KUNIT_EXPECT_EQ(test, perf_event_kunit_ioctl(ev->event, cmd, arg), 0);
	if (cmd == PERF_EVENT_IOC_RESET) {
		forget_counts(test, ev, group);
		WRITE_ONCE(t->resetting, false);
	}
}

/* Write into a file of the cgroup filesystem. */
static int cgroup_write(const char *name, const char *text)
{
	struct file *file = file_open_root_mnt(cgroup_mnt, name, O_WRONLY, 0);
	loff_t pos = 0;
	ssize_t ret;

	if (IS_ERR(file))
		return PTR_ERR(file);

	ret = kernel_write(file, text, strlen(text), &pos);
	__fput_sync(file);

	return ret < 0 ? ret : 0;
}

/* The directory that a cgroup is in, and its name there. */
static struct dentry *cgroup_dentry_parent(int cgroup, const char **name)
{
	*name = strrchr(cgroup_names[cgroup], '/');
	if (*name)
		return cgroup_dirs[0]->f_path.dentry;

	*name = cgroup_names[cgroup];
	return cgroup_mnt->mnt_root;
}

static int make_cgroup(int cgroup)
{
	struct dentry *parent, *dentry;
	struct file *dir;
	const char *name;

	parent = cgroup_dentry_parent(cgroup, &name);
	dentry = start_creating_noperm(parent, &QSTR(name + (*name == '/')));
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	dentry = vfs_mkdir(&nop_mnt_idmap, d_inode(parent), dentry, 0755, NULL);
	end_creating(dentry);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);

	dir = file_open_root_mnt(cgroup_mnt, cgroup_names[cgroup], O_RDONLY | O_DIRECTORY, 0);
	if (IS_ERR(dir))
		return PTR_ERR(dir);
	cgroup_dirs[cgroup] = dir;

	return 0;
}

static void remove_cgroups(void)
{
	struct dentry *parent, *dentry;
	const char *name;

	if (IS_ERR_OR_NULL(cgroup_mnt))
		return;

	for (int i = NR_CGROUPS - 1; i >= 0; i--) {
		if (!cgroup_dirs[i])
			continue;
		parent = cgroup_dentry_parent(i, &name);
		__fput_sync(cgroup_dirs[i]);
		cgroup_dirs[i] = NULL;
		dentry = start_removing_noperm(parent, &QSTR(name + (*name == '/')));
		if (!IS_ERR(dentry))
			vfs_rmdir(&nop_mnt_idmap, d_inode(parent), dentry, NULL);
		end_removing(dentry);
	}
	if (cgroup_controls)
		cgroup_write("cgroup.subtree_control", "-pids");
	cgroup_controls = false;

	kern_unmount(cgroup_mnt);
	cgroup_mnt = NULL;
}

/*
 * Have cgroups, or skip. perf_event is a controller that is always there, but
 * new cgroups get it only once another one was enabled for them.
 */
static void need_cgroups(struct kunit *test)
{
	struct file_system_type *type;

	if (!IS_ENABLED(CONFIG_CGROUP_PERF) || !IS_ENABLED(CONFIG_CGROUP_PIDS))
		kunit_skip(test, "needs CONFIG_CGROUP_PERF and CONFIG_CGROUP_PIDS");
	if (!cgroup_mnt) {
		type = get_fs_type("cgroup2");
		KUNIT_ASSERT_NOT_NULL(test, type);
		cgroup_mnt = kern_mount(type);
		put_filesystem(type);
		KUNIT_ASSERT_FALSE(test, IS_ERR(cgroup_mnt));

		KUNIT_ASSERT_EQ(test, cgroup_write("cgroup.subtree_control", "+pids"), 0);
		cgroup_controls = true;
		for (int i = 0; i < NR_CGROUPS; i++)
			KUNIT_ASSERT_EQ(test, make_cgroup(i), 0);
	}
	KUNIT_ASSERT_NOT_NULL(test, cgroup_dirs[NR_CGROUPS - 1]);
}

/* Move the test's task to a cgroup. */
static void move_task(struct kunit *test, int cgroup)
{
	struct dup_test *t = test->priv;
	char name[64], pid[16];

	if (t->task_cgroup == cgroup)
		return;

	scnprintf(name, sizeof(name), "%s/cgroup.procs",
		  cgroup == NO_CGROUP ? "." : cgroup_names[cgroup]);
	scnprintf(pid, sizeof(pid), "%d", task_pid_nr(test_task(test)));
	KUNIT_ASSERT_EQ(test, cgroup_write(name, pid), 0);
	t->task_cgroup = cgroup;
}

struct breaks {
	struct task_struct	*task;
	unsigned long		nr;
	bool			runs;
};

static void breaks_fn(void *info)
{
	struct breaks *b = info;

	b->runs = current == b->task;
	b->nr = current->nvcsw + current->nivcsw;
}

/*
 * The test's task, which is busy, runs: how often did its CPU do something else? If
 * that is the same after some time, it did not meanwhile.
 */
static unsigned long busy_breaks(struct kunit *test)
{
	struct breaks b = { .task = test_task(test) };
	struct dup_test *t = test->priv;

	for (int i = 0; i < 100000; i++) {
		smp_call_function_single(t->cpu, breaks_fn, &b, 1);
		if (b.runs)
			return b.nr;
		usleep_range(50, 100);
	}
	KUNIT_FAIL_AND_ABORT(test, "the task does not run");

	return 0;
}

/* As begin_busy(), at once, and hardly anything else runs on that CPU. */
static void begin_busy_alone(struct kunit *test)
{
	struct dup_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current, cpumask_of(other_cpu(test))), 0);
	sched_set_fifo(test_task(test));
	begin_busy(t);
	busy_breaks(test);
}

/* Counters that are in use while the test's task, which is busy, has its CPU. */
static int used_by_busy(struct kunit *test)
{
	unsigned long breaks;
	int nr;

	do {
		breaks = busy_breaks(test);
		nr = used(test);
	} while (busy_breaks(test) != breaks);

	return nr;
}

/*
 * Move the test's task, which is busy, between two cgroups: its CPU switches from
 * one to the other. What that costs, without any other switches. Returns whether
 * that took one try.
 */
static bool switch_cgroup(struct kunit *test, int from, int to, struct cost *cost)
{
	unsigned int before[NR_CALLS];
	unsigned long breaks;

	for (int i = 0; i < 1000; i++) {
		move_task(test, from);
		breaks = busy_breaks(test);
		get_calls(test, before);
		move_task(test, to);
		get_cost(test, before, cost);
		if (busy_breaks(test) == breaks)
			return !i;
	}
	KUNIT_FAIL_AND_ABORT(test, "the task is always interrupted");
	return false;
}

/* An event, and what its CPU counts with, while the test's task runs. */
struct look {
	struct dup_test		*t;
	struct dup_event	*ev;
	/* That it counts through, or NULL. */
	struct perf_event_dup	*dup;
	int			state;
	int			used;
	/* Of its user page. */
	u32			index;
	bool			seen;
};

static void look_fn(void *info)
{
	struct look *look = info;
	struct dup_event *ev = look->ev;

	if (current != look->t->worker->task)
		return;

	look->dup = ev->event->dup_run;
	look->state = ev->event->state;
	look->used = model_used(&look->t->model, smp_processor_id());
	look->index = dup_event_page(ev) ? dup_event_page(ev)->index : 0;
	look->seen = true;
}

static struct look look_at(struct kunit *test, struct dup_event *ev)
{
	struct look look = { .t = test->priv, .ev = ev };

	/* For the task to have it before the CPU is asked. */
	for (int i = 0; i < 10000 && !look.seen; i++) {
		busy_breaks(test);
		smp_call_function_single(look.t->cpu, look_fn, &look, 1);
	}
	KUNIT_ASSERT_TRUE(test, look.seen);

	return look;
}

/* The test's task, which is busy, counts by the counter of an event of its CPU, or by its own. */
static void check_look(struct kunit *test, const struct look *look, struct dup_event *cpu,
		       int used, int line)
{
	KUNIT_EXPECT_EQ_MSG(test, look->state, PERF_EVENT_STATE_ACTIVE, "line %d", line);
	KUNIT_EXPECT_EQ_MSG(test, look->used, used, "line %d", line);
	if (cpu)
		KUNIT_EXPECT_PTR_EQ_MSG(test, look->dup, cpu->event->dup_link, "line %d", line);
	else if (look->dup)
		KUNIT_EXPECT_PTR_EQ_MSG(test, look->dup, look->ev->event->dup_link, "line %d",
					line);
}

static void __check_lent(struct kunit *test, struct dup_event *ev, struct dup_event *cpu,
			 int used, int line)
{
	struct look look = look_at(test, ev);

	check_look(test, &look, cpu, used, line);
}

#define check_lent(test, ev, cpu, used)	__check_lent(test, ev, cpu, used, __LINE__)
#define check_not_lent(test, ev, used)	__check_lent(test, ev, NULL, used, __LINE__)

struct throttle {
	struct dup_test		*t;
	struct dup_event	*leader;
	bool			throttled;
};

/* The PMU interrupts for a sampling event until that is throttled. */
static void throttle_fn(void *info)
{
	struct throttle *th = info;
	struct perf_event *event = th->leader->event;
	struct perf_sample_data data;
	struct pt_regs regs = {};

	if (event->state != PERF_EVENT_STATE_ACTIVE || event->oncpu != smp_processor_id())
		return;

	dup_test_advance(th->t, 3);
	for (int i = 0; i < 1000000 && event->hw.interrupts != MAX_INTERRUPTS; i++) {
		perf_sample_data_init(&data, 0, 0);
		perf_event_overflow(event, &data, &regs);
	}
	th->throttled = event->hw.interrupts == MAX_INTERRUPTS;
	/* What its siblings miss. */
	dup_test_advance(th->t, 50);
}

/* The tick lets it go on. */
static int await_unthrottle(void *info)
{
	struct dup_event *leader = info;
	unsigned long end = jiffies + 5 * HZ;

	while (READ_ONCE(leader->event->hw.interrupts) == MAX_INTERRUPTS) {
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		cpu_relax();
	}

	return 0;
}

/* False for an event that is not scheduled in. */
static bool try_throttle(struct kunit *test, struct dup_event *leader)
{
	struct throttle th = { .t = test->priv, .leader = leader };
	struct dup_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, smp_call_function_single(t->cpu, throttle_fn, &th, 1), 0);

	return th.throttled;
}

static void throttle(struct kunit *test, struct dup_event *leader)
{
	KUNIT_ASSERT_TRUE(test, try_throttle(test, leader));
}

static void unthrottle(struct kunit *test, struct dup_event *leader)
{
	struct dup_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, smp_call_on_cpu(t->cpu, await_unthrottle, leader, false), 0);
}

/* Let the clock advance while the test's task runs, in a cgroup. */
static void advance_in_cgroup(struct kunit *test, int cgroup, u64 ticks)
{
	move_task(test, cgroup);
	advance_in_task(test, ticks);
}

static int dup_test_init(struct kunit *test)
{
	struct dup_test *t;
	int ret;

	t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;

	t->test = test;
	t->cpu = cpumask_last(cpu_online_mask);
	t->cgroup = NO_CGROUP;
	t->task_cgroup = NO_CGROUP;
	t->old_mode = sysctl_perf_event_dup;
	sysctl_perf_event_dup = 1;

	ret = model_setup(&t->model, test->param_value);
	if (ret) {
		free_percpu(t->model.cpus);
		return ret;
	}
	t->model.nmi = dup_test_nmi;
	test->priv = t;

	return 0;
}

/* Whatever a test does, nothing may be left of its events, on the PMU or elsewhere. */
static void dup_test_exit(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct model *m;
	int cpu;

	if (!t)
		return;
	m = &t->model;

	close_events(test);
	WRITE_ONCE(t->busy.stop, true);
	if (t->worker) {
		move_task(test, NO_CGROUP);
		kthread_destroy_worker(t->worker);
	}

	for_each_possible_cpu(cpu)
		KUNIT_EXPECT_EQ(test, model_used(m, cpu), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&m->nr_users), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&m->nr_masters), 0);

	if (!t->unregistered)
		KUNIT_EXPECT_EQ(test, perf_pmu_unregister(&m->pmu), 0);

	for (int i = 0; i < min(m->nr_broken, MODEL_TEXTS); i++)
		KUNIT_FAIL(test, "driver: %s", m->broken[i]);
	KUNIT_EXPECT_EQ(test, m->nr_broken, 0);

	free_percpu(m->cpus);
	sysctl_perf_event_dup = t->old_mode;
}

static int dup_suite_init(struct kunit_suite *suite)
{
	/* From now on perf's time is what the tests say. */
	atomic64_set(&perf_kunit_time, local_clock());
	static_branch_enable(&perf_kunit_clock);

	return 0;
}

static void dup_suite_exit(struct kunit_suite *suite)
{
	for (int i = 0; i < MAX_OPENERS; i++) {
		if (openers[i])
			kthread_stop(openers[i]);
		openers[i] = NULL;
	}
	remove_cgroups();

	/* Time goes on without the tests, and never goes back. */
	while (local_clock() < atomic64_read(&perf_kunit_time))
		msleep(20);
	static_branch_disable(&perf_kunit_clock);
}

/* ===== Test cases: who shares with whom ===== */

/*
 * Equal events of two openers use one counter, and count the same from then on:
 * that of a master, which the first event of a CPU brings, or else the second one.
 */
static void test_two_openers(struct kunit *test)
{
	struct perf_event_attr attr = ATTR(.config = 1);
	struct dup_event *a, *b;

	for (int alone = 0; alone < 2; alone++) {
		a = alone ? open_alone(test, 0, attr) : open_cpu(test, 0, attr);
		advance(test, 3);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_EQ(test, masters(test), !alone);
		KUNIT_EXPECT_EQ(test, !a->event->dup, alone);

		b = open_cpu(test, 1, attr);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_EQ(test, masters(test), 1);

		advance(test, 5);
		check_running(test);
		KUNIT_EXPECT_EQ(test, a->expected, 8 * a->rate);
		KUNIT_EXPECT_EQ(test, b->expected, 5 * b->rate);
		close_events(test);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
	}
}

/* Many equal events of many openers, more than there are counters, always run. */
static void test_many_events(struct kunit *test)
{
	struct dup_test *t = test->priv;
	u64 config;

	/* Nobody is asked who opened what. */
	sysctl_perf_event_dup = 2;
	for (int i = 0; i < 64; i++) {
		open_cpu(test, i % NR_OPENERS, ATTR(.config = i % 4));
		advance(test, 1);
	}

	KUNIT_EXPECT_EQ(test, used(test), 4);
	KUNIT_EXPECT_EQ(test, masters(test), 4);
	check_running(test);

	for (config = 0; config < 4; config++) {
		for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
			if (ev->event->attr.config == config)
				close_event(ev);
		}
		advance(test, 1);
		check_running(test);
		KUNIT_EXPECT_EQ(test, used(test), 3 - config);
	}
}

/* Whatever changes what is counted separates two events. */
static void test_different_events(struct kunit *test)
{
	static const struct perf_event_attr attrs[] = {
		{ .config = 1 },
		{ .config = 2 },
		{ .config = 1, .config1 = 1 },
		{ .config = 1, .config2 = 1 },
		{ .config = 1, .config3 = 1 },
		{ .config = 1, .config4 = 1 },
		{ .config = 1, .exclude_user = 1 },
		{ .config = 1, .exclude_kernel = 1 },
		{ .config = 1, .exclude_hv = 1 },
		{ .config = 1, .exclude_idle = 1 },
		{ .config = 1, .exclude_host = 1 },
		{ .config = 1, .exclude_guest = 1 },
		{ .config = 1, .precise_ip = 1 },
	};
	struct dup_test *t = test->priv;

	set_counters(test, MODEL_COUNTERS);
	/* No ordinals that would keep them apart. */
	sysctl_perf_event_dup = 2;
	for (int alone = 0; alone < 2; alone++) {
		t->model.refuse_masters = alone;
		for (int i = 0; i < ARRAY_SIZE(attrs); i++)
			open_cpu(test, i % 2, attrs[i]);

		/* What the driver makes of it counts as well. */
		t->model.hw_config = 1;
		open_plain(test, 0, t->cpu);

		KUNIT_EXPECT_EQ(test, used(test), ARRAY_SIZE(attrs) + 1);
		KUNIT_EXPECT_EQ(test, masters(test), alone ? 0 : ARRAY_SIZE(attrs) + 1);
		advance(test, 7);
		check_running(test);

		/* A master of each counts what its events do. */
		t->model.refuse_masters = false;
		t->model.hw_config = 0;
		for (int i = 0; i < ARRAY_SIZE(attrs); i++)
			open_cpu(test, i % 2, attrs[i]);
		KUNIT_EXPECT_EQ(test, used(test), ARRAY_SIZE(attrs) + 1);
		KUNIT_EXPECT_EQ(test, masters(test), ARRAY_SIZE(attrs) + !alone);
		advance(test, 7);
		check_running(test);
		close_events(test);
	}
}

/* The same with the second half of each pair: each finds its partner. */
static void test_different_pairs(struct kunit *test)
{
	static const struct perf_event_attr all = { .config = 1 };
	static const struct perf_event_attr kernel = { .config = 1, .exclude_user = 1 };
	struct dup_event *a, *b, *c, *d, *e, *f;
	struct dup_test *t = test->priv;

	a = open_alone(test, 0, all);
	b = open_alone(test, 0, kernel);
	t->model.hw_config = 1;
	c = open_alone(test, 0, all);
	advance(test, 2);

	d = open_cpu(test, 1, all);
	t->model.hw_config = 0;
	e = open_cpu(test, 1, kernel);
	f = open_cpu(test, 1, all);
	advance(test, 2);

	KUNIT_EXPECT_TRUE(test, shares(a, f));
	KUNIT_EXPECT_TRUE(test, shares(b, e));
	KUNIT_EXPECT_TRUE(test, shares(c, d));
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_running(test);
}

/* What does not change what is counted does not matter. */
static void test_equal_events(struct kunit *test)
{
	static const struct perf_event_attr attrs[] = {
		{ .config = 1, .pinned = 1 },
		{ .config = 1, .inherit = 1 },
		{ .config = 1, .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_ID },
		{ .config = 1, .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME },
		{ .config = 1, .disabled = 1 },
		{ .config = 1, .disabled = 1, .enable_on_exec = 1 },
		{ .config = 1, .comm = 1, .mmap = 1, .task = 1 },
		{ .config = 1, .exclude_callchain_user = 1 },
	};
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	a = open_cpu(test, 0, ATTR(.config = 1));
	for (int i = 0; i < ARRAY_SIZE(attrs); i++) {
		b = open_cpu(test, 1, attrs[i]);
		perf_event_enable(b->event);
		advance(test, 3);
		KUNIT_EXPECT_TRUE_MSG(test, shares(a, b), "attr %d", i);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		check_events(test);
		KUNIT_EXPECT_EQ(test, b->expected, 3 * b->rate);
		close_event(b);
	}

	/* And it does not matter which of them is the first, or brings the master. */
	close_event(a);
	for (int i = 0; i < 2 * ARRAY_SIZE(attrs); i++) {
		t->model.refuse_masters = i & 1;
		a = open_cpu(test, 0, attrs[i / 2]);
		t->model.refuse_masters = false;
		perf_event_enable(a->event);
		b = open_cpu(test, 1, ATTR(.config = 1));
		advance(test, 3);
		KUNIT_EXPECT_TRUE_MSG(test, shares(a, b), "attr %d", i / 2);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		check_events(test);
		close_event(a);
		close_event(b);
	}
}

/* Sampling events, and those that the driver or the user wants alone, do not share. */
static void test_never_shared(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	a = open_cpu(test, 0, ATTR(.config = 1));

	b = open_cpu(test, 1, ATTR(.config = 1, .sample_period = 1ULL << 40));
	KUNIT_EXPECT_FALSE(test, linked(a, b));
	KUNIT_EXPECT_EQ(test, used(test), 2);
	advance(test, 2);
	check_running(test);
	close_event(b);

	t->model.no_share = true;
	b = open_cpu(test, 1, ATTR(.config = 1));
	t->model.no_share = false;
	KUNIT_EXPECT_FALSE(test, linked(a, b));
	KUNIT_EXPECT_EQ(test, used(test), 2);
	advance(test, 2);
	check_running(test);
	close_event(b);

	/* An exclusive group can only go on an empty PMU. */
	close_event(a);
	a = open_cpu(test, 0, ATTR(.config = 1, .exclusive = 1));
	b = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	KUNIT_EXPECT_FALSE(test, linked(a, b));
	perf_event_enable(b->event);
	advance(test, 2);
	KUNIT_EXPECT_LE(test, used(test), 1);
	check_events(test);
	close_event(b);
	close_event(a);
}

/* The PMU has to opt in. */
static void test_opt_in(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	t->model.pmu.capabilities &= ~PERF_PMU_CAP_SHARE;
	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_FALSE(test, linked(a, b));
	KUNIT_EXPECT_EQ(test, used(test), 2);
	advance(test, 2);
	check_running(test);
	KUNIT_EXPECT_EQ(test, masters(test), 0);
}

/* In-kernel users look at their hw_perf_event, and so have their own counter. */
static void test_kernel_counter(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct perf_event_attr attr = {
		.type = t->model.pmu.type,
		.size = sizeof(attr),
		.config = 1,
	};
	u64 enabled, running;
	struct dup_event *a;
	struct perf_event *event;

	a = open_cpu(test, 0, ATTR(.config = 1));
	t->model.opening = true;
	event = perf_event_create_kernel_counter(&attr, t->cpu, NULL, NULL, NULL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(event));

	advance(test, 2);
	KUNIT_EXPECT_NULL(test, event->dup_link);
	KUNIT_EXPECT_EQ(test, used(test), 2);
	KUNIT_EXPECT_EQ(test, perf_event_read_value(event, &enabled, &running), 2 * a->rate);
	check_running(test);
	perf_event_release_kernel(event);
}

/* A later sibling that the driver wants alone makes its leader leave. */
static void test_sibling_excludes_leader(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 2);
	KUNIT_EXPECT_TRUE(test, shares(a, b));

	t->model.no_share = true;
	c = open_sibling(test, 0, a, ATTR(.config = 2));
	t->model.no_share = false;
	advance(test, 3);
	KUNIT_EXPECT_FALSE(test, shares(a, b));
	KUNIT_EXPECT_NULL(test, c->event->dup);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_running(test);
	/* It went on where it was, and so did the one that it shared with. */
	KUNIT_EXPECT_EQ(test, a->expected, 5 * a->rate);
	KUNIT_EXPECT_EQ(test, b->expected, 5 * b->rate);
	KUNIT_EXPECT_EQ(test, c->expected, 3 * c->rate);

	/* For all members that are still to come, too. */
	c = open_sibling(test, 0, a, ATTR(.config = 1));
	advance(test, 3);
	KUNIT_EXPECT_NULL(test, c->event->dup);
	KUNIT_EXPECT_EQ(test, used(test), 4);
	check_running(test);
}

/* Also one that is off, so that nothing else makes the leader be scheduled anew. */
static void test_sibling_off_excludes_leader(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 2);

	t->model.no_share = true;
	open_sibling(test, 0, a, ATTR(.config = 2, .disabled = 1));
	t->model.no_share = false;
	KUNIT_EXPECT_NULL(test, a->event->dup);
	KUNIT_EXPECT_EQ(test, used(test), 2);
	advance(test, 3);
	check_running(test);
	KUNIT_EXPECT_EQ(test, a->expected, 5 * a->rate);
	KUNIT_EXPECT_EQ(test, b->expected, 5 * b->rate);
}

static void ordinals(struct kunit *test, bool alone)
{
	struct dup_test *t = test->priv;
	struct dup_event *x[3], *y[3];

	t->model.refuse_masters = alone;
	for (int i = 0; i < 3; i++) {
		x[i] = open_cpu(test, 0, ATTR(.config = 1));
		advance(test, 1);
	}
	t->model.refuse_masters = false;
	KUNIT_EXPECT_EQ(test, used(test), 3);
	KUNIT_EXPECT_EQ(test, masters(test), alone ? 0 : 3);

	for (int i = 0; i < 3; i++) {
		y[i] = open_cpu(test, 1, ATTR(.config = 1));
		advance(test, 1);
		KUNIT_EXPECT_TRUE(test, shares(x[i], y[i]));
	}
	KUNIT_EXPECT_EQ(test, used(test), 3);
	KUNIT_EXPECT_EQ(test, masters(test), 3);
	check_running(test);

	/* The smallest one that is free is taken. */
	close_event(x[1]);
	close_event(x[0]);
	x[0] = open_cpu(test, 0, ATTR(.config = 1));
	KUNIT_EXPECT_TRUE(test, shares(x[0], y[0]));
	x[1] = open_cpu(test, 0, ATTR(.config = 1));
	KUNIT_EXPECT_TRUE(test, shares(x[1], y[1]));
	advance(test, 1);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_running(test);

	/* Also when nobody else has it. */
	close_event(x[1]);
	close_event(y[1]);
	KUNIT_EXPECT_EQ(test, used(test), 2);
	x[1] = open_cpu(test, 2, ATTR(.config = 1));
	KUNIT_EXPECT_TRUE(test, shares(x[1], y[0]));
	close_event(x[1]);
	x[1] = open_cpu(test, 0, ATTR(.config = 1));
	KUNIT_EXPECT_FALSE(test, shares(x[1], y[2]));
	KUNIT_EXPECT_EQ(test, x[1]->event->dup_link->ordinal, 1);
	advance(test, 1);
	check_running(test);
	close_events(test);
}

/* The k-th event of one opener shares with the k-th of another one. */
static void test_ordinals(struct kunit *test)
{
	ordinals(test, false);
	ordinals(test, true);
}

static unsigned int ordinal(struct dup_event *ev)
{
	return ev->event->dup_link->ordinal;
}

/* The smallest one that an opener does not use, by what it has open on the CPU. */
static unsigned int free_ordinal(struct kunit *test, int opener, int cgroup)
{
	struct dup_test *t = test->priv;
	struct pid *pid = opener_pid(test, opener);
	DECLARE_BITMAP(in_use, NR_EVENTS) = {};

	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (ev->event->dup_opener == pid && ev->cgroup == cgroup)
			__set_bit(ordinal(ev), in_use);
	}
	put_pid(pid);

	return find_first_zero_bit(in_use, NR_EVENTS);
}

static struct dup_event *open_ordinal(struct kunit *test, int opener, int cgroup)
{
	unsigned int expected = free_ordinal(test, opener, cgroup);
	struct dup_event *ev = open_cgroup(test, opener, cgroup, ATTR(.config = 1));

	KUNIT_EXPECT_EQ(test, ordinal(ev), expected);

	return ev;
}

/* They come and go in any order; times with more of them and with less take turns. */
static void random_ordinals(struct kunit *test, int nr_cgroups)
{
	struct dup_test *t = test->priv;
	struct rnd_state rnd;

	prandom_seed_state(&rnd, 1);
	for (int i = 0; i < 400; i++) {
		u32 r = prandom_u32_state(&rnd);
		struct dup_event *ev = random_event(t, &rnd);

		if (r % 16 < (i / 50 % 2 ? 5 : 11))
			open_ordinal(test, r >> 8 & 1, (int)((r >> 16) % (nr_cgroups + 1)) - 1);
		else if (ev)
			close_event(ev);
	}
	advance(test, 1);
	check_events(test);
}

/* Gaps are filled from below, and before what follows. */
static void test_ordinal_gaps(struct kunit *test)
{
	static const char * const closed[] = {
		"1", "4", "0", "02", "20", "31", "132", "204", "43", "01", "10", "1234",
	};
	struct dup_test *t = test->priv;
	struct dup_event *ev[5];

	for (int i = 0; i < ARRAY_SIZE(closed); i++) {
		open_plain(test, 1, t->cpu);
		for (int j = 0; j < 5; j++) {
			ev[j] = open_ordinal(test, 0, NO_CGROUP);
			KUNIT_EXPECT_EQ(test, ordinal(ev[j]), j);
		}
		for (const char *c = closed[i]; *c; c++)
			close_event(ev[*c - '0']);
		while (free_ordinal(test, 0, NO_CGROUP) < 7)
			open_ordinal(test, 0, NO_CGROUP);
		close_events(test);
	}
	random_ordinals(test, 0);
}

/* A process never sees more counters than the PMU has. */
static void test_opener_counts_counters(struct kunit *test)
{
	int nr = 0;

	set_counters(test, 3);
	for (int i = 0; i < 3; i++)
		open_cpu(test, 1, ATTR(.config = 1));
	for (int i = 0; i < 4; i++) {
		/* Pinned: one that does not fit is in error state for good. */
		struct dup_event *ev = open_cpu(test, 0, ATTR(.config = 1, .pinned = 1));

		advance(test, 1);
		if (ev->event->state == PERF_EVENT_STATE_ACTIVE)
			nr++;
	}
	KUNIT_EXPECT_EQ(test, nr, 3);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_events(test);
}

/* Each target, that is each CPU and task, has ordinals of its own. */
static void test_ordinal_per_target(struct kunit *test)
{
	int other = other_cpu(test);
	struct dup_event *a, *b, *c;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_event(test, 0, ATTR(.config = 1), other, NULL, NULL);
	c = open_task(test, 0, ATTR(.config = 1));

	KUNIT_EXPECT_EQ(test, a->event->dup_link->ordinal, 0);
	KUNIT_EXPECT_EQ(test, b->event->dup_link->ordinal, 0);
	KUNIT_EXPECT_EQ(test, c->event->dup_link->ordinal, 0);

	c = open_event(test, 1, ATTR(.config = 1), other, NULL, NULL);
	advance(test, 2);
	advance_on(test, other, 3);
	KUNIT_EXPECT_TRUE(test, shares(b, c));
	KUNIT_EXPECT_FALSE(test, shares(a, b));
	KUNIT_EXPECT_EQ(test, used_on(test, other), 1);
	check_events(test);
}

/* kernel.perf_event_dup: 0 shares nothing, 2 also the events of one opener. */
static void test_sysctl(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;

	sysctl_perf_event_dup = 0;
	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_FALSE(test, linked(a, b));
	KUNIT_EXPECT_EQ(test, used(test), 2);

	/* It applies to what is opened afterwards. */
	sysctl_perf_event_dup = 1;
	c = open_cpu(test, 2, ATTR(.config = 1));
	d = open_cpu(test, 3, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_TRUE(test, shares(c, d));
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_running(test);
	close_event(a);
	close_event(b);

	sysctl_perf_event_dup = 2;
	a = open_cpu(test, 2, ATTR(.config = 1));
	b = open_cpu(test, 2, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	KUNIT_EXPECT_TRUE(test, shares(a, c));
	KUNIT_EXPECT_EQ(test, used(test), 1);

	sysctl_perf_event_dup = 0;
	close_event(d);
	advance(test, 1);
	check_running(test);
}

/* ===== Test cases: counting ===== */

/* One that joins a counter which runs is not given what others have counted. */
static void test_join_running(struct kunit *test)
{
	struct dup_event *a, *b;

	/* Pinned ones are not scheduled out for a flexible one. */
	open_cpu(test, 0, ATTR(.config = 1, .pinned = 1));
	a = open_cpu(test, 1, ATTR(.config = 1, .pinned = 1));
	for (int i = 0; i < 3; i++) {
		advance(test, 100);
		b = open_cpu(test, 2, ATTR(.config = 1));
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		check_running(test);
		KUNIT_EXPECT_EQ(test, b->expected, 0);

		advance(test, 10);
		check_running(test);
		advance(test, 10);
		close_event(b);
	}
	check_running(test);
	KUNIT_EXPECT_EQ(test, a->expected, 360 * a->rate);
}

/* One that leaves keeps what it has counted, in whatever order they go. */
static void test_leave(struct kunit *test)
{
	for (int order = 0; order < 6; order++) {
		int first = order % 3, second = (first + 1 + order / 3) % 3;
		struct dup_event *ev[3];

		for (int i = 0; i < 3; i++) {
			ev[i] = open_cpu(test, i, ATTR(.config = 1));
			advance(test, 10 + i);
		}

		perf_event_disable(ev[first]->event);
		advance(test, 5);
		check_events(test);
		close_event(ev[first]);
		advance(test, 6);
		perf_event_disable(ev[second]->event);
		advance(test, 7);
		check_events(test);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		close_event(ev[second]);
		advance(test, 8);
		check_events(test);
		close_event(ev[3 - first - second]);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
	}
}

/* The first event is handed over while it runs, and nothing of it is lost. */
static void test_hand_over(struct kunit *test)
{
	static const struct perf_event_attr attrs[] = {
		{ .config = 1 },
		{ .config = 1, .pinned = 1 },
	};

	for (int i = 0; i < 4; i++) {
		struct dup_event *a, *b;

		a = open_alone(test, 0, attrs[i & 1]);
		/* Not read on the way. */
		advance(test, 100);
		KUNIT_EXPECT_NULL(test, a->event->dup);
		b = open_cpu(test, 1, attrs[i >> 1]);
		advance(test, 10);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		check_running(test);
		KUNIT_EXPECT_EQ(test, a->expected, 110 * a->rate);
		KUNIT_EXPECT_EQ(test, b->expected, 10 * b->rate);

		close_event(a);
		advance(test, 1);
		check_running(test);
		close_event(b);
	}
}

/* The same for one that the only counter belongs to. */
static void test_hand_over_one_counter(struct kunit *test)
{
	set_counters(test, 1);
	test_hand_over(test);
}

/* The master is told where the event was, which is where x86 need not reprogram. */
static void test_hand_over_hint(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a;
	int idx;

	open_alone(test, 2, ATTR(.config = 2));
	a = open_alone(test, 0, ATTR(.config = 1));
	idx = a->event->hw.idx;
	per_cpu_ptr(t->model.cpus, t->cpu)->hint = -1;
	/* Nothing but the hand-over: events that are off cause no reschedule. */
	open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	KUNIT_EXPECT_NOT_NULL(test, a->event->dup);
	KUNIT_EXPECT_EQ(test, per_cpu_ptr(t->model.cpus, t->cpu)->hint, idx);
	advance(test, 1);
	check_events(test);
}

/*
 * One that has its own counter back is handed over with the next event, to a master
 * that runs, or that has been elsewhere. The driver is not told that it still is there.
 */
static void test_hand_over_again(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;
	struct model_cpu *cpu = per_cpu_ptr(t->model.cpus, t->cpu);

	for (int i = 0; i < 2; i++) {
		int idx;

		a = open_alone(test, 0, ATTR(.config = 1));
		t->model.refuse_master_adds = 1;
		b = open_cpu(test, 1, ATTR(.config = 1));
		advance(test, 10);
		KUNIT_ASSERT_NOT_NULL(test, b->event->dup);
		KUNIT_ASSERT_PTR_EQ(test, b->event->dup->first, a->event);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		if (i)
			event_ioctl(test, b, PERF_EVENT_IOC_DISABLE, false);

		idx = a->event->hw.idx;
		cpu->hint = -1;
		c = open_cpu(test, 2, ATTR(.config = 1, .disabled = 1));
		KUNIT_EXPECT_NULL(test, b->event->dup->first);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_EQ(test, cpu->hint, i ? idx : -1);
		if (i)
			KUNIT_EXPECT_EQ(test, cpu->hint_cpu, -1);
		advance(test, 10);
		check_events(test);
		close_event(a);
		close_event(b);
		close_event(c);
	}
}

/* Events that are off, enabled in whatever order, share as others do. */
static void test_hand_over_disabled(struct kunit *test)
{
	for (int i = 0; i < 3; i++) {
		struct dup_event *a, *b, *c;

		a = open_alone(test, 0, ATTR(.config = 1, .disabled = 1));
		b = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
		KUNIT_EXPECT_TRUE(test, linked(a, b));
		KUNIT_EXPECT_EQ(test, used(test), 0);
		advance(test, 1);

		perf_event_enable((i ? a : b)->event);
		advance(test, 2);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		if (i == 2) {
			perf_event_disable(a->event);
			KUNIT_EXPECT_EQ(test, used(test), 0);
			advance(test, 3);
		}
		perf_event_enable((i ? b : a)->event);
		advance(test, 4);
		c = open_cpu(test, 2, ATTR(.config = 1));
		advance(test, 5);
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		check_events(test);

		close_event(a);
		close_event(b);
		close_event(c);
	}
}

static void master_life(struct kunit *test, bool alone)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	t->model.refuse_masters = alone;
	a = open_cpu(test, 0, ATTR(.config = 1));
	t->model.refuse_masters = false;
	KUNIT_EXPECT_EQ(test, masters(test), !alone);
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, masters(test), 1);
	c = open_cpu(test, 2, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, masters(test), 1);

	close_event(a);
	close_event(c);
	advance(test, 1);
	KUNIT_EXPECT_EQ(test, masters(test), 1);
	KUNIT_EXPECT_NOT_NULL(test, b->event->dup);
	a = open_cpu(test, 0, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	KUNIT_EXPECT_EQ(test, masters(test), 1);
	check_running(test);

	close_event(b);
	close_event(a);
	KUNIT_EXPECT_EQ(test, masters(test), 0);
	KUNIT_EXPECT_EQ(test, used(test), 0);
}

/*
 * A master comes with the first event of a CPU, or with the second one if it was
 * refused to the first, and goes with the last one.
 */
static void test_master_life(struct kunit *test)
{
	master_life(test, false);
	master_life(test, true);
}

/* An event is disabled and enabled at will, others do not notice. */
static void test_disable_enable(struct kunit *test)
{
	struct dup_event *a, *b, *c;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	c = open_cpu(test, 2, ATTR(.config = 1));
	for (int i = 0; i < 4; i++) {
		unsigned int add = calls(test, CALL_ADD), del = calls(test, CALL_DEL);

		advance(test, 10);
		perf_event_disable(a->event);
		/* The driver does not notice either. */
		KUNIT_EXPECT_EQ(test, calls(test, CALL_ADD), add);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_DEL), del);
		advance(test, 10);
		check_events(test);

		perf_event_disable(b->event);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_DEL), del);
		advance(test, 10);
		perf_event_disable(c->event);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_DEL), del + 1);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		advance(test, 10);
		check_events(test);

		perf_event_enable(b->event);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_ADD), add + 1);
		advance(test, 10);
		perf_event_enable(a->event);
		perf_event_enable(c->event);
		KUNIT_EXPECT_EQ(test, used(test), 1);
	}
	advance(test, 1);
	check_events(test);
	KUNIT_EXPECT_EQ(test, calls(test, CALL_START), 0);
	KUNIT_EXPECT_EQ(test, calls(test, CALL_STOP), 0);
}

/* A read of an event is one read of its counter, however many share it. */
static void test_read_calls(struct kunit *test)
{
	struct dup_test *t = test->priv;
	unsigned int nr = 0;

	for (int i = 0; i < NR_OPENERS; i++)
		open_cpu(test, i, ATTR(.config = 1));

	/* Without those of the model's NMIs. */
	advance(test, 1);
	for (int i = 0; i < 3; i++) {
		unsigned int read = calls(test, CALL_READ);

		check_running(test);
		for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev))
			nr++;
		KUNIT_EXPECT_EQ(test, calls(test, CALL_READ) - read, nr);
		advance(test, 1);
		nr = 0;
	}
}

static void count_on(struct model *m)
{
	dup_test_advance(container_of(m, struct dup_test, model), 5);
}

static void count_on_and_interrupt(struct model *m)
{
	count_on(m);
	model_interrupt(m, this_cpu_ptr(m->cpus));
}

static void count_on_and_read(struct model *m)
{
	count_on(m);
	dup_test_nmi(m);
}

/* Of one event more, beside @nr of as many openers. */
static void cost_beside(struct kunit *test, int nr, struct cost *open, struct cost *close)
{
	unsigned int before[NR_CALLS], between[NR_CALLS], after[NR_CALLS];
	struct dup_event *ev[MAX_OPENERS];
	struct dup_test *t = test->priv;

	for (int i = 0; i < nr; i++)
		ev[i] = open_plain(test, i, t->cpu);
	advance(test, 1);

	get_calls(test, before);
	ev[nr] = open_plain(test, nr, t->cpu);
	get_calls(test, between);
	close_event(ev[nr]);
	get_calls(test, after);
	for (int i = 0; i < NR_CALLS; i++) {
		open->calls[i] = between[i] - before[i];
		close->calls[i] = after[i] - between[i];
	}

	advance(test, 1);
	check_running(test);
	for (int i = 0; i < nr; i++)
		close_event(ev[i]);
}

/*
 * It does not depend on how many share the counter already. This fails as long as an
 * event that finds its master running makes the others be scheduled anew.
 */
static void test_open_close_cost(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	struct cost open[2] = {}, close[2] = {};

	cost_beside(test, 2, &open[0], &close[0]);
	cost_beside(test, MAX_OPENERS - 2, &open[1], &close[1]);

	for (int i = 0; i < NR_CALLS; i++) {
		/* The model's NMIs read all events. */
		if (i == CALL_READ && type->nmi)
			continue;
		KUNIT_EXPECT_EQ_MSG(test, open[0].calls[i], open[1].calls[i], "open: call %d", i);
		KUNIT_EXPECT_EQ_MSG(test, close[0].calls[i], close[1].calls[i], "close: call %d",
				    i);
	}
}

/* What is counted while an event is read is not lost, nor is it counted twice. */
static void test_read_while_counting(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;
	u64 enabled, running;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_TRUE(test, shares(a, b));

	for (int i = 0; i < 8; i++) {
		void (*fn)(struct model *m) = i & 1 ? count_on_and_read : count_on;

		advance(test, 10);
		t->model.after_read = fn;
		perf_event_read_value((i & 2 ? a : b)->event, &enabled, &running);
		KUNIT_EXPECT_NULL(test, t->model.after_read);
		if (i & 4)
			advance(test, 1);
		check_running(test);
	}
}

#ifdef CONFIG_KPROBES
#define NMI_POINTS	512

/* One NMI, when the test's CPU gets to the instruction at @addr. */
static struct nmi_point {
	struct dup_test	*t;
	unsigned long	addr;
	/* What nmi_place::fn is about. */
	struct dup_event *ev[3];
	/* Events that are ACTIVE count on meanwhile. */
	bool		counts;
	/* The first one can not be read without something to count with. */
	bool		home;
	int		nr;
} nmi_point;

static int nmi_probe(struct kprobe *kp, struct pt_regs *regs)
{
	struct dup_test *t = nmi_point.t;
	struct model_cpu *c;

	if ((unsigned long)kp->addr != READ_ONCE(nmi_point.addr) || smp_processor_id() != t->cpu)
		return 0;

	/* Not for what happens from here. */
	WRITE_ONCE(nmi_point.addr, 0);
	nmi_point.nr++;

	c = this_cpu_ptr(t->model.cpus);
	if (nmi_point.home && READ_ONCE(nmi_point.ev[0]->event->oncpu) == t->cpu &&
	    !READ_ONCE(nmi_point.ev[0]->event->dup))
		model_broken(&t->model, "an event that can be read has nothing to count with");
	dup_test_nmi(&t->model);
	model_interrupt(&t->model, c);
	if (nmi_point.counts && !c->disabled)
		count_on(&t->model);
	dup_test_nmi(&t->model);

	return 0;
}
NOKPROBE_SYMBOL(nmi_probe);

/*
 * A probe with that is not made a jump, for which the kernel first waits until each
 * task has slept: the test's one is busy.
 */
static void nmi_probe_done(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(nmi_probe_done);

/*
 * Is @insn from LR to SC? riscv can be probed there, and then the SC never
 * succeeds. Other architectures refuse it, or have no such sequences.
 */
static bool nmi_in_sequence(kprobe_opcode_t insn, bool *inside)
{
#ifdef CONFIG_RISCV
	bool was = *inside;

	if ((insn & 0xf800007f) == 0x1000002f)
		*inside = true;
	else if ((insn & 0xf800007f) == 0x1800002f)
		*inside = false;

	return was || *inside;
#else
	return false;
#endif
}

/* Where it can come: not in the middle of an instruction, or of an atomic sequence. */
static int nmi_points(unsigned long addr, unsigned long size, struct kprobe *points,
		      struct kprobe **list)
{
	bool inside = false;
	int nr = 0;

	for (unsigned long off = 0; off < size && nr < NMI_POINTS; off++) {
		points[nr] = (struct kprobe) {
			.addr = (void *)(addr + off),
			.pre_handler = nmi_probe,
			.post_handler = nmi_probe_done,
		};
		if (register_kprobe(&points[nr]))
			continue;
		if (nmi_in_sequence(points[nr].opcode, &inside)) {
			unregister_kprobe(&points[nr]);
			continue;
		}
		list[nr] = &points[nr];
		nr++;
	}

	return nr;
}

/* An event is read, and the counter counts on meanwhile. */
static void nmi_in_read(struct kunit *test, unsigned long addr)
{
	advance(test, 10);
	WRITE_ONCE(nmi_point.addr, addr);
	/* Before or after the NMI: both are right. */
	count_of(nmi_point.ev[1]);
	WRITE_ONCE(nmi_point.addr, 0);
	check_events(test);
}

/* Events come and go, and are throttled. */
static void nmi_in_others(struct kunit *test, unsigned long addr)
{
	struct dup_event *leader = nmi_point.ev[0], *ev = nmi_point.ev[2];

	advance(test, 10);
	WRITE_ONCE(nmi_point.addr, addr);
	event_ioctl(test, ev, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 3);
	event_ioctl(test, leader, PERF_EVENT_IOC_DISABLE, false);
	advance(test, 4);
	event_ioctl(test, leader, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 5);
	event_ioctl(test, ev, PERF_EVENT_IOC_DISABLE, false);
	advance(test, 6);
	WRITE_ONCE(nmi_point.addr, 0);
	check_events(test);
}

static void nmi_in_throttle(struct kunit *test, unsigned long addr)
{
	struct dup_event *leader = nmi_point.ev[0];

	advance(test, 10);
	WRITE_ONCE(nmi_point.addr, addr);
	throttle(test, leader);
	advance(test, 3);
	unthrottle(test, leader);
	WRITE_ONCE(nmi_point.addr, 0);
	advance(test, 4);
	check_events(test);
}

static void nmi_in_user_page(struct kunit *test, unsigned long addr)
{
	struct dup_event *ev = nmi_point.ev[1];

	advance(test, 10);
	WRITE_ONCE(nmi_point.addr, addr);
	smp_call_function_single(ev->event->cpu, user_page_fn, ev->event, 1);
	WRITE_ONCE(nmi_point.addr, 0);
	advance(test, 3);
	KUNIT_EXPECT_TRUE(test, has_counter(ev));
	check_events(test);
}

/* The CPU switches from one cgroup to another. */
static void nmi_in_switch(struct kunit *test, unsigned long addr)
{
	move_task(test, 0);
	advance(test, 10);
	WRITE_ONCE(nmi_point.addr, addr);
	move_task(test, 2);
	WRITE_ONCE(nmi_point.addr, 0);
	advance(test, 3);
	check_events(test);
}

/* And the counter counts on: for one of them or, if the NMI has read one that goes, for none. */
static void nmi_in_counting_switch(struct kunit *test, unsigned long addr)
{
	u64 before[3], after[3], counted;

	move_task(test, 0);
	for (int i = 0; i < 3; i++)
		before[i] = count_of(nmi_point.ev[i]);
	WRITE_ONCE(nmi_point.addr, addr);
	move_task(test, 2);
	WRITE_ONCE(nmi_point.addr, 0);
	for (int i = 0; i < 3; i++)
		after[i] = count_of(nmi_point.ev[i]) - before[i];
	believe_counts(test);

	counted = after[0] + after[1];
	KUNIT_EXPECT_LE(test, counted, after[2]);
	if (counted)
		KUNIT_EXPECT_EQ(test, counted, 5 * nmi_point.ev[0]->rate);
}

/* A function, and how it is run through. */
struct nmi_place {
	const char	*function;
	void		(*fn)(struct kunit *test, unsigned long addr);
	/* Only at each so many instructions, since it is slow while all are probed. */
	int		step;
	/* Events that are ACTIVE count on meanwhile. */
	bool		counts;
	/* What borrows is given back. */
	bool		home;
};

static void nmi_at_place(struct kunit *test, const struct nmi_place *place,
			 struct kprobe *points, struct kprobe **list)
{
	unsigned long addr = kallsyms_lookup_name(place->function), size, off;
	struct dup_test *t = test->priv;
	int nr, asked = 0;

	KUNIT_ASSERT_TRUE(test, kallsyms_lookup_size_offset(addr, &size, &off));
	nr = nmi_points(addr, size, points, list);
	nmi_point.nr = 0;
	nmi_point.counts = place->counts;
	nmi_point.home = place->home;
	/* Others with the other model. */
	for (int i = t->model.type->late ? place->step / 2 : 0; i < nr; i += place->step) {
		asked++;
		place->fn(test, (unsigned long)points[i].addr);
		if (t->model.nr_broken || READ_ONCE(test->status) == KUNIT_FAILURE) {
			kunit_err(test, "%pS", points[i].addr);
			break;
		}
	}
	unregister_kprobes(list, nr);
	kunit_info(test, "%s: %d places, %d of them reached", place->function, asked, nmi_point.nr);
	/* The rest is for what is rare, and is wrong. */
	KUNIT_EXPECT_GT(test, nmi_point.nr, asked / 3);
}

static void nmi_at_places(struct kunit *test, const struct nmi_place *places, int nr)
{
	struct kprobe *points, **list;

	points = kunit_kcalloc(test, NMI_POINTS, sizeof(*points), GFP_KERNEL);
	list = kunit_kcalloc(test, NMI_POINTS, sizeof(*list), GFP_KERNEL);
	KUNIT_ASSERT_TRUE(test, points && list);
	nmi_point.t = test->priv;

	for (int i = 0; i < nr; i++)
		nmi_at_place(test, &places[i], points, list);
}

/*
 * An NMI before any single instruction of what it can interrupt: what it reads
 * is never ahead, never goes back, and all counts are exact afterwards.
 */
static void test_nmi_anywhere(struct kunit *test)
{
	static const struct nmi_place places[] = {
		{ "perf_dup_read", nmi_in_read, 1, true },
		{ "perf_dup_add", nmi_in_others, 3 },
		{ "perf_dup_del", nmi_in_others, 3 },
		{ "perf_dup_stop", nmi_in_throttle, 1 },
		{ "perf_dup_start", nmi_in_throttle, 1 },
		{ "perf_dup_user_offset", nmi_in_user_page, 1 },
	};
	struct dup_event *leader, *a, *b;

	let_user_read(test);
	leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	map_event(test, a);

	nmi_point.ev[0] = leader;
	nmi_point.ev[1] = a;
	nmi_point.ev[2] = b;
	nmi_at_places(test, places, ARRAY_SIZE(places));
}

/* The same while an event of a task counts through a counter of its CPU. */
static void test_nmi_borrow(struct kunit *test)
{
	static const struct nmi_place places[] = {
		{ "perf_dup_read", nmi_in_read, 4, true },
		{ "perf_dup_to_use", nmi_in_others, 6 },
		{ "__perf_dup_go_home", nmi_in_others, 4, .home = true },
		{ "perf_dup_add", nmi_in_others, 8 },
		{ "perf_dup_del", nmi_in_others, 8 },
	};
	struct dup_test *t = test->priv;

	nmi_point.ev[0] = open_task(test, 0, ATTR(.config = 1));
	nmi_point.ev[1] = nmi_point.ev[0];
	nmi_point.ev[2] = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	begin_busy_alone(test);
	nmi_at_places(test, places, ARRAY_SIZE(places));
	end_busy(t);
}

/* And while the CPU switches between cgroups and schedules nothing. */
static void test_nmi_switch(struct kunit *test)
{
	static const struct nmi_place places[] = {
		{ "perf_dup_switch_out", nmi_in_switch, 4 },
		{ "perf_dup_switch_in", nmi_in_switch, 4 },
		{ "perf_cgroup_switch", nmi_in_switch, 16 },
		/* No value is ahead of the clock, but it can be told only then whose it is. */
		{ "perf_dup_switch_out", nmi_in_counting_switch, 2, true },
		{ "perf_dup_switch_in", nmi_in_counting_switch, 2, true },
	};
	struct dup_test *t = test->priv;

	need_cgroups(test);
	for (int i = 0; i < 2; i++)
		nmi_point.ev[i] = open_cgroup(test, 0, 2 * i, ATTR(.config = 1));
	nmi_point.ev[2] = open_plain(test, 1, t->cpu);
	begin_busy_alone(test);
	nmi_at_places(test, places, 3);
	t->ignore_nmi_values = true;
	nmi_at_places(test, places + 3, ARRAY_SIZE(places) - 3);
	end_busy(t);
}
#else
static void test_nmi_anywhere(struct kunit *test)
{
	kunit_skip(test, "needs CONFIG_KPROBES");
}

static void test_nmi_borrow(struct kunit *test)
{
	test_nmi_anywhere(test);
}

static void test_nmi_switch(struct kunit *test)
{
	test_nmi_anywhere(test);
}
#endif

/* The count of an event is reset, others keep theirs. */
static void test_reset(struct kunit *test)
{
	struct dup_event *a, *b;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	for (int i = 0; i < 3; i++) {
		advance(test, 10);
		/* Returns what it had counted. */
		KUNIT_EXPECT_EQ(test, perf_event_pause(a->event, true), a->expected);
		a->expected = 0;
		a->seen = 0;
		advance(test, 5);
		check_events(test);
		perf_event_enable(a->event);
		advance(test, 3);
		check_events(test);
		KUNIT_EXPECT_EQ(test, a->expected, 3 * a->rate);
	}
	KUNIT_EXPECT_EQ(test, b->expected, 54 * b->rate);
}

/* The same while it runs, as PERF_EVENT_IOC_RESET does, to one or to a group. */
static void test_reset_running(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_sibling(test, 0, a, ATTR(.config = 2));
	c = open_cpu(test, 1, ATTR(.config = 1));
	d = open_cpu(test, 1, ATTR(.config = 2));
	for (int i = 0; i < 3; i++) {
		advance(test, 10);
		event_ioctl(test, c, PERF_EVENT_IOC_RESET, false);
		advance(test, 3);
		event_ioctl(test, b, PERF_EVENT_IOC_RESET, true);
		advance(test, 2);
		check_running(test);
		KUNIT_EXPECT_EQ(test, a->expected, 2 * a->rate);
		KUNIT_EXPECT_EQ(test, b->expected, 2 * b->rate);
		KUNIT_EXPECT_EQ(test, c->expected, 5 * c->rate);
		KUNIT_EXPECT_EQ(test, d->expected, 15 * (i + 1) * d->rate);
		/* It is the count that is reset, not the times. */
		KUNIT_EXPECT_EQ(test, a->running, 15 * (i + 1));
	}
}

/* A counter that wraps many times while it is shared. */
static void test_wrap(struct kunit *test)
{
	struct dup_event *a, *b;

	a = open_alone(test, 0, ATTR(.config = 1));
	for (int i = 0; i < 4; i++) {
		/* 10 per step: each wraps a counter of 16 bits. */
		advance(test, 6500);
		b = open_cpu(test, 1, ATTR(.config = 1));
		for (int j = 0; j < 8; j++)
			advance(test, 6000 + j);
		check_running(test);
		advance(test, 70000);
		close_event(i & 1 ? a : b);
		if (i & 1)
			a = b;
	}
	check_running(test);

	if (((const struct model_type *)test->param_value)->width != 32)
		return;

	b = open_cpu(test, 2, ATTR(.config = 1));
	for (int j = 0; j < 8; j++)
		advance(test, 150000000ULL + j);
	check_running(test);
}

/* Those who share it, each from a place of its own, see the counter wrap. */
static void test_wrap_many(struct kunit *test)
{
	int width = ((const struct model_type *)test->param_value)->width;
	/* A third of the counter's range, at 10 per step; a wide one does not wrap. */
	u64 third = width > 32 ? 1000 : BIT_ULL(width) / 30;
	struct dup_event *ev[NR_OPENERS];

	for (int i = 0; i < NR_OPENERS; i++) {
		ev[i] = open_cpu(test, i, ATTR(.config = 1));
		advance(test, third + i);
	}
	KUNIT_EXPECT_EQ(test, used(test), 1);

	for (int i = 0; i < 2 * NR_OPENERS; i++) {
		struct dup_event *a = ev[i % NR_OPENERS];

		/* Some are read in every turn of the counter, some are not. */
		advance(test, third + i);
		check_event(test, ev[0]);
		advance(test, third);
		event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
		advance(test, third);
		event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
		advance(test, third);
	}
	check_events(test);
	for (int i = 0; i < NR_OPENERS; i++)
		KUNIT_EXPECT_EQ(test, ev[i]->enabled - ev[i]->running, 0);
}

/* The driver finds something in the counter at any time, as its interrupt does. */
static void test_interrupts(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;
	u64 enabled, running;

	a = open_alone(test, 0, ATTR(.config = 1));
	for (int i = 0; i < 4; i++) {
		interrupt(test);
		advance(test, 10);
		interrupt(test);
		/* The master's count is ahead of what a knows, and none of it is b's. */
		b = open_cpu(test, 1, ATTR(.config = 1));
		interrupt(test);
		advance(test, 3);
		interrupt(test);
		check_running(test);
		advance(test, 4);
		interrupt(test);
		event_ioctl(test, i & 1 ? a : b, PERF_EVENT_IOC_DISABLE, false);
		interrupt(test);
		advance(test, 5);
		check_events(test);
		event_ioctl(test, i & 1 ? a : b, PERF_EVENT_IOC_ENABLE, false);
		interrupt(test);
		/* In the middle of a read. */
		advance(test, 6);
		t->model.after_read = count_on_and_interrupt;
		perf_event_read_value((i & 2 ? a : b)->event, &enabled, &running);
		KUNIT_EXPECT_NULL(test, t->model.after_read);
		check_events(test);
		close_event(b);
	}
	check_events(test);
}

/* ===== Test cases: reads ===== */

/* perf_event_read_local() of an event that runs, is stopped, off, or has no counter. */
static void test_read_local(struct kunit *test)
{
	struct dup_event *leader, *a, *b, *off, *pinned;

	leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	off = open_cpu(test, 2, ATTR(.config = 1));
	advance(test, 10);
	event_ioctl(test, off, PERF_EVENT_IOC_DISABLE, false);
	/* Such an event is read where it runs, or not at all. */
	pinned = open_cpu(test, 3, ATTR(.config = 2, .pinned = 1, .disabled = 1));
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	KUNIT_EXPECT_TRUE(test, shares(a, off));

	for (int i = 0; i < 3; i++) {
		advance(test, 10);
		check_local(test, a, 0);
		check_local(test, b, 0);
		check_local(test, off, 0);
		check_local(test, pinned, -EBUSY);

		throttle(test, leader);
		check_local(test, a, 0);
		check_local(test, b, 0);
		check_local(test, off, 0);
		unthrottle(test, leader);
		advance(test, 10);
		check_local(test, a, 0);
		check_local(test, b, 0);
	}
	KUNIT_EXPECT_EQ(test, off->ran, 10);
	check_events(test);
}

/* The same on a task, and not on others. */
static void test_read_local_task(struct kunit *test)
{
	u64 value, enabled, running;
	struct dup_event *a, *b, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	b = open_task(test, 1, ATTR(.config = 1));
	c = open_task(test, 2, ATTR(.config = 1, .disabled = 1));
	for (int i = 0; i < 3; i++) {
		advance_in_task(test, 10);
		check_local(test, a, 0);
		await_sleep(test, a);
		advance(test, 7);
		check_local(test, b, 0);
		check_local(test, c, 0);
	}
	KUNIT_EXPECT_EQ(test, a->ran, 30);
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	KUNIT_EXPECT_EQ(test, perf_event_read_local(a->event, &value, &enabled, &running),
			-EINVAL);
	check_events(test);
}

/* A group that shares some of its counters is read in one transaction of the PMU. */
static void test_read_group(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	struct dup_event *a, *b, *c, *d, *e;
	struct dup_test *t = test->priv;
	unsigned int read;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_sibling(test, 0, a, ATTR(.config = 2));
	c = open_sibling(test, 0, a, ATTR(.config = 3));
	d = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 10);
	e = open_cpu(test, 1, ATTR(.config = 3));
	KUNIT_EXPECT_TRUE(test, shares(a, d));
	KUNIT_EXPECT_TRUE(test, shares(c, e));

	for (int i = 0; i < 6; i++) {
		advance(test, 10 + i);
		/* The driver can fail at the end of it; what was read by then is kept. */
		if (type->txn && i & 1) {
			t->model.refuse_reads = 1;
			check_group(test, a, -EIO);
			KUNIT_EXPECT_EQ(test, t->model.refuse_reads, 0);
		}
		read = calls(test, CALL_READ);
		check_group(test, a, 0);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_READ) - read, i == 4 ? 2 : 3);
		advance(test, 1);
		check_running(test);
		if (i == 3)
			event_ioctl(test, b, PERF_EVENT_IOC_DISABLE, false);
		if (i == 4)
			event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
		if (i & 2)
			event_ioctl(test, d, PERF_EVENT_IOC_DISABLE, false);
		advance(test, 5);
		check_group(test, a, 0);
		event_ioctl(test, d, PERF_EVENT_IOC_ENABLE, false);
		check_events(test);
		check_group(test, a, 0);
	}

	/* Off as a whole. */
	event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, true);
	advance(test, 5);
	check_group(test, a, 0);
	event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, true);
	advance(test, 5);
	check_group(test, a, 0);
	check_events(test);
}

static long check_events_fn(void *info)
{
	check_events((struct kunit *)info);

	return 0;
}

/* It makes no difference to a read which CPU it comes from. */
static void test_read_remote(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *a, *b, *c;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	c = open_event(test, 1, ATTR(.config = 1), other, NULL, NULL);
	open_event(test, 2, ATTR(.config = 1), other, NULL, NULL);
	for (int i = 0; i < 6; i++) {
		advance(test, 10);
		advance_on(test, other, 20);
		KUNIT_EXPECT_EQ(test, work_on_cpu(i & 1 ? other : t->cpu, check_events_fn, test),
				0);
		advance(test, 3);
		advance_on(test, other, 4);
		if (i & 2)
			event_ioctl(test, i & 1 ? a : b, PERF_EVENT_IOC_DISABLE, false);
		else
			event_ioctl(test, i & 1 ? a : b, PERF_EVENT_IOC_ENABLE, false);
	}
	KUNIT_EXPECT_EQ(test, c->ran, 6 * 24);
	check_events(test);
}

/* ===== Test cases: groups, pinned events, rotation ===== */

/* Equal groups of two openers share all their members, and fit together. */
static void test_groups(struct kunit *test)
{
	struct dup_event *a[2], *b[2], *c[2];

	set_counters(test, 3);
	for (int i = 0; i < 2; i++) {
		a[i] = open_cpu(test, i, ATTR(.config = 1));
		advance(test, 1);
		b[i] = open_sibling(test, i, a[i], ATTR(.config = 2));
		advance(test, 1);
		c[i] = open_sibling(test, i, a[i], ATTR(.config = 3));
		advance(test, 1);
	}
	KUNIT_EXPECT_TRUE(test, shares(a[0], a[1]));
	KUNIT_EXPECT_TRUE(test, shares(b[0], b[1]));
	KUNIT_EXPECT_TRUE(test, shares(c[0], c[1]));
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_running(test);

	/* The leader takes its siblings with it. */
	perf_event_disable(a[0]->event);
	advance(test, 4);
	check_events(test);
	perf_event_disable(a[1]->event);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	perf_event_enable(a[0]->event);
	advance(test, 4);
	check_events(test);
	perf_event_enable(a[1]->event);
	KUNIT_EXPECT_EQ(test, used(test), 3);

	/* And a leader that is closed leaves them on their own. */
	perf_event_disable(b[1]->event);
	advance(test, 4);
	close_event(a[1]);
	advance(test, 4);
	check_events(test);
	perf_event_enable(b[1]->event);
	advance(test, 4);
	KUNIT_EXPECT_TRUE(test, shares(b[0], b[1]));
	KUNIT_EXPECT_EQ(test, used(test), 3);
	check_events(test);
}

/* A member shares with events that are in no group, or elsewhere in one. */
static void test_group_position(struct kunit *test)
{
	struct dup_event *a[2], *b[2], *c;

	a[0] = open_cpu(test, 0, ATTR(.config = 1));
	b[0] = open_sibling(test, 0, a[0], ATTR(.config = 2));
	b[1] = open_cpu(test, 1, ATTR(.config = 2));
	a[1] = open_sibling(test, 1, b[1], ATTR(.config = 1));
	c = open_cpu(test, 2, ATTR(.config = 1));
	advance(test, 3);

	KUNIT_EXPECT_TRUE(test, shares(a[0], a[1]));
	KUNIT_EXPECT_TRUE(test, shares(a[0], c));
	KUNIT_EXPECT_TRUE(test, shares(b[0], b[1]));
	KUNIT_EXPECT_EQ(test, used(test), 2);
	check_running(test);
}

/* Members of one group that are equal still have a counter each. */
static void test_group_equal_members(struct kunit *test)
{
	struct dup_event *a[2], *b[2];

	for (int i = 0; i < 2; i++) {
		a[i] = open_cpu(test, i, ATTR(.config = 1));
		b[i] = open_sibling(test, i, a[i], ATTR(.config = 1));
		advance(test, 3);
		KUNIT_EXPECT_EQ(test, used(test), 2);
	}
	KUNIT_EXPECT_TRUE(test, shares(a[0], a[1]));
	KUNIT_EXPECT_TRUE(test, shares(b[0], b[1]));
	check_running(test);

	/* With the sysctl at 2 they are a group that counts with one. */
	sysctl_perf_event_dup = 2;
	a[0] = open_cpu(test, 2, ATTR(.config = 2));
	b[0] = open_sibling(test, 2, a[0], ATTR(.config = 2));
	advance(test, 3);
	KUNIT_EXPECT_TRUE(test, shares(a[0], b[0]));
	KUNIT_EXPECT_EQ(test, used(test), 3);
	perf_event_disable(a[0]->event);
	KUNIT_EXPECT_EQ(test, used(test), 2);
	advance(test, 3);
	perf_event_enable(a[0]->event);
	advance(test, 3);
	check_events(test);
}

/* A group that does not fit leaves those alone that share with its members. */
static void test_group_does_not_fit(struct kunit *test)
{
	struct perf_event_attr pinned = ATTR(.config = 1, .pinned = 1);
	struct dup_event *a, *b, *leader;
	struct dup_test *t = test->priv;

	set_counters(test, 2);
	a = open_cpu(test, 0, pinned);
	b = open_cpu(test, 1, pinned);
	leader = open_cpu(test, 2, ATTR(.config = 1, .disabled = 1));
	for (int i = 3; i <= 4; i++)
		open_sibling(test, 2, leader, ATTR(.config = i));
	perf_event_enable(leader->event);

	for (int i = 0; i < 10; i++) {
		advance(test, 1);
		usleep_range(1000, 2000);
	}
	KUNIT_EXPECT_EQ(test, leader->ran, 0);
	KUNIT_EXPECT_EQ(test, used(test), 1);
	KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
	KUNIT_EXPECT_EQ(test, check_event(test, b), 0);
	check_events(test);

	/* The same when they can be moved. */
	open_cpu(test, 3, ATTR(.config = 1));
	open_cpu(test, 3, ATTR(.config = 2));
	for (int i = 0; i < 20; i++) {
		advance(test, 1);
		usleep_range(1000, 2000);
	}
	KUNIT_EXPECT_EQ(test, leader->ran, 0);
	check_events(test);

	/* One member less: now it fits at times. */
	close_event(a);
	close_event(b);
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (ev->event->attr.config == 3)
			close_event(ev);
	}
	for (int i = 0; i < 20; i++) {
		advance(test, 1);
		usleep_range(1000, 2000);
	}
	KUNIT_EXPECT_GT(test, leader->ran, 0);
	check_events(test);
}

/*
 * The driver refuses the last member of a group, of which one has joined a
 * counter that runs and another one has brought its own counter by then.
 */
static void test_group_add_fails(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *leader, *sibling, *last;

	/* It would try again, maybe when this looks. */
	no_rotation(test);
	a = open_cpu(test, 0, ATTR(.config = 1, .pinned = 1));
	b = open_cpu(test, 0, ATTR(.config = 2, .pinned = 1, .disabled = 1));
	leader = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	sibling = open_sibling(test, 1, leader, ATTR(.config = 2));
	last = open_sibling(test, 1, leader, ATTR(.config = 3));
	KUNIT_EXPECT_TRUE(test, linked(a, leader));
	KUNIT_EXPECT_TRUE(test, linked(b, sibling));
	advance(test, 10);

	for (int i = 0; i < 4; i++) {
		u64 ran = a->ran;

		/* With and without somebody else who has the second counter. */
		event_ioctl(test, b, i & 1 ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, false);
		t->model.refuse_config = 3;
		event_ioctl(test, leader, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, leader->event->state, PERF_EVENT_STATE_INACTIVE);
		KUNIT_EXPECT_EQ(test, used(test), 1 + (i & 1));
		KUNIT_EXPECT_EQ(test, a->ran - ran, 10);
		KUNIT_EXPECT_EQ(test, a->event->dup->nr_active, 1);
		KUNIT_EXPECT_EQ(test, b->event->dup_link->nr_active, i & 1);
		check_events(test);

		/* Alone, it is welcome. */
		t->model.refuse_config = 0;
		event_ioctl(test, leader, PERF_EVENT_IOC_DISABLE, false);
		event_ioctl(test, leader, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, last->ran, 10 * (i + 1));
		KUNIT_EXPECT_EQ(test, leader->ran, 10 * (i + 1));
		KUNIT_EXPECT_EQ(test, sibling->ran, 10 * (i + 1));
		KUNIT_EXPECT_EQ(test, used(test), 3);
		check_events(test);
		event_ioctl(test, leader, PERF_EVENT_IOC_DISABLE, false);
	}
	KUNIT_EXPECT_EQ(test, a->enabled - a->running, 0);
}

/* The ioctls on a group, through any member, in which some count with others. */
static void test_group_ioctls(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;

	a = open_cpu(test, 0, ATTR(.config = 1, .disabled = 1));
	b = open_sibling(test, 0, a, ATTR(.config = 2, .disabled = 1));
	c = open_cpu(test, 1, ATTR(.config = 2));
	for (int i = 0; i < 4; i++) {
		advance(test, 10);
		event_ioctl(test, i & 1 ? a : b, PERF_EVENT_IOC_ENABLE, true);
		advance(test, 3);
		KUNIT_EXPECT_TRUE(test, shares(b, c));
		KUNIT_EXPECT_EQ(test, used(test), 2);
		check_events(test);
		/* A member that is off misses its share, and comes back. */
		event_ioctl(test, b, PERF_EVENT_IOC_DISABLE, false);
		advance(test, 4);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
		d = open_cpu(test, 2, ATTR(.config = 1));
		advance(test, 5);
		check_events(test);
		check_group(test, a, 0);
		event_ioctl(test, i & 2 ? a : b, PERF_EVENT_IOC_DISABLE, true);
		advance(test, 6);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		check_events(test);
		close_event(d);
		KUNIT_EXPECT_EQ(test, used(test), 1);
	}
	KUNIT_EXPECT_EQ(test, a->ran, 4 * 12);
	KUNIT_EXPECT_EQ(test, b->ran, 4 * 8);
	KUNIT_EXPECT_EQ(test, c->ran, 4 * 28);
}

/* Pinned events hold the counter; flexible ones come and go, with and without room. */
static void test_pinned_and_flexible(struct kunit *test)
{
	struct dup_event *pinned, *flexible, *a;
	struct dup_test *t = test->priv;

	set_counters(test, 1);
	for (int i = 0; i < 8; i++) {
		/* Which of them is first makes no difference, nor who brings the master. */
		t->model.refuse_masters = i & 4;
		if (i & 1) {
			flexible = open_cpu(test, 0, ATTR(.config = 1));
			advance(test, 3);
			t->model.refuse_masters = false;
			pinned = open_cpu(test, 1, ATTR(.config = 1, .pinned = 1));
		} else {
			pinned = open_cpu(test, 1, ATTR(.config = 1, .pinned = 1));
			advance(test, 3);
			t->model.refuse_masters = false;
			flexible = open_cpu(test, 0, ATTR(.config = 1));
		}
		advance(test, 3);
		KUNIT_EXPECT_TRUE(test, shares(pinned, flexible));
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_EQ(test, pinned->event->state, PERF_EVENT_STATE_ACTIVE);
		check_running(test);

		/* One that does not fit makes the flexible one rotate. */
		a = open_cpu(test, 2, ATTR(.config = 2));
		for (int j = 0; j < 10; j++) {
			advance(test, 1);
			usleep_range(1000, 2000);
		}
		KUNIT_EXPECT_EQ(test, a->ran, 0);
		KUNIT_EXPECT_EQ(test, pinned->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, check_event(test, pinned), 0);
		check_events(test);
		close_event(a);

		if (i & 2) {
			close_event(pinned);
			advance(test, 3);
			check_events(test);
			close_event(flexible);
		} else {
			close_event(flexible);
			advance(test, 3);
			check_running(test);
			close_event(pinned);
		}
		KUNIT_EXPECT_EQ(test, used(test), 0);
	}
}

/* More different events than counters: all have their turns, all counts are exact. */
static void test_rotation(struct kunit *test)
{
	struct dup_test *t = test->priv;

	set_counters(test, 2);
	for (int i = 0; i < 2; i++) {
		for (u64 config = 1; config <= 5; config++)
			open_cpu(test, i, ATTR(.config = config));
	}

	for (int i = 0; i < 200; i++) {
		advance(test, 1 + i % 7);
		usleep_range(500, 1000);
		if (i % 50 == 49)
			check_events(test);
	}
	check_events(test);
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev))
		KUNIT_EXPECT_GT_MSG(test, ev->ran, 0, "event %td", ev - t->events);
}

/* Many that share one counter have their turn together, not one after the other. */
static void test_rotation_by_key(struct kunit *test)
{
	struct dup_event *a, *b;
	u64 ticks = 200;

	set_counters(test, 1);
	sysctl_perf_event_dup = 2;
	a = open_cpu(test, 0, ATTR(.config = 1));
	for (int i = 0; i < 20; i++)
		open_cpu(test, 1, ATTR(.config = 1));
	b = open_cpu(test, 0, ATTR(.config = 2));

	for (int i = 0; i < ticks; i++) {
		advance(test, 1);
		usleep_range(500, 1000);
	}
	check_events(test);

	/* Half of the time each, but for how timers go. */
	KUNIT_EXPECT_GT(test, a->ran, ticks / 5);
	KUNIT_EXPECT_GT(test, b->ran, ticks / 5);
	KUNIT_EXPECT_LE(test, a->ran + b->ran, ticks);
}

/* So do groups that share the counter of a sibling, and run beside each other. */
static void test_rotation_by_sibling(struct kunit *test)
{
	struct dup_event *leader;
	u64 ticks = 200;

	set_counters(test, 9);
	sysctl_perf_event_dup = 2;
	for (u64 config = 2; config <= 9; config++) {
		leader = open_cpu(test, 0, ATTR(.config = config));
		open_sibling(test, 0, leader, ATTR(.config = 1));
	}
	/* One that needs all counters. */
	leader = open_cpu(test, 1, ATTR(.config = 10, .disabled = 1));
	for (u64 config = 11; config <= 18; config++)
		open_sibling(test, 1, leader, ATTR(.config = config));
	perf_event_enable(leader->event);

	for (int i = 0; i < ticks; i++) {
		advance(test, 1);
		usleep_range(500, 1000);
	}
	check_events(test);
	/* Half of the time, but for how timers go. */
	KUNIT_EXPECT_GT(test, leader->ran, ticks / 5);
}

/*
 * Groups that share one of their counters compete for the others: each has its
 * turn, whether it shares the counter of its leader or that of a sibling.
 */
static void test_rotation_groups(struct kunit *test)
{
	struct dup_event *ev[6];

	set_counters(test, 2);
	for (int shared = 0; shared < 2; shared++) {
		for (int i = 0; i < 3; i++) {
			ev[i] = open_cpu(test, i, ATTR(.config = shared ? 2 + i : 1));
			ev[3 + i] = open_sibling(test, i, ev[i],
						 ATTR(.config = shared ? 1 : 2 + i));
		}

		for (int i = 0; i < 100; i++) {
			advance(test, 1);
			usleep_range(500, 1000);
		}
		check_events(test);
		/* A third of the time each, but for how timers go. */
		for (int i = 0; i < 3; i++)
			KUNIT_EXPECT_GT_MSG(test, ev[i]->ran, 10, "%d: event %d", shared, i);
		for (int i = 5; i >= 0; i--)
			close_event(ev[i]);
	}
}

/*
 * What shares a counter that runs is let in on the spot. All others wait for
 * their turn behind those which wait already, and for an exclusive event.
 */
static void test_join_waits(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	no_rotation(test);
	set_counters(test, 3);
	for (int i = 0; i < 2; i++)
		open_cpu(test, i, ATTR(.config = 1, .pinned = 1));
	/* It needs three counters, and there are two. */
	a = open_cpu(test, 0, ATTR(.config = 2, .disabled = 1));
	for (int i = 0; i < 2; i++)
		open_sibling(test, 0, a, ATTR(.config = 3 + i));
	perf_event_enable(a->event);
	KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_INACTIVE);

	b = open_plain(test, 2, t->cpu);
	KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_ACTIVE);
	b = open_cpu(test, 2, ATTR(.config = 5));
	KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_INACTIVE);
	c = open_cpu(test, 3, ATTR(.config = 1, .disabled = 1));
	open_sibling(test, 3, c, ATTR(.config = 6));
	perf_event_enable(c->event);
	KUNIT_EXPECT_EQ(test, c->event->state, PERF_EVENT_STATE_INACTIVE);
	advance(test, 10);
	check_events(test);
}

static void test_join_exclusive(struct kunit *test)
{
	struct dup_event *a, *b;

	no_rotation(test);
	open_cpu(test, 0, ATTR(.config = 1, .pinned = 1));
	open_cpu(test, 1, ATTR(.config = 1, .pinned = 1));
	a = open_cpu(test, 2, ATTR(.config = 2, .exclusive = 1));
	KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
	b = open_cpu(test, 3, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_INACTIVE);
	advance(test, 10);
	check_events(test);
}

/* Nor is one let in that is not for this CPU or for the cgroup that runs, or is off. */
static void test_join_filter(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c, *runs;
	int cpu = other_cpu(test);
	unsigned long end;

	need_cgroups(test);
	move_task(test, 0);
	begin_busy(t);

	for (int i = 0; i < NR_OPENERS; i++)
		put_pid(opener_pid(test, i));
	for (int i = 0; i < 2; i++) {
		open_task(test, i, ATTR(.config = 1));
		runs = open_cgroup(test, i, 0, ATTR(.config = 2));
	}
	/* What counts when this ends is opened from another CPU. */
	end = jiffies + 10 * HZ;
	while (runs->event->state != PERF_EVENT_STATE_ACTIVE && time_before(jiffies, end))
		usleep_range(100, 200);
	a = open_event(test, 2, ATTR(.config = 1), cpu, test_task(test), NULL);
	/* Before anything makes perf schedule. */
	advance(test, 10);
	KUNIT_EXPECT_EQ(test, a->ran, 0);
	b = open_cgroup(test, 2, 2, ATTR(.config = 2));
	c = open_cgroup(test, 3, 0, ATTR(.config = 2, .disabled = 1));
	for (int i = 0; i < 20; i++) {
		advance(test, 10);
		KUNIT_EXPECT_NE(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_NE(test, b->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_LT(test, c->event->state, PERF_EVENT_STATE_INACTIVE);
	}
	perf_event_enable(c->event);
	/* The task of the test may be in the way, and the host has other things to do. */
	end = jiffies + 10 * HZ;
	while (!c->ran && time_before(jiffies, end)) {
		usleep_range(100, 200);
		advance(test, 10);
	}

	end_busy(t);
	KUNIT_EXPECT_EQ(test, a->ran, 0);
	KUNIT_EXPECT_EQ(test, b->ran, 0);
	KUNIT_EXPECT_GT(test, c->ran, 0);
}

/* ===== Test cases: groups that take no counter ===== */

/*
 * Behind a group that does not fit: what shares counters that run goes on, alone or
 * as a group. All others wait, though there is a counter that they could have.
 */
static void test_rider(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	struct dup_event *big, *waits, *part, *rider, *group;
	unsigned int before[NR_CALLS];
	struct dup_test *t = test->priv;
	struct cost cost;

	no_rotation(test);
	set_counters(test, 3);
	open_pinned(test, 0, 1);
	open_pinned(test, 0, 2);
	big = open_cpu(test, 1, ATTR(.config = 3, .disabled = 1));
	open_member(test, big, 4);
	event_ioctl(test, big, PERF_EVENT_IOC_ENABLE, false);

	waits = open_config(test, 1, 5);
	part = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	open_member(test, part, 5);
	event_ioctl(test, part, PERF_EVENT_IOC_ENABLE, false);
	group = open_plain(test, 2, t->cpu);
	open_sibling(test, 2, group, ATTR(.type = PERF_TYPE_SOFTWARE,
					  .config = PERF_COUNT_SW_DUMMY));
	open_member(test, group, 2);
	rider = open_plain(test, 3, t->cpu);

	for (int i = 0; i < 3; i++) {
		/* It does not share, and so makes all flexible ones be scheduled anew. */
		get_calls(test, before);
		close_event(open_config(test, 0, 6));
		get_cost(test, before, &cost);

		/* Only the members of the first group are tried. */
		check_cost(test, &cost, 2, type->txn ? 2 : 1, 1);
		KUNIT_EXPECT_EQ(test, big->event->state, PERF_EVENT_STATE_INACTIVE);
		KUNIT_EXPECT_EQ(test, waits->event->state, PERF_EVENT_STATE_INACTIVE);
		KUNIT_EXPECT_EQ(test, part->event->state, PERF_EVENT_STATE_INACTIVE);
		KUNIT_EXPECT_EQ(test, group->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, rider->event->state, PERF_EVENT_STATE_ACTIVE);
		advance(test, 10);
		check_events(test);
	}
	KUNIT_EXPECT_EQ(test, check_event(test, rider), 0);
	KUNIT_EXPECT_EQ(test, used(test), 2);
}

/* An exclusive group keeps it away, as it does all others. */
static void test_rider_exclusive(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	no_rotation(test);
	open_pinned(test, 0, 1);
	a = open_cpu(test, 2, ATTR(.config = 2, .exclusive = 1));
	b = open_plain(test, 3, t->cpu);
	for (int i = 0; i < 3; i++) {
		close_event(open_config(test, 0, 6));
		KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_INACTIVE);
		advance(test, 10);
		check_events(test);
	}
	close_event(a);
	rotate(test);
	KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_ACTIVE);
}

/* What shares a pinned event's counter runs all the time, whoever else never fits. */
static void test_rider_never_starves(struct kunit *test)
{
	struct dup_event *big, *rider;
	struct dup_test *t = test->priv;

	set_counters(test, 2);
	open_pinned(test, 0, 1);
	big = open_cpu(test, 1, ATTR(.config = 2, .disabled = 1));
	open_member(test, big, 3);
	event_ioctl(test, big, PERF_EVENT_IOC_ENABLE, false);
	rider = open_plain(test, 2, t->cpu);

	no_rotation(test);
	for (int i = 0; i < 10; i++) {
		advance(test, 10);
		rotate(test);
		KUNIT_EXPECT_EQ(test, check_event(test, rider), 0);
	}
	KUNIT_EXPECT_EQ(test, big->ran, 0);
	check_events(test);
}

/*
 * What a pinned event holds is passed over when somebody's turn ends. While nothing
 * else runs, the first that waits is put behind the others, which fit perhaps.
 */
static void test_rotation_held(struct kunit *test)
{
	struct dup_event *big, *fits, *rider;
	struct dup_test *t = test->priv;

	no_rotation(test);
	set_counters(test, 2);
	open_pinned(test, 0, 1);
	big = open_cpu(test, 1, ATTR(.config = 2, .disabled = 1));
	open_member(test, big, 3);
	event_ioctl(test, big, PERF_EVENT_IOC_ENABLE, false);
	fits = open_config(test, 1, 4);
	rider = open_plain(test, 2, t->cpu);

	/* Ahead of fits: big, big and rider by turns, or it runs itself. */
	for (int i = 0; i < 9; i++) {
		KUNIT_EXPECT_EQ_MSG(test, fits->event->state == PERF_EVENT_STATE_ACTIVE,
				    i % 3 == 1, "%d", i);
		KUNIT_EXPECT_EQ(test, rider->event->state, PERF_EVENT_STATE_ACTIVE);
		advance(test, 10);
		rotate(test);
	}
	KUNIT_EXPECT_EQ(test, fits->ran, 30);
	KUNIT_EXPECT_EQ(test, check_event(test, rider), 0);
	check_events(test);

	/* Two that need the other counter have it by turns, though rider is on as well. */
	close_event(big);
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (ev->event->attr.config == 3)
			big = ev;
	}
	fits->ran = 0;
	big->ran = 0;
	for (int i = 0; i < 8; i++) {
		rotate(test);
		advance(test, 10);
	}
	KUNIT_EXPECT_EQ(test, fits->ran, 40);
	KUNIT_EXPECT_EQ(test, big->ran, 40);
	check_events(test);
}

/* The siblings that a pinned leader leaves behind hold their counters no more. */
static void test_rotation_unpinned(struct kunit *test)
{
	struct dup_event *leader, *a, *b, *rider;

	no_rotation(test);
	set_counters(test, 2);
	leader = open_pinned(test, 0, 1);
	a = open_sibling(test, 0, leader, ATTR(.config = 2));
	rider = open_config(test, 1, 2);
	advance(test, 10);
	KUNIT_EXPECT_EQ(test, a->event->dup->nr_pinned, 1);

	close_event(leader);
	KUNIT_EXPECT_EQ(test, a->event->dup->nr_pinned, 0);
	open_config(test, 2, 3);
	b = open_config(test, 2, 4);
	for (int i = 0; i < 6; i++) {
		advance(test, 10);
		rotate(test);
	}
	KUNIT_EXPECT_GT(test, b->ran, 0);
	KUNIT_EXPECT_LT(test, a->ran, 70);
	KUNIT_EXPECT_EQ(test, rider->ran, a->ran);
	check_events(test);
}

/* ===== Test cases: counters that stay on the PMU while events change places ===== */

/* Cgroups that count the same: the counters go on when the CPU switches. */
static void switch_equal_sets(struct kunit *test, bool full)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev[2];
	struct cost cost;

	for (int i = 0; i < 2; i++) {
		ev[i] = open_cgroup(test, 0, 2 * i, ATTR(.config = 1, .pinned = i));
		open_sibling(test, 0, ev[i], ATTR(.config = 2));
		if (full)
			open_software(test, 2 * i);
	}

	begin_busy_alone(test);
	for (int i = 0; i < 6; i++) {
		int to = i & 1 ? 0 : 2;

		switch_cgroup(test, 2 - to, to, &cost);
		check_cost(test, &cost, 0, 0, full);
		if (!full)
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_READ], 2);
		advance(test, 10);
	}
	end_busy(t);
	check_running(test);
	KUNIT_EXPECT_GT(test, ev[0]->ran, 0);
	KUNIT_EXPECT_GT(test, ev[1]->ran, 0);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	close_events(test);
}

static void test_switch_equal_sets(struct kunit *test)
{
	need_cgroups(test);
	switch_equal_sets(test, false);
	switch_equal_sets(test, true);
}

/* What does not fit beside them has their counters, at once. */
static void test_idle_makes_room(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	struct dup_test *t = test->priv;
	struct dup_event *ev[2];
	struct cost cost;

	need_cgroups(test);
	set_counters(test, 2);
	for (int i = 0; i < 2; i++) {
		ev[i] = open_cgroup(test, 0, 2 * i, ATTR(.config = 2 * i + 1));
		open_sibling(test, 0, ev[i], ATTR(.config = 2 * i + 2));
	}

	begin_busy_alone(test);
	for (int i = 0; i < 4; i++) {
		int to = i & 1 ? 0 : 2;

		switch_cgroup(test, 2 - to, to, &cost);
		/* The first try finds out with the leader, or with the whole group. */
		if (type->txn)
			check_cost(test, &cost, 2 + 2, 2 + 2, 1);
		else
			check_cost(test, &cost, 1 + 2, 2, 1);
		advance(test, 10);
	}
	end_busy(t);
	check_running(test);
	KUNIT_EXPECT_GT(test, ev[0]->ran, 0);
	KUNIT_EXPECT_GT(test, ev[1]->ran, 0);
}

/*
 * A group that joins a counter which nobody uses, brings another one, and then does
 * not fit. The driver looks at what is deleted in its transaction.
 */
static void test_idle_and_group_fails(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *last;
	struct cost cost;

	need_cgroups(test);
	no_rotation(test);
	/* Perf updates that of a cgroup in which nothing runs on the CPU that reads. */
	t->ignore_cgroup_enabled = true;
	a = open_cgroup(test, 0, 0, ATTR(.config = 1));
	open_cgroup(test, 0, 0, ATTR(.config = 5));
	b = open_cgroup(test, 0, 2, ATTR(.config = 4, .disabled = 1));
	open_sibling(test, 0, b, ATTR(.config = 1));
	last = open_sibling(test, 0, b, ATTR(.config = 3));
	event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);

	begin_busy_alone(test);
	for (int i = 0; i < 4; i++) {
		t->model.refuse_config = i & 1 ? 0 : 3;
		switch_cgroup(test, 0, 2, &cost);
		if (i & 1)
			check_cost(test, &cost, 2, 1, 1);
		else
			check_cost(test, &cost, 2 + 3, 1 + 2 + 2, 1);
		KUNIT_EXPECT_EQ(test, used(test), i & 1 ? 3 : 0);
		advance(test, 10);
		check_events(test);
		move_task(test, 0);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
		check_events(test);
	}
	end_busy(t);
	KUNIT_EXPECT_GT(test, last->ran, 0);
	KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
}

/* An exclusive group finds the PMU empty when it is added. */
static void test_idle_and_exclusive(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct model_cpu *c = per_cpu_ptr(t->model.cpus, t->cpu);
	struct dup_event *ev;
	struct cost cost;

	need_cgroups(test);
	open_cgroup(test, 0, 0, ATTR(.config = 1));
	open_cgroup(test, 0, 0, ATTR(.config = 2));
	ev = open_cgroup(test, 0, 2, ATTR(.config = 3, .exclusive = 1));

	begin_busy_alone(test);
	for (int i = 0; i < 3; i++) {
		c->beside_exclusive = -1;
		switch_cgroup(test, 0, 2, &cost);
		check_cost(test, &cost, 1, 2, 1);
		KUNIT_EXPECT_EQ(test, c->beside_exclusive, 0);
		advance(test, 10);
		switch_cgroup(test, 2, 0, &cost);
		check_cost(test, &cost, 2, 1, 1);
		advance(test, 10);
	}
	end_busy(t);
	check_running(test);
	KUNIT_EXPECT_GT(test, ev->ran, 0);
}

/* One more event, which makes all others be scheduled anew: only it is added. */
static void test_idle_resched(struct kunit *test)
{
	unsigned int before[NR_CALLS];
	struct dup_event *ev;
	struct cost cost;

	open_cpu(test, 0, ATTR(.config = 1));
	ev = open_cpu(test, 0, ATTR(.config = 2, .pinned = 1));
	open_sibling(test, 0, ev, ATTR(.config = 3));
	for (int i = 0; i < 2; i++) {
		get_calls(test, before);
		ev = open_cpu(test, 0, ATTR(.config = 4, .pinned = i));
		get_cost(test, before, &cost);
		check_cost(test, &cost, 1, 0, 1);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, used(test), 4);
		check_running(test);
		close_event(ev);
	}
}

/* With each rotation one counter changes hands; what has its turn again keeps its own. */
static void test_idle_rotation(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	unsigned int before[NR_CALLS];
	struct dup_event *ev[3];
	struct cost cost;

	no_rotation(test);
	set_counters(test, 2);
	for (int i = 0; i < 3; i++)
		ev[i] = open_cpu(test, 0, ATTR(.config = 1 + i));

	for (int i = 0; i < 6; i++) {
		advance(test, 10);
		get_calls(test, before);
		rotate(test);
		get_cost(test, before, &cost);
		/* Two do not fit, of which one has room made for it. */
		check_cost(test, &cost, 3, type->txn ? 3 : 1, 1);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		check_events(test);
	}
	for (int i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, ev[i]->ran, 40);
}

/* ===== Test cases: switches between cgroups that schedule nothing ===== */

/*
 * Beside what the CPU counts, for cgroups that are nested or not: no switch touches
 * the PMU but for one read of each counter. Scheduled or not, the counts are the same.
 */
static void switch_beside_cpu(struct kunit *test, bool full)
{
	static const int route[] = { NO_CGROUP, 0, 2, 1, 0, 1, NO_CGROUP, 1, 2, NO_CGROUP };
	struct dup_test *t = test->priv;
	struct dup_event *ev;
	struct cost cost;

	for (int i = 0; i < 2; i++)
		open_cpu(test, i, ATTR(.config = 1 + i, .pinned = i));
	for (int i = 0; i < NR_CGROUPS; i++) {
		ev = open_cgroup(test, 2, i, ATTR(.config = 1, .pinned = i == 1));
		open_sibling(test, 2, ev, ATTR(.config = 2));
		open_cgroup(test, 3, i, ATTR(.config = 1));
		if (full)
			open_software(test, i);
	}

	begin_busy_alone(test);
	for (int i = 1; i < ARRAY_SIZE(route); i++) {
		switch_cgroup(test, route[i - 1], route[i], &cost);
		check_cost(test, &cost, 0, 0, full);
		if (!full)
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_READ], 2);
		advance(test, 10 + i);
		if (i & 1)
			check_running(test);
	}
	end_busy(t);
	check_running(test);
	KUNIT_EXPECT_EQ(test, used(test), 2);
	close_events(test);
}

static void test_switch_beside_cpu(struct kunit *test)
{
	need_cgroups(test);
	switch_beside_cpu(test, false);
	switch_beside_cpu(test, true);
}

/* Where the sets differ: what nobody needs is deleted, what does not run is added. */
static void test_switch_different_sets(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;
	struct cost cost;

	need_cgroups(test);
	a = open_cgroup(test, 0, 0, ATTR(.config = 1));
	open_sibling(test, 0, a, ATTR(.config = 2));
	b = open_cgroup(test, 0, 2, ATTR(.config = 1));

	begin_busy_alone(test);
	for (int i = 0; i < 3; i++) {
		/* Scheduled: the PMU is enabled once, for all of them. */
		switch_cgroup(test, NO_CGROUP, 0, &cost);
		check_cost(test, &cost, 2, 0, 1);
		advance(test, 10);
		/* Not scheduled: only for what is deleted. */
		switch_cgroup(test, 0, 2, &cost);
		check_cost(test, &cost, 0, 1, 1);
		if (!type->nmi)
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_READ], 2);
		advance(test, 10);
		switch_cgroup(test, 2, 0, &cost);
		check_cost(test, &cost, 1, 0, 1);
		advance(test, 10);
		switch_cgroup(test, 0, NO_CGROUP, &cost);
		check_cost(test, &cost, 0, 2, 2);
		if (!type->nmi)
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_READ], 2);
		advance(test, 10);
	}
	end_busy(t);
	check_running(test);
	KUNIT_EXPECT_GT(test, a->ran, 0);
	KUNIT_EXPECT_GT(test, b->ran, 0);
}

/* Some of a group is off, or all of it: that is left so, and all else goes on. */
static void test_switch_some_off(struct kunit *test)
{
	struct dup_event *leader[2], *sibling[2];
	struct dup_test *t = test->priv;
	struct cost cost;

	need_cgroups(test);
	open_cpu(test, 0, ATTR(.config = 1));
	open_cpu(test, 0, ATTR(.config = 2));
	for (int i = 0; i < 2; i++) {
		leader[i] = open_cgroup(test, 1, 2 * i, ATTR(.config = 1));
		sibling[i] = open_sibling(test, 1, leader[i], ATTR(.config = 2));
	}

	begin_busy_alone(test);
	for (int i = 0; i < 8; i++) {
		struct dup_event *off = i & 1 ? leader[i / 2 & 1] : sibling[i / 2 & 1];

		event_ioctl(test, off, PERF_EVENT_IOC_DISABLE, false);
		switch_cgroup(test, 0, 2, &cost);
		check_cost(test, &cost, 0, 0, 0);
		advance(test, 10);
		check_events(test);
		switch_cgroup(test, 2, 0, &cost);
		check_cost(test, &cost, 0, 0, 0);
		advance(test, 10);
		check_events(test);
		event_ioctl(test, off, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
	}
	end_busy(t);
	check_events(test);
	KUNIT_EXPECT_EQ(test, used(test), 2);
}

/* An event of the whole CPU that comes and goes with its leader keeps the time of the CPU. */
static void test_switch_sibling_of_cpu(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *leader;
	struct cost cost;

	need_cgroups(test);
	t->siblings_of_cpu = true;
	open_cpu(test, 0, ATTR(.config = 1));
	open_cpu(test, 0, ATTR(.config = 2));
	for (int i = 0; i < 2; i++) {
		leader = open_cgroup(test, 1 + i, 2 * i, ATTR(.config = 1));
		open_sibling(test, 1 + i, leader, ATTR(.config = 2));
	}

	begin_busy_alone(test);
	for (int i = 0; i < 6; i++) {
		int to = i & 1 ? 0 : 2;

		advance(test, 10);
		switch_cgroup(test, 2 - to, to, &cost);
		check_cost(test, &cost, 0, 0, 0);
		check_events(test);
	}
	advance(test, 10);
	end_busy(t);
	check_events(test);
	KUNIT_EXPECT_EQ(test, used(test), 2);
}

/* A switch that disables the only event of a cgroup leaves the PMU enabled. */
static void test_switch_disables_last(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *last, *own;
	struct cost cost;
	bool first;

	need_cgroups(test);
	set_counters(test, 1);
	own = open_pinned(test, 0, 1);
	last = open_cgroup(test, 1, 2, ATTR(.config = 2, .pinned = 1));

	begin_busy_alone(test);
	for (int i = 0; i < 4; i++) {
		int to = i & 1 ? 0 : 2;

		advance(test, 10);
		first = switch_cgroup(test, 2 - to, to, &cost);
		KUNIT_EXPECT_EQ(test, READ_ONCE(last->event->state), PERF_EVENT_STATE_ERROR);
		/* Once it is gone no switch looks at events any more. */
		KUNIT_EXPECT_EQ(test, cost.calls[CALL_ENABLE], !i && first);
	}
	advance(test, 10);
	end_busy(t);
	KUNIT_EXPECT_EQ(test, check_event(test, own), 0);
	KUNIT_EXPECT_GT(test, own->ran, 0);
	KUNIT_EXPECT_EQ(test, last->ran, 0);
}

/* A user page, or a group that waits, and the events are scheduled. */
static void test_switch_in_doubt(struct kunit *test)
{
	struct dup_event *ev[2], *page, *waits;
	struct dup_test *t = test->priv;
	struct cost cost;
	bool first;

	need_cgroups(test);
	let_user_read(test);
	no_rotation(test);
	set_counters(test, 1);
	open_cpu(test, 0, ATTR(.config = 1));
	for (int i = 0; i < 2; i++)
		ev[i] = open_cgroup(test, 1, 2 * i, ATTR(.config = 1));

	begin_busy_alone(test);
	switch_cgroup(test, 0, 2, &cost);
	check_cost(test, &cost, 0, 0, 0);
	page = open_cgroup(test, 2, 2, ATTR(.config = 1));
	map_event(test, page);
	for (int i = 0; i < 4; i++) {
		int to = i & 1 ? 0 : 2;

		switch_cgroup(test, 2 - to, to, &cost);
		check_cost(test, &cost, 0, 0, 1);
		advance(test, 10);
		check_running(test);
	}
	close_event(page);

	/* In one of them, or of the CPU: only that of the one that comes is in doubt. */
	for (int i = 0; i < 4; i++) {
		move_task(test, 0);
		if (i & 1)
			waits = open_cpu(test, 2, ATTR(.config = 2));
		else
			waits = open_cgroup(test, 2, i & 2, ATTR(.config = 2));
		/* A second time it is known that it has to wait. */
		first = switch_cgroup(test, 0, 2, &cost);
		KUNIT_EXPECT_EQ(test, cost.calls[CALL_ENABLE], i == 2 && first);
		advance(test, 10);
		check_events(test);
		switch_cgroup(test, 2, 0, &cost);
		check_cost(test, &cost, 0, 0, 0);
		advance(test, 10);
		check_events(test);
		KUNIT_EXPECT_EQ(test, waits->ran, 0);
		close_event(waits);
	}
	/* And when that is gone it is as before. */
	rotate(test);
	switch_cgroup(test, 0, 2, &cost);
	check_cost(test, &cost, 0, 0, 0);
	end_busy(t);
	for (int i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, check_event(test, ev[i]), 0);
}

/* Events that wait for a counter go on to wait until something changes, as by rotation. */
static void test_switch_and_wait(struct kunit *test)
{
	struct dup_event *ev[2][3], *other;
	struct dup_test *t = test->priv;
	struct cost cost;

	need_cgroups(test);
	no_rotation(test);
	set_counters(test, 2);
	/* Perf updates that of one that waits on the CPU that reads. */
	t->ignore_cgroup_enabled = true;
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 3; j++)
			ev[i][j] = open_cgroup(test, 1, 2 * i, ATTR(.config = j + 1));
	}

	begin_busy_alone(test);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 4; i++) {
			int to = i & 1 ? 0 : 2;

			switch_cgroup(test, 2 - to, to, &cost);
			check_cost(test, &cost, 0, 0, 0);
			KUNIT_EXPECT_EQ(test, used_by_busy(test), 2);
			advance(test, 10);
			check_events(test);
		}
		/* As in both cgroups in turn. */
		move_task(test, round & 1 ? 0 : 2);
		rotate(test);
		move_task(test, 0);
	}
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 3; j++) {
			KUNIT_EXPECT_GE_MSG(test, ev[i][j]->ran, 40, "%d %d", i, j);
			KUNIT_EXPECT_LE_MSG(test, ev[i][j]->ran, 120, "%d %d", i, j);
		}
	}

	/* What only one of them counts was not refused, nor is it when it was on. */
	other = open_cgroup(test, 1, 2, ATTR(.config = 4));
	for (int i = 0; i < 6; i++) {
		for (int cgroup = 0; cgroup < 3; cgroup += 2) {
			move_task(test, cgroup);
			advance(test, 10);
			check_events(test);
			rotate(test);
		}
	}
	KUNIT_EXPECT_GT(test, other->ran, 0);
	close_event(other);
	move_task(test, 0);

	/* One counter less is asked for: the one that waited does not any more. */
	close_event(ev[0][1]);
	close_event(ev[1][1]);
	for (int i = 0; i < 4; i++) {
		int to = i & 1 ? 0 : 2;

		move_task(test, to);
		ev[to / 2][0]->ran = 0;
		ev[to / 2][2]->ran = 0;
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, ev[to / 2][0]->ran, 10);
		KUNIT_EXPECT_EQ(test, ev[to / 2][2]->ran, 10);
		check_events(test);
	}
	end_busy(t);
}

/* Returns false if other tasks ran in between, whose cgroup needs fewer counters. */
static bool switch_lets_wait(struct kunit *test)
{
	struct dup_event *wide, *a[2], *b[2];
	struct dup_test *t = test->priv;
	unsigned long breaks;
	bool alone;
	u64 ran[6];

	/* The second of the one cgroup has the counter that the CPU's waits for. */
	for (int i = 0; i < 2; i++)
		a[i] = open_cgroup(test, 1, 0, ATTR(.config = i + 1));
	for (int i = 0; i < 2; i++)
		b[i] = open_cgroup(test, 1 + i, 2, ATTR(.config = 1));
	wide = open_cpu(test, 1, ATTR(.config = 3));

	begin_busy_alone(test);
	move_task(test, 0);
	breaks = busy_breaks(test);
	for (int i = 0; i < 6; i++) {
		move_task(test, i & 1 ? 2 : 0);
		advance(test, 10);
		check_events(test);
		ran[i] = wide->ran;
	}
	alone = busy_breaks(test) == breaks;
	end_busy(t);

	for (int i = 0; alone && i < 6; i++)
		KUNIT_EXPECT_EQ_MSG(test, ran[i], (i + 1) / 2 * 10, "%d", i);
	if (alone) {
		KUNIT_EXPECT_EQ(test, a[1]->ran, 30);
		KUNIT_EXPECT_EQ(test, b[1]->ran, 30);
	}
	close_events(test);

	return alone;
}

/* Try it until the test's task had its CPU for itself, which @try says. */
#define until_alone(test, try)								\
do {											\
	int tries = 0;									\
											\
	while (!(try))									\
		KUNIT_ASSERT_LT_MSG(test, ++tries, 100, "the task is always interrupted"); \
} while (0)

/* A counter that nobody uses after the switch is for those that wait. */
static void test_switch_lets_wait(struct kunit *test)
{
	need_cgroups(test);
	no_rotation(test);
	set_counters(test, 2);
	until_alone(test, switch_lets_wait(test));
}

/*
 * Others wait, but for more counters than are left: what was not refused is tried, and
 * what has only waited behind a @group.
 */
static bool switch_tries(struct kunit *test, bool group)
{
	struct dup_test *t = test->priv;
	struct dup_event *one, *big;
	unsigned long breaks;
	int nr_used[6];
	u64 ran[6];
	bool alone;

	no_rotation(test);
	set_counters(test, 3);
	for (int i = 0; i < 4; i++)
		open_cgroup(test, 1, 2 * (i / 2), ATTR(.config = 1 + i % 2));
	one = open_cgroup(test, 1, 2, ATTR(.config = 4));
	if (group) {
		big = open_cgroup(test, 1, 0, ATTR(.config = 5, .disabled = 1));
		open_member(test, big, 6);
		open_cgroup(test, 1, 0, ATTR(.config = 4));
	} else {
		big = open_cpu(test, 1, ATTR(.config = 5, .disabled = 1));
		open_member(test, big, 6);
	}
	event_ioctl(test, big, PERF_EVENT_IOC_ENABLE, false);

	begin_busy_alone(test);
	move_task(test, 0);
	breaks = busy_breaks(test);
	for (int i = 0; i < 6; i++) {
		move_task(test, i & 1 ? 2 : 0);
		advance(test, 10);
		nr_used[i] = used_by_busy(test);
		check_events(test);
		ran[i] = one->ran;
	}
	alone = busy_breaks(test) == breaks;
	end_busy(t);

	for (int i = 0; alone && i < 6; i++) {
		KUNIT_EXPECT_EQ_MSG(test, nr_used[i], 2 + (i & 1), "%d", i);
		KUNIT_EXPECT_EQ_MSG(test, ran[i], (i + 1) / 2 * 10, "%d", i);
	}
	if (alone)
		KUNIT_EXPECT_EQ(test, big->ran, 0);
	close_events(test);

	return alone;
}

static void test_switch_tries(struct kunit *test)
{
	struct dup_test *t = test->priv;

	need_cgroups(test);
	/* Perf updates that of one that waits on the CPU that reads. */
	t->ignore_cgroup_enabled = true;
	for (int group = 0; group < 2; group++)
		until_alone(test, switch_tries(test, group));
}

/* What stays, and waits, has the counter that somebody gives up. */
static void test_switch_after_disable(struct kunit *test)
{
	struct dup_event *has, *waits;
	struct dup_test *t = test->priv;

	need_cgroups(test);
	no_rotation(test);
	set_counters(test, 2);
	for (int i = 0; i < 2; i++)
		open_cgroup(test, 1, 2 * i, ATTR(.config = 1));
	has = open_cpu(test, 1, ATTR(.config = 5));
	waits = open_cpu(test, 1, ATTR(.config = 6));

	begin_busy_alone(test);
	for (int i = 0; i < 4; i++) {
		move_task(test, i & 1 ? 0 : 2);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, waits->ran, 0);
	}
	event_ioctl(test, has, PERF_EVENT_IOC_DISABLE, false);
	move_task(test, 2);
	advance(test, 10);
	KUNIT_EXPECT_EQ(test, waits->ran, 10);
	check_events(test);
	end_busy(t);
}

/* What stays has its turns like what comes and goes. */
static void test_switch_and_rotate(struct kunit *test)
{
	struct dup_event *wide, *ev[2][2];
	struct dup_test *t = test->priv;

	need_cgroups(test);
	no_rotation(test);
	set_counters(test, 2);
	/* As above */
	t->ignore_cgroup_enabled = true;
	wide = open_cpu(test, 1, ATTR(.config = 1));
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			ev[i][j] = open_cgroup(test, 1, 2 * i, ATTR(.config = j + 2));
	}

	begin_busy_alone(test);
	for (int i = 0; i < 12; i++) {
		move_task(test, i & 1 ? 0 : 2);
		advance(test, 10);
		check_events(test);
		rotate(test);
	}
	end_busy(t);
	/* Three have two counters by turns, two of them in one cgroup only. */
	KUNIT_EXPECT_GE(test, wide->ran, 70);
	KUNIT_EXPECT_LE(test, wide->ran, 90);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			KUNIT_EXPECT_GE_MSG(test, ev[i][j]->ran, 20, "%d %d", i, j);
	}
}

/* A group that is throttled goes with its sibling, which does not count, and comes back. */
static void test_switch_throttled(struct kunit *test)
{
	struct dup_event *leader, *sibling, *other;
	struct dup_test *t = test->priv;
	struct cost cost;

	need_cgroups(test);
	open_config(test, 0, 1);
	leader = open_cgroup(test, 1, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	sibling = open_member(test, leader, 1);
	other = open_cgroup(test, 1, 2, ATTR(.config = 1));

	begin_busy_alone(test);
	for (int i = 0; i < 3; i++) {
		switch_cgroup(test, 2, 0, &cost);
		check_cost(test, &cost, 1, 0, 1);
		advance(test, 10);
		busy_breaks(test);
		try_throttle(test, leader);
		move_task(test, 2);
		/* The next tick disables and enables the PMU, which is not to be counted. */
		msleep(jiffies_to_msecs(3));
		advance(test, 10);
		check_running(test);
		switch_cgroup(test, 0, 2, &cost);
		check_cost(test, &cost, 0, 1, 1);
		advance(test, 10);
		check_running(test);
	}
	end_busy(t);
	KUNIT_EXPECT_LT(test, sibling->ran, sibling->running);
	KUNIT_EXPECT_GT(test, other->ran, 0);
	KUNIT_EXPECT_EQ(test, used(test), 1);
}

/* The counter goes on in the middle of a switch: that is counted once, for who comes. */
static void test_switch_while_counting(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *cpu, *ev[2];

	need_cgroups(test);
	cpu = open_cpu(test, 0, ATTR(.config = 1));
	for (int i = 0; i < 2; i++)
		ev[i] = open_cgroup(test, 1, 2 * i, ATTR(.config = 1));
	/* Others come between the two as well, and those can not be told apart. */
	t->model.nmi = NULL;

	begin_busy_alone(test);
	for (int i = 0, done = 0; done < 6; i++) {
		struct dup_event *from = ev[done & 1], *to = ev[!(done & 1)];
		u64 before[3], after[3];
		unsigned long breaks;

		KUNIT_ASSERT_LT(test, i, 1000);
		move_task(test, from->cgroup);
		breaks = busy_breaks(test);
		before[0] = count_of(cpu);
		before[1] = count_of(from);
		before[2] = count_of(to);
		t->model.after_read = done & 2 ? count_on : count_on_and_interrupt;
		move_task(test, to->cgroup);
		after[0] = count_of(cpu);
		after[1] = count_of(from);
		after[2] = count_of(to);
		believe_counts(test);
		if (busy_breaks(test) != breaks)
			continue;

		KUNIT_EXPECT_NULL(test, t->model.after_read);
		KUNIT_EXPECT_EQ(test, after[0] - before[0], 5 * cpu->rate);
		/* The driver may have found it before the one that goes was given its share. */
		KUNIT_EXPECT_EQ(test, after[1] - before[1], done & 2 ? 0 : 5 * cpu->rate);
		KUNIT_EXPECT_EQ(test, after[2] - before[2], done & 2 ? 5 * cpu->rate : 0);
		done++;
	}
	end_busy(t);
	advance(test, 10);
	check_events(test);
}

/* ===== Test cases: counters that user space reads ===== */

/*
 * A page leads to the count of its event wherever the counter is by then, and
 * only while the event counts. The clock looks at each page when it advances.
 */
static void test_user_page(struct kunit *test)
{
	struct dup_event *leader, *a, *b, *c;

	let_user_read(test);
	leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	map_event(test, a);
	map_event(test, b);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	KUNIT_EXPECT_TRUE(test, has_counter(b));

	/* It wraps, if it has few bits, and then moves, if events do. */
	advance(test, 20000);
	c = open_cpu(test, 0, ATTR(.config = 2));
	advance(test, 10);
	close_event(c);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	KUNIT_EXPECT_TRUE(test, has_counter(b));

	throttle(test, leader);
	unthrottle(test, leader);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	KUNIT_EXPECT_TRUE(test, has_counter(b));

	event_ioctl(test, b, PERF_EVENT_IOC_DISABLE, false);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	KUNIT_EXPECT_FALSE(test, has_counter(b));
	event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(b));
	check_running(test);
}

/* Both the event and the master have to be for user space, and the page the event's. */
static void test_user_page_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	let_user_read(test);
	for (int i = 0; i < 2; i++) {
		t->model.master_flags = i ? 0 : PERF_EVENT_FLAG_USER_READ_CNT;
		t->model.user_flags = PERF_EVENT_FLAG_USER_READ_CNT;
		a = open_cpu(test, 0, ATTR(.config = 1));
		b = open_cpu(test, 1, ATTR(.config = 1));
		t->model.user_flags = 0;
		c = open_cpu(test, 2, ATTR(.config = 1));
		map_event(test, a);
		map_event(test, c);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, has_counter(a), !i);
		KUNIT_EXPECT_FALSE(test, has_counter(c));

		/* What is written to another event's buffer. */
		give_buffer(test, b);
		KUNIT_EXPECT_EQ(test, b->event->rb->user_page->index, 0);
		advance(test, 10);
		check_running(test);
		close_event(a);
		close_event(b);
		close_event(c);
	}
}

/* The event was handed over and has come back to its own counter. */
static void test_user_page_hand_over_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a;

	let_user_read(test);
	a = open_alone(test, 0, ATTR(.config = 1));
	map_event(test, a);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));

	t->model.refuse_master_adds = 1;
	open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	KUNIT_EXPECT_NULL(test, a->event->dup);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	check_events(test);
}

static int reset_fn(void *info)
{
	return perf_event_kunit_ioctl(info, PERF_EVENT_IOC_RESET, 0);
}

/* Only the CPU of an event knows what its page has to say. */
static void test_user_page_remote(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;
	int cpu = other_cpu(test);

	let_user_read(test);
	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	map_event(test, a);
	map_event(test, b);
	advance(test, 10);

	/* It went to another CPU before this one was asked. */
	KUNIT_ASSERT_EQ(test, smp_call_function_single(cpu, user_page_fn, a->event, 1), 0);
	KUNIT_EXPECT_FALSE(test, has_counter(a));
	KUNIT_EXPECT_TRUE(test, has_counter(b));

	WRITE_ONCE(t->resetting, true);
	KUNIT_ASSERT_EQ(test, smp_call_on_cpu(cpu, reset_fn, a->event, false), 0);
	forget_counts(test, a, false);
	WRITE_ONCE(t->resetting, false);
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, has_counter(a));
	KUNIT_EXPECT_TRUE(test, has_counter(b));
	check_running(test);
}

/* ===== Test cases: what can fail ===== */

/* A driver that obeys a sysctl may make something else of the master. */
static void test_master_differs(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (int i = 0; i < 2; i++) {
		struct dup_event *a, *b;

		t->model.master_config = i ? 0 : 1;
		t->model.master_flags = i ? PERF_EVENT_FLAG_NO_SHARE : 0;
		a = open_cpu(test, 0, ATTR(.config = 1));
		b = open_cpu(test, 1, ATTR(.config = 1));
		advance(test, 10);
		KUNIT_EXPECT_FALSE(test, shares(a, b));
		KUNIT_EXPECT_EQ(test, masters(test), 0);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		check_running(test);
		close_event(a);
		close_event(b);
	}
}

/* Without a master an event has its own counter, as it had before. */
static void test_master_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c, *d;

	t->model.refuse_masters = true;
	a = open_cpu(test, 0, ATTR(.config = 1));
	advance(test, 1);
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_FALSE(test, shares(a, b));
	KUNIT_EXPECT_EQ(test, used(test), 2);
	check_running(test);
	c = open_cpu(test, 2, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	KUNIT_EXPECT_EQ(test, masters(test), 0);
	check_running(test);

	/* The next one gets it, and shares with the first. */
	t->model.refuse_masters = false;
	d = open_cpu(test, 3, ATTR(.config = 1));
	advance(test, 1);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	KUNIT_EXPECT_TRUE(test, shares(d, a));
	KUNIT_EXPECT_FALSE(test, shares(d, b));
	KUNIT_EXPECT_EQ(test, masters(test), 1);
	check_running(test);

	/* Those who went without leave without, in whatever order. */
	close_event(b);
	close_event(a);
	advance(test, 1);
	close_event(c);
	advance(test, 1);
	check_running(test);
	KUNIT_EXPECT_EQ(test, used(test), 1);
}

/*
 * The driver can refuse the master when the first event is handed over, and
 * the event as well when it comes back. Nothing is lost then but time, and
 * all run again once the driver is content.
 */
static void test_hand_over_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (int refuse = 0; refuse < 16; refuse++) {
		struct dup_event *a, *b, *c;

		a = open_alone(test, 0, ATTR(.config = 1, .pinned = refuse >> 3));
		c = open_alone(test, 2, ATTR(.config = 2));
		advance(test, 100);

		t->model.refuse_master_adds = 1 + (refuse & 3);
		t->model.refuse_user_adds = (refuse >> 2) & 1;
		b = open_cpu(test, 1, ATTR(.config = 1));
		advance(test, 10);
		check_events(test);
		t->model.refuse_master_adds = 0;
		t->model.refuse_user_adds = 0;
		/* With its own counter back it has not missed anything. */
		if (!(refuse & 7) || (refuse & 12) == 8)
			KUNIT_EXPECT_EQ_MSG(test, a->ran, 110, "%d", refuse);

		/* A pinned one may be in error state, which its user has to leave. */
		perf_event_disable(a->event);
		perf_event_enable(a->event);
		perf_event_disable(c->event);
		perf_event_enable(c->event);
		perf_event_disable(b->event);
		perf_event_enable(b->event);
		advance(test, 10);
		KUNIT_EXPECT_EQ_MSG(test, a->event->state, PERF_EVENT_STATE_ACTIVE, "%d", refuse);
		KUNIT_EXPECT_EQ_MSG(test, b->event->state, PERF_EVENT_STATE_ACTIVE, "%d", refuse);
		KUNIT_EXPECT_EQ_MSG(test, c->event->state, PERF_EVENT_STATE_ACTIVE, "%d", refuse);
		check_events(test);

		/* And that it once went back to its own counter is forgotten with it. */
		close_event(a);
		KUNIT_ASSERT_NOT_NULL(test, b->event->dup);
		KUNIT_EXPECT_NULL(test, b->event->dup->first);
		a = open_cpu(test, 3, ATTR(.config = 1));
		advance(test, 10);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		check_events(test);

		close_event(a);
		close_event(b);
		close_event(c);
	}
}

/* The time for which the event did run until then is not lost either. */
static void test_hand_over_refused_time(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a;

	a = open_alone(test, 0, ATTR(.config = 1));
	advance(test, 100);

	t->model.refuse_master_adds = 1;
	t->model.refuse_user_adds = 1;
	open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	check_events(test);
	KUNIT_EXPECT_EQ(test, a->running, 100);
}

/* The same to the leader of a group, and to a sibling. */
static void test_group_hand_over_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (int refuse = 0; refuse < 8; refuse++) {
		struct dup_event *a, *b, *c;

		a = open_alone(test, 0, ATTR(.config = 1));
		b = open_alone_sibling(test, 0, a, ATTR(.config = 2));
		advance(test, 100);

		t->model.refuse_master_adds = 1 + (refuse & 1);
		t->model.refuse_user_adds = (refuse >> 1) & 1;
		c = open_cpu(test, 1, ATTR(.config = refuse & 4 ? 1 : 2));
		advance(test, 10);
		check_events(test);
		KUNIT_EXPECT_EQ(test, a->expected, b->expected / b->rate * a->rate);
		t->model.refuse_master_adds = 0;
		t->model.refuse_user_adds = 0;

		perf_event_disable(a->event);
		perf_event_enable(a->event);
		perf_event_disable(c->event);
		perf_event_enable(c->event);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, c->event->state, PERF_EVENT_STATE_ACTIVE);
		check_events(test);

		close_event(a);
		close_event(b);
		close_event(c);
	}
}

/* ===== Test cases: throttling ===== */

/*
 * When a sampling event is throttled, so are its siblings: but not the counter
 * of a sibling that others count with.
 */
static void test_throttle(struct kunit *test)
{
	struct dup_event *leader, *a, *b, *c, *d;
	unsigned int start, stop;

	leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	/* Not handed over, and one that counts through a master which nobody else has. */
	c = open_alone_sibling(test, 0, leader, ATTR(.config = 2));
	d = open_sibling(test, 0, leader, ATTR(.config = 3));
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	KUNIT_EXPECT_NULL(test, c->event->dup);
	KUNIT_EXPECT_NOT_NULL(test, d->event->dup);
	KUNIT_EXPECT_EQ(test, used(test), 4);
	advance(test, 10);

	for (int i = 0; i < 3; i++) {
		u64 ran[] = { a->ran, b->ran, c->ran, d->ran };

		start = calls(test, CALL_START);
		stop = calls(test, CALL_STOP);
		throttle(test, leader);
		unthrottle(test, leader);
		advance(test, 10);
		check_running(test);
		KUNIT_EXPECT_EQ(test, a->ran - ran[0], 13);
		KUNIT_EXPECT_EQ(test, b->ran - ran[1], 63);
		KUNIT_EXPECT_EQ(test, c->ran - ran[2], 13);
		KUNIT_EXPECT_EQ(test, d->ran - ran[3], 13);
		/* The leader and what it does not share. */
		KUNIT_EXPECT_EQ(test, calls(test, CALL_STOP) - stop, 2);
		KUNIT_EXPECT_EQ(test, calls(test, CALL_START) - start, 2);
	}
}

/* The last one that shares with a throttled sibling leaves, and comes back. */
static void test_throttle_and_leave(struct kunit *test)
{
	struct dup_event *leader, *a, *b;

	leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 10);

	throttle(test, leader);
	perf_event_disable(b->event);
	advance(test, 10);
	unthrottle(test, leader);
	advance(test, 10);
	check_events(test);

	throttle(test, leader);
	perf_event_enable(b->event);
	advance(test, 10);
	unthrottle(test, leader);
	advance(test, 10);
	check_events(test);

	/* The sibling itself goes. */
	throttle(test, leader);
	close_event(a);
	advance(test, 10);
	unthrottle(test, leader);
	advance(test, 10);
	check_events(test);

	/* Or the whole group. */
	a = open_sibling(test, 0, leader, ATTR(.config = 1));
	throttle(test, leader);
	perf_event_disable(leader->event);
	advance(test, 10);
	check_events(test);
	perf_event_enable(leader->event);
	advance(test, 10);
	check_events(test);
	KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
}

/* A sibling that is handed over while it is throttled stays so. */
static void test_throttle_and_hand_over(struct kunit *test)
{
	struct dup_event *leader, *a, *b;

	for (int i = 0; i < 8; i++) {
		leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
		a = open_alone_sibling(test, 0, leader, ATTR(.config = 1));
		advance(test, 10);
		throttle(test, leader);
		/* If it is off there is no reschedule, which would unthrottle. */
		b = open_cpu(test, 1, ATTR(.config = 1, .disabled = i & 1));
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		advance(test, 10);
		check_running(test);
		unthrottle(test, leader);
		perf_event_enable(b->event);
		advance(test, 10);
		check_running(test);
		close_event(a);
		advance(test, 10);
		check_running(test);
		close_event(b);
		close_event(leader);
	}
}

/* The same when the driver refuses the hand-over. */
static void test_throttle_and_refuse(struct kunit *test)
{
	struct dup_test *t = test->priv;

	for (int i = 0; i < 8; i++) {
		struct dup_event *leader, *a, *b;

		leader = open_cpu(test, 0, ATTR(.config = 5, .sample_period = 1ULL << 40));
		a = open_alone_sibling(test, 0, leader, ATTR(.config = 1));
		advance(test, 10);

		t->model.refuse_master_adds = 1;
		t->model.refuse_user_adds = i & 1;
		throttle(test, leader);
		b = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
		KUNIT_EXPECT_TRUE(test, linked(a, b));
		advance(test, 10);
		check_events(test);
		t->model.refuse_master_adds = 0;
		t->model.refuse_user_adds = 0;

		perf_event_enable(b->event);
		unthrottle(test, leader);
		perf_event_disable(leader->event);
		perf_event_enable(leader->event);
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, a->event->state, PERF_EVENT_STATE_ACTIVE);
		KUNIT_EXPECT_EQ(test, b->event->state, PERF_EVENT_STATE_ACTIVE);
		check_events(test);

		close_event(a);
		close_event(b);
		close_event(leader);
	}
}

/* ===== Test cases: tasks, CPUs, the end of a PMU ===== */

/* Two sessions on one task share, wherever the task is when they come and go. */
static void test_two_on_task(struct kunit *test)
{
	struct dup_event *a, *b;

	for (int i = 0; i < 4; i++) {
		a = open_task(test, 0, ATTR(.config = 1));
		advance_in_task(test, 10);
		await_sleep(test, a);
		/* Time in which the task does not run. */
		advance(test, 100);
		KUNIT_EXPECT_EQ(test, a->ran, 10);
		/* It is alone: nobody but its own task could use a master. */
		KUNIT_EXPECT_EQ(test, masters(test), 0);

		b = open_task(test, 1, ATTR(.config = 1));
		KUNIT_EXPECT_EQ(test, masters(test), 1);
		KUNIT_EXPECT_TRUE(test, linked(a, b));
		advance_in_task(test, 10);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		await_sleep(test, b);
		advance(test, 100);
		advance_in_task(test, 10);
		check_running(test);
		KUNIT_EXPECT_EQ(test, a->ran, 30);
		KUNIT_EXPECT_EQ(test, b->ran, 20);

		if (i & 1)
			perf_event_disable(a->event);
		advance_in_task(test, 10);
		await_sleep(test, b);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		check_events(test);
		close_event(a);
		advance_in_task(test, 10);
		check_running(test);
		close_event(b);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
	}
}

/* The same while the task runs. */
static void test_task_running(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	begin_busy(t);

	for (int i = 0; i < 6; i++) {
		advance(test, 10);
		b = open_task(test, 1, ATTR(.config = 1));
		advance(test, 10);
		c = open_task(test, 2, ATTR(.config = 1, .pinned = 1));
		advance(test, 10);
		KUNIT_EXPECT_TRUE(test, linked(a, b));
		KUNIT_EXPECT_TRUE(test, linked(a, c));
		check_running(test);
		close_event(a);
		advance(test, 10);
		check_running(test);
		close_event(c);
		advance(test, 10);
		check_running(test);
		close_event(b);
		a = open_task(test, 0, ATTR(.config = 1));
	}

	end_busy(t);
	check_running(test);
}

/* The target task ends; its events keep their counts and can be closed later. */
static void test_task_exit(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	a = open_task(test, 0, ATTR(.config = 1));
	b = open_task(test, 1, ATTR(.config = 1));
	advance_in_task(test, 10);
	kthread_destroy_worker(t->worker);
	t->worker = NULL;

	check_events(test);
	KUNIT_EXPECT_EQ(test, a->ran, 10);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	close_event(a);
	check_events(test);
	close_event(b);
	KUNIT_EXPECT_EQ(test, masters(test), 0);
}

/* A task that moves between CPUs takes its shared counters with it. */
static void test_task_migrates(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *a, *b;

	a = open_task(test, 0, ATTR(.config = 1));
	b = open_task(test, 1, ATTR(.config = 1));
	for (int i = 0; i < 10; i++) {
		int cpu = i & 1 ? other : t->cpu;

		KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(t->worker->task, cpumask_of(cpu)), 0);
		advance_in_task(test, 10 + i);
		advance_on(test, cpu, 3);
		KUNIT_EXPECT_TRUE(test, shares(a, b));
		check_running(test);
	}
	await_sleep(test, a);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	KUNIT_EXPECT_EQ(test, used_on(test, other), 0);
}

/* Events that move to another CPU with their PMU share there. */
static void test_pmu_migrates(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *a, *b, *c, *d;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_sibling(test, 0, a, ATTR(.config = 2));
	c = open_cpu(test, 1, ATTR(.config = 1));
	d = open_cpu(test, 1, ATTR(.config = 1));
	open_event(test, 2, ATTR(.config = 2), other, NULL, NULL);
	advance(test, 10);
	advance_on(test, other, 3);
	/*
	 * Perf puts a sibling that arrives into a context without looking at the
	 * time there, and takes it to have been on since somebody last did.
	 */
	check_events(test);

	for (int i = 0; i < 3; i++) {
		int from = i & 1 ? other : t->cpu, to = i & 1 ? t->cpu : other;

		perf_pmu_migrate_context(&t->model.pmu, from, to);
		KUNIT_EXPECT_EQ(test, used_on(test, from), 0);
		KUNIT_EXPECT_EQ(test, used_on(test, to), 3);
		KUNIT_EXPECT_TRUE(test, shares(a, c));
		KUNIT_EXPECT_FALSE(test, shares(a, d));
		advance_on(test, from, 100);
		advance_on(test, to, 10);
		check_events(test);
		KUNIT_EXPECT_EQ(test, a->ran, 10 * (i + 2));
		KUNIT_EXPECT_EQ(test, b->ran, 10 * (i + 2));
	}
}

/* Where they arrive, they share with whom is there; each opener's are counted anew. */
static void test_pmu_migrates_ordinals(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *here[2], *there[2], *a;

	here[0] = open_plain(test, 0, t->cpu);
	here[1] = open_plain(test, 0, t->cpu);
	a = open_plain(test, 1, t->cpu);
	there[0] = open_plain(test, 0, other);
	there[1] = open_plain(test, 2, other);
	advance(test, 10);
	advance_on(test, other, 3);
	KUNIT_EXPECT_EQ(test, there[0]->event->dup_link->ordinal, 0);

	perf_pmu_migrate_context(&t->model.pmu, t->cpu, other);
	advance(test, 100);
	advance_on(test, other, 10);
	check_running(test);
	/* Its opener has three of them there now, each on a counter of its own. */
	KUNIT_EXPECT_EQ(test, used_on(test, other), 3);
	KUNIT_EXPECT_FALSE(test, linked(here[0], here[1]));
	KUNIT_EXPECT_FALSE(test, linked(here[0], there[0]));
	KUNIT_EXPECT_FALSE(test, linked(here[1], there[0]));
	KUNIT_EXPECT_EQ(test, here[0]->event->dup_link->ordinal +
			here[1]->event->dup_link->ordinal, 1 + 2);
	/* And the only one of another opener is its first. */
	KUNIT_EXPECT_TRUE(test, shares(a, there[0]));
	KUNIT_EXPECT_TRUE(test, shares(a, there[1]));
	KUNIT_EXPECT_EQ(test, here[0]->ran, 20);
	KUNIT_EXPECT_EQ(test, there[0]->ran, 13);

	/* All of them back at once, and one more that joins there. */
	perf_pmu_migrate_context(&t->model.pmu, other, t->cpu);
	open_plain(test, 3, t->cpu);
	advance(test, 10);
	advance_on(test, other, 100);
	check_running(test);
	KUNIT_EXPECT_EQ(test, used(test), 3);
	KUNIT_EXPECT_EQ(test, used_on(test, other), 0);
}

/* Events of a CPU that goes away keep their counts; on its return all is as new. */
static void test_cpu_offline(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	other_cpu(test);
	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 10);

	if (remove_cpu(t->cpu))
		kunit_skip(test, "CPU %d cannot go offline", t->cpu);
	KUNIT_EXPECT_EQ(test, model_used(&t->model, t->cpu), 0);
	check_events(test);
	close_event(b);
	KUNIT_ASSERT_EQ(test, add_cpu(t->cpu), 0);

	check_events(test);
	b = open_cpu(test, 1, ATTR(.config = 1));
	advance(test, 10);
	check_events(test);
	KUNIT_EXPECT_FALSE(test, shares(a, b));
	close_event(a);
	a = open_cpu(test, 0, ATTR(.config = 1));
	advance(test, 10);
	KUNIT_EXPECT_TRUE(test, shares(a, b));
	check_running(test);
}

/*
 * A PMU that is unregistered takes its masters with it, whoever still has events
 * open, and where they run. What they have counted by then can still be read.
 */
static void test_unregister(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_sibling(test, 0, a, ATTR(.config = 2));
	for (int i = 0; i < 3; i++) {
		open_cpu(test, i, ATTR(.config = 1));
		open_task(test, i, ATTR(.config = 1));
	}
	/* Those that are alone, one that is off, one that has left its partner. */
	open_task(test, 3, ATTR(.config = 2));
	open_alone(test, 3, ATTR(.config = 3));
	event_ioctl(test, b, PERF_EVENT_IOC_DISABLE, false);
	close_event(a);
	/* In the middle of its run. */
	begin_busy(t);
	advance(test, 10);
	/* One opener has two on the CPU; what is off there has its master as well. */
	KUNIT_EXPECT_EQ(test, masters(test), 4);
	check_events(test);
	advance(test, 10);

	KUNIT_EXPECT_EQ(test, perf_pmu_unregister(&t->model.pmu), 0);
	t->unregistered = true;
	KUNIT_EXPECT_EQ(test, masters(test), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&t->model.nr_users), 0);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	advance(test, 100);
	check_events(test);

	end_busy(t);
	check_events(test);
}

/* The driver's module is held once for each event and each master, not for a dup. */
static void test_module(struct kunit *test)
{
#ifdef CONFIG_MODULE_UNLOAD
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;
	struct module *module;

	module = kunit_kzalloc(test, sizeof(*module), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, module);
	module->state = MODULE_STATE_LIVE;
	atomic_set(&module->refcnt, 1);
	t->model.pmu.module = module;

	a = open_cpu(test, 0, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 2);
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 3);
	c = open_cpu(test, 2, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 4);
	close_event(a);
	close_event(b);
	advance(test, 10);
	check_events(test);
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 2);
	close_event(c);
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1);

	/* A master that the driver refuses holds nothing. */
	t->model.refuse_masters = true;
	a = open_cpu(test, 0, ATTR(.config = 1));
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 2);
	close_event(b);
	t->model.refuse_masters = false;

	/* Unregistered while events are open: nothing of it holds the module any more. */
	b = open_cpu(test, 1, ATTR(.config = 1));
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1 + 3);
	KUNIT_EXPECT_EQ(test, perf_pmu_unregister(&t->model.pmu), 0);
	t->unregistered = true;
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1);
	close_event(a);
	close_event(b);
	KUNIT_EXPECT_EQ(test, atomic_read(&module->refcnt), 1);
#else
	kunit_skip(test, "needs CONFIG_MODULE_UNLOAD");
#endif
}

/* ===== Test cases: counters of the CPU that events of a task count with ===== */

/* One counter serves both, whoever comes first, and is not touched when the task comes or goes. */
static void test_borrow(struct kunit *test)
{
	struct dup_test *t = test->priv;
	unsigned int before[NR_CALLS];
	struct dup_event *a, *c;
	struct cost cost;

	set_counters(test, 1);
	for (int i = 0; i < 8; i++) {
		struct perf_event_attr attr = ATTR(.config = 1, .pinned = i & 1);

		if (i & 4)
			a = open_task(test, 0, attr);
		attr.pinned = !!(i & 2);
		c = open_cpu(test, 1, attr);
		attr.pinned = i & 1;
		if (!(i & 4))
			a = open_task(test, 0, attr);
		KUNIT_EXPECT_EQ(test, masters(test), 1);

		advance(test, 5);
		for (int j = 0; j < 3; j++) {
			get_calls(test, before);
			advance_in_task(test, 10);
			await_sleep(test, a);
			get_cost(test, before, &cost);
			KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_ADD], 0);
			KUNIT_EXPECT_EQ(test, cost.calls[CALL_DEL], 0);
			KUNIT_EXPECT_EQ(test, used(test), 1);
			KUNIT_EXPECT_EQ(test, c->event->dup->nr_lent, 0);
			advance(test, 7);
			check_running(test);
		}
		KUNIT_EXPECT_EQ(test, a->ran, 30);
		KUNIT_EXPECT_EQ(test, c->ran, 56);

		/* What is off is lent as well: then it is there for the task alone. */
		event_ioctl(test, c, PERF_EVENT_IOC_DISABLE, false);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		advance_in_task(test, 10);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
		check_events(test);
		KUNIT_EXPECT_EQ(test, a->ran, 40);
		close_event(c);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
		advance_in_task(test, 10);
		KUNIT_EXPECT_EQ(test, a->ran, 50);
		check_events(test);
		close_event(a);
	}
}

/* The event of the CPU comes and goes while the task runs: there is one counter all the time. */
static void test_borrow_busy(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;
	struct dup_test *t = test->priv;

	set_counters(test, 1);
	for (int i = 0; i < 4; i++) {
		a = open_task(test, 0, ATTR(.config = 1, .pinned = i & 1));
		begin_busy_alone(test);
		advance(test, 10);
		check_not_lent(test, a, 1);
		for (int j = 0; j < 2; j++) {
			c = open_cpu(test, 1, ATTR(.config = 1, .pinned = i >> 1));
			advance(test, 10);
			check_lent(test, a, c, 1);
			KUNIT_EXPECT_EQ(test, masters(test), 1 + j);

			/* It is not the last one. */
			d = open_plain(test, 2, t->cpu);
			advance(test, 10);
			close_event(c);
			advance(test, 10);
			check_lent(test, a, d, 1);
			check_running(test);
			/* The last one goes, and its counter with it. */
			close_event(d);
			KUNIT_EXPECT_EQ(test, masters(test), j);
			advance(test, 10);
			check_not_lent(test, a, 1);
			check_running(test);

			/* In the second turn there is a master to go back to. */
			if (!j)
				b = open_task(test, 3, ATTR(.config = 1));
		}
		KUNIT_EXPECT_EQ(test, a->ran, 10 + 2 * 40);
		KUNIT_EXPECT_EQ(test, b->ran, 40);
		end_busy(t);
		check_running(test);
		close_events(test);
	}
}

/* That a flexible event of the CPU comes is nothing to what is pinned there. */
static void test_borrow_beside_pinned(struct kunit *test)
{
	unsigned int before[NR_CALLS];
	struct dup_test *t = test->priv;
	struct dup_event *a, *c;
	unsigned long breaks;
	struct cost cost;

	no_rotation(test);
	for (int i = 0; i < 2; i++) {
		open_cpu(test, 0, ATTR(.config = 2, .pinned = 1, .sample_period = 1ULL << 40));
		a = open_task(test, 0, ATTR(.config = 1, .pinned = i));
		begin_busy_alone(test);
		for (int j = 0; j < 1000; j++) {
			advance(test, 10);
			breaks = busy_breaks(test);
			get_calls(test, before);
			c = open_plain(test, 1, t->cpu);
			get_cost(test, before, &cost);
			if (busy_breaks(test) == breaks)
				break;
			close_event(c);
		}
		/* The task's own counter goes, and that of the CPU comes. */
		KUNIT_EXPECT_EQ(test, cost.calls[CALL_ADD], 1);
		KUNIT_EXPECT_EQ(test, cost.calls[CALL_DEL], 1);
		advance(test, 10);
		check_lent(test, a, c, 2);
		check_running(test);
		end_busy(t);
		close_events(test);
	}
}

/* It goes with its PMU to another CPU, and the task goes on without it. */
static void test_borrow_pmu_migrates(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *a, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cpu(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	check_lent(test, a, c, 1);
	perf_pmu_migrate_context(&t->model.pmu, t->cpu, other);
	advance(test, 10);
	check_not_lent(test, a, 1);
	KUNIT_EXPECT_EQ(test, masters(test), 1);
	end_busy(t);
	await_sleep(test, a);
	advance_on(test, other, 3);
	KUNIT_EXPECT_EQ(test, c->ran, 13);
	check_events(test);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	KUNIT_EXPECT_EQ(test, used_on(test, other), 1);
}

/* A group of the task has some of its counters from the CPU; it fits, or it does not. */
static void test_borrow_group(struct kunit *test)
{
	struct dup_event *leader, *c, *d;
	struct dup_test *t = test->priv;

	c = open_cpu(test, 1, ATTR(.config = 2));
	d = open_cpu(test, 1, ATTR(.config = 3, .pinned = 1));
	leader = open_task(test, 0, ATTR(.config = 1));
	open_sibling(test, 0, leader, ATTR(.config = 2));
	open_sibling(test, 0, leader, ATTR(.config = 3));
	for (int i = 0; i < 3; i++) {
		set_counters(test, 3);
		advance_in_task(test, 10);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 3);
		await_sleep(test, leader);
		advance(test, 5);
		KUNIT_EXPECT_EQ(test, used(test), 2);
		check_events(test);
		KUNIT_EXPECT_EQ(test, leader->ran, 10 * (i + 1));

		/* Nothing of what it borrows meanwhile is kept. */
		set_counters(test, 2);
		advance_in_task(test, 10);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 2);
		KUNIT_EXPECT_EQ(test, leader->ran, 10 * (i + 1));
		KUNIT_EXPECT_EQ(test, c->event->dup->nr_lent, 0);
		KUNIT_EXPECT_EQ(test, d->event->dup->nr_lent, 0);
		KUNIT_EXPECT_EQ(test, c->event->dup->nr_active, 1);
		check_events(test);
	}
	KUNIT_EXPECT_EQ(test, check_event(test, c), 0);
	KUNIT_EXPECT_EQ(test, check_event(test, d), 0);
}

/* The counter that it would borrow does not run, and there is no room for it. */
static void test_borrow_no_room(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *c, *pinned;

	no_rotation(test);
	set_counters(test, 1);
	pinned = open_pinned(test, 0, 2);
	c = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	a = open_task(test, 0, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	KUNIT_EXPECT_EQ(test, look_at(test, a).state, PERF_EVENT_STATE_INACTIVE);
	KUNIT_EXPECT_NULL(test, look_at(test, a).dup);
	KUNIT_EXPECT_EQ(test, c->event->dup->nr_lent, 0);
	close_event(c);
	close_event(pinned);
	event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
	event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	check_not_lent(test, a, 1);
	check_events(test);
	end_busy(t);
}

/* The k-th event of an opener on the task meets the k-th of another one on the CPU. */
static void test_borrow_ordinals(struct kunit *test)
{
	struct dup_event *a[2], *c[2];
	struct dup_test *t = test->priv;

	for (int i = 0; i < 2; i++) {
		a[i] = open_task(test, 0, ATTR(.config = 1));
		c[i] = open_cpu(test, 1, ATTR(.config = 1));
	}
	begin_busy_alone(test);
	advance(test, 10);
	for (int i = 0; i < 2; i++)
		check_lent(test, a[i], c[i], 2);
	close_event(c[0]);
	advance(test, 10);
	check_not_lent(test, a[0], 2);
	check_lent(test, a[1], c[1], 2);
	/* The same opener has one on each target. */
	c[0] = open_plain(test, 0, t->cpu);
	advance(test, 10);
	check_lent(test, a[0], c[0], 2);
	check_running(test);
	end_busy(t);
}

/* Events of cgroups are events of the CPU, also while another cgroup runs. */
static void test_borrow_cgroup(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *c;

	need_cgroups(test);
	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cgroup(test, 1, 0, ATTR(.config = 1));
	for (int i = 0; i < 3; i++) {
		advance_in_cgroup(test, 0, 10);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
		advance_in_cgroup(test, 2, 20);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
		KUNIT_EXPECT_EQ(test, masters(test), 1);
		await_sleep(test, a);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		check_running(test);
	}
	KUNIT_EXPECT_EQ(test, a->ran, 90);
	KUNIT_EXPECT_EQ(test, c->ran, 30);

	/* The task changes between them while it runs. */
	begin_busy_alone(test);
	for (int i = 0; i < 6; i++) {
		move_task(test, i & 1 ? 0 : 2);
		advance(test, 10);
		check_lent(test, a, c, 1);
		check_running(test);
	}
	end_busy(t);
	check_running(test);
}

/* Where the CPU has no such event the task has its own counter. */
static void test_borrow_migrates(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int other = other_cpu(test);
	struct dup_event *a, *b, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cpu(test, 1, ATTR(.config = 1));
	b = open_event(test, 1, ATTR(.config = 2), other, NULL, NULL);
	for (int i = 0; i < 6; i++) {
		int cpu = i & 1 ? other : t->cpu;

		KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(t->worker->task, cpumask_of(cpu)), 0);
		advance_in_task(test, 10 + i);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1 + (i & 1));
		await_sleep(test, a);
		advance_on(test, cpu, 3);
		check_running(test);
	}
	KUNIT_EXPECT_EQ(test, used(test), 1);
	KUNIT_EXPECT_EQ(test, used_on(test, other), 1);
	KUNIT_EXPECT_EQ(test, a->ran, 75);
	KUNIT_EXPECT_EQ(test, c->ran, 36 + 9);
	KUNIT_EXPECT_EQ(test, b->ran, 39 + 9);
}

/* A task that can read counters itself has its own ones, from when it can. */
static void test_borrow_user_access(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cpu(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	check_lent(test, a, c, 1);

	/* By an event of it that allows this, also by one that could be let in on the spot. */
	t->model.user_flags = PERF_EVENT_FLAG_USER_READ_CNT;
	b = open_task(test, 2, ATTR(.config = 1));
	t->model.user_flags = 0;
	advance(test, 10);
	check_not_lent(test, a, 2);
	check_not_lent(test, b, 2);
	check_running(test);
	close_event(b);
	event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
	event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	check_lent(test, a, c, 1);

	/* By what the PMU says, whatever its events allow. */
	t->model.user_flags = PERF_EVENT_FLAG_USER_READ_CNT;
	b = open_task(test, 2, ATTR(.config = 2));
	t->model.user_flags = 0;
	for (int i = 0; i < 4; i++) {
		model_use_access(&t->model, i & 1);
		event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
		event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
		if (i & 1)
			check_not_lent(test, a, 3);
		else
			check_lent(test, a, c, 2);
		check_events(test);
	}
	end_busy(t);
}

/* The page of one that borrows leads nowhere: the counter is the CPU's. */
static void test_borrow_user_page(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;
	struct dup_test *t = test->priv;

	let_user_read(test);
	model_use_access(&t->model, false);
	a = open_on_both(test, 0, ATTR(.config = 1));
	b = open_on_both(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	look_at(test, a);
	map_event(test, a);
	advance(test, 10);
	KUNIT_EXPECT_GT(test, look_at(test, a).index, 0);

	for (int i = 0; i < 3; i++) {
		c = open_plain(test, 2, t->cpu);
		advance(test, 10);
		check_lent(test, a, c, 1);
		KUNIT_EXPECT_EQ(test, look_at(test, a).index, 0);
		if (!i)
			map_event(test, b);
		KUNIT_EXPECT_EQ(test, look_at(test, b).index, 0);
		/* The driver has something to tell about the counter. */
		d = open_cpu(test, 2, ATTR(.config = 2));
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, look_at(test, a).index, 0);
		close_event(d);
		close_event(c);
		advance(test, 10);
		KUNIT_EXPECT_GT(test, look_at(test, a).index, 0);
		KUNIT_EXPECT_GT(test, look_at(test, b).index, 0);
		check_running(test);
	}
	end_busy(t);
}

/* Who may read counters from mmap() on has given back what was borrowed by then. */
static void test_borrow_mapped(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c, *d;

	let_user_read(test);
	/* It maps the one that has borrowed, one that does not run, and one of the CPU. */
	for (int i = 0; i < 6; i++) {
		model_use_access(&t->model, false);
		a = open_on_both(test, 0, ATTR(.config = 1));
		c = open_plain(test, 1, t->cpu);
		/* Where it has a counter of the task to go back to, and one that is shared. */
		b = i % 2 ? open_on_both(test, 2, ATTR(.config = 1)) : NULL;
		d = open_on_both(test, 0, ATTR(.config = 2, .disabled = 1));
		begin_busy_alone(test);
		advance(test, 10);
		check_lent(test, a, c, 1);

		/* As x86's event_mapped() does, before mmap() returns. */
		t->model.user_access = true;
		map_event(test, i < 2 ? a : i < 4 ? d : c);
		if (i < 2)
			KUNIT_EXPECT_GT(test, look_at(test, a).index, 0);
		check_not_lent(test, a, 2);
		if (b)
			check_not_lent(test, b, 2);
		advance(test, 10);
		check_running(test);
		end_busy(t);
		KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
		close_events(test);
	}
}

/* A group that the driver wants alone does not borrow, from when it is known. */
static void test_borrow_unshared(struct kunit *test)
{
	struct dup_event *a, *b, *c;
	struct dup_test *t = test->priv;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cpu(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	check_lent(test, a, c, 1);

	t->model.no_share = true;
	b = open_sibling(test, 0, a, ATTR(.config = 2, .disabled = 1));
	t->model.no_share = false;
	check_not_lent(test, a, 2);
	advance(test, 10);
	event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	check_not_lent(test, b, 3);
	check_events(test);
	end_busy(t);
	KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
	KUNIT_EXPECT_EQ(test, c->event->dup->nr_lent, 0);
}

/* While the CPU's event has no master there is nothing to lend, but with the next one. */
static void test_borrow_no_master(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;
	struct dup_test *t = test->priv;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_alone(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	check_not_lent(test, a, 2);
	check_running(test);
	/* It is let in on the spot, so the task borrows when it is next scheduled in. */
	d = open_plain(test, 2, t->cpu);
	KUNIT_EXPECT_TRUE(test, shares(c, d));
	/* Both run: of the two the CPU's. */
	b = open_task(test, 3, ATTR(.config = 1));
	KUNIT_EXPECT_PTR_EQ(test, look_at(test, b).dup, d->event->dup_link);
	close_event(b);
	event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
	event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	check_lent(test, a, d, 1);
	check_running(test);
	end_busy(t);
}

/*
 * A borrower is passed over when somebody's turn ends, as the counter stays, but only
 * while the CPU's own events hold that.
 */
static void test_borrow_rotation(struct kunit *test)
{
	struct dup_event *holder, *big, *other, *rider, *fits;
	struct dup_test *t = test->priv;

	no_rotation(test);
	set_counters(test, 2);
	holder = open_plain(test, 0, t->cpu);
	big = open_task(test, 1, ATTR(.config = 2, .disabled = 1));
	other = open_sibling(test, 1, big, ATTR(.config = 3));
	event_ioctl(test, big, PERF_EVENT_IOC_ENABLE, false);
	rider = open_task(test, 2, ATTR(.config = 1));
	fits = open_task(test, 1, ATTR(.config = 4));
	begin_busy_alone(test);
	for (int i = 0; i < 9; i++) {
		rotate(test);
		advance(test, 10);
	}
	KUNIT_EXPECT_EQ(test, big->ran, 0);
	KUNIT_EXPECT_EQ(test, rider->ran, 90);
	KUNIT_EXPECT_EQ(test, fits->ran, 30);

	/* Three for two counters. */
	event_ioctl(test, holder, PERF_EVENT_IOC_DISABLE, false);
	close_event(big);
	rider->ran = 0;
	fits->ran = 0;
	other->ran = 0;
	for (int i = 0; i < 9; i++) {
		rotate(test);
		advance(test, 10);
	}
	KUNIT_EXPECT_EQ(test, rider->ran, 60);
	KUNIT_EXPECT_EQ(test, fits->ran, 60);
	KUNIT_EXPECT_EQ(test, other->ran, 60);
	check_events(test);
	end_busy(t);
}

/* Where the task's counter runs and that of the CPU does not, it takes no second one. */
static bool borrow_own_runs(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b, *c;
	struct look look[4];
	unsigned long breaks;
	bool alone;

	a = open_task(test, 0, ATTR(.config = 1, .pinned = 1));
	begin_busy_alone(test);
	breaks = busy_breaks(test);
	advance(test, 10);
	look[0] = look_at(test, a);
	/* It is off, so nobody is scheduled. */
	c = open_cpu(test, 1, ATTR(.config = 1, .disabled = 1));
	b = open_task(test, 2, ATTR(.config = 1, .disabled = 1));
	advance(test, 10);
	look[1] = look_at(test, a);
	event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	look[2] = look_at(test, a);
	look[3] = look_at(test, b);
	/* Back on its CPU after something else, the task would have borrowed. */
	alone = busy_breaks(test) == breaks;
	for (int i = 0; alone && i < ARRAY_SIZE(look); i++)
		check_look(test, &look[i], NULL, 1, i);
	check_running(test);
	event_ioctl(test, c, PERF_EVENT_IOC_ENABLE, false);
	advance(test, 10);
	check_lent(test, a, c, 1);
	check_lent(test, b, c, 1);
	check_running(test);
	end_busy(t);
	close_events(test);

	return alone;
}

static void test_borrow_own_runs(struct kunit *test)
{
	no_rotation(test);
	for (int i = 0; i < 100; i++) {
		if (borrow_own_runs(test))
			return;
	}
	KUNIT_FAIL(test, "the task is always interrupted");
}

/* The PMU goes while the task counts with a counter of the CPU. */
static void test_borrow_unregister(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *c;

	a = open_task(test, 0, ATTR(.config = 1));
	c = open_cpu(test, 1, ATTR(.config = 1));
	begin_busy_alone(test);
	advance(test, 10);
	check_lent(test, a, c, 1);
	KUNIT_EXPECT_EQ(test, perf_pmu_unregister(&t->model.pmu), 0);
	t->unregistered = true;
	KUNIT_EXPECT_EQ(test, masters(test), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&t->model.nr_users), 0);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	advance(test, 100);
	check_events(test);
	end_busy(t);
	check_events(test);
	KUNIT_EXPECT_EQ(test, a->ran, 10);
}

/* An event of the task that finds the counter of its CPU running is let in on the spot. */
static void test_borrow_join(struct kunit *test)
{
	const struct model_type *type = test->param_value;
	unsigned int before[NR_CALLS];
	struct dup_event *a, *b, *c;
	struct dup_test *t = test->priv;
	unsigned long breaks;
	struct cost cost;

	set_counters(test, 2);
	c = open_cpu(test, 0, ATTR(.config = 1));
	open_cpu(test, 1, ATTR(.config = 1));
	a = open_task(test, 1, ATTR(.config = 2));
	begin_busy_alone(test);
	for (int i = 0; i < 1000; i++) {
		advance(test, 10);
		breaks = busy_breaks(test);
		get_calls(test, before);
		b = open_task(test, 2, ATTR(.config = 1));
		get_cost(test, before, &cost);
		if (busy_breaks(test) == breaks)
			break;
		close_event(b);
	}
	check_cost(test, &cost, 0, 0, 1);
	/* The one that it joins is read, and no other. */
	if (!type->nmi)
		KUNIT_EXPECT_EQ(test, cost.calls[CALL_READ], 1);
	advance(test, 10);
	check_lent(test, b, c, 2);
	check_running(test);
	end_busy(t);
	KUNIT_EXPECT_GT(test, a->ran, 10);
}

/*
 * The first hardware event of a task, let in on the spot, gives way when the counter of
 * the CPU is needed for another turn.
 */
static void test_borrow_join_rotates(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *c[2], *b;
	unsigned long breaks;

	no_rotation(test);
	set_counters(test, 1);
	c[0] = open_plain(test, 0, t->cpu);
	c[1] = open_config(test, 0, 2);
	/* With it the context of the task is active. */
	open_task(test, 0, ATTR(.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY));
	begin_busy_alone(test);
	for (int i = 0; i < 1000; i++) {
		if (c[0]->event->state != PERF_EVENT_STATE_ACTIVE)
			rotate(test);
		KUNIT_ASSERT_EQ(test, c[0]->event->state, PERF_EVENT_STATE_ACTIVE);
		breaks = busy_breaks(test);
		b = open_task(test, 1, ATTR(.config = 1));
		advance(test, 10);
		KUNIT_EXPECT_EQ(test, b->ran, 10);
		rotate(test);
		advance(test, 10);
		if (busy_breaks(test) == breaks)
			break;
		close_event(b);
	}
	KUNIT_EXPECT_EQ(test, b->ran, 10);
	KUNIT_EXPECT_EQ(test, c[1]->event->state, PERF_EVENT_STATE_ACTIVE);
	end_busy(t);
	check_events(test);
}

/* One that was alone borrows, and is not handed over to the master that another one brings. */
static void test_borrow_and_hand_over(struct kunit *test)
{
	struct dup_event *a, *b, *c;
	struct dup_test *t = test->priv;

	for (int i = 0; i < 2; i++) {
		a = open_task(test, 0, ATTR(.config = 1));
		c = open_cpu(test, 1, ATTR(.config = 1));
		begin_busy_alone(test);
		advance(test, 10);
		check_lent(test, a, c, 1);
		/* No reschedule: it is off. */
		b = open_task(test, 2, ATTR(.config = 1, .disabled = 1));
		KUNIT_EXPECT_EQ(test, masters(test), 2);
		KUNIT_EXPECT_NULL(test, b->event->dup_link->first);
		advance(test, 10);
		check_lent(test, a, c, 1);
		if (i)
			event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
		close_event(c);
		advance(test, 10);
		check_not_lent(test, a, 1);
		KUNIT_EXPECT_PTR_EQ(test, look_at(test, a).dup, b->event->dup_link);
		if (!i)
			event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
		check_not_lent(test, b, 1);
		end_busy(t);
		KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
		check_events(test);
		close_events(test);
	}
}

/*
 * The hand-over of an event of a task that runs: it goes well, the event gets its own
 * counter back, or it has none any more.
 */
static void test_task_hand_over_refused(struct kunit *test)
{
	struct dup_test *t = test->priv;
	struct dup_event *a, *b;

	no_rotation(test);
	for (int i = 0; i < 3; i++) {
		a = open_task(test, 0, ATTR(.config = 1));
		begin_busy_alone(test);
		advance(test, 10);
		check_not_lent(test, a, 1);
		KUNIT_EXPECT_EQ(test, masters(test), 0);

		t->model.refuse_master_adds = !!i;
		t->model.refuse_user_adds = i == 2;
		b = open_task(test, 1, ATTR(.config = 1, .disabled = 1));
		KUNIT_EXPECT_EQ(test, masters(test), 1);
		/* For it may have been scheduled meanwhile, and then it is attached. */
		if (a->event->state == PERF_EVENT_STATE_ACTIVE)
			KUNIT_EXPECT_EQ(test, used(test), 1);
		advance(test, 10);
		check_events(test);
		if (i < 2)
			KUNIT_EXPECT_EQ(test, check_event(test, a), 0);
		t->model.refuse_master_adds = 0;
		t->model.refuse_user_adds = 0;

		event_ioctl(test, a, PERF_EVENT_IOC_DISABLE, false);
		event_ioctl(test, b, PERF_EVENT_IOC_ENABLE, false);
		event_ioctl(test, a, PERF_EVENT_IOC_ENABLE, false);
		advance(test, 10);
		check_not_lent(test, a, 1);
		check_not_lent(test, b, 1);
		KUNIT_EXPECT_NULL(test, b->event->dup_link->first);
		end_busy(t);
		check_events(test);
		close_events(test);
	}
}

struct child {
	struct advance		a;
	struct kthread_work	work;
	int			ret;
};

/* In a child of the test's task: what it counts is its parent's. */
static int child_fn(void *info)
{
	struct child *child = info;
	struct dup_test *t = child->a.t;

	scoped_guard(irq) {
		for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
			if (!ev->event->attr.inherit)
				continue;
			ev->expected += ev->rate * child->a.ticks;
			ev->enabled += child->a.ticks;
			ev->running += child->a.ticks;
		}
		t->used_in_task = model_used(&t->model, smp_processor_id());
		advance_fn(&child->a);
	}

	do_exit(0);
}

static void child_work_fn(struct kthread_work *work)
{
	struct child *child = container_of(work, struct child, work);
	pid_t pid;

	/* As for any kernel thread that waits for a child. */
	kernel_sigaction(SIGCHLD, SIG_DFL);
	pid = user_mode_thread(child_fn, child, SIGCHLD);
	child->ret = pid < 0 ? pid : kernel_wait(pid, NULL) != pid;
	kernel_sigaction(SIGCHLD, SIG_IGN);
}

/* Let the test's task have a child, in which the clock advances. */
static void advance_in_child(struct kunit *test, u64 ticks)
{
	struct dup_test *t = test->priv;
	struct child child = { .a = { .t = t, .ticks = ticks } };

	kthread_init_work(&child.work, child_work_fn);
	kthread_queue_work(t->worker, &child.work);
	kthread_flush_work(&child.work);
	KUNIT_EXPECT_EQ(test, child.ret, 0);
	wait_task_inactive(t->worker->task, TASK_INTERRUPTIBLE);
}

/* The children of a task borrow as well. */
static void test_borrow_inherit(struct kunit *test)
{
	struct dup_event *a, *c;
	struct dup_test *t = test->priv;

	a = open_task(test, 0, ATTR(.config = 1, .inherit = 1));
	/* Something that is not inherited: the two do not change places when they switch. */
	open_task(test, 0, ATTR(.config = 2));
	for (int i = 0; i < 3; i++) {
		advance_in_child(test, 10);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
		check_running(test);
		c = open_plain(test, 1, t->cpu);
		advance_in_child(test, 20);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 1);
		advance_in_task(test, 5);
		KUNIT_EXPECT_EQ(test, t->used_in_task, 2);
		check_running(test);
		KUNIT_EXPECT_EQ(test, c->ran, 25);
		KUNIT_EXPECT_EQ(test, a->expected, 35 * (i + 1) * a->rate);
		await_sleep(test, a);
		close_event(c);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
	}
}

/* ===== Test cases: cgroups ===== */

/* Cgroups that are watched and the CPU that they run on use one counter. */
static void test_cgroups(struct kunit *test)
{
	struct dup_event *cpu, *parent, *child, *other;

	need_cgroups(test);
	test_task(test);
	set_counters(test, 1);
	for (int i = 0; i < 2; i++) {
		cpu = open_cpu(test, 0, ATTR(.config = 1));
		parent = open_cgroup(test, i, 0, ATTR(.config = 1));
		child = open_cgroup(test, 2, 1, ATTR(.config = 1));
		other = open_cgroup(test, 3, 2, ATTR(.config = 1));
		KUNIT_EXPECT_TRUE(test, linked(parent, child));
		KUNIT_EXPECT_TRUE(test, linked(parent, other));
		/* One opener has one event on each of its targets. */
		KUNIT_EXPECT_TRUE(test, linked(parent, cpu));

		advance(test, 100);
		for (int j = 0; j < 2; j++) {
			advance_in_cgroup(test, 0, 10);
			advance_in_cgroup(test, 1, 20);
			advance_in_cgroup(test, 2, 30);
			advance_in_cgroup(test, NO_CGROUP, 40);
			check_running(test);
		}
		KUNIT_EXPECT_EQ(test, used(test), 1);
		KUNIT_EXPECT_EQ(test, cpu->ran, 300);
		KUNIT_EXPECT_EQ(test, parent->ran, 60);
		KUNIT_EXPECT_EQ(test, child->ran, 40);
		KUNIT_EXPECT_EQ(test, other->ran, 60);

		/* The counter is there for as long as one of them runs. */
		close_event(cpu);
		KUNIT_EXPECT_EQ(test, used(test), 0);
		advance_in_cgroup(test, 1, 10);
		event_ioctl(test, child, PERF_EVENT_IOC_DISABLE, false);
		advance_in_cgroup(test, 1, 10);
		advance_in_cgroup(test, 2, 10);
		close_event(parent);
		advance_in_cgroup(test, 1, 10);
		event_ioctl(test, child, PERF_EVENT_IOC_ENABLE, false);
		advance_in_cgroup(test, 1, 10);
		check_events(test);
		KUNIT_EXPECT_EQ(test, child->ran, 60);
		close_event(child);
		close_event(other);
		KUNIT_EXPECT_EQ(test, masters(test), 0);
	}
}

/* An opener has a counter for each of its equal events on one cgroup, not for each cgroup. */
static void test_cgroup_ordinals(struct kunit *test)
{
	struct dup_event *a, *b, *c, *d;

	need_cgroups(test);
	a = open_cgroup(test, 0, 0, ATTR(.config = 1));
	b = open_cgroup(test, 0, 2, ATTR(.config = 1));
	c = open_cgroup(test, 0, 0, ATTR(.config = 1));
	d = open_cgroup(test, 1, 0, ATTR(.config = 1));
	KUNIT_EXPECT_TRUE(test, linked(a, b));
	KUNIT_EXPECT_FALSE(test, linked(a, c));
	KUNIT_EXPECT_TRUE(test, linked(a, d));
	advance_in_cgroup(test, 0, 10);
	advance_in_cgroup(test, 2, 20);
	check_running(test);
	KUNIT_EXPECT_EQ(test, a->ran, 10);
	KUNIT_EXPECT_EQ(test, b->ran, 20);
	KUNIT_EXPECT_EQ(test, c->ran, 10);
	KUNIT_EXPECT_EQ(test, d->ran, 10);

	close_events(test);
	random_ordinals(test, NR_CGROUPS);
}

/* Groups, pinned events and events of a task beside those of cgroups. */
static void test_cgroup_groups(struct kunit *test)
{
	struct dup_event *a[2], *c, *pinned;

	need_cgroups(test);
	set_counters(test, 3);
	pinned = open_cpu(test, 2, ATTR(.config = 2, .pinned = 1));
	for (int i = 0; i < 2; i++) {
		a[i] = open_cgroup(test, 0, 2 * i, ATTR(.config = 1));
		open_sibling(test, 0, a[i], ATTR(.config = 2));
	}
	c = open_task(test, 3, ATTR(.config = 1));
	for (int i = 0; i < 3; i++) {
		advance_in_cgroup(test, 0, 10);
		advance_in_cgroup(test, 2, 20);
		event_ioctl(test, a[i & 1], PERF_EVENT_IOC_DISABLE, true);
		advance_in_cgroup(test, 0, 3);
		advance_in_cgroup(test, 2, 4);
		await_sleep(test, c);
		advance(test, 5);
		event_ioctl(test, a[i & 1], PERF_EVENT_IOC_ENABLE, true);
		check_running(test);
	}
	KUNIT_EXPECT_EQ(test, c->ran, 3 * 37);
	KUNIT_EXPECT_EQ(test, pinned->ran, 3 * 42);
	KUNIT_EXPECT_EQ(test, used(test), 1);
}

/* ===== Test case: random operations ===== */

/* See the top of the file. Rotation and the tick go by real time, and do not repeat. */
static unsigned int dup_test_seed;
core_param(dup_test_seed, dup_test_seed, uint, 0444);

static unsigned int dup_test_steps = 1000;
core_param(dup_test_steps, dup_test_steps, uint, 0444);

#define RANDOM_EVENTS	14

/*
 * Where a random event is opened: on the CPU, on the task, or for a cgroup. What is on
 * the task counts through the counters of what is on the CPU, now and then.
 */
static void random_target(struct kunit *test, struct rnd_state *rnd, int *cpu,
			  struct task_struct **task)
{
	struct dup_test *t = test->priv;
	u32 r = prandom_u32_state(rnd) % 10;

	*cpu = t->cpu;
	*task = NULL;
	if (r < 3) {
		*cpu = -1;
		*task = test_task(test);
	} else if (r < 6 && cgroup_mnt) {
		t->cgroup = r - 3;
	}
}

static void random_open(struct kunit *test, struct rnd_state *rnd)
{
	struct dup_test *t = test->priv;
	u32 r = prandom_u32_state(rnd);
	struct dup_event *leader = NULL, *ev;
	struct perf_event_attr attr = {
		.config = 1 + (r & 3),
		.exclude_user = (r & 0x1c) == 0,
		.disabled = (r & 0x60) == 0,
	};
	struct task_struct *task;
	int cpu;

	random_target(test, rnd, &cpu, &task);
	if ((r & 0x3000) == 0) {
		leader = random_event(t, rnd);
		/* A leader that is alive, and moves with its PMU. */
		if (leader && (leader->event->group_leader != leader->event ||
			       leader->event->attr.type == PERF_TYPE_SOFTWARE ||
			       leader->event->state <= PERF_EVENT_STATE_EXIT))
			leader = NULL;
	}
	if (leader) {
		cpu = leader->event->cpu;
		task = leader->event->hw.target;
	} else {
		/*
		 * Not for a cgroup: when the only such event of a PMU does not fit
		 * on a cgroup switch, perf_ctx_enable() takes the PMU for one that
		 * perf_ctx_disable() left alone.
		 */
		attr.pinned = (r & 0x30000) == 0 && t->cgroup == NO_CGROUP;
		if ((r & 0x1c0000) == 0)
			attr.sample_period = 1ULL << 40;
		/* Some switches between cgroups schedule all events. */
		if (t->cgroup != NO_CGROUP && (r & 0xe00000) == 0) {
			attr = ATTR(.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY);
			attr.pinned = !!(r & 1);
		}
	}

	sysctl_perf_event_dup = prandom_u32_state(rnd) % 8 ? 1 : prandom_u32_state(rnd) % 3;
	t->model.no_share = (r & 0xf000000) == 0;
	t->model.refuse_masters = prandom_u32_state(rnd) % 8 == 0;
	/* With such an event, and without model_use_access(), the task does not borrow. */
	t->model.user_flags = !task || prandom_u32_state(rnd) % 8 == 0 ?
			      PERF_EVENT_FLAG_USER_READ_CNT : 0;
	ev = open_event(test, (r >> 28) % NR_OPENERS, attr, cpu, task, leader);
	if (t->random_pages && cpu >= 0 && attr.type != PERF_TYPE_SOFTWARE &&
	    prandom_u32_state(rnd) % 4 == 0)
		map_event(test, ev);
	t->model.refuse_masters = false;
	t->model.no_share = false;
	t->cgroup = NO_CGROUP;
}

/* All that is on the CPU goes to another one, as for a PMU that serves many CPUs. */
static void random_migrate(struct kunit *test)
{
	struct dup_test *t = test->priv;
	int to = cpumask_any_but(cpu_online_mask, t->cpu);

	if (to >= nr_cpu_ids)
		return;

	/* Those stay, and so the time goes on there, as in test_pmu_migrates(). */
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (ev->event->attr.type == PERF_TYPE_SOFTWARE)
			close_event(ev);
	}

	perf_pmu_migrate_context(&t->model.pmu, t->cpu, to);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(test_task(test), cpumask_of(to)), 0);
	t->cpu = to;
}

/* The CPU goes away and comes back, without the events that were there. */
static void random_hotplug(struct kunit *test)
{
	struct dup_test *t = test->priv;

	/* It closes each leader, see close_event(). */
	check_events(test);
	if (num_online_cpus() < 2 || remove_cpu(t->cpu))
		return;

	check_events(test);
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		if (!(ev->event->attach_state & PERF_ATTACH_TASK))
			close_event(ev);
	}
	KUNIT_ASSERT_EQ(test, add_cpu(t->cpu), 0);
	/* It did not help that the task may only run there. */
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(test_task(test), cpumask_of(t->cpu)), 0);
}

/* Something that is done to one event, or to its group. */
static void random_control(struct kunit *test, struct rnd_state *rnd, struct dup_event *ev)
{
	u32 r = prandom_u32_state(rnd);
	bool group = (r & 0x700) == 0;

	switch (r % 16) {
	case 0 ... 3:
		close_event(ev);
		break;
	case 4 ... 5:
		event_ioctl(test, ev, PERF_EVENT_IOC_DISABLE, group);
		break;
	case 6 ... 8:
		event_ioctl(test, ev, PERF_EVENT_IOC_ENABLE, group);
		break;
	case 9:
		event_ioctl(test, ev, PERF_EVENT_IOC_RESET, group);
		break;
	case 10:
		KUNIT_EXPECT_EQ(test, perf_event_pause(ev->event, true), ev->expected);
		ev->expected = 0;
		ev->seen = 0;
		break;
	case 11 ... 12:
		if (is_sampling_event(ev->event))
			try_throttle(test, ev);
		break;
	case 13:
		if (ev->event->attr.pinned || ev->event->state < PERF_EVENT_STATE_OFF)
			break;
		check_local(test, ev, 0);
		break;
	case 14 ... 15:
		if (ev->event->group_leader == ev->event)
			check_group(test, ev, 0);
		break;
	}
}

static void random_step(struct kunit *test, struct rnd_state *rnd)
{
	struct dup_test *t = test->priv;
	struct dup_event *ev;
	u32 r, nr = 0;

	for (ev = next_event(t, NULL); ev; ev = next_event(t, ev))
		nr++;

	r = prandom_u32_state(rnd);
	switch (r % 16) {
	case 0 ... 3:
		if (nr < RANDOM_EVENTS)
			random_open(test, rnd);
		break;
	case 4 ... 9:
		ev = random_event(t, rnd);
		if (ev)
			random_control(test, rnd, ev);
		break;
	case 10:
		t->model.refuse_master_adds = prandom_u32_state(rnd) % 3;
		t->model.refuse_user_adds = prandom_u32_state(rnd) % 3;
		break;
	case 11:
		t->model.refuse_config = prandom_u32_state(rnd) % 8;
		t->model.user_access = prandom_u32_state(rnd) % 4 == 0;
		break;
	case 12:
		advance_in_task(test, 1 + prandom_u32_state(rnd) % 100);
		break;
	case 13:
		if (cgroup_mnt)
			advance_in_cgroup(test, (int)(prandom_u32_state(rnd) % 4) - 1,
					  1 + prandom_u32_state(rnd) % 100);
		break;
	case 14:
		if ((r & 0x1f0) == 0)
			random_hotplug(test);
		else if ((r & 0x30) == 0)
			random_migrate(test);
		else
			interrupt(test);
		break;
	case 15:
		/* Time to rotate. */
		usleep_range(500, 1500);
		break;
	}
}

/* With room for all and a driver that is content, each event that is on runs. */
static void random_end(struct kunit *test)
{
	struct dup_test *t = test->priv;

	t->model.refuse_master_adds = 0;
	t->model.refuse_user_adds = 0;
	t->model.refuse_config = 0;
	set_counters(test, MODEL_COUNTERS);

	/* A pinned event makes all of them be scheduled anew. */
	open_cpu(test, 0, ATTR(.config = 9, .pinned = 1));
	for (struct dup_event *ev = next_event(t, NULL); ev; ev = next_event(t, ev)) {
		struct perf_event *event = ev->event;

		if (event->cpu < 0 || ev->cgroup != NO_CGROUP ||
		    event->state < PERF_EVENT_STATE_INACTIVE ||
		    event->group_leader->state < PERF_EVENT_STATE_INACTIVE)
			continue;
		KUNIT_EXPECT_EQ_MSG(test, event->state, PERF_EVENT_STATE_ACTIVE, "event %td",
				    ev - t->events);
	}
	advance(test, 10);
	check_events(test);

	close_events(test);
	KUNIT_EXPECT_EQ(test, used(test), 0);
	KUNIT_EXPECT_EQ(test, masters(test), 0);
}

/* Random operations in any order: every count is exact all the time. */
static void test_random(struct kunit *test)
{
	struct dup_test *t = test->priv;
	u32 seed = dup_test_seed ?: get_random_u32();
	struct rnd_state rnd;

	need_cgroups(test);
	let_user_read(test);
	t->ignore_cgroup_enabled = true;
	kunit_info(test, "dup_test_seed=%u", seed);
	prandom_seed_state(&rnd, seed);
	test_task(test);

	for (int round = 0; round < 5; round++) {
		/* By turns, for these schedule all events when the cgroup changes. */
		t->random_pages = round & 1;
		if (round == 3)
			model_use_access(&t->model, false);
		set_counters(test, 2 + prandom_u32_state(&rnd) % 4);
		for (int i = 0; i < dup_test_steps / 5; i++) {
			random_step(test, &rnd);
			advance(test, 1 + prandom_u32_state(&rnd) % 100);
			if (prandom_u32_state(&rnd) % 8 == 0)
				check_events(test);
			if (t->model.nr_broken || READ_ONCE(test->status) == KUNIT_FAILURE) {
				kunit_err(test, "round %d, step %d", round, i);
				return;
			}
		}
		check_events(test);
		random_end(test);
	}
}

static struct kunit_case dup_test_cases[] = {
	KUNIT_CASE_PARAM(test_two_openers, model_gen_params),
	KUNIT_CASE_PARAM(test_many_events, model_gen_params),
	KUNIT_CASE_PARAM(test_different_events, model_gen_params),
	KUNIT_CASE_PARAM(test_different_pairs, model_gen_params),
	KUNIT_CASE_PARAM(test_equal_events, model_gen_params),
	KUNIT_CASE_PARAM(test_never_shared, model_gen_params),
	KUNIT_CASE_PARAM(test_opt_in, model_gen_params),
	KUNIT_CASE_PARAM(test_kernel_counter, model_gen_params),
	KUNIT_CASE_PARAM(test_sibling_excludes_leader, model_gen_params),
	KUNIT_CASE_PARAM(test_sibling_off_excludes_leader, model_gen_params),
	KUNIT_CASE_PARAM(test_ordinals, model_gen_params),
	KUNIT_CASE_PARAM(test_ordinal_gaps, model_gen_params),
	KUNIT_CASE_PARAM(test_opener_counts_counters, model_gen_params),
	KUNIT_CASE_PARAM(test_ordinal_per_target, model_gen_params),
	KUNIT_CASE_PARAM(test_sysctl, model_gen_params),
	KUNIT_CASE_PARAM(test_join_running, model_gen_params),
	KUNIT_CASE_PARAM(test_leave, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_one_counter, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_hint, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_again, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_disabled, model_gen_params),
	KUNIT_CASE_PARAM(test_master_life, model_gen_params),
	KUNIT_CASE_PARAM(test_disable_enable, model_gen_params),
	KUNIT_CASE_PARAM(test_read_calls, model_gen_params),
	KUNIT_CASE_PARAM(test_open_close_cost, model_gen_params),
	KUNIT_CASE_PARAM(test_read_while_counting, model_gen_params),
	KUNIT_CASE_PARAM(test_nmi_anywhere, few_models_gen_params),
	KUNIT_CASE_PARAM(test_nmi_borrow, few_models_gen_params),
	KUNIT_CASE_PARAM(test_nmi_switch, few_models_gen_params),
	KUNIT_CASE_PARAM(test_reset, model_gen_params),
	KUNIT_CASE_PARAM(test_reset_running, model_gen_params),
	KUNIT_CASE_PARAM(test_wrap, model_gen_params),
	KUNIT_CASE_PARAM(test_wrap_many, model_gen_params),
	KUNIT_CASE_PARAM(test_interrupts, model_gen_params),
	KUNIT_CASE_PARAM(test_read_local, model_gen_params),
	KUNIT_CASE_PARAM(test_read_local_task, model_gen_params),
	KUNIT_CASE_PARAM(test_read_group, model_gen_params),
	KUNIT_CASE_PARAM(test_read_remote, model_gen_params),
	KUNIT_CASE_PARAM(test_groups, model_gen_params),
	KUNIT_CASE_PARAM(test_group_position, model_gen_params),
	KUNIT_CASE_PARAM(test_group_equal_members, model_gen_params),
	KUNIT_CASE_PARAM(test_group_does_not_fit, model_gen_params),
	KUNIT_CASE_PARAM(test_group_add_fails, model_gen_params),
	KUNIT_CASE_PARAM(test_group_ioctls, model_gen_params),
	KUNIT_CASE_PARAM(test_pinned_and_flexible, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation_by_key, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation_by_sibling, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation_groups, model_gen_params),
	KUNIT_CASE_PARAM(test_join_waits, model_gen_params),
	KUNIT_CASE_PARAM(test_join_exclusive, model_gen_params),
	KUNIT_CASE_PARAM(test_join_filter, model_gen_params),
	KUNIT_CASE_PARAM(test_rider, model_gen_params),
	KUNIT_CASE_PARAM(test_rider_exclusive, model_gen_params),
	KUNIT_CASE_PARAM(test_rider_never_starves, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation_held, model_gen_params),
	KUNIT_CASE_PARAM(test_rotation_unpinned, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_equal_sets, model_gen_params),
	KUNIT_CASE_PARAM(test_idle_makes_room, model_gen_params),
	KUNIT_CASE_PARAM(test_idle_and_group_fails, model_gen_params),
	KUNIT_CASE_PARAM(test_idle_and_exclusive, model_gen_params),
	KUNIT_CASE_PARAM(test_idle_resched, model_gen_params),
	KUNIT_CASE_PARAM(test_idle_rotation, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_beside_cpu, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_different_sets, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_some_off, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_sibling_of_cpu, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_disables_last, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_in_doubt, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_and_wait, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_lets_wait, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_tries, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_after_disable, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_and_rotate, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_throttled, model_gen_params),
	KUNIT_CASE_PARAM(test_switch_while_counting, model_gen_params),
	KUNIT_CASE_PARAM(test_user_page, model_gen_params),
	KUNIT_CASE_PARAM(test_user_page_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_user_page_hand_over_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_user_page_remote, model_gen_params),
	KUNIT_CASE_PARAM(test_master_differs, model_gen_params),
	KUNIT_CASE_PARAM(test_master_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_hand_over_refused_time, model_gen_params),
	KUNIT_CASE_PARAM(test_group_hand_over_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_throttle, model_gen_params),
	KUNIT_CASE_PARAM(test_throttle_and_leave, model_gen_params),
	KUNIT_CASE_PARAM(test_throttle_and_hand_over, model_gen_params),
	KUNIT_CASE_PARAM(test_throttle_and_refuse, model_gen_params),
	KUNIT_CASE_PARAM(test_two_on_task, model_gen_params),
	KUNIT_CASE_PARAM(test_task_running, model_gen_params),
	KUNIT_CASE_PARAM(test_task_exit, model_gen_params),
	KUNIT_CASE_PARAM(test_task_migrates, model_gen_params),
	KUNIT_CASE_PARAM(test_pmu_migrates, model_gen_params),
	KUNIT_CASE_PARAM(test_pmu_migrates_ordinals, model_gen_params),
	KUNIT_CASE_PARAM(test_cpu_offline, model_gen_params),
	KUNIT_CASE_PARAM(test_unregister, model_gen_params),
	KUNIT_CASE_PARAM(test_module, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_busy, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_beside_pinned, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_pmu_migrates, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_group, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_no_room, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_ordinals, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_cgroup, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_migrates, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_user_access, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_user_page, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_mapped, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_unshared, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_no_master, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_rotation, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_own_runs, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_unregister, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_join, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_join_rotates, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_and_hand_over, model_gen_params),
	KUNIT_CASE_PARAM(test_task_hand_over_refused, model_gen_params),
	KUNIT_CASE_PARAM(test_borrow_inherit, model_gen_params),
	KUNIT_CASE_PARAM(test_cgroups, model_gen_params),
	KUNIT_CASE_PARAM(test_cgroup_ordinals, model_gen_params),
	KUNIT_CASE_PARAM(test_cgroup_groups, model_gen_params),
	KUNIT_CASE_PARAM(test_random, model_gen_params),
	{},
};

static struct kunit_suite dup_test_suite = {
	.name = "perf_event_dup",
	.test_cases = dup_test_cases,
	.suite_init = dup_suite_init,
	.suite_exit = dup_suite_exit,
	.init = dup_test_init,
	.exit = dup_test_exit,
};

kunit_test_suite(dup_test_suite);
