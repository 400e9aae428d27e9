// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs.h` for servers; the header says what callers may rely on.
//! `symbols.c` exports them.

use kernel_ext::{
    c_caller::{
        error_pointer,
        Buffer,
        Handle,
        Private,
        RawServerCallbacks,
        ServerCallbacks, //
    },
    pr_err_ratelimited,
    prelude::*, //
};

use crate::{
    listeners,
    sessions::{
        self,
        UserSession, //
    }, //
};

kernel_ext::export_to_c! {
    /// C: `rtrs_srv_open`.
    fn rtrs_srv_open(
        callbacks: Option<ServerCallbacks> = (ops: *const RawServerCallbacks),
        port: u16 = (port: u16),
    ) -> *const c_void = open;

    /// C: `rtrs_srv_close`.
    fn rtrs_srv_close(listener: Handle = (ctx: *const c_void)) = close;

    /// C: `rtrs_srv_resp_rdma`.
    fn rtrs_srv_resp_rdma(
        operation: Handle = (id: *const c_void),
        errno: i32 = (errno: i32),
    ) -> bool = respond;

    /// C: `rtrs_srv_set_sess_priv`.
    fn rtrs_srv_set_sess_priv(
        session: Handle = (sess: *const c_void),
        private: Private = (private: *mut c_void),
    ) = set_private;

    /// C: `rtrs_srv_get_path_name`.
    fn rtrs_srv_get_path_name(
        session: Handle = (sess: *const c_void),
        name: Buffer<'_> = (pathname: *mut u8, len: usize),
    ) -> i32 = get_name;

    /// C: `rtrs_srv_get_queue_depth`.
    fn rtrs_srv_get_queue_depth(session: Handle = (sess: *const c_void)) -> i32 = get_queue_depth;
}

fn open(callbacks: Option<ServerCallbacks>, port: u16) -> *const c_void {
    callbacks
        .ok_or(EINVAL)
        .and_then(|callbacks| listeners::open(callbacks, port))
        .map_or_else(error_pointer, Handle::to_c)
}

fn close(listener: Handle) {
    if !listeners::close(listener) {
        pr_err_ratelimited!("rtrs_srv_close: the listener is not open\n");
    }
}

fn respond(operation: Handle, errno: i32) -> bool {
    if sessions::respond(operation, errno).is_err() {
        pr_err_ratelimited!(
            "rtrs_srv_resp_rdma: the operation does not exist, or has its response already\n"
        );
    }
    true
}

fn set_private(session: Handle, private: Private) {
    if UserSession::with(session, |session| session.set_private(private)).is_none() {
        pr_err_ratelimited!("rtrs_srv_set_sess_priv: the session does not exist, or is closed\n");
    }
}

fn get_name(session: Handle, name: Buffer<'_>) -> i32 {
    let written = UserSession::with(session, |session| {
        (session.name()).map(|text| name.write_text(text.to_bytes()))
    });
    match written.flatten() {
        Some(_) => 0,
        None => ENOTCONN.to_errno(),
    }
}

fn get_queue_depth(session: Handle) -> i32 {
    let depth = UserSession::with(session, UserSession::queue_depth);
    depth.map_or(ENOTCONN.to_errno(), |depth| {
        depth.min(i32::MAX.unsigned_abs()) as i32
    })
}
