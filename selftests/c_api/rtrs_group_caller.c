// SPDX-License-Identifier: GPL-2.0
/*
 * A user of groups in C, for tests: does what callers may do, and what they must not.
 *
 * `echo CASE ADDRESS ADDRESS > /sys/module/rtrs_group_caller/parameters/run' runs a case with
 * two sessions, group-0 and group-1, with the sample rtrs_kv_server at these addresses (ip:...).
 * The write fails with EIO if something is not as it should be, and
 * /sys/module/rtrs_group_caller/parameters/failed says what.
 */

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rtrs-group.h>

#define PORT 1235
#define MEMBERS 2
#define BOTH 3
/* The longest data: three pages, the last one in part. */
#define PAGES 3
#define LARGE (2 * PAGE_SIZE + 100)
/* A response to a read begins with the length of the value. */
#define HEAD sizeof(__le32)

static const char key[] = "colour";

static char failed[160];
module_param_string(failed, failed, sizeof(failed), 0444);

static char addresses[MEMBERS][64];

#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			scnprintf(failed, sizeof(failed), "%s: line %d: %s",	\
				  __func__, __LINE__, #condition);		\
			return -EIO;						\
		}								\
	} while (0)

/* Passes on what another function has found. */
#define CALL(function)				\
	do {					\
		int found = (function);		\
						\
		if (found)			\
			return found;		\
	} while (0)

static atomic_t fallen;
static struct rtrs_group_failure last_failure;

static void fell_behind(void *private, const struct rtrs_group_failure *failure)
{
	last_failure = *failure;
	atomic_inc(&fallen);
}

static void link_event(void *private, enum rtrs_clt_link_ev event)
{
}

static struct rtrs_clt_sess *open_session(const char *name, const char *address)
{
	struct sockaddr_storage source, destination;
	struct rtrs_clt_ops ops = { .link_ev = link_event };
	struct rtrs_addr path = { .src = &source, .dst = &destination };
	int err = rtrs_addr_to_sockaddr(address, strlen(address), PORT, &path);

	if (err)
		return ERR_PTR(err);
	return rtrs_clt_open(&ops, name, &path, 1, PORT, 0, 1, -1, 0);
}

/* A group of new sessions, by their first name. */
static struct rtrs_group *open_group(const char *name)
{
	struct rtrs_group_ops ops = { .fell_behind = fell_behind };
	struct rtrs_clt_sess *sessions[MEMBERS];
	struct rtrs_group *group = NULL;
	char session[32];
	int i;

