// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions of functions.rs under the kernel's names, and compares
 * the structures of rtrs.h with those of the Rust code.
 */

#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/stddef.h>

#include "rtrs.h"

static_assert(sizeof(struct rtrs_srv_ops) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_srv_ops, rdma_ev) == 0);
static_assert(offsetof(struct rtrs_srv_ops, link_ev) == sizeof(void *));
static_assert(sizeof(enum rtrs_srv_link_ev) == sizeof(int));
static_assert(RTRS_SRV_LINK_EV_CONNECTED == 0 && RTRS_SRV_LINK_EV_DISCONNECTED == 1);

EXPORT_SYMBOL_GPL(rtrs_srv_open);
EXPORT_SYMBOL_GPL(rtrs_srv_close);
EXPORT_SYMBOL_GPL(rtrs_srv_resp_rdma);
EXPORT_SYMBOL_GPL(rtrs_srv_set_sess_priv);
EXPORT_SYMBOL_GPL(rtrs_srv_get_path_name);
EXPORT_SYMBOL_GPL(rtrs_srv_get_queue_depth);
