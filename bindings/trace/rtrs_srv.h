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
	TP_PROTO(const struct rnbd_trace_response *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u8, dir)
		__field(bool, need_inval)
		__field(bool, always_invalidate)
		__field(u32, msg_id)
		__field(int, wr_cnt)
		__field(u32, signal_interval)
		__field(int, state)
		__field(int, errno)
		__string(sessname, event->path)
		__string(session, event->session)
	),
	TP_fast_assign(
		__entry->dir = event->is_write ? WRITE : READ;
		__entry->need_inval = event->need_inval;
		__entry->always_invalidate = event->always_invalidate;
		__entry->msg_id = event->msg_id;
		__entry->wr_cnt = event->count;
		__entry->signal_interval = event->signal_interval;
		__entry->state = event->state;
		__entry->errno = event->error;
		__assign_str(sessname);
		__assign_str(session);
	),
	TP_printk("sess='%s' state='%s' dir=%s err='%d' inval='%d' glob-inval='%d' msgid='%u' wrcnt='%d' sig-interval='%u' session='%s'",
		  __get_str(sessname), rnbd_show_srv_state(__entry->state),
		  rnbd_show_dir(__entry->dir), __entry->errno, __entry->need_inval,
		  __entry->always_invalidate, __entry->msg_id, __entry->wr_cnt,
		  __entry->signal_interval, __get_str(session))
);

#endif /* RNBD_TRACE_RTRS_SRV_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rtrs_srv
#include <trace/define_trace.h>
