// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs.h`, which says what callers may rely on. `symbols.c` exports
//! them.
//!
//! Each function turns what it is given into safe types, and calls safe code with them. What a
//! caller has promised is what the header asks for: a pointer is null or that of such a value, a
//! session is null or was returned by `rtrs_clt_open()`, and memory that is lent stays until it is
//! confirmed. A handle is never freed as long as its caller's module is loaded, which depends on
//! this one, so a session that was closed is still a handle.

use core::{
    ffi::c_void,
    fmt::Write as _,
    ptr,
    slice, //
};
use kernel::{
    bindings::scatterlist,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    scatterlist::ScatterTable, //
};
use proto::{
    addr::{
        PathAddress,
        PATH_TEXT_LEN, //
    },
    text::Text, //
};
use rtrs_client::{
    OpenParams,
    Reconnect,
    MAX_USER_HEADER, //
};
use rtrs_core::{
    address::socket_address,
    error::from_errno, //
};

use crate::{
    addresses,
    arguments::{
        confirmation,
        gather,
        handle,
        kind,
        link_callback,
        path_addresses,
        read_address,
        with_client,
        write_address,
        write_text,
        RawAttrs,
        RawOps,
        RawPath,
        RawRequestOps,
        RawVec, //
    },
    client::Client,
    handles::{
        self,
        Handle, //
    }, //
};

/// C: `RTRS_CLT_MAX_MESSAGE`, which `symbols.c` compares, too.
const _: () = assert!(MAX_USER_HEADER == 384);

/// C: `enum rtrs_clt_con_type`.
const ADMIN_CON: c_uint = 0;
const IO_CON: c_uint = 1;

/// C: `rtrs_clt_open`.
///
/// # Safety
///
/// As of the header: all pointers are valid, `paths` for `path_cnt` elements, and `link_ev` may be
/// called until the session is closed.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_open(
    ops: *const RawOps,
    name: *const c_char,
    paths: *const RawPath,
    path_cnt: usize,
    port: u16,
    _pdu_sz: usize,
    reconnect_delay_sec: u8,
    max_reconnect_attempts: i16,
    nr_poll_queues: u32,
) -> *const c_void {
    let reconnect = Reconnect {
        delay_ms: u32::from(reconnect_delay_sec).wrapping_mul(1000),
        max_attempts: i32::from(max_reconnect_attempts),
    };
    // SAFETY: The caller promises as much.
    let opened = unsafe { link_callback(ops) }.and_then(|link| {
        // SAFETY: As above.
        let paths = unsafe { path_addresses(paths, path_cnt, port) }?;
        if name.is_null() {
            return Err(EINVAL);
        }
        let params = OpenParams {
            // SAFETY: As above; it is not null.
            name: unsafe { CStr::from_char_ptr(name) },
            paths: &paths,
            port,
            num_poll_queues: nr_poll_queues,
            reconnect: Some(reconnect),
        };
        handles::handle(Client::open(&params, link)?)
    });
    match opened {
        // The list of handles has a reference, too, until the module is unloaded.
        Ok(handle) => Arc::as_ptr(&handle).cast(),
        // C: `ERR_PTR`.
        Err(error) => ptr::without_provenance(error.to_errno() as isize as usize),
    }
}

/// C: `rtrs_clt_close`.
///
/// # Safety
///
/// As of the header.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_close(session: *const c_void) {
    // SAFETY: The caller promises as much.
    if let Some(handle) = unsafe { handle(session) } {
        // SAFETY: It is the pointer of an `Arc`, to which the list of handles has a reference.
        let handle: Arc<Handle> = unsafe { ArcBorrow::from_raw(ptr::from_ref(handle)) }.into();
        handle.close();
    }
}

/// C: `rtrs_clt_get_permit`.
///
/// # Safety
///
/// As of the header.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_get_permit(
    session: *const c_void,
    con_type: c_uint,
    wait: c_uint,
) -> *const c_void {
    let by_service_connection = match con_type {
        ADMIN_CON => true,
        IO_CON => false,
        other => {
            pr_err_ratelimited!("rtrs_clt_get_permit: no connections of type {}\n", other);
            return ptr::null();
        }
    };
    // SAFETY: The caller promises as much.
    let Some(handle) = (unsafe { handle(session) }) else {
        return ptr::null();
    };
    {
        let guard = rcu::read_lock();
        let Some(client) = handle.client.load_ref(&guard) else {
            return ptr::null();
        };
        if let Some(permit) = client.permits().get(by_service_connection) {
            return permit;
        }
    }
    if wait == 0 {
        return ptr::null();
    }
    handle.client.get().map_or(ptr::null(), |client| {
        client.permits().get_waiting(by_service_connection)
    })
}

/// C: `rtrs_clt_put_permit`.
///
/// # Safety
///
/// As of the header.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_put_permit(session: *const c_void, permit: *const c_void) {
    // SAFETY: The caller promises as much.
    let put = unsafe { with_client(session, |client| client.permits().put(permit)) };
    if let Err(error) = put {
        pr_err_ratelimited!(
            "rtrs_clt_put_permit: {}\n",
            match error {
                ENODEV => "the session is closed",
                EBUSY => "the request of the permit is not confirmed yet: the permit stays out",
                _ => "not a permit of this session that is out",
            }
        );
    }
}

