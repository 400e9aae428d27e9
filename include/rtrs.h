/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RTRS, the RDMA transport: what a client or a server in C calls. For such
 * modules this is the rtrs.h of the kernel's drivers/infiniband/ulp/rtrs: names,
 * types, errors and contexts are the same. The functions are those of
 * rtrs_client_c.ko and rtrs_server_c.ko, for modules under the GPL.
 *
 * What a caller does wrong is found, logged and refused where this says so;
 * what is called undefined is not looked at. Every pointer that is handed in
 * must be valid, unless NULL is mentioned.
 *
 * rtrs-group.h has groups of a client's sessions, which the kernel's RTRS has not.
 */

#ifndef RTRS_H
#define RTRS_H

#include <linux/scatterlist.h>
#include <linux/socket.h>
#include <linux/types.h>
#include <linux/uio.h>

struct rtrs_clt_sess;
struct rtrs_permit;

/* What a session tells its user. */
enum rtrs_clt_link_ev {
	RTRS_CLT_LINK_EV_RECONNECTED,	/* the first path is up again */
	RTRS_CLT_LINK_EV_DISCONNECTED,	/* the last path is lost, its requests were confirmed */
};

/* Both ends of a path. Without a source, which is then NULL, the RDMA layer chooses one. */
struct rtrs_addr {
	struct sockaddr_storage *src;
	struct sockaddr_storage *dst;
};

struct rtrs_clt_ops {
	void *priv;
	/*
	 * Called in process context, one event at a time, until rtrs_clt_close() returns. May
	 * sleep, but neither close the session nor wait for a request of it to be confirmed, as it
	 * does if it waits for a permit and requests have them all. It may be called before
	 * rtrs_clt_open() has returned.
	 */
	void (*link_ev)(void *priv, enum rtrs_clt_link_ev ev);
};

/*
 * Connects a session to a server, over @path_cnt paths; @ops is copied.
 *
 * @port: that of the server, also for paths that are added later. The port in each destination
 *	  address must be the same.
 * @pdu_sz: ignored, as no function gives access to memory behind a permit.
 * @reconnect_delay_sec: the longest wait before an attempt to connect a path again.
 * @max_reconnect_attempts: how many of them may fail in a row; negative: any number.
 * @nr_poll_queues: connections that are polled, besides one for each CPU.
 *
 * Returns ERR_PTR(): -EINVAL for a bad name, a bad number of paths, another port, or without
 * @link_ev; -EAFNOSUPPORT for an address that is neither IPv4, IPv6 nor a GID; -EEXIST for a path
 * given twice or a session name in use; -ENFILE if 4096 sessions are open; otherwise what the first
 * path says that cannot be connected. Sleeps.
 */
struct rtrs_clt_sess *rtrs_clt_open(struct rtrs_clt_ops *ops, const char *pathname,
				    const struct rtrs_addr *paths, size_t path_cnt, u16 port,
				    size_t pdu_sz, u8 reconnect_delay_sec,
				    s16 max_reconnect_attempts, u32 nr_poll_queues);

/*
 * Confirms what is in flight, waits until all permits were given back, and closes the session: no
 * callback runs afterwards, or will. NULL, and a session that was closed before, are left alone.
 * Sleeps, and for ever if a permit is not given back.
 *
 * A session that is closed can still be named, in all functions, and these fail then.
 */
void rtrs_clt_close(struct rtrs_clt_sess *clt);

enum wait_type {
	RTRS_PERMIT_NOWAIT = 0,
	RTRS_PERMIT_WAIT = 1
};

enum rtrs_clt_con_type {
	RTRS_ADMIN_CON,	/* by the service connection */
	RTRS_IO_CON	/* by the connection of the CPU that gets the permit */
};

/*
 * Gets the right to send one request at a time. NULL if there is none and @wait says so, for
 * another @con_type than those above, and of a session that is closed. Any context; sleeps with
 * RTRS_PERMIT_WAIT if there is none, and cannot be interrupted.
 */
