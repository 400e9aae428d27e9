/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the modules have in common that use RTRS in C, for tests: how they tell what is not as it
 * should be, sessions and permits, ways to wait, and how they are told to run a case.
 */

#ifndef CALLER_H
#define CALLER_H

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rtrs.h>

/* What was not as it should be; the file of a module that runs the cases defines it. */
extern char failed[160];

#define DEFINE_FAILED()								\
	char failed[160];							\
	module_param_string(failed, failed, sizeof(failed), 0444)

/* Has `function' called with what is written to the parameter `run'. */
#define DEFINE_RUN(function)							\
	static const struct kernel_param_ops run_ops = { .set = function };	\
	module_param_cb(run, &run_ops, NULL, 0200)

#define CHECK_OR(condition, number)						\
	do {									\
		if (!(condition)) {						\
			scnprintf(failed, sizeof(failed), "%s: line %d: %s",	\
				  __func__, __LINE__, #condition);		\
			return -(number);					\
		}								\
	} while (0)

#define CHECK(condition) CHECK_OR(condition, EIO)

/* Passes on what another function has found. */
#define CALL(function)				\
	do {					\
		int found = (function);		\
						\
		if (found)			\
			return found;		\
	} while (0)

/* The place of the case of this name in an array of cases; -ENOENT if there is none. */
#define find_case(cases, text)						\
	({								\
		int _i, _place = -ENOENT;				\
									\
		for (_i = 0; _i < ARRAY_SIZE(cases); _i++) {		\
			if (!strcmp((cases)[_i].name, text))		\
				_place = _i;				\
		}							\
		_place;							\
	})

static inline void ignore_link(void *private, enum rtrs_clt_link_ev event)
{
}

/* A path to an address (ip:...), with room for both its ends. */
static inline int read_path(struct rtrs_addr *path, struct sockaddr_storage ends[2],
			    const char *address, u16 port)
{
	path->src = &ends[0];
	path->dst = &ends[1];
	return rtrs_addr_to_sockaddr(address, strlen(address), port, path);
}

/* A session with one path, to an address (ip:...). */
static inline struct rtrs_clt_sess *open_session(const char *name, const char *address, u16 port)
{
	struct rtrs_clt_ops ops = { .link_ev = ignore_link };
	struct sockaddr_storage ends[2];
	struct rtrs_addr path;
	int err = read_path(&path, ends, address, port);

	if (err)
		return ERR_PTR(err);
	return rtrs_clt_open(&ops, name, &path, 1, port, 0, 1, -1, 0);
}

/* A session has all its permits, each of them once, but for those that are out. */
static inline int check_permits_of(struct rtrs_clt_sess *sess, unsigned int out)
{
	struct rtrs_permit **permits;
	struct rtrs_attrs attrs;
	unsigned int i, j, count;

	CHECK(!rtrs_clt_query(sess, &attrs));
	permits = kvcalloc(attrs.queue_depth + 1, sizeof(*permits), GFP_KERNEL);
	CHECK(permits);
	for (count = 0; count <= attrs.queue_depth; count++) {
		permits[count] = rtrs_clt_get_permit(sess, RTRS_IO_CON, RTRS_PERMIT_NOWAIT);
		if (!permits[count])
			break;
	}
	for (i = 0; i < count; i++) {
		for (j = 0; j < i; j++)
			CHECK(permits[i] != permits[j]);
	}
	for (i = 0; i < count; i++)
		rtrs_clt_put_permit(sess, permits[i]);
	kvfree(permits);
	CHECK(count == attrs.queue_depth - out);
	return 0;
}

/* A task that waits for a permit of a session. */
struct waiter {
	struct rtrs_clt_sess *sess;
	struct rtrs_permit *permit;
	struct completion done;
};

static inline int wait_for_permit(void *private)
{
	struct waiter *waiter = private;

	waiter->permit = rtrs_clt_get_permit(waiter->sess, RTRS_IO_CON, RTRS_PERMIT_WAIT);
	complete(&waiter->done);
	return 0;
}

/* Starts one; whether that was possible. */
static inline bool start_waiter(struct waiter *waiter, struct rtrs_clt_sess *sess)
{
	*waiter = (struct waiter) { .sess = sess };
	init_completion(&waiter->done);
	return !IS_ERR(kthread_run(wait_for_permit, waiter, "rtrs_caller"));
}

/* Gives a permit back after a while, of what was opened: a session, or a group. */
struct late {
	struct delayed_work work;
	void (*put)(struct late *late);
	void *opened, *permit;
	bool is_put;
};

static inline void put_late(struct work_struct *work)
{
	struct late *late = container_of(to_delayed_work(work), struct late, work);

	WRITE_ONCE(late->is_put, true);
	late->put(late);
}

static inline void start_late(struct late *late)
{
	INIT_DELAYED_WORK(&late->work, put_late);
	schedule_delayed_work(&late->work, HZ / 5);
}

#endif /* CALLER_H */
