/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Callable forms of the kernel's inline functions and macros that the crate
 * needs. Each has the name of what it calls behind rnbd_helper_.
 */

#ifndef RNBD_HELPERS_H
#define RNBD_HELPERS_H

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/percpu.h>
#include <linux/percpu-refcount.h>
#include <rdma/ib_verbs.h>

int rnbd_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *send_wr,
			     const struct ib_send_wr **bad_send_wr);

/* helpers_gate.c */
bool rnbd_helper_percpu_ref_tryget_live(struct percpu_ref *ref);
void rnbd_helper_percpu_ref_put(struct percpu_ref *ref);

/* helpers_sys.c */
void rnbd_helper_reinit_completion(struct completion *x);
void *rnbd_helper_per_cpu_ptr(void *base, unsigned int cpu);
void *rnbd_helper_raw_cpu_ptr(void *base);
unsigned int rnbd_helper_next_possible_cpu(unsigned int start);
unsigned int rnbd_helper_num_online_cpus(void);
void rnbd_helper_dev_set_uevent_suppress(struct device *dev, int val);

#endif /* RNBD_HELPERS_H */
