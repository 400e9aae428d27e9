/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of the RNBD server. */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM rnbd_srv

#if !defined(RNBD_TRACE_RNBD_SRV_H) || defined(TRACE_HEADER_MULTI_READ)
#define RNBD_TRACE_RNBD_SRV_H

#include <linux/tracepoint.h>

/* proto/rnbd/io.rs: Op and IoFlags */
#define rnbd_show_op(rw)				\
	__print_symbolic((rw) & 0xff,			\
			 { 0, "READ" },			\
			 { 1, "WRITE" },		\
			 { 2, "FLUSH" },		\
			 { 3, "DISCARD" },		\
			 { 4, "SECURE_ERASE" },		\
			 { 5, "WRITE_ZEROES" })

#define rnbd_show_flags(rw)				\
	__print_flags((unsigned long)(rw) & ~0xffUL, "|", \
		      { 1 << 8, "SYNC" },		\
		      { 1 << 9, "FUA" },		\
		      { 1 << 10, "PREFLUSH" },		\
		      { 1 << 11, "NOUNMAP" })

/* proto/rnbd.rs: AccessMode */
#define rnbd_show_access_mode(mode)		\
	__print_symbolic(mode,			\
			 { 0, "RO" },		\
			 { 1, "RW" },		\
			 { 2, "MIGRATION" })

DECLARE_EVENT_CLASS(rnbd_srv_session_class,
	TP_PROTO(const struct rnbd_trace_srv_session *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(int, qdepth)
		__string(sessname, event->session)
	),
	TP_fast_assign(
		__entry->qdepth = event->queue_depth;
		__assign_str(sessname);
	),
	TP_printk("sessname: %s qdepth: %d", __get_str(sessname), __entry->qdepth)
);

DEFINE_EVENT(rnbd_srv_session_class, create_sess,
	TP_PROTO(const struct rnbd_trace_srv_session *event),
	TP_ARGS(event));

DEFINE_EVENT(rnbd_srv_session_class, destroy_sess,
	TP_PROTO(const struct rnbd_trace_srv_session *event),
	TP_ARGS(event));

TRACE_EVENT(process_rdma,
	TP_PROTO(const struct rnbd_trace_io *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__string(sessname, event->session)
		__field(u8, dir)
		__field(u8, ver)
		__field(u32, device_id)
		__field(u64, sector)
		__field(u32, flags)
		__field(u32, bi_size)
		__field(u16, ioprio)
		__field(u32, datalen)
		__field(size_t, usrlen)
	),
	TP_fast_assign(
		__assign_str(sessname);
		__entry->dir = event->is_write ? WRITE : READ;
		__entry->ver = event->ver;
		__entry->device_id = event->device_id;
		__entry->sector = event->sector;
		__entry->flags = event->rw;
		__entry->bi_size = event->bi_size;
		__entry->ioprio = event->prio;
		__entry->datalen = event->data_len;
		__entry->usrlen = event->usr_len;
	),
	TP_printk("I/O req: sess: %s, type: %s, ver: %d, devid: %u, sector: %llu, bsize: %u, flags: %u, ioprio: %d, datalen: %u, usrlen: %zu, op: %s, opflags: %s",
		  __get_str(sessname), rnbd_show_dir(__entry->dir), __entry->ver,
		  __entry->device_id, __entry->sector, __entry->bi_size, __entry->flags,
		  __entry->ioprio, __entry->datalen, __entry->usrlen,
		  rnbd_show_op(__entry->flags), rnbd_show_flags(__entry->flags))
);

TRACE_EVENT(process_msg_sess_info,
	TP_PROTO(const struct rnbd_trace_sess_info *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u8, proto_ver)
		__field(u8, clt_ver)
		__field(u8, srv_ver)
		__string(sessname, event->session)
	),
	TP_fast_assign(
		__entry->proto_ver = event->proto_ver;
		__entry->clt_ver = event->client_ver;
		__entry->srv_ver = event->server_ver;
		__assign_str(sessname);
	),
	TP_printk("Session %s using proto-ver %d (clt-ver: %d, srv-ver: %d)",
		  __get_str(sessname), __entry->proto_ver, __entry->clt_ver, __entry->srv_ver)
);

TRACE_EVENT(process_msg_open,
	TP_PROTO(const struct rnbd_trace_open *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u8, access_mode)
		__string(sessname, event->session)
		__string(dev_name, event->dev_name)
	),
	TP_fast_assign(
		__entry->access_mode = event->access_mode;
		__assign_str(sessname);
		__assign_str(dev_name);
	),
	TP_printk("Open message received: session='%s' path='%s' access_mode=%s",
		  __get_str(sessname), __get_str(dev_name),
		  rnbd_show_access_mode(__entry->access_mode))
);

TRACE_EVENT(process_msg_close,
	TP_PROTO(const struct rnbd_trace_close *event),
	TP_ARGS(event),
	TP_STRUCT__entry(
		__field(u32, device_id)
		__string(sessname, event->session)
	),
	TP_fast_assign(
		__entry->device_id = event->device_id;
		__assign_str(sessname);
	),
	TP_printk("Close message received: session='%s' device id='%d'",
		  __get_str(sessname), __entry->device_id)
);

#endif /* RNBD_TRACE_RNBD_SRV_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rnbd_srv
#include <trace/define_trace.h>
