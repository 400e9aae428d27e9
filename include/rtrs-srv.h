/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tracepoints of the kernel's rnbd-server look at of an operation.
 */

#ifndef RTRS_SRV_H
#define RTRS_SRV_H

#include "rtrs.h"

struct rtrs_srv_op {
	u8 dir;		/* READ or WRITE */
	u8 reserved[7];
};

#endif /* RTRS_SRV_H */
