// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions of the block layer; see helpers.h.
 */

#include <linux/export.h>

#include "helpers.h"

void rnbd_helper_ida_init(struct ida *ida)
{
	ida_init(ida);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ida_init);

struct request *rnbd_helper_rq_list_pop(struct rq_list *list)
{
	return rq_list_pop(list);
}
EXPORT_SYMBOL_GPL(rnbd_helper_rq_list_pop);