struct rtrs_permit *rtrs_clt_get_permit(struct rtrs_clt_sess *sess,
					enum rtrs_clt_con_type con_type, enum wait_type wait);

/*
 * Gives a permit back; from the confirmation on, or if nothing was sent. A permit that is not out,
 * whose request is not confirmed yet, or of another session is refused. Any context.
 */
void rtrs_clt_put_permit(struct rtrs_clt_sess *sess, struct rtrs_permit *permit);

struct rtrs_clt_req_ops {
	void *priv;
	/*
	 * The request is done; @errno is 0 or negative: that of the server's response, or
	 * -ECONNABORTED if the last path was lost meanwhile. Called once, in softirq, work or process context, perhaps
	 * before rtrs_clt_request() has returned; must not sleep. The memory of the data is the
	 * caller's again.
	 */
	void (*conf_fn)(void *priv, int errno);
};

/* The most bytes of a message; those of C take a few thousand. */
#define RTRS_CLT_MAX_MESSAGE	384

/*
 * Sends a message and data to the server (@dir is WRITE), or a message, to which the server
 * responds with data (READ). Any context.
 *
 * @vec: the message; copied before this returns.
 * @len: the length of the first @sg_cnt entries of @sg, which is what is transferred. Each entry
 *	 but the first begins, and each but the last ends at a multiple of 4096.
 * @sg:  the memory; lent until the confirmation, unless this fails. The list itself is copied. What
 *	 is read is undefined until the request was confirmed with 0. Memory that is freed before the
 *	 confirmation is undefined.
 *
 * Returns an error if nothing was sent, and there is no confirmation then: -ECONNABORTED if no path
 * is up; -EMSGSIZE if the message or the data is too long; -EAGAIN if something is short for the
 * moment; -EBUSY if the permit's request is not confirmed yet; -EINVAL for a permit that is not out,
 * or of another session, for another @dir, without @conf_fn, if @len is another length than that of
 * the entries, if the list is shorter than @sg_cnt or longer than @max_segments, or if it leaves
 * gaps; -ENODEV if the session is closed.
 */
int rtrs_clt_request(int dir, struct rtrs_clt_req_ops *ops, struct rtrs_clt_sess *sess,
		     struct rtrs_permit *permit, const struct kvec *vec, size_t nr, size_t len,
		     struct scatterlist *sg, unsigned int sg_cnt);

/*
 * Looks for responses on connection @index of all paths, counted from that of the first CPU; those
 * that are polled follow the last CPU's. Returns how many it found, and -1 if no path is up, or for
 * a connection that is not polled. Any context in which confirmations may run.
 */
int rtrs_clt_rdma_cq_direct(struct rtrs_clt_sess *clt, unsigned int index);

struct rtrs_attrs {
	u32 queue_depth;	/* permits */
	u32 max_io_size;	/* the most data of one request, in bytes */
	u32 max_segments;	/* the most entries of its list */
};

/* What the server offers. -ECOMM if no path is up. Any context. */
int rtrs_clt_query(struct rtrs_clt_sess *sess, struct rtrs_attrs *attr);

/*
 * Reads a path from the @len bytes at @str: DESTINATION, SOURCE@DESTINATION or SOURCE,DESTINATION,
 * each "ip:" and an IPv4 or IPv6 address or "gid:" and a GID. Fills what @addr points to; its @src
 * becomes NULL if there is no source. -EPROTONOSUPPORT for another prefix, else -EINVAL. May sleep.
 */
int rtrs_addr_to_sockaddr(const char *str, size_t len, u16 port, struct rtrs_addr *addr);

/*
 * Write an address, or a path, to @buf, cut to @len bytes with the NUL. Return the number of bytes
 * written without it; 0 if @len is 0. Any context.
 */
int sockaddr_to_str(const struct sockaddr *addr, char *buf, size_t len);
int rtrs_addr_to_str(const struct rtrs_addr *addr, char *buf, size_t len);

