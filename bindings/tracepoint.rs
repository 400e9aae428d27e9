// SPDX-License-Identifier: GPL-2.0

//! Tracepoints: `/sys/kernel/tracing/events/{rtrs_clt,rtrs_srv,rnbd_srv}`.
//!
//! Would be: `declare_trace!` of `rust/kernel/tracepoint.rs` in the drivers themselves. That macro
//! finds tracepoints only in `kernel::bindings`, which does not have the tracepoints of modules
//! outside of the tree.
//!
//! Systems, events and fields have the same names as in the C modules; see `bindings/trace.h`.
//! While an event is not traced, its function is a jump that is patched out, and its fields are not
//! computed. All functions may be called in any context.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use kernel::str::CStr;

use crate::{
    bindings,
    prelude::*, //
};

/// Conversion of a field to its type in the C structure.
trait Field {
    type Raw;
    fn raw(self) -> Self::Raw;
}

impl Field for &CStr {
    type Raw = *const c_char;
    fn raw(self) -> *const c_char {
        self.as_char_ptr()
    }
}

macro_rules! plain_fields {
    ($($type:ty)*) => {$(
        impl Field for $type {
            type Raw = Self;
            fn raw(self) -> Self {
                self
            }
        }
    )*};
}

plain_fields!(bool u8 u16 u32 u64 i32);

/// Declares the fields of an event, as a structure with the fields of a C structure, and the
/// functions of the tracepoints with these fields. The argument of such a function makes the
/// structure, and is only called if the event is traced.
macro_rules! events {
    (
        $(#[$meta:meta])*
        struct $event:ident<'_> as $raw:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty,)*
        }
        $($(#[$fn_doc:meta])* fn $name:ident = $tracepoint:ident;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $event<'a> {
            $($(#[$doc])* pub $field: $type,)*
        }
        #[cfg(CONFIG_TRACEPOINTS)]
        impl $event<'_> {
            fn raw(&self) -> bindings::$raw {
                bindings::$raw {
                    $($field: self.$field.raw(),)*
                }
            }
        }
        kernel::macros::paste! {$(
            $(#[$fn_doc])*
            #[inline(always)]
            pub fn $name<'a>(event: impl FnOnce() -> $event<'a>) {
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    // SAFETY: The key is that of a tracepoint that C has defined.
                    let enabled = unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            bindings::[<__tracepoint_ $tracepoint>],
                            bindings::tracepoint,
                            key
                        )
                    };
                    if enabled {
                        let event = event();
                        let raw = event.raw();
                        // SAFETY: `event` borrows the strings, which end with a zero. So the
                        // structure and the strings are valid during the call.
                        unsafe { bindings::[<rnbd_helper_trace_ $tracepoint>](&raw const raw) };
                    }
                }
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = event;
            }
        )*}
    };
}

events! {
    /// A path of a client.
    struct ClientPath<'_> as rnbd_trace_clt_path {
        /// The name of the session.
        session: &'a CStr,
        /// The name of the path's directory in sysfs.
        path: &'a CStr,
        /// The number of its state.
        state: u32,
        /// The attempts to reconnect since the path was up.
        reconnect_attempts: i32,
        /// The number of failed attempts after which the path is closed; negative for never.
        max_reconnect_attempts: i32,
        /// The attempts that failed.
        failed: i32,
        /// The attempts that succeeded.
        succeeded: i32,
    }
    /// An attempt to reconnect begins.
    fn clt_reconnect_work = rtrs_clt_reconnect_work;
    /// The connections of a path are to be closed.
    fn clt_close_conns = rtrs_clt_close_conns;
    /// A connection of a path, a request or the heartbeat failed.
    fn rdma_error_recovery = rtrs_rdma_error_recovery;
}

events! {
    /// A response that the server sends.
    struct Response<'_> as rnbd_trace_response {
        /// The name of the session.
        session: &'a CStr,
        /// The name of the path's directory in sysfs.
        path: &'a CStr,
        /// The number of the path's state.
        state: u32,
        /// The number of the chunk.
        msg_id: u32,
        /// The interval of signalled responses: one response in this number is signalled.
        signal_interval: u32,
        /// The number of responses that the connection has sent.
        count: u32,
        /// The errno; 0 or negative.
        error: i32,
        /// Whether the request was not a read.
        is_write: bool,
        /// Whether the response invalidates the client's key.
        need_inval: bool,
        /// Whether the chunk's key is invalidated after each request.
        always_invalidate: bool,
    }
    /// The server sends a response.
    fn send_io_resp_imm = send_io_resp_imm;
}

events! {
    /// A client's session.
    struct ServerSession<'_> as rnbd_trace_srv_session {
        /// The name of the session.
        session: &'a CStr,
        /// The number of chunks of the session.
        queue_depth: u32,
    }
    /// A client's session is up.
    fn create_sess = create_sess;
    /// A client's session is down.
    fn destroy_sess = destroy_sess;
}

events! {
    /// A block request of a client, as it is in the message.
    struct BlockRequest<'_> as rnbd_trace_io {
        /// The name of the session.
        session: &'a CStr,
        /// The first sector.
        sector: u64,
        /// The client's number of the device.
        device_id: u32,
        /// Operation and flags.
        rw: u32,
        /// The length in bytes.
        bi_size: u32,
        /// The bytes of data that came with the request, or for which it has room.
        data_len: u32,
        /// The length of the message in bytes.
        usr_len: u32,
        /// The IO priority.
        prio: u16,
        /// The version of the protocol.
        ver: u8,
        /// Whether the transport's request with the message was not a read.
        is_write: bool,
    }
    /// A block request has come.
    fn process_rdma = process_rdma;
}

events! {
    /// The version on which a client and the server have agreed.
    struct SessionInfo<'_> as rnbd_trace_sess_info {
        /// The name of the session.
        session: &'a CStr,
        /// The version that is used.
        proto_ver: u8,
        /// The client's version.
        client_ver: u8,
        /// The server's version.
        server_ver: u8,
    }
    /// A client has told its version.
    fn process_msg_sess_info = process_msg_sess_info;
}

events! {
    /// A client opens a device.
    struct Open<'_> as rnbd_trace_open {
        /// The name of the session.
        session: &'a CStr,
        /// The path that the client gave.
        dev_name: &'a CStr,
        /// The access mode, as it is in the message.
        access_mode: u8,
    }
    /// A client opens a device.
    fn process_msg_open = process_msg_open;
}

events! {
    /// A client closes a device.
    struct Close<'_> as rnbd_trace_close {
        /// The name of the session.
        session: &'a CStr,
        /// The client's number of the device.
        device_id: u32,
    }
    /// A client closes a device.
    fn process_msg_close = process_msg_close;
}
