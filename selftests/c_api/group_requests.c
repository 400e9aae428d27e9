// SPDX-License-Identifier: GPL-2.0
/* Groups of a user in C, its requests, and what is to be true of them. */

#include <linux/err.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "group_caller.h"

/* A response to a read begins with the length of the value. */
#define HEAD sizeof(__le32)

char addresses[MEMBERS][64];
atomic_t fallen;
struct rtrs_group_failure last_failure;

static void fell_behind(void *private, const struct rtrs_group_failure *failure)
{
	last_failure = *failure;
	atomic_inc(&fallen);
}

struct rtrs_group *open_group(const char *name)
{
	struct rtrs_group_ops ops = { .fell_behind = fell_behind };
	struct rtrs_clt_sess *sessions[MEMBERS];
	struct rtrs_group *group = NULL;
	char session[32];
	int i;

	for (i = 0; i < MEMBERS; i++) {
		snprintf(session, sizeof(session), "%s-%d", name, i);
		sessions[i] = open_session(session, addresses[i], PORT);
		if (IS_ERR(sessions[i])) {
			group = ERR_CAST(sessions[i]);
			break;
		}
	}
	if (!group)
		group = rtrs_group_open(&ops, sessions, MEMBERS);
	while (IS_ERR(group) && i--)
		rtrs_clt_close(sessions[i]);
	return group;
}

void confirmed(void *private, const struct rtrs_group_result *result)
{
	struct request *request = private;

	request->confirmations++;
	request->result = *result;
	complete(&request->done);
}

struct request *new_request(void)
{
	struct request *request = kzalloc(sizeof(*request), GFP_KERNEL);

	if (!request)
		return NULL;
	request->data = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(PAGES * PAGE_SIZE));
	if (!request->data) {
		kfree(request);
		return NULL;
	}
	init_completion(&request->done);
	return request;
}

void free_request(struct request *request)
{
	free_pages((unsigned long)request->data, get_order(PAGES * PAGE_SIZE));
	kfree(request);
}

unsigned int describe(struct request *request, size_t len)
{
	unsigned int count = DIV_ROUND_UP(len, PAGE_SIZE), i;

	sg_init_table(request->list, PAGES);
	for (i = 0; i < count; i++)
		sg_set_buf(&request->list[i], request->data + i * PAGE_SIZE,
			   min(PAGE_SIZE, len - i * PAGE_SIZE));
	return count;
}

static const struct kvec vec = { .iov_base = KEY, .iov_len = KEY_LEN };

int send_write(struct rtrs_group *group, int member, struct rtrs_group_permit *permit,
	       struct request *request, size_t len)
{
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	unsigned int count = describe(request, len);

	if (member < 0)
		return rtrs_group_write(group, permit, &ops, &vec, 1, len, request->list, count);
	return rtrs_group_write_to(group, member, permit, &ops, &vec, 1, len, request->list, count);
}

int send_read(struct rtrs_group *group, u32 except, struct rtrs_group_permit *permit,
	      struct request *request, size_t len)
{
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	unsigned int count = describe(request, len);

	return rtrs_group_read(group, except, permit, &ops, &vec, 1, len, request->list, count);
}

int put(struct rtrs_group *group, int member, struct request *request, u8 value, size_t len)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	int err;

	if (!permit)
		return -ENOLINK;
	memset(request->data, value, len);
	err = send_write(group, member, permit, request, len);
	if (!err)
		wait_for_completion(&request->done);
	rtrs_group_put_permit(group, permit);
	return err;
}

int get(struct rtrs_group *group, u32 except, struct request *request, size_t len)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	int err;

	if (!permit)
		return -ENOLINK;
	memset(request->data, 0xff, PAGES * PAGE_SIZE);
	err = send_read(group, except, permit, request, len + HEAD);
	if (!err)
		wait_for_completion(&request->done);
	rtrs_group_put_permit(group, permit);
	return err;
}

int check_members(struct rtrs_group *group, struct request *request, u8 value, size_t len)
{
	__le32 *head = (__le32 *)request->data;
	u32 member;
	size_t i;

	for (member = 0; member < MEMBERS; member++) {
		CHECK(!rtrs_group_set_read_policy(group, RTRS_GROUP_FIXED, member));
		CHECK(!get(group, 0, request, len));
		CHECK(!request->result.error);
		CHECK(request->result.confirmed == 1 << member);
		CHECK(!request->result.failed && !request->result.unanswered);
		CHECK(!request->result.number);
		CHECK(le32_to_cpu(*head) == len);
		for (i = 0; i < len; i++)
			CHECK(request->data[HEAD + i] == value);
	}
	return 0;
}

int check_permits(struct rtrs_group *group, unsigned int out)
{
	struct rtrs_group_permit **permits;
	struct rtrs_attrs attrs;
	unsigned int i, count;

	CHECK(!rtrs_group_query(group, &attrs));
	permits = kvcalloc(attrs.queue_depth + 1, sizeof(*permits), GFP_KERNEL);
	CHECK(permits);
	for (count = 0; count <= attrs.queue_depth; count++) {
		permits[count] = rtrs_group_get_permit(group, RTRS_PERMIT_NOWAIT);
		if (!permits[count])
			break;
	}
	for (i = 0; i < count; i++)
		rtrs_group_put_permit(group, permits[i]);
	kvfree(permits);
	CHECK(count == attrs.queue_depth - out);
	return 0;
}
