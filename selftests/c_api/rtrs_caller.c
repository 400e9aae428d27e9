// SPDX-License-Identifier: GPL-2.0
/*
 * A user of the RTRS client in C, for tests: does what callers may do, and what they must not.
 *
 * `echo CASE ADDRESS > /sys/module/rtrs_caller/parameters/run' runs a case with the RNBD server at
 * ADDRESS (ip:...). The write fails with EIO if something is not as it should be, and
 * /sys/module/rtrs_caller/parameters/failed says what.
 */

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rtrs.h>

#include "caller.h"

#define PORT 1234

/* Messages of RNBD: what the client's version is, and the server's response. */
enum { SESS_INFO = 0, SESS_INFO_RSP = 1 };

struct sess_info {
	__le16 type;
	__le16 padding;
	u8 version;
	u8 reserved[31];
};

DEFINE_FAILED();

static char address[64];

static struct rtrs_clt_sess *open_as(const char *name)
{
	return open_session(name, address, PORT);
}

/* A request of ours, and its end. */
struct request {
	struct sess_info message, *answer;
	struct scatterlist list[2];
	struct completion done;
	int confirmations;
	int errno;
};

static void confirmed(void *private, int errno)
{
	struct request *request = private;

	request->confirmations++;
	request->errno = errno;
	complete(&request->done);
}

static struct request *new_request(void)
{
	struct request *request = kzalloc(sizeof(*request), GFP_KERNEL);

	if (!request)
		return NULL;
	request->answer = kzalloc(sizeof(*request->answer), GFP_KERNEL);
	if (!request->answer) {
		kfree(request);
		return NULL;
	}
	request->message.type = cpu_to_le16(SESS_INFO);
	request->message.version = 2;
	init_completion(&request->done);
	sg_init_table(request->list, 1);
	sg_set_buf(request->list, request->answer, sizeof(*request->answer));
	return request;
}

static void free_request(struct request *request)
{
	kfree(request->answer);
	kfree(request);
}

static int ask(struct rtrs_clt_sess *sess, struct rtrs_permit *permit, struct request *request)
{
	struct rtrs_clt_req_ops ops = { .priv = request, .conf_fn = confirmed };
	struct kvec vec = { .iov_base = &request->message, .iov_len = sizeof(request->message) };

	return rtrs_clt_request(READ, &ops, sess, permit, &vec, 1, sizeof(*request->answer),
				request->list, 1);
}

/* What a caller may do. */

static int check_messages(struct rtrs_clt_sess *sess)
{
	enum rtrs_clt_con_type types[] = { RTRS_ADMIN_CON, RTRS_IO_CON };
	struct rtrs_permit *permit;
	struct request *request;
	int i;

	for (i = 0; i < 2; i++) {
		request = new_request();
		CHECK(request);
		permit = rtrs_clt_get_permit(sess, types[i], RTRS_PERMIT_WAIT);
		CHECK(permit);
		CHECK(!ask(sess, permit, request));
		wait_for_completion(&request->done);
		CHECK(request->errno == 0);
		CHECK(le16_to_cpu(request->answer->type) == SESS_INFO_RSP);
		CHECK(request->answer->version >= 1);
		CHECK(request->confirmations == 1);
		rtrs_clt_put_permit(sess, permit);
		free_request(request);
	}
	return 0;
}

static int test_messages(struct rtrs_clt_sess *sess)
{
	struct rtrs_attrs attrs;
	int err = check_messages(sess);

	if (err)
		return err;
	CHECK(!rtrs_clt_query(sess, &attrs));
	CHECK(attrs.queue_depth > 1);
	CHECK(attrs.max_io_size >= 4096 && attrs.max_io_size <= attrs.max_segments * 4096);
	/* No connection is polled. */
	CHECK(rtrs_clt_rdma_cq_direct(sess, 0) == -1);
	CHECK(rtrs_clt_rdma_cq_direct(sess, 1 << 30) == -1);
	return 0;
}

