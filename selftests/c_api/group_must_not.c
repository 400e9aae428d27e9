// SPDX-License-Identifier: GPL-2.0
/* What a user of groups in C must not do. */

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "group_caller.h"

int group_double_put(struct rtrs_group *group)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	struct request *request = new_request();

	CHECK(permit && request);
	rtrs_group_put_permit(group, permit);
	rtrs_group_put_permit(group, permit);
	rtrs_group_put_permit(group, NULL);
	rtrs_group_put_permit(group, (void *)permit + 1);
	rtrs_group_put_permit(group, (void *)request);
	CHECK(send_write(group, -1, permit, request, 64) == -EINVAL);
	CHECK(send_write(group, 0, permit, request, 64) == -EINVAL);
	CHECK(send_read(group, 0, permit, request, 64) == -EINVAL);
	CHECK(send_write(group, -1, NULL, request, 64) == -EINVAL);
	CHECK(!request->confirmations);
	/* None of these was a write. */
	CHECK(!put(group, -1, request, 1, 64) && request->result.number == 1);
	free_request(request);
	return check_permits(group, 0);
}

int group_foreign(struct rtrs_group *group)
{
	struct rtrs_group *other = open_group("other");
	struct request *request = new_request();
	struct rtrs_group_missing missing;
	struct rtrs_group_permit *permit;
	int err;

	CHECK(!IS_ERR(other) && request);
	permit = rtrs_group_get_permit(other, RTRS_PERMIT_WAIT);
	CHECK(permit);
	CHECK(send_write(group, -1, permit, request, 64) == -EINVAL);
	rtrs_group_put_permit(group, permit);
	err = check_permits(group, 0);
	/* It is still out in its own group. */
	err = err ?: check_permits(other, 1);
	/* Members that the group does not have. */
	CHECK(send_write(other, MEMBERS, permit, request, 64) == -ENODEV);
	CHECK(send_write(other, INT_MAX, permit, request, 64) == -ENODEV);
	rtrs_group_put_permit(other, permit);
	err = err ?: check_permits(other, 0);
	CHECK(rtrs_group_missing(group, MEMBERS, &missing, NULL, 0) == -ENODEV);
	CHECK(rtrs_group_missing(group, 0, NULL, NULL, 0) == -EINVAL);
	CHECK(rtrs_group_leave_out(group, MEMBERS) == -ENODEV);
	CHECK(rtrs_group_rejoin(group, U32_MAX) == -ENODEV);
	CHECK(rtrs_group_resolved(group, MEMBERS, 1, 2) == -ENODEV);
	CHECK(rtrs_group_in_sync(group, MEMBERS) == -ENODEV);
	rtrs_group_close(other);
	CHECK(!request->confirmations);
	free_request(request);
	return err;
}

/* Uses a permit whose request is in flight; the response may come sooner, so several times. */
int group_busy(struct rtrs_group *group)
{
	struct request *request = new_request(), *second = new_request();
	int refused = 0, tries, confirmations = 0;
	struct rtrs_group_permit *permit;

	CHECK(request && second);
	for (tries = 0; tries < 100 && !refused; tries++) {
		permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
		CHECK(permit);
		CHECK(!send_write(group, -1, permit, request, 64));
		if (send_write(group, -1, permit, second, 64) == -EBUSY) {
			rtrs_group_put_permit(group, permit);
			refused = !try_wait_for_completion(&request->done);
			if (refused)
				wait_for_completion(&request->done);
		} else {
			wait_for_completion(&request->done);
			wait_for_completion(&second->done);
			confirmations++;
		}
		rtrs_group_put_permit(group, permit);
	}
	CHECK(refused);
	CHECK(!request->result.error && request->confirmations == tries);
	CHECK(second->confirmations == confirmations);
	free_request(request);
	free_request(second);
	return check_permits(group, 0);
}

static int refused_with(struct rtrs_group *group, struct rtrs_group_permit *permit, bool write,
			size_t len, struct scatterlist *list, unsigned int count, size_t message)
{
	static u8 text[512];
	static struct request request;
	struct rtrs_group_req_ops ops = { .priv = &request, .conf_fn = confirmed };
	struct kvec pieces[2] = {
		{ .iov_base = text, .iov_len = message / 2 },
		{ .iov_base = text, .iov_len = message - message / 2 },
	};

	if (write)
		return rtrs_group_write(group, permit, &ops, pieces, 2, len, list, count);
	return rtrs_group_read(group, 0, permit, &ops, pieces, 2, len, list, count);
}

