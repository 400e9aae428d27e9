/* SPDX-License-Identifier: GPL-2.0 */
/* A user of groups in C, for tests: its requests, and the cases that it runs. */

#ifndef GROUP_CALLER_H
#define GROUP_CALLER_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <rtrs-group.h>

#include "caller.h"

#define PORT 1235
#define MEMBERS 2
#define BOTH 3
/* The longest data: three pages, the last one in part. */
#define PAGES 3
#define LARGE (2 * PAGE_SIZE + 100)

/* The key that the messages of writes and reads name. */
#define KEY "colour"
#define KEY_LEN (sizeof(KEY) - 1)

/* Of the servers. */
extern char addresses[MEMBERS][64];

/* How often members have fallen behind, and the last time. */
extern atomic_t fallen;
extern struct rtrs_group_failure last_failure;

/* A request of ours, and its end. */
struct request {
	u8 *data;
	struct scatterlist list[PAGES];
	struct completion done;
	int confirmations;
	struct rtrs_group_result result;
};

/* A group of new sessions, by their first name. */
struct rtrs_group *open_group(const char *name);

struct request *new_request(void);
void free_request(struct request *request);
void confirmed(void *private, const struct rtrs_group_result *result);

/* Has the list describe so many bytes; gives the number of entries. */
unsigned int describe(struct request *request, size_t len);

/* Sends a write to all members, or to one of them, without waiting for its end. */
int send_write(struct rtrs_group *group, int member, struct rtrs_group_permit *permit,
	       struct request *request, size_t len);
int send_read(struct rtrs_group *group, u32 except, struct rtrs_group_permit *permit,
	      struct request *request, size_t len);

/* Writes bytes of this value to all members, or to one, and waits; errors of sending only. */
int put(struct rtrs_group *group, int member, struct request *request, u8 value, size_t len);
/* Reads the value of one member, and waits; the same errors. */
int get(struct rtrs_group *group, u32 except, struct request *request, size_t len);

/* Each member has so many bytes of this value. */
int check_members(struct rtrs_group *group, struct request *request, u8 value, size_t len);
/* All permits, which are as many as there are tags, but for those that are out. */
int check_permits(struct rtrs_group *group, unsigned int out);

/* What a caller may do. */
int group_data(struct rtrs_group *group);
int group_states(struct rtrs_group *group);
int group_each(struct rtrs_group *group);
int group_policies(struct rtrs_group *group);
int group_lose(struct rtrs_group *group);
int group_close_waits(struct rtrs_group *unused);

/* What a caller must not do. */
int group_double_put(struct rtrs_group *group);
int group_foreign(struct rtrs_group *group);
int group_busy(struct rtrs_group *group);
int group_lengths(struct rtrs_group *group);
int group_closed(struct rtrs_group *unused);
int group_opening(struct rtrs_group *unused);

#endif /* GROUP_CALLER_H */
