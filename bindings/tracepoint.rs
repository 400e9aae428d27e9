// SPDX-License-Identifier: GPL-2.0

//! Tracepoints: `/sys/kernel/tracing/events/{rtrs_clt,rtrs_srv,rnbd_srv}`.
//!
//! Systems, events and fields have the names of the C modules' ones; see `bindings/trace.h`. While
//! nobody traces an event its function is a jump that is patched out, and what the event would say
//! is not computed. All functions may be called in any context.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use kernel::{
    prelude::*,
    str::CStr, //
};

use crate::bindings;

/// A path of a client.
#[derive(Clone, Copy)]
pub struct ClientPath<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The name of its directory in sysfs.
    pub path: &'a CStr,
    /// The number of a `proto::path_state::ClientState`.
    pub state: u32,
    /// The attempts to reconnect since the path was up.
    pub reconnect_attempts: i32,
    /// After how many the path is closed; negative: never.
    pub max_reconnect_attempts: i32,
    /// The attempts that failed.
    pub failed: i32,
    /// The attempts that succeeded.
    pub succeeded: i32,
}

/// An answer that the server sends.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The name of the path's directory in sysfs.
    pub path: &'a CStr,
    /// The number of a `proto::path_state::ServerState`.
    pub state: u32,
    /// The number of the chunk.
    pub msg_id: u32,
    /// Every so many answers one is signaled.
    pub signal_interval: u32,
    /// The answers that the connection has sent.
    pub count: u32,
    /// The errno, not positive.
    pub error: i32,
    /// The request was no read.
    pub is_write: bool,
    /// The client's key is invalidated with it.
    pub need_inval: bool,
    /// The chunk's key is invalidated after each request.
    pub always_invalidate: bool,
}

/// A client's session.
#[derive(Clone, Copy)]
pub struct ServerSession<'a> {
    /// Its name.
    pub session: &'a CStr,
    /// Its number of chunks.
    pub queue_depth: u32,
}

/// A block request of a client, as it is in the message.
#[derive(Clone, Copy)]
pub struct BlockRequest<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The first sector.
    pub sector: u64,
    /// The client's number of the device.
    pub device_id: u32,
    /// Operation and flags.
    pub rw: u32,
    /// The length in bytes.
    pub bi_size: u32,
    /// The data that came with it or has room to go, in bytes.
    pub data_len: u32,
    /// The length of the message.
    pub usr_len: u32,
    /// The IO priority.
    pub prio: u16,
    /// The version of the protocol.
    pub ver: u8,
    /// The request that carried it was no read.
    pub is_write: bool,
}

/// What a client and the server have agreed about.
#[derive(Clone, Copy)]
pub struct SessionInfo<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The version that is used.
    pub proto_ver: u8,
    /// The client's.
    pub client_ver: u8,
    /// The server's.
    pub server_ver: u8,
}

/// A client opens a device.
#[derive(Clone, Copy)]
pub struct Open<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The path that the client gave.
    pub dev_name: &'a CStr,
    /// The access mode, as it is in the message.
    pub access_mode: u8,
}

/// A client closes a device.
#[derive(Clone, Copy)]
pub struct Close<'a> {
    /// The name of the session.
    pub session: &'a CStr,
    /// The client's number of the device.
    pub device_id: u32,
}

/// Makes the function of an event; its argument says what to trace, and is only called if
/// somebody wants to know.
///
/// The conversion has the strings outlive the call of the helper, which copies them.
macro_rules! event {
    ($(#[$doc:meta])* $name:ident, $tracepoint:ident, $helper:ident, $event:ident,
     |$from:ident| $raw:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<'a>(event: impl FnOnce() -> $event<'a>) {
            #[cfg(CONFIG_TRACEPOINTS)]
            {
                // SAFETY: The key is that of a tracepoint, which C has defined.
                let enabled = unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        bindings::$tracepoint,
                        bindings::tracepoint,
                        key
                    )
                };
                if enabled {
                    let $from = event();
                    let raw = $raw;
                    // SAFETY: The structure is valid during the call, and so are its strings,
                    // which end with a zero.
                    unsafe { bindings::$helper(&raw const raw) };
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = event;
        }
    };
}

