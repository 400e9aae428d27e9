/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of RTRS sessions: a write is sent to several servers, from one memory,
 * and is confirmed when each of them has confirmed it or has failed; a read goes
 * to one of them. The kernel's RTRS has no such thing. The functions are those of
 * rtrs_group_c.ko, for modules under the GPL.
 *
 * As in rtrs.h, what a caller does wrong is found, logged and refused where this
 * says so; what is called undefined is not looked at. Every pointer that is handed
 * in must be valid, unless NULL is mentioned. Groups and permits are no pointers to
 * memory: they are only handed back. A group that is closed can still be named, and
 * the functions fail then, with -ENODEV or NULL.
 */

#ifndef RTRS_GROUP_H
#define RTRS_GROUP_H

#include "rtrs.h"

struct rtrs_group;
struct rtrs_group_permit;

/* The most members of a group. Sets of members are bits: bit n is member n. */
#define RTRS_GROUP_MAX_MEMBERS	16

/* A member that has not confirmed a write. */
struct rtrs_group_failure {
	u64 number;	/* of the write */
	u32 member;
};

struct rtrs_group_ops {
	void *priv;
	/*
	 * A member has fallen behind: it has not confirmed this write, and gets no more. Called
	 * once each time, before the confirmation of that write, in softirq, work or process
	 * context, perhaps before rtrs_group_write() has returned; must not sleep. NULL: not
	 * called.
	 */
	void (*fell_behind)(void *priv, const struct rtrs_group_failure *failure);
};

/*
 * Makes a group of @count sessions with different servers, which are taken to have the same data.
 * The sessions are its members, numbered in their order here. They are the group's from then on:
 * the functions of rtrs.h find them closed, and rtrs_group_close() closes them. Their @link_ev are
 * called until then. After an error the sessions are as before. @ops is copied, and may be NULL.
 *
 * Returns ERR_PTR(): -EINVAL for no session, or more than RTRS_GROUP_MAX_MEMBERS; -ENODEV for a
 * session that is closed, or a member of a group; -EBUSY if a permit of a session is out, if a task
 * waits for one, or for a session twice; -ENFILE if there are 1024 groups; -ENOMEM. Sleeps. Until it
 * returns nobody gets a permit of the sessions; a task that would wait for one gets NULL.
 */
struct rtrs_group *rtrs_group_open(const struct rtrs_group_ops *ops,
				   struct rtrs_clt_sess *const *sessions, unsigned int count);

/*
 * Confirms what is in flight, waits until all permits were given back, and closes the group and
 * its sessions: no callback runs afterwards, or will. NULL, and a group that was closed before, are
 * left alone. Sleeps, and for ever if a permit is not given back. Not in a callback.
 */
void rtrs_group_close(struct rtrs_group *group);

/*
 * What all members offer: the least of each. It does not change. Any context.
 */
int rtrs_group_query(struct rtrs_group *group, struct rtrs_attrs *attr);

/*
 * Gets the right to send one request at a time, by the connections of the CPU that gets it. NULL if
 * there is none and @wait says so. Any context; sleeps with RTRS_PERMIT_WAIT if there is none, and
 * cannot be interrupted.
 */
struct rtrs_group_permit *rtrs_group_get_permit(struct rtrs_group *group, enum wait_type wait);

/*
 * Gives a permit back; from the confirmation on, or if nothing was sent. A permit that is not out,
 * whose request is not confirmed yet, or of another group is refused. Any context.
 */
void rtrs_group_put_permit(struct rtrs_group *group, struct rtrs_group_permit *permit);

/* How a request has ended. */
struct rtrs_group_result {
	u64 number;	/* of the write; 0 for a read, and for a write to one member */
	u32 confirmed;	/* the members that have confirmed it */
	u32 failed;	/* the members that it was sent to, and that have not confirmed it */
	u32 unanswered;	/* those of @failed that have not responded, and may have it all the same */
	int error;	/* 0 if a member has confirmed it; else that of the first that failed */
};

struct rtrs_group_req_ops {
	void *priv;
	/*
	 * The request is done. Called once, in softirq, work or process context, perhaps before
	 * the function that sends has returned; must not sleep. @result is there during the call.
	 * The memory of the data is the caller's again.
	 */
	void (*conf_fn)(void *priv, const struct rtrs_group_result *result);
};

/*
 * Sends a message and data to all members that take writes. Writes are numbered from 1, in the
 * order in which they are sent. A member that does not respond, or that refuses a write which
 * another one has confirmed, falls behind; the write is then on its list.
 *
 * @vec: the message; copied before this returns. At most RTRS_CLT_MAX_MESSAGE bytes.
 * @len: the length of the first @sg_cnt entries of @sg. Each entry but the first begins, and each
 *	 but the last ends at a multiple of 4096. No data if @sg_cnt is 0.
 * @sg:  the memory; lent until the confirmation, unless this fails. It is mapped once for each RDMA
 *	 device. The list itself is copied. Memory that is freed before the confirmation is
 *	 undefined.
 *
 * Any context. Returns an error if nothing was sent, and there is no confirmation then, and no such
 * write: -ECONNABORTED if all members are behind; -EMSGSIZE if the message or the data is too long;
 * -EBUSY if the permit's request is not confirmed yet; -EINVAL for a permit that is not out, or of
 * another group, without @conf_fn, if @len is another length than that of the entries, or if the
 * list is shorter than @sg_cnt or longer than @max_segments. A list that leaves gaps can be refused
 * by the members: the error is in the confirmation then, and no member has the write.
 */
