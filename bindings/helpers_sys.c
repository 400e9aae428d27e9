// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions; see helpers.h.
 */

#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/uaccess.h>

#include "helpers.h"

unsigned int rnbd_helper_next_possible_cpu(unsigned int start)
{
	if (start >= nr_cpu_ids)
		return nr_cpu_ids;
	return find_next_bit(cpumask_bits(cpu_possible_mask), nr_cpu_ids, start);
}
EXPORT_SYMBOL_GPL(rnbd_helper_next_possible_cpu);

unsigned int rnbd_helper_num_online_cpus(void)
{
	return num_online_cpus();
}
EXPORT_SYMBOL_GPL(rnbd_helper_num_online_cpus);

void rnbd_helper_dev_set_uevent_suppress(struct device *dev, int val)
{
	dev_set_uevent_suppress(dev, val);
}
EXPORT_SYMBOL_GPL(rnbd_helper_dev_set_uevent_suppress);

void rnbd_helper_synchronize_rcu_tasks(void)
{
	/*
	 * A macro without CONFIG_TASKS_RCU: synchronize_rcu(), which is enough only where no task is
	 * preempted in the kernel. Where tasks are, tracing and BPF select it.
	 */
	BUILD_BUG_ON(IS_ENABLED(CONFIG_PREEMPTION) && !IS_ENABLED(CONFIG_TASKS_RCU));
	synchronize_rcu_tasks();
}
EXPORT_SYMBOL_GPL(rnbd_helper_synchronize_rcu_tasks);

int rnbd_helper_peek(void *to, const void *from, size_t len)
{
	return copy_from_kernel_nofault(to, from, len);
}
EXPORT_SYMBOL_GPL(rnbd_helper_peek);

bool rnbd_helper_may_sleep(void)
{
	/* Without it a spinlock or an RCU reader leaves no trace. Distributions have it. */
	BUILD_BUG_ON(!IS_ENABLED(CONFIG_PREEMPT_COUNT));
	return preemptible() && !rcu_preempt_depth();
}
EXPORT_SYMBOL_GPL(rnbd_helper_may_sleep);

unsigned int rnbd_helper_memalloc_noio_save(void)
{
	return memalloc_noio_save();
}
EXPORT_SYMBOL_GPL(rnbd_helper_memalloc_noio_save);

void rnbd_helper_memalloc_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}
EXPORT_SYMBOL_GPL(rnbd_helper_memalloc_noio_restore);