/// Makes the functions of the events of a client's path.
macro_rules! client_path_event {
    ($(#[$doc:meta])* $name:ident, $tracepoint:ident, $helper:ident) => {
        event!(
            $(#[$doc])* $name, $tracepoint, $helper, ClientPath,
            |path| bindings::rnbd_trace_clt_path {
                session: path.session.as_char_ptr(),
                path: path.path.as_char_ptr(),
                state: path.state,
                reconnect_attempts: path.reconnect_attempts,
                max_reconnect_attempts: path.max_reconnect_attempts,
                fail_cnt: path.failed,
                success_cnt: path.succeeded,
            }
        );
    };
}

client_path_event!(
    /// An attempt to reconnect begins.
    clt_reconnect_work,
    __tracepoint_rtrs_clt_reconnect_work,
    rnbd_helper_trace_rtrs_clt_reconnect_work
);

client_path_event!(
    /// The connections of a path are to be closed.
    clt_close_conns,
    __tracepoint_rtrs_clt_close_conns,
    rnbd_helper_trace_rtrs_clt_close_conns
);

client_path_event!(
    /// A connection of a path, a request or the heartbeat failed.
    rdma_error_recovery,
    __tracepoint_rtrs_rdma_error_recovery,
    rnbd_helper_trace_rtrs_rdma_error_recovery
);

event!(
    /// The server sends an answer.
    send_io_resp_imm,
    __tracepoint_send_io_resp_imm,
    rnbd_helper_trace_send_io_resp_imm,
    Answer,
    |answer| bindings::rnbd_trace_answer {
        session: answer.session.as_char_ptr(),
        path: answer.path.as_char_ptr(),
        state: answer.state,
        msg_id: answer.msg_id,
        signal_interval: answer.signal_interval,
        wr_cnt: answer.count as c_int,
        error: answer.error,
        is_write: answer.is_write,
        need_inval: answer.need_inval,
        always_invalidate: answer.always_invalidate,
    }
);

/// Makes the functions of the events of a session.
macro_rules! server_session_event {
    ($(#[$doc:meta])* $name:ident, $tracepoint:ident, $helper:ident) => {
        event!(
            $(#[$doc])* $name, $tracepoint, $helper, ServerSession,
            |session| bindings::rnbd_trace_srv_session {
                session: session.session.as_char_ptr(),
                queue_depth: session.queue_depth,
            }
        );
    };
}

server_session_event!(
    /// A client's session is up.
    create_sess,
    __tracepoint_create_sess,
    rnbd_helper_trace_create_sess
);

server_session_event!(
    /// A client's session is down.
    destroy_sess,
    __tracepoint_destroy_sess,
    rnbd_helper_trace_destroy_sess
);

event!(
    /// A block request has come.
    process_rdma,
    __tracepoint_process_rdma,
    rnbd_helper_trace_process_rdma,
    BlockRequest,
    |request| bindings::rnbd_trace_io {
        session: request.session.as_char_ptr(),
        sector: request.sector,
        device_id: request.device_id,
        rw: request.rw,
        bi_size: request.bi_size,
        data_len: request.data_len,
        usr_len: request.usr_len,
        prio: request.prio,
        ver: request.ver,
        is_write: request.is_write,
    }
);

event!(
    /// A client has told its version.
    process_msg_sess_info,
    __tracepoint_process_msg_sess_info,
    rnbd_helper_trace_process_msg_sess_info,
    SessionInfo,
    |info| bindings::rnbd_trace_sess_info {
        session: info.session.as_char_ptr(),
        proto_ver: info.proto_ver,
        clt_ver: info.client_ver,
        srv_ver: info.server_ver,
    }
);

event!(
    /// A client opens a device.
    process_msg_open,
    __tracepoint_process_msg_open,
    rnbd_helper_trace_process_msg_open,
    Open,
    |open| bindings::rnbd_trace_open {
        session: open.session.as_char_ptr(),
        dev_name: open.dev_name.as_char_ptr(),
        access_mode: open.access_mode,
    }
);

event!(
    /// A client closes a device.
    process_msg_close,
    __tracepoint_process_msg_close,
    rnbd_helper_trace_process_msg_close,
    Close,
    |close| bindings::rnbd_trace_close {
        session: close.session.as_char_ptr(),
        device_id: close.device_id,
    }
);