/*
 * The server's end. Sessions, operations and contexts are no pointers to memory: they are only
 * handed back.
 */

struct rtrs_srv_ctx;
struct rtrs_srv_sess;
struct rtrs_srv_op;

/* What a session tells its user. */
enum rtrs_srv_link_ev {
	RTRS_SRV_LINK_EV_CONNECTED,	/* a client is there, its first path is about to be up */
	RTRS_SRV_LINK_EV_DISCONNECTED,	/* the last path is gone, and so is the session */
};

struct rtrs_srv_ops {
	/*
	 * A client has sent a request. The user responds with rtrs_srv_resp_rdma(), at once or
	 * later, or returns a negative errno, which is the response then. @priv is what
	 * rtrs_srv_set_sess_priv() was called with last.
	 *
	 * @data: @datalen bytes of data of the client (it called WRITE), or room for as many that
	 *	  the client asks for (READ), all of which are sent to it if the response is 0: the
	 *	  user fills them. Contiguous, a page at least, and the user's until the response.
	 * @usr:  the client's message, of @usrlen bytes and followed by zeroes up to a page; the
	 *	  user's until the response.
	 *
	 * Called in a work item; may sleep, which holds up what comes by the same connection.
	 * Requests of RTRS_ADMIN_CON, and those with a message of more than 32 bytes, are handed
	 * over one at a time for each session, in their order: one that waits for a later one waits
	 * for ever.
	 *
	 * What the client says is not checked: the message, its length and @datalen are its choice.
	 */
	int (*rdma_ev)(void *priv, struct rtrs_srv_op *id, void *data, size_t datalen,
		       const void *usr, size_t usrlen);
	/*
	 * Called in process context, for each session CONNECTED, without @priv, and then
	 * DISCONNECTED, once. May sleep, but not close the context. An error at CONNECTED refuses
	 * the client, and nothing of the session is called any more. At DISCONNECTED all operations
	 * have been responded to; what is returned then is not looked at. There are at most 4096
	 * sessions; a client beyond these is refused without a call.
	 */
	int (*link_ev)(struct rtrs_srv_sess *sess, enum rtrs_srv_link_ev ev, void *priv);
};

/*
 * Waits for clients on @port, of all RDMA devices that are there or come later; @ops is copied.
 * There may be several contexts, on different ports. A port that is taken is only logged: no client
 * comes then.
 *
 * Returns ERR_PTR(): -EINVAL without one of the functions; -ENFILE if there are 64; -ENOMEM. Clients
 * may come before this returns. Sleeps.
 */
struct rtrs_srv_ctx *rtrs_srv_open(struct rtrs_srv_ops *ops, u16 port);

/*
 * Closes the context and all of its sessions: waits until all operations were responded to; no
 * callback runs afterwards, or will. A context that is closed is refused. Sleeps.
 */
void rtrs_srv_close(struct rtrs_srv_ctx *ctx);

/*
 * Responds to an operation: @errno is 0, or an error that the client gets, of which a positive one
 * counts as negative and a number beyond 4095 as -EIO. An operation that was responded to, or is
 * none, is refused. Always true: what has to wait for room waits here. Any context.
 */
bool rtrs_srv_resp_rdma(struct rtrs_srv_op *id, int errno);

/* Has the callbacks of a session called with @priv from now on. Any context. */
void rtrs_srv_set_sess_priv(struct rtrs_srv_sess *sess, void *priv);

/*
 * Writes the name that the client has given the session, and a NUL, cut to @len bytes. -ENOTCONN if
 * the session is none, and from the call of DISCONNECTED on. Any context.
 */
int rtrs_srv_get_path_name(struct rtrs_srv_sess *sess, char *pathname, size_t len);

/* How many operations there are at most; -ENOTCONN if the session is none. Any context. */
int rtrs_srv_get_queue_depth(struct rtrs_srv_sess *sess);

#endif /* RTRS_H */
