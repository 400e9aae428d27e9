// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of what only some of the supported kernels need; see compat.h.
 */

#include <linux/export.h>

#include "compat.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)

unsigned long rnbd_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}
EXPORT_SYMBOL_GPL(rnbd_helper_spin_lock_irqsave);

void rnbd_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}
EXPORT_SYMBOL_GPL(rnbd_helper_spin_unlock_irqrestore);

bool rnbd_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}
EXPORT_SYMBOL_GPL(rnbd_helper_spin_trylock_irqsave);

#endif
