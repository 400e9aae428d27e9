/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers for which bindgen makes Rust bindings, beyond those of the
 * kernel crate.
 */

#include <linux/hrtimer_types.h>

#include <linux/inet.h>
#include <linux/miscdevice.h>
#include <linux/part_stat.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "compat.h"
#include "helpers.h"
#include "trace.h"