int group_lengths(struct rtrs_group *group)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	struct request *request = new_request();
	struct rtrs_group_req_ops ops = { .priv = request };
	struct scatterlist *list, one[2];
	struct rtrs_attrs attrs;
	unsigned int most, i;

	CHECK(permit && request);
	CHECK(!rtrs_group_query(group, &attrs));
	most = attrs.max_segments + 2;
	list = kvcalloc(most, sizeof(*list), GFP_KERNEL);
	CHECK(list);
	sg_init_table(list, most);
	for (i = 0; i < most; i++)
		sg_set_page(&list[i], virt_to_page(request->data), 512, 0);
	sg_init_table(one, 2);
	sg_set_page(&one[0], virt_to_page(request->data), 512, 0);
	for (i = 0; i <= 1; i++) {
		CHECK(refused_with(group, permit, i, 511, list, 1, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 513, list, 1, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 512, list, 2, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 512, list, 0, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 512, NULL, 1, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 512 * most, list, most, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 1024, one, 2, 6) == -EINVAL);
		CHECK(refused_with(group, permit, i, 512, list, 1, RTRS_CLT_MAX_MESSAGE + 1) ==
		      -EMSGSIZE);
	}
	/* More bytes than a request may have, in one entry. */
	sg_init_table(one, 1);
	sg_set_page(&one[0], virt_to_page(request->data), attrs.max_io_size + 1, 0);
	CHECK(refused_with(group, permit, true, attrs.max_io_size + 1, one, 1, 6) == -EMSGSIZE);
	CHECK(rtrs_group_write(group, permit, &ops, NULL, 0, 0, NULL, 0) == -EINVAL);
	CHECK(rtrs_group_write(group, permit, NULL, NULL, 0, 0, NULL, 0) == -EINVAL);
	ops.conf_fn = confirmed;
	CHECK(rtrs_group_write(group, permit, &ops, NULL, 1, 0, NULL, 0) == -EINVAL);
	/* The permit is as good as before, and none of these was a write. */
	CHECK(!send_write(group, -1, permit, request, 64));
	wait_for_completion(&request->done);
	CHECK(request->result.number == 1 && request->result.confirmed == BOTH);
	CHECK(request->confirmations == 1);
	rtrs_group_put_permit(group, permit);
	kvfree(list);
	free_request(request);
	return check_permits(group, 0);
}

int group_closed(struct rtrs_group *unused)
{
	struct rtrs_group *group = open_group("closed");
	struct request *request = new_request();
	struct rtrs_group_missing missing;
	struct rtrs_group_permit *permit;
	struct rtrs_attrs attrs;
	int i;

	CHECK(!IS_ERR(group) && request);
	permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	CHECK(permit);
	rtrs_group_put_permit(group, permit);
	rtrs_group_close(group);
	for (i = 0; i < 2; i++) {
		CHECK(send_write(group, -1, permit, request, 64) == -ENODEV);
		CHECK(send_write(group, 0, permit, request, 64) == -ENODEV);
		CHECK(send_read(group, 0, permit, request, 64) == -ENODEV);
		CHECK(!rtrs_group_get_permit(group, RTRS_PERMIT_NOWAIT));
		CHECK(!rtrs_group_get_permit(group, RTRS_PERMIT_WAIT));
		CHECK(rtrs_group_query(group, &attrs) == -ENODEV);
		CHECK(rtrs_group_missing(group, 0, &missing, NULL, 0) == -ENODEV);
		CHECK(rtrs_group_rejoin(group, 0) == -ENODEV);
		CHECK(rtrs_group_set_read_policy(group, RTRS_GROUP_ROUND_ROBIN, 0) == -ENODEV);
		rtrs_group_put_permit(group, permit);
		rtrs_group_close(group);
		/* And of a group that was never opened. */
		group = i ? group : NULL;
	}
	CHECK(!request->confirmations);
	free_request(request);
	return 0;
}

int group_opening(struct rtrs_group *unused)
{
	struct rtrs_clt_sess *sessions[RTRS_GROUP_MAX_MEMBERS + 1], *closed;
	struct rtrs_permit *permit;
	struct rtrs_attrs attrs;
	struct waiter waiter;
	struct rtrs_group *group;
	int i;

	for (i = 0; i < ARRAY_SIZE(sessions); i++)
		sessions[i] = NULL;
	sessions[0] = open_session("first", addresses[0], PORT);
	sessions[1] = open_session("second", addresses[1], PORT);
	closed = open_session("third", addresses[0], PORT);
	CHECK(!IS_ERR(sessions[0]) && !IS_ERR(sessions[1]) && !IS_ERR(closed));
	rtrs_clt_close(closed);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_group_open(NULL, NULL, 2)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, ARRAY_SIZE(sessions))) == -EINVAL);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 3)) == -ENODEV);
	sessions[2] = closed;
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 3)) == -ENODEV);
	sessions[2] = sessions[0];
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 3)) == -EBUSY);
	permit = rtrs_clt_get_permit(sessions[1], RTRS_IO_CON, RTRS_PERMIT_WAIT);
	CHECK(permit);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 2)) == -EBUSY);
	/* A permit that is out stays out, and can be given back. */
	rtrs_clt_put_permit(sessions[1], permit);
	CALL(check_permits_of(sessions[0], 0));
	CALL(check_permits_of(sessions[1], 0));
	group = rtrs_group_open(NULL, sessions, 2);
	CHECK(!IS_ERR(group));
	/* The sessions are the group's now. */
	CHECK(rtrs_clt_query(sessions[0], &attrs) == -ECOMM);
	CHECK(!rtrs_clt_get_permit(sessions[0], RTRS_IO_CON, RTRS_PERMIT_NOWAIT));
	CHECK(start_waiter(&waiter, sessions[1]));
	wait_for_completion(&waiter.done);
	CHECK(!waiter.permit);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 2)) == -ENODEV);
	rtrs_clt_close(sessions[0]);
	CALL(group_data(group));
	rtrs_group_close(group);
	/* Their names are free again. */
	sessions[0] = open_session("first", addresses[0], PORT);
	CHECK(!IS_ERR(sessions[0]));
	rtrs_clt_close(sessions[0]);
	return 0;
}
