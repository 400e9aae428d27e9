// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions of functions.rs, requests.rs and members.rs, and compares
 * the structures of rtrs-group.h with those of the Rust files.
 */

#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/stddef.h>

#include "rtrs-group.h"

static_assert(RTRS_GROUP_MAX_MEMBERS == 16);
static_assert(sizeof(struct rtrs_group_ops) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_group_ops, fell_behind) == sizeof(void *));
static_assert(sizeof(struct rtrs_group_req_ops) == 2 * sizeof(void *));
static_assert(offsetof(struct rtrs_group_req_ops, conf_fn) == sizeof(void *));
static_assert(sizeof(struct rtrs_group_failure) == 16);
static_assert(offsetof(struct rtrs_group_failure, member) == 8);
static_assert(sizeof(struct rtrs_group_result) == 24);
static_assert(offsetof(struct rtrs_group_result, confirmed) == 8);
static_assert(offsetof(struct rtrs_group_result, failed) == 12);
static_assert(offsetof(struct rtrs_group_result, unanswered) == 16);
static_assert(offsetof(struct rtrs_group_result, error) == 20);
static_assert(sizeof(struct rtrs_group_range) == 16);
static_assert(offsetof(struct rtrs_group_range, last) == 8);
static_assert(sizeof(struct rtrs_group_missing) == 12);
static_assert(offsetof(struct rtrs_group_missing, is_exact) == 4);
static_assert(offsetof(struct rtrs_group_missing, count) == 8);
static_assert(sizeof(enum rtrs_group_read_policy) == sizeof(int));
static_assert(sizeof(enum rtrs_group_state) == sizeof(int));
static_assert(sizeof(enum wait_type) == sizeof(int));

EXPORT_SYMBOL_GPL(rtrs_group_open);
EXPORT_SYMBOL_GPL(rtrs_group_close);
EXPORT_SYMBOL_GPL(rtrs_group_query);
EXPORT_SYMBOL_GPL(rtrs_group_get_permit);
EXPORT_SYMBOL_GPL(rtrs_group_put_permit);
EXPORT_SYMBOL_GPL(rtrs_group_write);
EXPORT_SYMBOL_GPL(rtrs_group_write_each);
EXPORT_SYMBOL_GPL(rtrs_group_write_to);
EXPORT_SYMBOL_GPL(rtrs_group_read);
EXPORT_SYMBOL_GPL(rtrs_group_set_read_policy);
EXPORT_SYMBOL_GPL(rtrs_group_missing);
EXPORT_SYMBOL_GPL(rtrs_group_leave_out);
EXPORT_SYMBOL_GPL(rtrs_group_rejoin);
EXPORT_SYMBOL_GPL(rtrs_group_resolved);
EXPORT_SYMBOL_GPL(rtrs_group_in_sync);