int rtrs_group_write(struct rtrs_group *group, struct rtrs_group_permit *permit,
		     const struct rtrs_group_req_ops *ops, const struct kvec *vec, size_t nr,
		     size_t len, struct scatterlist *sg, unsigned int sg_cnt);

/*
 * The same, with a message for each member: @messages has as many entries as the group has members,
 * each of which is a whole message. -EINVAL for another @count, too.
 */
int rtrs_group_write_each(struct rtrs_group *group, struct rtrs_group_permit *permit,
			  const struct rtrs_group_req_ops *ops, const struct kvec *messages,
			  size_t count, size_t len, struct scatterlist *sg, unsigned int sg_cnt);

/*
 * As rtrs_group_write(), to one member in any state, to bring it what it has missed. Such a write has no number,
 * and is on no list. -ENODEV if there is no such member.
 */
int rtrs_group_write_to(struct rtrs_group *group, unsigned int member,
			struct rtrs_group_permit *permit, const struct rtrs_group_req_ops *ops,
			const struct kvec *vec, size_t nr, size_t len, struct scatterlist *sg,
			unsigned int sg_cnt);

/*
 * Sends a message to one member that is in sync, connected and not in @except, as the policy says;
 * the member responds with data. The confirmation says which it was. Arguments, contexts and errors
 * are those of rtrs_group_write(), and: -ECONNABORTED if there is no such member; -EAGAIN if
 * something is short for the moment. What is read is undefined until the request was confirmed with
 * 0.
 */
int rtrs_group_read(struct rtrs_group *group, u32 except, struct rtrs_group_permit *permit,
		    const struct rtrs_group_req_ops *ops, const struct kvec *vec, size_t nr,
		    size_t len, struct scatterlist *sg, unsigned int sg_cnt);

/* Which member is read. */
enum rtrs_group_read_policy {
	RTRS_GROUP_ROUND_ROBIN,		/* one after the other; the policy of a new group */
	RTRS_GROUP_LEAST_LATENCY,	/* that whose reads take least time */
	RTRS_GROUP_FIXED,		/* @member; if it may not be read, the lowest */
};

/* -EINVAL for another policy, or for a member that no group has. Any context. */
int rtrs_group_set_read_policy(struct rtrs_group *group, enum rtrs_group_read_policy policy,
			       unsigned int member);

/* The state of a member. */
enum rtrs_group_state {
	RTRS_GROUP_IN_SYNC,	/* it gets writes and is read; its list is empty */
	RTRS_GROUP_BEHIND,	/* it gets no writes; all of them are on its list */
	RTRS_GROUP_CATCHING_UP,	/* it gets writes, and is not read */
};

/* Writes with consecutive numbers: @last is not less than @first. */
struct rtrs_group_range {
	u64 first;
	u64 last;
};

struct rtrs_group_missing {
	enum rtrs_group_state state;
	/*
	 * 1: the list has the writes that the member has not confirmed, and no other ones. 0: it
	 * needed more ranges than it has room for, and has some that the member has confirmed, too.
	 */
	u32 is_exact;
	/* The number of ranges; at most @queue_depth, or 64 if that is less. */
	u32 count;
};

/*
 * Writes the state of a member to @missing, and the first ranges of its list, in the order of their
 * numbers, to the @room places at @ranges. -ENODEV if there is no such member. Sleeps.
 */
int rtrs_group_missing(struct rtrs_group *group, unsigned int member,
		       struct rtrs_group_missing *missing, struct rtrs_group_range *ranges,
		       unsigned int room);

/*
 * Change the state of a member, as Documentation/rtrs-api.md says: leave it out, as if it had
 * failed; have it get new writes again; take the writes from @first to @last off its list, as the
 * caller has brought it what these did; declare it in sync.
 *
 * -ENODEV if there is no such member; -EINVAL in a state that does not allow it; -ECONNABORTED from
 * rtrs_group_rejoin() if no path of the member is up; -EBUSY from rtrs_group_in_sync() with writes
 * on the list; -ENOSPC from rtrs_group_resolved() if the list has no room for what is left. Any
 * context.
 */
int rtrs_group_leave_out(struct rtrs_group *group, unsigned int member);
int rtrs_group_rejoin(struct rtrs_group *group, unsigned int member);
int rtrs_group_resolved(struct rtrs_group *group, unsigned int member, u64 first, u64 last);
int rtrs_group_in_sync(struct rtrs_group *group, unsigned int member);

#endif /* RTRS_GROUP_H */
