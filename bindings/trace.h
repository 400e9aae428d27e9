/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tracepoints of bindings/trace/ are given, one structure for each
 * event or class of events, and how Rust calls them.
 *
 * Systems and events have the names of the C modules' ones. So have their
 * fields, in the same order and with the same text; what is ours alone follows.
 * As there, what events of the transport call "sessname", and "sess" in their
 * text, is the name of the path's folder in sysfs.
 */

#ifndef RNBD_TRACE_H
#define RNBD_TRACE_H

#include <linux/tracepoint-defs.h>
#include <linux/types.h>

/* rtrs_clt: rtrs_clt_reconnect_work, rtrs_clt_close_conns, rtrs_rdma_error_recovery */
struct rnbd_trace_clt_path {
	const char *session;
	const char *path;
	u32 state;
	int reconnect_attempts;
	int max_reconnect_attempts;
	int failed;
	int succeeded;
};

/* rtrs_srv: send_io_resp_imm */
struct rnbd_trace_response {
	const char *session;
	const char *path;
	u32 state;
	u32 msg_id;
	u32 signal_interval;
	u32 count;
	int error;
	bool is_write;
	bool need_inval;
	bool always_invalidate;
};

/* rnbd_srv: create_sess, destroy_sess */
struct rnbd_trace_srv_session {
	const char *session;
	u32 queue_depth;
};

/* rnbd_srv: process_rdma */
struct rnbd_trace_io {
	const char *session;
	u64 sector;
	u32 device_id;
	u32 rw;
	u32 bi_size;
	u32 data_len;
	u32 usr_len;
	u16 prio;
	u8 ver;
	bool is_write;
};

/* rnbd_srv: process_msg_sess_info */
struct rnbd_trace_sess_info {
	const char *session;
	u8 proto_ver;
	u8 client_ver;
	u8 server_ver;
};

/* rnbd_srv: process_msg_open */
struct rnbd_trace_open {
	const char *session;
	const char *dev_name;
	u8 access_mode;
};

/* rnbd_srv: process_msg_close */
struct rnbd_trace_close {
	const char *session;
	u32 device_id;
};

extern struct tracepoint __tracepoint_rtrs_clt_reconnect_work;
extern struct tracepoint __tracepoint_rtrs_clt_close_conns;
extern struct tracepoint __tracepoint_rtrs_rdma_error_recovery;
extern struct tracepoint __tracepoint_send_io_resp_imm;
extern struct tracepoint __tracepoint_create_sess;
extern struct tracepoint __tracepoint_destroy_sess;
extern struct tracepoint __tracepoint_process_rdma;
extern struct tracepoint __tracepoint_process_msg_sess_info;
extern struct tracepoint __tracepoint_process_msg_open;
extern struct tracepoint __tracepoint_process_msg_close;

void rnbd_helper_trace_rtrs_clt_reconnect_work(const struct rnbd_trace_clt_path *event);
void rnbd_helper_trace_rtrs_clt_close_conns(const struct rnbd_trace_clt_path *event);
void rnbd_helper_trace_rtrs_rdma_error_recovery(const struct rnbd_trace_clt_path *event);
void rnbd_helper_trace_send_io_resp_imm(const struct rnbd_trace_response *event);
void rnbd_helper_trace_create_sess(const struct rnbd_trace_srv_session *event);
void rnbd_helper_trace_destroy_sess(const struct rnbd_trace_srv_session *event);
void rnbd_helper_trace_process_rdma(const struct rnbd_trace_io *event);
void rnbd_helper_trace_process_msg_sess_info(const struct rnbd_trace_sess_info *event);
void rnbd_helper_trace_process_msg_open(const struct rnbd_trace_open *event);
void rnbd_helper_trace_process_msg_close(const struct rnbd_trace_close *event);

#endif /* RNBD_TRACE_H */
