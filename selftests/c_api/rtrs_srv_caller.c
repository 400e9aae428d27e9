// SPDX-License-Identifier: GPL-2.0
/*
 * A user of the RTRS server in C, for tests: does with the requests of rtrs_caller
 * what each of them asks for, also what a user must not.
 *
 * /sys/module/rtrs_srv_caller/parameters/ has what was seen; failed says what
 * was not as it should be. `echo opening > .../run' tries what opens no context.
 */

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rtrs.h>

#include "caller.h"
#include "rtrs_srv_caller.h"

DEFINE_FAILED();
static int connected, disconnected;
module_param(connected, int, 0444);
module_param(disconnected, int, 0444);

static struct rtrs_srv_ctx *context;
/* Of the session that is there. */
static int private;
static struct rtrs_srv_sess *session;
/* The last operation that was responded to. */
static struct rtrs_srv_op *old;

struct late_response {
	struct work_struct work;
	struct rtrs_srv_op *id;
};

static void respond_late(struct work_struct *work)
{
	struct late_response *late = container_of(work, struct late_response, work);

	msleep(50);
	rtrs_srv_resp_rdma(late->id, 0);
	kfree(late);
}

static int respond_later(struct rtrs_srv_op *id)
{
	struct late_response *late = kmalloc(sizeof(*late), GFP_KERNEL);

	if (!late)
		return -ENOMEM;
	late->id = id;
	INIT_WORK(&late->work, respond_late);
	schedule_work(&late->work);
	return 0;
}

static int check(const struct srv_message *message, size_t len, u8 *data, size_t datalen)
{
	const u8 *usr = (const u8 *)message;
	size_t i;

	CHECK(len == le32_to_cpu(message->len));
	CHECK(datalen == le32_to_cpu(message->datalen));
	for (i = sizeof(*message); i < len; i++)
		CHECK(usr[i] == message->value);
	for (i = len; i < PAGE_SIZE; i++)
		CHECK(!usr[i]);
	for (i = 0; i < datalen; i++)
		CHECK(data[i] == message->value);
	/* As the block layer has it. */
	CHECK(virt_addr_valid(data));
	CHECK(page_to_phys(virt_to_page(data)) + offset_in_page(data) == virt_to_phys(data));
	return 0;
}

/* What is not to do anything. */
static void respond_wrongly(struct rtrs_srv_op *id)
{
	rtrs_srv_resp_rdma(NULL, -EIO);
	rtrs_srv_resp_rdma(old, -EIO);
	rtrs_srv_resp_rdma((void *)&private, -EIO);
	rtrs_srv_resp_rdma((void *)id + 1, -EIO);
	rtrs_srv_resp_rdma((void *)id + 8, -EIO);
	rtrs_srv_resp_rdma((void *)-1L, -EIO);
	rtrs_srv_resp_rdma((void *)session, -EIO);
}

static int request(void *priv, struct rtrs_srv_op *id, void *data, size_t datalen, const void *usr,
		   size_t usrlen)
{
	const struct srv_message *message = usr;
	int err = 0;

	CHECK(priv == &private);
	CHECK(usrlen >= sizeof(*message));
	switch (le32_to_cpu(message->command)) {
	case SRV_FILL:
		memset(data, message->value, datalen);
		break;
	case SRV_CHECK:
		err = check(message, usrlen, data, datalen);
		break;
	case SRV_TWICE:
		rtrs_srv_resp_rdma(id, 0);
		rtrs_srv_resp_rdma(id, -EIO);
		old = id;
		return 0;
	case SRV_LATER:
		return respond_later(id);
	case SRV_RETURN:
		return -ENOSPC;
	case SRV_BOTH:
		rtrs_srv_resp_rdma(id, 0);
		return -EIO;
	case SRV_POSITIVE:
		err = EPERM;
		break;
	case SRV_HUGE:
		err = -100000;
		break;
	case SRV_LEAST:
		err = INT_MIN;
		break;
	case SRV_WRONG:
		respond_wrongly(id);
		break;
	case SRV_SLEEP:
		msleep(200);
		break;
	default:
		err = -EOPNOTSUPP;
	}
	rtrs_srv_resp_rdma(id, err);
	old = id;
	return 0;
}

