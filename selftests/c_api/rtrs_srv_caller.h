/* SPDX-License-Identifier: GPL-2.0 */
/* What rtrs_caller asks of rtrs_srv_caller. */

#ifndef RTRS_SRV_CALLER_H
#define RTRS_SRV_CALLER_H

#include <linux/types.h>

#define SRV_PORT 1236

enum srv_command {
	SRV_FILL,	/* fills the data of a read */
	SRV_CHECK,	/* -EIO unless message and data are as said */
	SRV_TWICE,	/* 0, and then another response */
	SRV_LATER,	/* 0, after a while */
	SRV_RETURN,	/* -ENOSPC as what the callback returns */
	SRV_BOTH,	/* 0, and an error as what the callback returns */
	SRV_POSITIVE,	/* EPERM */
	SRV_HUGE,	/* no errno */
	SRV_LEAST,	/* INT_MIN */
	SRV_WRONG,	/* 0, after responses to what are no operations */
	SRV_SLEEP,	/* 0, after the callback has slept */
};

struct srv_message {
	__le32 command;
	__le32 len;	/* of the message, with what follows */
	__le32 datalen;
	u8 value;	/* what data, and what follows, consist of */
	u8 reserved[3];
};

#endif /* RTRS_SRV_CALLER_H */
