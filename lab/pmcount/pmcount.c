// SPDX-License-Identifier: GPL-2.0
/*
 * How many counters of the arm64 PMU are switched on right now, by the only
 * witness that does not depend on what perf believes: PMCNTENSET_EL0 of each
 * CPU. A line per CPU in /proc/pmcount.
 */
#include <linux/bitops.h>
#include <linux/cpu.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <asm/sysreg.h>

static void pmcount_read(void *info)
{
	unsigned int *count = info;

	*count = hweight64(read_sysreg(pmcntenset_el0));
}

static int pmcount_show(struct seq_file *m, void *v)
{
	unsigned int cpu, count;

	cpus_read_lock();
	for_each_online_cpu(cpu) {
		if (!smp_call_function_single(cpu, pmcount_read, &count, 1))
			seq_printf(m, "cpu%u %u\n", cpu, count);
	}
	cpus_read_unlock();

	return 0;
}

static int __init pmcount_init(void)
{
	if (!proc_create_single("pmcount", 0444, NULL, pmcount_show))
		return -ENOMEM;
	return 0;
}
module_init(pmcount_init);

static void __exit pmcount_exit(void)
{
	remove_proc_entry("pmcount", NULL);
}
module_exit(pmcount_exit);

MODULE_DESCRIPTION("Number of enabled PMUv3 counters per CPU");
MODULE_LICENSE("GPL");