static int test_waiting(struct rtrs_clt_sess *sess)
{
	struct rtrs_permit **permits, *mine;
	struct waiter waiters[2];
	struct rtrs_attrs attrs;
	unsigned int i;

	CHECK(!rtrs_clt_query(sess, &attrs));
	permits = kvcalloc(attrs.queue_depth, sizeof(*permits), GFP_KERNEL);
	CHECK(permits);
	for (i = 0; i < attrs.queue_depth; i++) {
		permits[i] = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
		CHECK(permits[i]);
	}
	CHECK(!rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT));
	for (i = 0; i < 2; i++)
		CHECK(start_waiter(&waiters[i], sess));
	CHECK(!wait_for_completion_timeout(&waiters[0].done, HZ / 10));
	CHECK(!completion_done(&waiters[1].done));
	for (i = 0; i < 2; i++)
		rtrs_clt_put_permit(sess, permits[i]);
	for (i = 0; i < 2; i++) {
		wait_for_completion(&waiters[i].done);
		mine = waiters[i].permit;
		CHECK(mine == permits[0] || mine == permits[1]);
	}
	CHECK(waiters[0].permit != waiters[1].permit);
	for (i = 0; i < attrs.queue_depth; i++)
		rtrs_clt_put_permit(sess, permits[i]);
	kvfree(permits);
	return check_permits_of(sess, 0);
}

static void put_permit(struct late *late)
{
	rtrs_clt_put_permit(late->opened, late->permit);
}

static int test_close_waits(struct rtrs_clt_sess *unused)
{
	static struct late late;

	late = (struct late) { .put = put_permit, .opened = open_as("late") };
	CHECK(!IS_ERR(late.opened));
	late.permit = rtrs_clt_get_permit(late.opened, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	CHECK(late.permit);
	start_late(&late);
	rtrs_clt_close(late.opened);
	CHECK(READ_ONCE(late.is_put));
	flush_delayed_work(&late.work);
	return 0;
}

static int test_addresses(struct rtrs_clt_sess *unused)
{
	static const char * const paths[] = {
		"ip:192.0.2.1", "ip:192.0.2.1@ip:192.0.2.2", "ip:2001:db8::1@ip:2001:db8::2",
		"gid:fe80:0000:0000:0000:0000:0000:0000:0001",
	};
	struct sockaddr_storage source, destination;
	char text[100];
	struct rtrs_addr path;
	int i, len;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		path = (struct rtrs_addr) { .src = &source, .dst = &destination };
		CHECK(!rtrs_addr_to_sockaddr(paths[i], strlen(paths[i]), PORT, &path));
		CHECK(!path.src == !strchr(paths[i], '@'));
		CHECK(rtrs_addr_to_str(&path, text, sizeof(text)) == strlen(paths[i]));
		CHECK(!strcmp(text, paths[i]));
	}
	path = (struct rtrs_addr) { .src = &source, .dst = &destination };
	CHECK(!rtrs_addr_to_sockaddr("ip:1.2.3.4,ip:5.6.7.89", 21, PORT, &path));
	CHECK(sockaddr_to_str((struct sockaddr *)path.dst, text, sizeof(text)) == 10);
	CHECK(!strcmp(text, "ip:5.6.7.8"));
	memset(text, 'x', sizeof(text));
	len = sockaddr_to_str((struct sockaddr *)path.dst, text, 6);
	CHECK(len == 5 && !strcmp(text, "ip:5.") && text[6] == 'x');
	CHECK(sockaddr_to_str((struct sockaddr *)path.dst, text, 0) == 0 && text[0] == 'i');
	path.src = &source;
	CHECK(rtrs_addr_to_sockaddr("tcp:1.2.3.4", 11, PORT, &path) == -EPROTONOSUPPORT);
	CHECK(rtrs_addr_to_sockaddr("ip:1.2.3", 8, PORT, &path) == -EINVAL);
	CHECK(rtrs_addr_to_sockaddr("tcp:1@ip:1.2.3.4", 16, PORT, &path) == -EINVAL);
	destination.ss_family = AF_UNIX;
	CHECK(sockaddr_to_str((struct sockaddr *)&destination, text, sizeof(text)) > 0);
	CHECK(!strcmp(text, "<invalid address family>"));
	return 0;
}

/* What a caller must not do. */

static int test_double_put(struct rtrs_clt_sess *sess)
{
	struct rtrs_permit *permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	struct request *request = new_request();

	CHECK(permit && request);
	rtrs_clt_put_permit(sess, permit);
	rtrs_clt_put_permit(sess, permit);
	rtrs_clt_put_permit(sess, NULL);
	rtrs_clt_put_permit(sess, (void *)permit + 1);
	rtrs_clt_put_permit(sess, (void *)request);
	CHECK(ask(sess, permit, request) == -EINVAL);
	CHECK(ask(sess, NULL, request) == -EINVAL);
	CHECK(!request->confirmations);
	free_request(request);
	return check_permits_of(sess, 0);
}

