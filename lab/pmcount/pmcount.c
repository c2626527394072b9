// SPDX-License-Identifier: GPL-2.0
/*
 * What happens at the arm64 PMU, by witnesses that do not depend on what perf
 * believes. /proc/pmcount has a line for each CPU: how many counters are
 * switched on right now, by PMCNTENSET_EL0. With calls=1 there is one more for
 * each operation of the driver: how often perf core called it since the module
 * was loaded; and one for the most events that any CPU had at a time, which are
 * counters, since the driver knows no others. The operations are replaced for
 * that, so load it while no event counts, and not while time is measured.
 */
#include <linux/bitops.h>
#include <linux/cpu.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <asm/sysreg.h>

static bool calls;
module_param(calls, bool, 0444);
MODULE_PARM_DESC(calls, "Count the calls of the driver's operations");

enum pmcount_op { PMCOUNT_ADD, PMCOUNT_DEL, PMCOUNT_START, PMCOUNT_STOP, PMCOUNT_READ,
		  PMCOUNT_OPS };

static const char * const pmcount_names[PMCOUNT_OPS] = {
	"add", "del", "start", "stop", "read",
};

static DEFINE_PER_CPU(unsigned long [PMCOUNT_OPS], pmcount_calls);
static DEFINE_PER_CPU(int, pmcount_now);
static DEFINE_PER_CPU(int, pmcount_most);

/* The PMU of the CPUs, and the operations that are the driver's own. */
static struct pmu *pmcount_pmu;
static int (*driver_add)(struct perf_event *event, int flags);
static void (*driver_del)(struct perf_event *event, int flags);
static void (*driver_start)(struct perf_event *event, int flags);
static void (*driver_stop)(struct perf_event *event, int flags);
static void (*driver_read)(struct perf_event *event);

static int pmcount_add(struct perf_event *event, int flags)
{
	int ret, now;

	this_cpu_inc(pmcount_calls[PMCOUNT_ADD]);
	ret = driver_add(event, flags);
	if (ret)
		return ret;
	/* Interrupts are off. */
	now = __this_cpu_inc_return(pmcount_now);
	if (now > __this_cpu_read(pmcount_most))
		__this_cpu_write(pmcount_most, now);

	return 0;
}

static void pmcount_del(struct perf_event *event, int flags)
{
	this_cpu_inc(pmcount_calls[PMCOUNT_DEL]);
	__this_cpu_dec(pmcount_now);
	driver_del(event, flags);
}

static void pmcount_start(struct perf_event *event, int flags)
{
	this_cpu_inc(pmcount_calls[PMCOUNT_START]);
	driver_start(event, flags);
}

static void pmcount_stop(struct perf_event *event, int flags)
{
	this_cpu_inc(pmcount_calls[PMCOUNT_STOP]);
	driver_stop(event, flags);
}

static void pmcount_event_read(struct perf_event *event)
{
	this_cpu_inc(pmcount_calls[PMCOUNT_READ]);
	driver_read(event);
}

/* Come between perf core and the driver of the CPUs' PMU. */
static int pmcount_wrap(void)
{
	struct perf_event_attr attr = {
		.type		= PERF_TYPE_HARDWARE,
		.config		= PERF_COUNT_HW_CPU_CYCLES,
		.size		= sizeof(attr),
		.disabled	= 1,
	};
	struct perf_event *event;
	struct pmu *pmu;

	event = perf_event_create_kernel_counter(&attr, 0, NULL, NULL, NULL);
	if (IS_ERR(event))
		return PTR_ERR(event);
	pmu = event->pmu;
	perf_event_release_kernel(event);

	driver_add = pmu->add;
	driver_del = pmu->del;
	driver_start = pmu->start;
	driver_stop = pmu->stop;
	driver_read = pmu->read;
	pmu->add = pmcount_add;
	pmu->del = pmcount_del;
	pmu->start = pmcount_start;
	pmu->stop = pmcount_stop;
	pmu->read = pmcount_event_read;
	pmcount_pmu = pmu;

	return 0;
}

static void pmcount_unwrap(void)
{
	struct pmu *pmu = pmcount_pmu;

	pmu->add = driver_add;
	pmu->del = driver_del;
	pmu->start = driver_start;
	pmu->stop = driver_stop;
	pmu->read = driver_read;
	/* The operations run with interrupts off: nobody is in one after this. */
	synchronize_rcu();
}

static void pmcount_counters(void *info)
{
	unsigned int *count = info;

	*count = hweight64(read_sysreg(pmcntenset_el0));
}

static int pmcount_show(struct seq_file *m, void *v)
{
	unsigned int cpu, count, op;

	cpus_read_lock();
	for_each_online_cpu(cpu) {
		if (!smp_call_function_single(cpu, pmcount_counters, &count, 1))
			seq_printf(m, "cpu%u %u\n", cpu, count);
	}
	cpus_read_unlock();

	for (op = 0; calls && op < PMCOUNT_OPS; op++) {
		unsigned long sum = 0;

		for_each_possible_cpu(cpu)
			sum += per_cpu(pmcount_calls[op], cpu);
		seq_printf(m, "%s %lu\n", pmcount_names[op], sum);
	}
	if (calls) {
		int most = 0;

		for_each_possible_cpu(cpu)
			most = max(most, per_cpu(pmcount_most, cpu));
		seq_printf(m, "most %d\n", most);
	}

	return 0;
}

static int __init pmcount_init(void)
{
	int ret;

	if (calls) {
		ret = pmcount_wrap();
		if (ret)
			return ret;
	}
	if (!proc_create_single("pmcount", 0444, NULL, pmcount_show)) {
		if (calls)
			pmcount_unwrap();
		return -ENOMEM;
	}

	return 0;
}
module_init(pmcount_init);

static void __exit pmcount_exit(void)
{
	remove_proc_entry("pmcount", NULL);
	if (calls)
		pmcount_unwrap();
}
module_exit(pmcount_exit);

MODULE_DESCRIPTION("What happens at the PMUv3: counters in use, calls of the driver");
MODULE_LICENSE("GPL");
