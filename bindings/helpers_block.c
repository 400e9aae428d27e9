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

/*
 * When a request began, in ns of CLOCK_MONOTONIC: before it waited for its tag, if the block layer
 * has noted that. 0 if it has noted nothing.
 */
u64 rnbd_helper_request_begun_ns(const struct request *rq)
{
	/* Without the flag it may be the time of an earlier request with this tag. */
	u64 begun = rq->rq_flags & RQF_IO_STAT ? rq->start_time_ns : 0;

#ifdef CONFIG_BLK_RQ_ALLOC_TIME
	if (rq->alloc_time_ns && (!begun || rq->alloc_time_ns < begun))
		begun = rq->alloc_time_ns;
#endif
	return begun;
}
EXPORT_SYMBOL_GPL(rnbd_helper_request_begun_ns);