static int test_permit_of_another(struct rtrs_clt_sess *sess)
{
	struct rtrs_clt_sess *other = open_as("other");
	struct rtrs_permit *permit;
	struct request *request = new_request();
	int err;

	CHECK(!IS_ERR(other) && request);
	permit = rtrs_clt_get_permit(other, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	CHECK(permit);
	CHECK(ask(sess, permit, request) == -EINVAL);
	rtrs_clt_put_permit(sess, permit);
	err = check_permits_of(sess, 0);
	/* It is still out in its own session. */
	err = err ?: check_permits_of(other, 1);
	rtrs_clt_put_permit(other, permit);
	err = err ?: check_permits_of(other, 0);
	rtrs_clt_close(other);
	free_request(request);
	return err;
}

/* Uses a permit whose request is in flight; the response may come sooner, so several times. */
static int test_busy(struct rtrs_clt_sess *sess)
{
	struct request *request = new_request(), *second = new_request();
	int refused = 0, tries, confirmations = 0;
	struct rtrs_permit *permit;

	CHECK(request && second);
	for (tries = 0; tries < 100 && !refused; tries++) {
		permit = rtrs_clt_get_permit(sess, RTRS_ADMIN_CON, RTRS_PERMIT_WAIT);
		CHECK(permit);
		CHECK(!ask(sess, permit, request));
		if (ask(sess, permit, second) == -EBUSY) {
			rtrs_clt_put_permit(sess, permit);
			refused = !try_wait_for_completion(&request->done);
			if (refused)
				wait_for_completion(&request->done);
		} else {
			wait_for_completion(&request->done);
			wait_for_completion(&second->done);
			confirmations++;
		}
		rtrs_clt_put_permit(sess, permit);
	}
	CHECK(refused);
	CHECK(request->errno == 0 && request->confirmations == tries);
	CHECK(second->confirmations == confirmations);
	free_request(request);
	free_request(second);
	return check_permits_of(sess, 0);
}

static int refused_with(struct rtrs_clt_sess *sess, struct rtrs_permit *permit, int dir, size_t len,
			struct scatterlist *list, unsigned int count, size_t message)
{
	static u8 text[512];
	static struct request request;
	struct rtrs_clt_req_ops ops = { .priv = &request, .conf_fn = confirmed };
	struct kvec vec[2] = {
		{ .iov_base = text, .iov_len = message / 2 },
		{ .iov_base = text, .iov_len = message - message / 2 },
	};

	return rtrs_clt_request(dir, &ops, sess, permit, vec, 2, len, list, count);
}

static int test_lengths(struct rtrs_clt_sess *sess)
{
	struct rtrs_permit *permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	struct request *request = new_request();
	struct rtrs_clt_req_ops ops = { .priv = request };
	struct scatterlist *list, one[2];
	struct rtrs_attrs attrs;
	unsigned int most, i;
	int err;

	CHECK(permit && request);
	CHECK(!rtrs_clt_query(sess, &attrs));
	most = attrs.max_segments + 2;
	list = kvcalloc(most, sizeof(*list), GFP_KERNEL);
	CHECK(list);
	sg_init_table(list, most);
	for (i = 0; i < most; i++)
		sg_set_page(&list[i], virt_to_page(request->answer), 512, 0);
	sg_init_table(one, 2);
	sg_set_page(&one[0], virt_to_page(request->answer), 512, 0);

	for (i = READ; i <= WRITE; i++) {
		CHECK(refused_with(sess, permit, i, 511, list, 1, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 513, list, 1, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 512, list, 2, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 512, list, 0, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 512, NULL, 1, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 512 * most, list, most, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 1024, one, 2, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 1024, &list[most - 1], 2, 36) == -EINVAL);
		CHECK(refused_with(sess, permit, i, 512, list, 1, RTRS_CLT_MAX_MESSAGE + 1) ==
		      -EMSGSIZE);
	}
	CHECK(refused_with(sess, permit, 2, 512, list, 1, 36) == -EINVAL);
	CHECK(rtrs_clt_request(READ, &ops, sess, permit, NULL, 0, 0, NULL, 0) == -EINVAL);
	CHECK(rtrs_clt_request(READ, NULL, sess, permit, NULL, 0, 0, NULL, 0) == -EINVAL);
	ops.conf_fn = confirmed;
	CHECK(rtrs_clt_request(READ, &ops, sess, permit, NULL, 1, 0, NULL, 0) == -EINVAL);
	/* The segments leave gaps, and are too many bytes to be copied. */
	most = attrs.max_segments;
	CHECK(512 * most > 4096);
	sg_init_table(list, most);
	for (i = 0; i < most; i++)
		sg_set_page(&list[i], virt_to_page(request->answer), 512, 0);
	CHECK(refused_with(sess, permit, READ, 512 * most, list, most, 36) == -EINVAL);
	/* The permit is as good as before. */
	CHECK(!ask(sess, permit, request));
	wait_for_completion(&request->done);
	CHECK(request->errno == 0 && request->confirmations == 1);
	rtrs_clt_put_permit(sess, permit);
	kvfree(list);
	free_request(request);
	err = check_permits_of(sess, 0);
	return err ?: check_messages(sess);
}

static int test_closed(struct rtrs_clt_sess *unused)
{
	struct rtrs_clt_sess *sess = open_as("closed");
	struct request *request = new_request();
	struct rtrs_permit *permit;
	struct rtrs_attrs attrs;
	int i;

	CHECK(!IS_ERR(sess) && request);
	permit = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	CHECK(permit);
	rtrs_clt_put_permit(sess, permit);
	rtrs_clt_close(sess);
	for (i = 0; i < 2; i++) {
		CHECK(ask(sess, permit, request) == -ENODEV);
		CHECK(!rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT));
		CHECK(!rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_WAIT));
		CHECK(rtrs_clt_query(sess, &attrs) == -ECOMM);
		CHECK(rtrs_clt_rdma_cq_direct(sess, 0) == -1);
		rtrs_clt_put_permit(sess, permit);
		rtrs_clt_close(sess);
		/* And of a session that was never opened. */
		sess = i ? sess : NULL;
	}
	CHECK(!request->confirmations);
	free_request(request);
	return 0;
}

