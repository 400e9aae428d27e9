// SPDX-License-Identifier: GPL-2.0
/* What a user of groups in C may do. */

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "group_caller.h"

int group_data(struct rtrs_group *group)
{
	static const size_t lengths[] = { 0, 1, 64, PAGE_SIZE, PAGE_SIZE + 1, LARGE };
	struct request *request = new_request();
	struct rtrs_attrs attrs;
	int i;

	CHECK(request);
	CHECK(!rtrs_group_query(group, &attrs));
	CHECK(attrs.queue_depth > 1);
	CHECK(attrs.max_io_size >= LARGE && attrs.max_io_size <= attrs.max_segments * 4096);
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		CHECK(!put(group, -1, request, i + 1, lengths[i]));
		CHECK(!request->result.error);
		CHECK(request->result.number == i + 1);
		CHECK(request->result.confirmed == BOTH);
		CHECK(!request->result.failed && !request->result.unanswered);
		CALL(check_members(group, request, i + 1, lengths[i]));
	}
	CHECK(request->confirmations == 3 * ARRAY_SIZE(lengths));
	free_request(request);
	return check_permits(group, 0);
}

static int check_state(struct rtrs_group *group, u32 member, enum rtrs_group_state state,
		       u64 first, u64 last)
{
	struct rtrs_group_range ranges[2] = {};
	struct rtrs_group_missing missing;

	CHECK(!rtrs_group_missing(group, member, &missing, ranges, 2));
	CHECK(missing.state == state);
	CHECK(missing.is_exact == 1);
	CHECK(missing.count == (first ? 1 : 0));
	CHECK(ranges[0].first == first && ranges[0].last == last);
	return 0;
}

int group_states(struct rtrs_group *group)
{
	struct request *request = new_request();
	struct rtrs_group_missing missing;

	CHECK(request);
	CALL(check_state(group, 1, RTRS_GROUP_IN_SYNC, 0, 0));
	CHECK(!put(group, -1, request, 1, 64));
	CHECK(rtrs_group_rejoin(group, 1) == -EINVAL);
	CHECK(rtrs_group_in_sync(group, 1) == -EINVAL);
	CHECK(!rtrs_group_leave_out(group, 1));
	CALL(check_state(group, 1, RTRS_GROUP_BEHIND, 0, 0));
	CHECK(!put(group, -1, request, 2, 64));
	CHECK(request->result.number == 2 && request->result.confirmed == 1);
	CHECK(!request->result.failed);
	CHECK(!put(group, -1, request, 3, 64));
	CALL(check_state(group, 1, RTRS_GROUP_BEHIND, 2, 3));
	CALL(check_state(group, 0, RTRS_GROUP_IN_SYNC, 0, 0));
	/* Without room there is only how many they are. */
	CHECK(!rtrs_group_missing(group, 1, &missing, NULL, 5) && missing.count == 1);
	/* Whatever is named, a member that is behind is not read. */
	CHECK(!rtrs_group_set_read_policy(group, RTRS_GROUP_FIXED, 1));
	CHECK(!get(group, 0, request, 64) && request->result.confirmed == 1);
	CHECK(get(group, 1, request, 64) == -ECONNABORTED);
	CHECK(rtrs_group_in_sync(group, 1) == -EINVAL);
	CHECK(!rtrs_group_rejoin(group, 1));
	CALL(check_state(group, 1, RTRS_GROUP_CATCHING_UP, 2, 3));
	CHECK(rtrs_group_in_sync(group, 1) == -EBUSY);
	CHECK(!put(group, -1, request, 4, 64) && request->result.confirmed == BOTH);
	CALL(check_state(group, 1, RTRS_GROUP_CATCHING_UP, 2, 3));
	CHECK(!put(group, 1, request, 4, 64));
	CHECK(request->result.number == 0 && request->result.confirmed == 2);
	CHECK(!rtrs_group_resolved(group, 1, 2, 2));
	CALL(check_state(group, 1, RTRS_GROUP_CATCHING_UP, 3, 3));
	CHECK(!rtrs_group_resolved(group, 1, 0, U64_MAX));
	CHECK(!rtrs_group_in_sync(group, 1));
	CALL(check_members(group, request, 4, 64));
	/* No member takes writes. */
	CHECK(!rtrs_group_leave_out(group, 0) && !rtrs_group_leave_out(group, 1));
	CHECK(put(group, -1, request, 5, 64) == -ECONNABORTED);
	CALL(check_state(group, 0, RTRS_GROUP_BEHIND, 0, 0));
	CHECK(!rtrs_group_rejoin(group, 0) && !rtrs_group_in_sync(group, 0));
	CHECK(!put(group, -1, request, 5, 64) && request->result.number == 5);
	CHECK(!atomic_read(&fallen));
	free_request(request);
	return check_permits(group, 0);
}