	for (i = 0; i < MEMBERS; i++) {
		snprintf(session, sizeof(session), "%s-%d", name, i);
		sessions[i] = open_session(session, addresses[i]);
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

/* A request of ours, and its end. */
struct request {
	u8 *data;
	struct scatterlist list[PAGES];
	struct completion done;
	int confirmations;
	struct rtrs_group_result result;
};

static void confirmed(void *private, const struct rtrs_group_result *result)
{
	struct request *request = private;

	request->confirmations++;
	request->result = *result;
	complete(&request->done);
}

static struct request *new_request(void)
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

static void free_request(struct request *request)
{
	free_pages((unsigned long)request->data, get_order(PAGES * PAGE_SIZE));
	kfree(request);
}

/* Has the list describe so many bytes; gives the number of entries. */
static unsigned int describe(struct request *request, size_t len)
{
	unsigned int count = DIV_ROUND_UP(len, PAGE_SIZE), i;

	sg_init_table(request->list, PAGES);
	for (i = 0; i < count; i++)
		sg_set_buf(&request->list[i], request->data + i * PAGE_SIZE,
			   min(PAGE_SIZE, len - i * PAGE_SIZE));
	return count;
}

static const struct kvec vec = { .iov_base = (void *)key, .iov_len = sizeof(key) - 1 };

/* Sends a write to all members, or to one of them, without waiting for its end. */
static int send_write(struct rtrs_group *group, int member, struct rtrs_group_permit *permit,
		      struct request *request, size_t len)
{
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	unsigned int count = describe(request, len);

	if (member < 0)
		return rtrs_group_write(group, permit, &ops, &vec, 1, len, request->list, count);
	return rtrs_group_write_to(group, member, permit, &ops, &vec, 1, len, request->list, count);
}

static int send_read(struct rtrs_group *group, u32 except, struct rtrs_group_permit *permit,
		     struct request *request, size_t len)
{
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	unsigned int count = describe(request, len);

	return rtrs_group_read(group, except, permit, &ops, &vec, 1, len, request->list, count);
}

/* Writes bytes of this value to all members, or to one, and waits; errors of sending only. */
static int put(struct rtrs_group *group, int member, struct request *request, u8 value, size_t len)
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

/* Reads the value of one member, and waits; the same errors. */
static int get(struct rtrs_group *group, u32 except, struct request *request, size_t len)
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

/* Each member has so many bytes of this value. */
static int check_members(struct rtrs_group *group, struct request *request, u8 value, size_t len)
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

/* All permits, which are as many as there are tags, but for those that are out. */
static int check_permits(struct rtrs_group *group, unsigned int out)
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

/* What a caller may do. */

static int test_data(struct rtrs_group *group)
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

static int test_states(struct rtrs_group *group)
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
static int test_each(struct rtrs_group *group)
{
	struct rtrs_group_permit *permit = rtrs_group_get_permit(group, RTRS_PERMIT_WAIT);
	struct request *request = new_request();
	struct rtrs_group_req_ops ops = { .priv = request, .conf_fn = confirmed };
	static u8 text[RTRS_CLT_MAX_MESSAGE + 1];
	struct kvec messages[MEMBERS] = {
		{ .iov_base = (void *)key, .iov_len = sizeof(key) - 1 },
		{ .iov_base = (void *)"shape", .iov_len = 5 },
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

static int test_policies(struct rtrs_group *group)
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
static int test_lose(struct rtrs_group *group)
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

struct late {
	struct rtrs_group *group;
	struct rtrs_group_permit *permit;
	struct delayed_work work;
	bool put;
};

static void put_late(struct work_struct *work)
{
	struct late *late = container_of(to_delayed_work(work), struct late, work);

	WRITE_ONCE(late->put, true);
	rtrs_group_put_permit(late->group, late->permit);
}

static int test_close_waits(struct rtrs_group *unused)
{
	static struct late late;

	late = (struct late) { .group = open_group("late") };
	CHECK(!IS_ERR(late.group));
	late.permit = rtrs_group_get_permit(late.group, RTRS_PERMIT_WAIT);
	CHECK(late.permit);
	INIT_DELAYED_WORK(&late.work, put_late);
	schedule_delayed_work(&late.work, HZ / 5);
	rtrs_group_close(late.group);
	CHECK(READ_ONCE(late.put));
	flush_delayed_work(&late.work);
	return 0;
}

/* What a caller must not do. */

static int test_double_put(struct rtrs_group *group)
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

static int test_foreign(struct rtrs_group *group)
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

/* Uses a permit whose request is in flight; the answer may come sooner, so several times. */
static int test_busy(struct rtrs_group *group)
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

static int test_lengths(struct rtrs_group *group)
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

static int test_closed(struct rtrs_group *unused)
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

struct waiter {
	struct rtrs_clt_sess *sess;
	struct rtrs_permit *permit;
	struct completion done;
};

static int wait_for_permit(void *private)
{
	struct waiter *waiter = private;

	waiter->permit = rtrs_clt_get_permit(waiter->sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	complete(&waiter->done);
	return 0;
}

/* A session has all its permits, and is its caller's. */
static int check_session(struct rtrs_clt_sess *sess)
{
	struct rtrs_permit **permits;
	struct rtrs_attrs attrs;
	unsigned int count, i;

	CHECK(!rtrs_clt_query(sess, &attrs));
	permits = kvcalloc(attrs.queue_depth, sizeof(*permits), GFP_KERNEL);
	CHECK(permits);
	for (count = 0; count < attrs.queue_depth; count++) {
		permits[count] = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT);
		if (!permits[count])
			break;
	}
	for (i = 0; i < count; i++)
		rtrs_clt_put_permit(sess, permits[i]);
	kvfree(permits);
	CHECK(count == attrs.queue_depth);
	return 0;
}

static int test_opening(struct rtrs_group *unused)
{
	struct rtrs_clt_sess *sessions[RTRS_GROUP_MAX_MEMBERS + 1], *closed;
	struct rtrs_permit *permit;
	struct rtrs_attrs attrs;
	struct waiter waiter = {};
	struct rtrs_group *group;
	int i;

	for (i = 0; i < ARRAY_SIZE(sessions); i++)
		sessions[i] = NULL;
	sessions[0] = open_session("first", addresses[0]);
	sessions[1] = open_session("second", addresses[1]);
	closed = open_session("third", addresses[0]);
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
	CALL(check_session(sessions[0]));
	CALL(check_session(sessions[1]));
	group = rtrs_group_open(NULL, sessions, 2);
	CHECK(!IS_ERR(group));
	/* The sessions are the group's now. */
	CHECK(rtrs_clt_query(sessions[0], &attrs) == -ECOMM);
	CHECK(!rtrs_clt_get_permit(sessions[0], RTRS_IO_CON, RTRS_PERMIT_NOWAIT));
	waiter.sess = sessions[1];
	init_completion(&waiter.done);
	CHECK(!IS_ERR(kthread_run(wait_for_permit, &waiter, "rtrs_caller")));
	wait_for_completion(&waiter.done);
	CHECK(!waiter.permit);
	CHECK(PTR_ERR(rtrs_group_open(NULL, sessions, 2)) == -ENODEV);
	rtrs_clt_close(sessions[0]);
	CALL(test_data(group));
	rtrs_group_close(group);
	/* Their names are free again. */
	sessions[0] = open_session("first", addresses[0]);
	CHECK(!IS_ERR(sessions[0]));
	rtrs_clt_close(sessions[0]);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct rtrs_group *group);
} cases[] = {
	{ "data", test_data },
	{ "states", test_states },
	{ "each", test_each },
	{ "policies", test_policies },
	{ "lose", test_lose },
	{ "close_waits", test_close_waits },
	{ "double_put", test_double_put },
	{ "foreign", test_foreign },
	{ "busy", test_busy },
	{ "lengths", test_lengths },
	{ "closed", test_closed },
	{ "opening", test_opening },
};

static int run_case(const char *text, const struct kernel_param *parameter)
{
	struct rtrs_group *group;
	char name[32];
	int i, err;

	if (sscanf(text, "%31s %63s %63s", name, addresses[0], addresses[1]) != 3)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (strcmp(cases[i].name, name))
			continue;
		failed[0] = '\0';
		atomic_set(&fallen, 0);
		group = open_group("group");
		if (IS_ERR(group))
			return PTR_ERR(group);
		err = cases[i].run(group);
		if (!err)
			rtrs_group_close(group);
		else
			/* Permits may be out, for which closing would wait. */
			__module_get(THIS_MODULE);
		return err;
	}
	return -ENOENT;
}

static const struct kernel_param_ops run_ops = { .set = run_case };
module_param_cb(run, &run_ops, NULL, 0200);

MODULE_DESCRIPTION("A user of groups of RTRS sessions in C, for tests");
MODULE_LICENSE("GPL");
