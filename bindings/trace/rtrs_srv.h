/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of the RTRS server. */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rtrs_srv

#if !defined(RNBD_TRACE_RTRS_SRV_H) || defined(TRACE_HEADER_MULTI_READ)
#define RNBD_TRACE_RTRS_SRV_H

#include <linux/tracepoint.h>

/* proto/path_state.rs: ServerState */
#define rnbd_show_srv_state(state)		\
	__print_symbolic(state,			\
			 { 0, "CONNECTING" },	\
			 { 1, "CONNECTED" },	\
			 { 2, "CLOSING" },	\
			 { 3, "CLOSED" })

TRACE_EVENT(send_io_resp_imm,
	TP_PROTO(const struct rnbd_trace_answer *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__string(sess, event->session)
		__string(path, event->path)
		__field(u32, state)
		__field(u32, msg_id)
		__field(u32, signal_interval)
		__field(int, wr_cnt)
		__field(int, error)
		__field(bool, is_write)
		__field(bool, need_inval)
		__field(bool, always_invalidate)
	),
	TP_fast_assign(
		__assign_str(sess);
		__assign_str(path);
		__entry->state = event->state;
		__entry->msg_id = event->msg_id;
		__entry->signal_interval = event->signal_interval;
		__entry->wr_cnt = event->wr_cnt;
		__entry->error = event->error;
		__entry->is_write = event->is_write;
		__entry->need_inval = event->need_inval;
		__entry->always_invalidate = event->always_invalidate;
	),
	TP_printk("sess='%s' path='%s' state=%s dir=%s err=%d inval=%d glob-inval=%d msgid=%u wrcnt=%d sig-interval=%u",
		  __get_str(sess), __get_str(path), rnbd_show_srv_state(__entry->state),
		  __entry->is_write ? "WRITE" : "READ", __entry->error, __entry->need_inval,
		  __entry->always_invalidate, __entry->msg_id, __entry->wr_cnt,
		  __entry->signal_interval)
);

#endif /* RNBD_TRACE_RTRS_SRV_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rtrs_srv
#include <trace/define_trace.h>
