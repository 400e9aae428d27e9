// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints of all modules, and functions that call them; those look at
 * the static key before.
 */

#include <linux/export.h>
#include <linux/fs.h>

#include "trace.h"

#define rnbd_show_dir(dir)			\
	__print_symbolic(dir,			\
			 { READ, "READ" },	\
			 { WRITE, "WRITE" })

#define CREATE_TRACE_POINTS
#include "trace/rtrs_clt.h"
#include "trace/rtrs_srv.h"
#include "trace/rnbd_srv.h"

#define RNBD_TRACE_FUNCTION(name, type)				\
	void rnbd_helper_trace_##name(const struct type *event)	\
	{							\
		trace_##name(event);				\
	}							\
	EXPORT_SYMBOL_GPL(rnbd_helper_trace_##name);		\
	EXPORT_TRACEPOINT_SYMBOL_GPL(name)

RNBD_TRACE_FUNCTION(rtrs_clt_reconnect_work, rnbd_trace_clt_path);
RNBD_TRACE_FUNCTION(rtrs_clt_close_conns, rnbd_trace_clt_path);
RNBD_TRACE_FUNCTION(rtrs_rdma_error_recovery, rnbd_trace_clt_path);
RNBD_TRACE_FUNCTION(send_io_resp_imm, rnbd_trace_response);
RNBD_TRACE_FUNCTION(create_sess, rnbd_trace_srv_session);
RNBD_TRACE_FUNCTION(destroy_sess, rnbd_trace_srv_session);
RNBD_TRACE_FUNCTION(process_rdma, rnbd_trace_io);
RNBD_TRACE_FUNCTION(process_msg_sess_info, rnbd_trace_sess_info);
RNBD_TRACE_FUNCTION(process_msg_open, rnbd_trace_open);
RNBD_TRACE_FUNCTION(process_msg_close, rnbd_trace_close);
