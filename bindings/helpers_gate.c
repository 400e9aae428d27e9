// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions; see helpers.h.
 */

#include <linux/export.h>

#include "helpers.h"

bool rnbd_helper_percpu_ref_tryget_live(struct percpu_ref *ref)
{
	return percpu_ref_tryget_live(ref);
}
EXPORT_SYMBOL_GPL(rnbd_helper_percpu_ref_tryget_live);

void rnbd_helper_percpu_ref_get(struct percpu_ref *ref)
{
	percpu_ref_get(ref);
}
EXPORT_SYMBOL_GPL(rnbd_helper_percpu_ref_get);

void rnbd_helper_percpu_ref_put(struct percpu_ref *ref)
{
	percpu_ref_put(ref);
}
EXPORT_SYMBOL_GPL(rnbd_helper_percpu_ref_put);