static int test_opening(struct rtrs_clt_sess *sess)
{
	struct rtrs_clt_ops ops = { .link_ev = ignore_link }, none = {};
	struct rtrs_addr path, twice[2];
	struct sockaddr_storage ends[2];

	CHECK(!read_path(&path, ends, address, PORT));
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "a/b", &path, 1, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "", &path, 1, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", &path, 0, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", NULL, 1, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", &path, 1 << 20, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", &path, 1, PORT + 1, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&none, "x", &path, 1, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(NULL, "x", &path, 1, PORT, 0, 1, -1, 0)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "caller", &path, 1, PORT, 0, 1, -1, 0)) == -EEXIST);
	twice[0] = path;
	twice[1] = path;
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", twice, 2, PORT, 0, 1, -1, 0)) == -EEXIST);
	path.dst->ss_family = AF_UNIX;
	CHECK(PTR_ERR(rtrs_clt_open(&ops, "x", &path, 1, PORT, 0, 1, -1, 0)) == -EAFNOSUPPORT);
	return check_messages(sess);
}

static const struct {
	const char *name;
	int (*run)(struct rtrs_clt_sess *sess);
} cases[] = {
	{ "messages", test_messages },
	{ "waiting", test_waiting },
	{ "close_waits", test_close_waits },
	{ "addresses", test_addresses },
	{ "double_put", test_double_put },
	{ "permit_of_another", test_permit_of_another },
	{ "busy", test_busy },
	{ "lengths", test_lengths },
	{ "closed", test_closed },
	{ "opening", test_opening },
};

static int run_case(const char *text, const struct kernel_param *parameter)
{
	struct rtrs_clt_sess *sess;
	char name[32];
	int place, err;

	if (sscanf(text, "%31s %63s", name, address) != 2)
		return -EINVAL;
	place = find_case(cases, name);
	if (place < 0)
		return place;
	failed[0] = '\0';
	sess = open_as("caller");
	if (IS_ERR(sess))
		return PTR_ERR(sess);
	err = cases[place].run(sess);
	if (!err)
		rtrs_clt_close(sess);
	else
		/* Permits may be out, for which closing would wait. */
		__module_get(THIS_MODULE);
	return err;
}

DEFINE_RUN(run_case);

MODULE_DESCRIPTION("A user of the RTRS client in C, for tests");
MODULE_LICENSE("GPL");
