// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions; see helpers.h.
 */

#include <linux/export.h>

#include "helpers.h"

int rnbd_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *send_wr,
			     const struct ib_send_wr **bad_send_wr)
{
	return ib_post_send(qp, send_wr, bad_send_wr);
}
EXPORT_SYMBOL_GPL(rnbd_helper_ib_post_send);
