// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions of functions.rs under the kernel's names, and compares
 * the structures of rtrs.h with those of arguments.rs.
 */

#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/stddef.h>

#include "rtrs.h"

static_assert(sizeof(struct rtrs_addr) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_addr, dst) == sizeof(void *));
static_assert(sizeof(struct rtrs_clt_ops) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_clt_ops, link_ev) == sizeof(void *));
static_assert(sizeof(struct rtrs_clt_req_ops) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_clt_req_ops, conf_fn) == sizeof(void *));
static_assert(sizeof(struct kvec) == 2 * sizeof(void *));
static_assert(offsetof(struct kvec, iov_len) == sizeof(void *));
static_assert(sizeof(struct rtrs_attrs) == 3 * sizeof(u32));
static_assert(offsetof(struct rtrs_attrs, max_io_size) == sizeof(u32));
static_assert(offsetof(struct rtrs_attrs, max_segments) == 2 * sizeof(u32));
static_assert(sizeof(enum rtrs_clt_con_type) == sizeof(int));
static_assert(sizeof(enum rtrs_clt_link_ev) == sizeof(int));
static_assert(sizeof(enum wait_type) == sizeof(int));
static_assert(RTRS_CLT_MAX_MESSAGE == 384);

EXPORT_SYMBOL_GPL(rtrs_clt_open);
EXPORT_SYMBOL_GPL(rtrs_clt_close);
EXPORT_SYMBOL_GPL(rtrs_clt_get_permit);
EXPORT_SYMBOL_GPL(rtrs_clt_put_permit);
EXPORT_SYMBOL_GPL(rtrs_clt_request);
EXPORT_SYMBOL_GPL(rtrs_clt_rdma_cq_direct);
EXPORT_SYMBOL_GPL(rtrs_clt_query);
EXPORT_SYMBOL_GPL(rtrs_addr_to_sockaddr);
EXPORT_SYMBOL_GPL(sockaddr_to_str);
EXPORT_SYMBOL_GPL(rtrs_addr_to_str);
