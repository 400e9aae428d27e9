// SPDX-License-Identifier: GPL-2.0
/*
 * A client of rtrs_srv_caller, for tests: asks it to do what a server may do, and
 * what it must not, and looks at what comes back.
 *
 * `echo CASE ADDRESS > /sys/module/rtrs_srv_asker/parameters/run' runs a case with
 * the server at ADDRESS (ip:...). The write fails with EIO if something is not as
 * it should be, and /sys/module/rtrs_srv_asker/parameters/failed says what.
 */

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rtrs.h>

#include "caller.h"
#include "rtrs_srv_caller.h"

/* More than a page, with the last one in part. */
#define LARGE (9 * PAGE_SIZE + 100)
#define VALUE 0x5a
/* More than that is handed over in another way. */
#define SHORT_MESSAGE 32
#define LONG_MESSAGE 300

DEFINE_FAILED();

static char address[64];

static struct rtrs_clt_sess *open_as(const char *name)
{
	return open_session(name, address, SRV_PORT);
}

struct question {
	enum rtrs_clt_con_type type;
	int dir;
	enum srv_command command;
	size_t message_len, len;
};

struct answer {
	struct completion done;
	int errno;
};

static void confirmed(void *private, int errno)
{
	struct answer *answer = private;

	answer->errno = errno;
	complete(&answer->done);
}

/* Asks, and waits; @data has room for what is asked. The error of the response, or positive. */
static int ask(struct rtrs_clt_sess *sess, const struct question *question, u8 *data)
{
	static u8 text[LONG_MESSAGE];
	struct srv_message *message = (struct srv_message *)text;
	struct answer answer;
	struct rtrs_clt_req_ops ops = { .priv = &answer, .conf_fn = confirmed };
	struct kvec vec = { .iov_base = text, .iov_len = question->message_len };
	struct rtrs_permit *permit;
	struct scatterlist *list;
	unsigned int count = DIV_ROUND_UP(question->len, PAGE_SIZE), i;
	int err;

	memset(text, VALUE, sizeof(text));
	message->command = cpu_to_le32(question->command);
	message->len = cpu_to_le32(question->message_len);
	message->datalen = cpu_to_le32(question->len);
	list = kcalloc(count + 1, sizeof(*list), GFP_KERNEL);
	if (!list)
		return ENOMEM;
	sg_init_table(list, count + 1);
	for (i = 0; i < count; i++)
		sg_set_buf(&list[i], data + i * PAGE_SIZE,
			   min(PAGE_SIZE, question->len - i * PAGE_SIZE));
	init_completion(&answer.done);
	permit = rtrs_clt_get_permit(sess, question->type, RTRS_PERMIT_WAIT);
	err = rtrs_clt_request(question->dir, &ops, sess, permit, &vec, 1, question->len, list,
			       count);
	if (!err)
		wait_for_completion(&answer.done);
	rtrs_clt_put_permit(sess, permit);
	kfree(list);
	return err ? -err : answer.errno;
}

static int simple(struct rtrs_clt_sess *sess, enum srv_command command)
{
	struct question question = { RTRS_IO_CON, WRITE, command, SHORT_MESSAGE, 0 };

	return ask(sess, &question, NULL);
}

/* All sizes of messages and data, both ways. */
static int test_data(struct rtrs_clt_sess *sess, u8 *data)
{
	static const size_t lens[] = { 0, 1, 512, PAGE_SIZE, LARGE };
	static const size_t messages[] = { sizeof(struct srv_message), SHORT_MESSAGE, LONG_MESSAGE };
	struct question question = {};
	size_t i, j, k;

	for (i = 0; i < ARRAY_SIZE(lens) * ARRAY_SIZE(messages) * 2; i++) {
		question.type = i % 2 ? RTRS_IO_CON : RTRS_ADMIN_CON;
		question.len = lens[i / 2 % ARRAY_SIZE(lens)];
		j = i / 2 / ARRAY_SIZE(lens);
		/* A short one comes after long ones of the same chunk, too. */
		question.message_len = messages[ARRAY_SIZE(messages) - 1 - j];
		question.dir = WRITE;
		question.command = SRV_CHECK;
		memset(data, VALUE, LARGE);
		CHECK(ask(sess, &question, data) == 0);
		if (!question.len)
			continue;
		question.dir = READ;
		question.command = SRV_FILL;
		memset(data, 0, LARGE);
		CHECK(ask(sess, &question, data) == 0);
		for (k = 0; k < LARGE; k++)
			CHECK(data[k] == (k < question.len ? VALUE : 0));
	}
	return 0;
}

static int test_wrong(struct rtrs_clt_sess *sess, u8 *data)
{
	int i;

	for (i = 0; i < 3; i++) {
		CHECK(simple(sess, SRV_TWICE) == 0);
		CHECK(simple(sess, SRV_LATER) == 0);
		CHECK(simple(sess, SRV_WRONG) == 0);
		CHECK(simple(sess, SRV_RETURN) == -ENOSPC);
		CHECK(simple(sess, SRV_BOTH) == 0);
		CHECK(simple(sess, SRV_POSITIVE) == -EPERM);
		CHECK(simple(sess, SRV_HUGE) == -EIO);
		CHECK(simple(sess, SRV_LEAST) == -EIO);
	}
	return test_data(sess, data);
}

static int test_refused(struct rtrs_clt_sess *sess, u8 *data)
{
	struct rtrs_clt_sess *other = open_as("caller-refused");

	CHECK(IS_ERR(other));
	return simple(sess, SRV_LATER);
}

/* A callback that sleeps holds nothing else up. */
static int test_sleep(struct rtrs_clt_sess *sess, u8 *data)
{
	struct question admin = { RTRS_ADMIN_CON, WRITE, SRV_SLEEP, SHORT_MESSAGE, 0 };
	unsigned long began = jiffies;

	CHECK(simple(sess, SRV_SLEEP) == 0);
	CHECK(ask(sess, &admin, NULL) == 0);
	CHECK(time_after_eq(jiffies, began + msecs_to_jiffies(400)));
	return test_data(sess, data);
}

static const struct {
	const char *name;
	int (*run)(struct rtrs_clt_sess *sess, u8 *data);
} cases[] = {
	{ "data", test_data },
	{ "wrong", test_wrong },
	{ "refused", test_refused },
	{ "sleep", test_sleep },
};

static int run_case(const char *text, const struct kernel_param *parameter)
{
	struct rtrs_clt_sess *sess;
	char name[32];
	int place, err;
	u8 *data;

	if (sscanf(text, "%31s %63s", name, address) != 2)
		return -EINVAL;
	place = find_case(cases, name);
	if (place < 0)
		return place;
	failed[0] = '\0';
	data = (u8 *)__get_free_pages(GFP_KERNEL, get_order(LARGE));
	if (!data)
		return -ENOMEM;
	sess = open_as("caller");
	if (IS_ERR(sess)) {
		err = PTR_ERR(sess);
	} else {
		err = cases[place].run(sess, data);
		rtrs_clt_close(sess);
	}
	free_pages((unsigned long)data, get_order(LARGE));
	return err;
}

DEFINE_RUN(run_case);

MODULE_DESCRIPTION("A client of rtrs_srv_caller, for tests");
MODULE_LICENSE("GPL");
