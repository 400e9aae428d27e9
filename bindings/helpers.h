/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Callable forms of the kernel's inline functions and macros that the crate
 * needs. Each has the name of what it calls behind rnbd_helper_.
 */

#ifndef RNBD_HELPERS_H
#define RNBD_HELPERS_H

#include <linux/percpu-refcount.h>
#include <rdma/ib_verbs.h>

int rnbd_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *send_wr,
			     const struct ib_send_wr **bad_send_wr);

/* helpers_gate.c */
bool rnbd_helper_percpu_ref_tryget_live(struct percpu_ref *ref);
void rnbd_helper_percpu_ref_put(struct percpu_ref *ref);

#endif /* RNBD_HELPERS_H */