/// C: `rtrs_clt_request`.
///
/// # Safety
///
/// As of the header: the message can be read, `list` is a list of scatterlist entries, and unless
/// this fails the memory that they name stays until the confirmation, which may be called once in
/// any context.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_request(
    dir: c_int,
    ops: *const RawRequestOps,
    session: *const c_void,
    permit: *const c_void,
    vec: *const RawVec,
    nr: usize,
    len: usize,
    list: *mut scatterlist,
    count: c_uint,
) -> c_int {
    let mut room = [0; MAX_USER_HEADER];
    // SAFETY: The caller promises as much.
    let prepared = unsafe { confirmation(ops) }.and_then(|confirmation| {
        // SAFETY: As above.
        let header = unsafe { gather(vec, nr, &mut room) }?;
        Ok((confirmation, header, kind(dir, count)?))
    });
    let sent = prepared.and_then(|(confirmation, header, (kind, direction))| {
        let fill = |table: &mut ScatterTable| {
            if count != 0 {
                // SAFETY: The list is one, as the caller promises, and the memory stays until the
                // confirmation or until this fails. By the type invariant of `Client` nobody uses
                // the table after that before it is filled or emptied.
                unsafe { table.set_lent(list, count, direction) }?;
            }
            if table.byte_len() == len {
                Ok(())
            } else {
                Err(EINVAL)
            }
        };
        // SAFETY: As above.
        unsafe {
            with_client(session, |client| {
                client.request(permit, kind, header, confirmation, fill)
            })
        }
    });
    sent.map_or_else(|error| error.to_errno(), |()| 0)
}

/// C: `rtrs_clt_rdma_cq_direct`.
///
/// # Safety
///
/// As of the header.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_rdma_cq_direct(session: *const c_void, index: c_uint) -> c_int {
    let poll = |client: &Client| {
        let transport = client.transport();
        let polled = index.checked_sub(u32::from(transport.num_irq_queues()));
        let polled = polled.filter(|polled| *polled < u32::from(transport.num_poll_queues()));
        match polled {
            Some(polled) if transport.is_connected() => Ok(transport.poll(polled)),
            _ => Err(EINVAL),
        }
    };
    // SAFETY: The caller promises as much.
    let found = unsafe { with_client(session, poll) };
    found.map_or(-1, |found| found.min(c_int::MAX.unsigned_abs()) as c_int)
}

/// C: `rtrs_clt_query`.
///
/// # Safety
///
/// As of the header.
#[no_mangle]
unsafe extern "C" fn rtrs_clt_query(session: *const c_void, attrs: *mut RawAttrs) -> c_int {
    let query = |client: &Client| {
        let transport = client.transport();
        if !transport.is_connected() {
            return Err(ECOMM);
        }
        Ok(RawAttrs {
            queue_depth: transport.queue_depth(),
            max_io_size: transport.max_io_size(),
            max_segments: u32::from(transport.max_segments()),
        })
    };
    // SAFETY: The caller promises as much.
    match unsafe { with_client(session, query) } {
        Ok(_) if attrs.is_null() => EINVAL.to_errno(),
        Ok(found) => {
            // SAFETY: As above; it is not null.
            unsafe { attrs.write(found) };
            0
        }
        Err(_) => ECOMM.to_errno(),
    }
}

/// C: `rtrs_addr_to_sockaddr`.
///
/// # Safety
///
/// As of the header: `text` has `len` bytes, and there is a `struct sockaddr_storage` at each end
/// of `path`.
#[no_mangle]
unsafe extern "C" fn rtrs_addr_to_sockaddr(
    text: *const u8,
    len: usize,
    port: u16,
    path: *mut RawPath,
) -> c_int {
    if text.is_null() || path.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: The caller promises as much; neither is null.
    let (text, path) = unsafe { (slice::from_raw_parts(text, len), &mut *path) };
    let parsed = PathAddress::parse(text).map_err(|error| from_errno(error.errno()));
    let written = parsed.and_then(|address| {
        match &address.src {
            // SAFETY: As above.
            Some(source) => unsafe { write_address(path.src, &socket_address(source, 0)?) }?,
            None => path.src = ptr::null_mut(),
        }
        // SAFETY: As above.
        unsafe { write_address(path.dst, &socket_address(&address.dst, port)?) }
    });
    written.map_or_else(|error| error.to_errno(), |()| 0)
}

/// C: `sockaddr_to_str`.
///
/// # Safety
///
/// As of the header: `address` is one, and there are `len` bytes at `buf`.
#[no_mangle]
unsafe extern "C" fn sockaddr_to_str(address: *const u8, buf: *mut u8, len: usize) -> c_int {
    // SAFETY: The caller promises as much.
    unsafe {
        let text = addresses::text(read_address(address).ok().as_ref());
        write_text(text.as_bytes(), buf, len)
    }
}

/// C: `rtrs_addr_to_str`.
///
/// # Safety
///
/// As of the header: `path` is one, and there are `len` bytes at `buf`.
#[no_mangle]
unsafe extern "C" fn rtrs_addr_to_str(path: *const RawPath, buf: *mut u8, len: usize) -> c_int {
    if path.is_null() {
        return 0;
    }
    // SAFETY: The caller promises as much; it is not null.
    let path = unsafe { &*path };
    // SAFETY: As above.
    let text_of = |end: *mut u8| addresses::text(unsafe { read_address(end) }.ok().as_ref());
    let text = Text::<PATH_TEXT_LEN>::from_fn(|out| {
        if !path.src.is_null() {
            write!(out, "{}@", text_of(path.src).as_str())?;
        }
        write!(out, "{}", text_of(path.dst).as_str())
    });
    // SAFETY: As above.
    unsafe { write_text(text.as_bytes(), buf, len) }
}
