/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The user of the disk of a server that lies: a process that maps the disk, reads and writes it from several threads,
 * and unmaps it by force. What goes wrong for it is not looked at, but that it comes to an end.
 */
#ifndef DISK_USER_H
#define DISK_USER_H

#include <sys/types.h>

#include "rounds.h"

#define LIAR_SESSION "liar%u"
#define LIAR_DISK "/dev/liar"

struct disk_user {
	pid_t pid;
	/* Readable when the process has ended. */
	int ended;
	/* Where it waits for a byte. */
	int start;
};

/* Make the process, before the caller has any RDMA device open; it waits. */
bool disk_user_new(const struct round *round, struct disk_user *user);
/* Have it begin: the server listens. */
bool disk_user_begin(const struct disk_user *user);

#endif
