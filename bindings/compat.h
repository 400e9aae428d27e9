/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the supported kernels' headers; see compat.rs.
 */

#ifndef RNBD_COMPAT_H
#define RNBD_COMPAT_H

#include <linux/spinlock.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)

/* Since 7.3 kernel threads have no root of their own. Before, they have init's. */
#define scoped_with_init_fs() for (bool once = true; once; once = false)

/* compat.c */
unsigned long rnbd_helper_spin_lock_irqsave(spinlock_t *lock);
void rnbd_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool rnbd_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);

#endif

#endif
