/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of the RTRS client. */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rtrs_clt

#if !defined(RNBD_TRACE_RTRS_CLT_H) || defined(TRACE_HEADER_MULTI_READ)
#define RNBD_TRACE_RTRS_CLT_H

#include <linux/tracepoint.h>

/* proto/path_state.rs: ClientState */
#define rnbd_show_clt_state(state)			\
	__print_symbolic(state,				\
			 { 0, "CONNECTING" },		\
			 { 1, "CONNECTING_ERR" },	\
			 { 2, "RECONNECTING" },		\
			 { 3, "CONNECTED" },		\
			 { 4, "CLOSING" },		\
			 { 5, "CLOSED" },		\
			 { 6, "DEAD" })

DECLARE_EVENT_CLASS(rnbd_clt_path_class,
	TP_PROTO(const struct rnbd_trace_clt_path *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(int, state)
		__field(int, reconnect_attempts)
		__field(int, max_reconnect_attempts)
		__field(int, fail_cnt)
		__field(int, success_cnt)
		__string(sessname, event->path)
		__string(session, event->session)
	),
	TP_fast_assign(
		__entry->state = event->state;
		__entry->reconnect_attempts = event->reconnect_attempts;
		__entry->max_reconnect_attempts = event->max_reconnect_attempts;
		__entry->fail_cnt = event->failed;
		__entry->success_cnt = event->succeeded;
		__assign_str(sessname);
		__assign_str(session);
	),
	TP_printk("RTRS-CLT: sess='%s' state=%s attempts='%d' max-attempts='%d' fail='%d' success='%d' session='%s'",
		  __get_str(sessname), rnbd_show_clt_state(__entry->state),
		  __entry->reconnect_attempts, __entry->max_reconnect_attempts,
		  __entry->fail_cnt, __entry->success_cnt, __get_str(session))
);

#define RNBD_CLT_PATH_EVENT(name)				\
	DEFINE_EVENT(rnbd_clt_path_class, name,			\
		TP_PROTO(const struct rnbd_trace_clt_path *event), \
		TP_ARGS(event))

RNBD_CLT_PATH_EVENT(rtrs_clt_reconnect_work);
RNBD_CLT_PATH_EVENT(rtrs_clt_close_conns);
RNBD_CLT_PATH_EVENT(rtrs_rdma_error_recovery);

#endif /* RNBD_TRACE_RTRS_CLT_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rtrs_clt
#include <trace/define_trace.h>