static int check_session(struct rtrs_srv_sess *sess)
{
	char name[20];

	CHECK(rtrs_srv_get_queue_depth(sess) > 1);
	CHECK(!rtrs_srv_get_path_name(sess, name, sizeof(name)));
	CHECK(!strncmp(name, "caller", 6));
	memset(name, 'x', sizeof(name));
	CHECK(!rtrs_srv_get_path_name(sess, name, 4));
	CHECK(!strcmp(name, "cal") && name[4] == 'x');
	CHECK(!rtrs_srv_get_path_name(sess, name, 0));
	/* Others are none. */
	CHECK(rtrs_srv_get_queue_depth((void *)sess + 1) == -ENOTCONN);
	CHECK(rtrs_srv_get_path_name(NULL, name, sizeof(name)) == -ENOTCONN);
	rtrs_srv_set_sess_priv((void *)sess + 8, NULL);
	return 0;
}

static int link_event(struct rtrs_srv_sess *sess, enum rtrs_srv_link_ev event, void *priv)
{
	char name[20];
	int err;

	if (event == RTRS_SRV_LINK_EV_CONNECTED) {
		CHECK(!priv);
		err = check_session(sess);
		if (err)
			return err;
		rtrs_srv_get_path_name(sess, name, sizeof(name));
		if (!strcmp(name, "caller-refused"))
			return -EPERM;
		session = sess;
		rtrs_srv_set_sess_priv(sess, &private);
		connected++;
		return 0;
	}
	disconnected++;
	CHECK(event == RTRS_SRV_LINK_EV_DISCONNECTED);
	CHECK(priv == &private);
	CHECK(rtrs_srv_get_path_name(sess, name, sizeof(name)) == -ENOTCONN);
	return 0;
}

static struct rtrs_srv_ops ops = { .rdma_ev = request, .link_ev = link_event };

static int try_opening(void)
{
	struct rtrs_srv_ops none = {}, half = { .rdma_ev = request };
	struct rtrs_srv_ctx *another;
	int i;

	CHECK(PTR_ERR(rtrs_srv_open(NULL, SRV_PORT + 1)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_srv_open(&none, SRV_PORT + 1)) == -EINVAL);
	CHECK(PTR_ERR(rtrs_srv_open(&half, SRV_PORT + 1)) == -EINVAL);
	/* Again and again, and closed twice. */
	for (i = 0; i < 3; i++) {
		another = rtrs_srv_open(&ops, SRV_PORT + 1);
		CHECK(!IS_ERR(another));
		rtrs_srv_close(another);
		rtrs_srv_close(another);
	}
	rtrs_srv_close(NULL);
	rtrs_srv_close((void *)context + 1);
	/* The session of a client that has left. */
	CHECK(session);
	CHECK(rtrs_srv_get_queue_depth(session) == -ENOTCONN);
	rtrs_srv_set_sess_priv(session, NULL);
	rtrs_srv_resp_rdma(old, 0);
	return 0;
}

static int run_case(const char *text, const struct kernel_param *parameter)
{
	if (!sysfs_streq(text, "opening"))
		return -ENOENT;
	return try_opening();
}

DEFINE_RUN(run_case);

static int __init begin(void)
{
	context = rtrs_srv_open(&ops, SRV_PORT);
	return PTR_ERR_OR_ZERO(context);
}

static void __exit end(void)
{
	rtrs_srv_close(context);
	/* What is asked of it after that finds nothing. */
	rtrs_srv_resp_rdma(old, 0);
	rtrs_srv_close(context);
	WARN_ON(connected != disconnected);
}

module_init(begin);
module_exit(end);

MODULE_DESCRIPTION("A user of the RTRS server in C, for tests");
MODULE_LICENSE("GPL");