/* Each member gets a message of its own, which is the key of the value here. */
int group_each(struct rtrs_group *group)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	struct request *request = new_request();
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	static u8 text[RTRS_CLT_MAX_MESSAGE + 1];
	struct kvec messages[MEMBERS] = {
		{ .iov_base = KEY, .iov_len = KEY_LEN },
		{ .iov_base = "shape", .iov_len = 5 },
	};
	unsigned int count, i;

	CHECK(permit && request);
	count = describe(request, 64);
	/* Only one key gets the new value. */
	CHECK(!put(group, -1, request, 1, 64));
	for (i = 0; i < MEMBERS; i++) {
		CHECK(!rtrs_group_write_each(group, permit, &ops, messages, MEMBERS, 64,
					     request->list, count));
		wait_for_completion(&request->done);
		CHECK(request->result.confirmed == BOTH && request->result.number == i + 2);
		swap(messages[0], messages[1]);
		memset(request->data, 2, 64);
	}
	for (i = 0; i <= MEMBERS + 1; i++) {
		if (i != MEMBERS)
			CHECK(rtrs_group_write_each(group, permit, &ops, messages, i, 64,
						    request->list, count) == -EINVAL);
	}
	messages[1] = (struct kvec) { .iov_base = text, .iov_len = sizeof(text) };
	CHECK(rtrs_group_write_each(group, permit, &ops, messages, MEMBERS, 64, request->list,
				    count) == -EMSGSIZE);
	messages[1] = (struct kvec) { .iov_base = NULL, .iov_len = 5 };
	CHECK(rtrs_group_write_each(group, permit, &ops, messages, MEMBERS, 64, request->list,
				    count) == -EINVAL);
	rtrs_group_put_permit(group, permit);
	CALL(check_members(group, request, 2, 64));
	free_request(request);
	return check_permits(group, 0);
}

int group_policies(struct rtrs_group *group)
{
	struct request *request = new_request();
	u32 seen = 0;
	int i;

	CHECK(request);
	CHECK(!put(group, -1, request, 1, 64));
	for (i = 0; i < 2; i++) {
		CHECK(!get(group, 0, request, 64));
		seen |= request->result.confirmed;
	}
	CHECK(seen == BOTH);
	CHECK(!get(group, 1, request, 64) && request->result.confirmed == 2);
	CHECK(!get(group, 2, request, 64) && request->result.confirmed == 1);
	CHECK(get(group, BOTH, request, 64) == -ECONNABORTED);
	CHECK(!rtrs_group_set_read_policy(group, RTRS_GROUP_LEAST_LATENCY, 99));
	CHECK(!get(group, 0, request, 64) && !request->result.error);
	CHECK(rtrs_group_set_read_policy(group, RTRS_GROUP_FIXED, RTRS_GROUP_MAX_MEMBERS) == -EINVAL);
	CHECK(rtrs_group_set_read_policy(group, 3, 0) == -EINVAL);
	free_request(request);
	return 0;
}

/* A member's path is lost while this writes. */
int group_lose(struct rtrs_group *group)
{
	enum { MOST = 4096 };
	struct request *request = new_request();
	struct rtrs_group_range *ranges;
	struct rtrs_group_missing missing;
	unsigned long end = jiffies + 60 * HZ;
	u8 *has = kvzalloc(MOST, GFP_KERNEL);
	u64 number = 0, i;
	int after = 0;
	u32 place = 0;

	ranges = kvcalloc(MOST, sizeof(*ranges), GFP_KERNEL);
	CHECK(request && has && ranges);
	while (after < 5) {
		CHECK(time_before(jiffies, end) && number + 1 < MOST);
		CHECK(!put(group, -1, request, number, 64) && !request->result.error);
		CHECK(request->result.number == ++number);
		has[number] = request->result.confirmed;
		CHECK(!(request->result.unanswered & ~request->result.failed));
		CHECK(!(request->result.failed & request->result.confirmed));
		after += atomic_read(&fallen);
		msleep(5);
	}
	/* Reported once, with the first write that the member has not confirmed. */
	CHECK(atomic_read(&fallen) == 1 && last_failure.member == 1);
	CHECK(has[last_failure.number] == 1);
	for (i = 1; i < last_failure.number; i++)
		CHECK(has[i] == BOTH);
	/* The list is exact, by number. */
	CHECK(!rtrs_group_missing(group, 1, &missing, ranges, MOST));
	CHECK(missing.state == RTRS_GROUP_BEHIND && missing.is_exact && missing.count);
	for (i = 1; i <= number; i++) {
		if (place < missing.count && i > ranges[place].last)
			place++;
		CHECK((place < missing.count && i >= ranges[place].first) == !(has[i] & 2));
	}
	CHECK(place + 1 >= missing.count && ranges[missing.count - 1].last <= number);
	/* The session connects again by itself; the member joins when it is told to. */
	while (rtrs_group_rejoin(group, 1) == -ECONNABORTED) {
		CHECK(time_before(jiffies, end));
		msleep(20);
	}
	CHECK(!put(group, -1, request, 7, 64) && request->result.confirmed == BOTH);
	CHECK(!put(group, 1, request, 7, 64) && request->result.confirmed == 2);
	for (place = 0; place < missing.count; place++)
		CHECK(!rtrs_group_resolved(group, 1, ranges[place].first, ranges[place].last));
	CHECK(!rtrs_group_in_sync(group, 1));
	CALL(check_members(group, request, 7, 64));
	kvfree(ranges);
	kvfree(has);
	free_request(request);
	return check_permits(group, 0);
}

static void put_permit(struct late *late)
{
	rtrs_group_put_permit(late->opened, late->permit);
}

int group_close_waits(struct rtrs_group *unused)
{
	static struct late late;

	late = (struct late) { .put = put_permit, .opened = open_group("late") };
	CHECK(!IS_ERR(late.opened));
	late.permit = rtrs_group_get_permit(late.opened, RTRS_PERMIT_WAIT);
	CHECK(late.permit);
	start_late(&late);
	rtrs_group_close(late.opened);
	CHECK(READ_ONCE(late.is_put));
	flush_delayed_work(&late.work);
	return 0;
}
