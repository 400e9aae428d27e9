// SPDX-License-Identifier: GPL-2.0

//! What callers in C hand in, as safe types, and what they get back.

use core::{
    ffi::c_void,
    ptr,
    slice, //
};
use kernel::sync::rcu;
use kernel_ext::{
    net::socket_address::SocketAddress,
    prelude::*,
    rdma::Direction, //
};
use proto::{
    addr::PathAddress,
    rtrs::MAX_PATHS_NUM, //
};
use rtrs_client::Kind;

use crate::{
    addresses,
    callbacks::{
        ConfirmFunction,
        Confirmation,
        LinkCallback,
        LinkFunction, //
    },
    client::Client,
    handles::Handle, //
};

/// C: `struct rtrs_addr`.
#[repr(C)]
pub(crate) struct RawPath {
    pub(crate) src: *mut u8,
    pub(crate) dst: *mut u8,
}

/// C: `struct rtrs_clt_ops`.
#[repr(C)]
pub(crate) struct RawOps {
    private: *mut c_void,
    link_ev: Option<LinkFunction>,
}

/// C: `struct rtrs_clt_req_ops`.
#[repr(C)]
pub(crate) struct RawRequestOps {
    private: *mut c_void,
    conf_fn: Option<ConfirmFunction>,
}

/// C: `struct rtrs_attrs`. Only C reads it.
#[allow(dead_code)]
#[repr(C)]
pub(crate) struct RawAttrs {
    pub(crate) queue_depth: u32,
    pub(crate) max_io_size: u32,
    pub(crate) max_segments: u32,
}

/// C: `struct kvec`.
#[repr(C)]
pub(crate) struct RawVec {
    base: *const u8,
    len: usize,
}

/// C: `READ` and `WRITE`.
const READ: c_int = 0;
const WRITE: c_int = 1;

/// The handle of a session; `None` for null and for an error pointer.
///
/// # Safety
///
/// `session` must be one of these, or have been returned by `rtrs_clt_open()` to a caller that
/// keeps this module loaded.
pub(crate) unsafe fn handle<'a>(session: *const c_void) -> Option<&'a Handle> {
    const MAX_ERRNO: usize = 4095;
    if session.is_null() || session.addr() >= MAX_ERRNO.wrapping_neg() {
        return None;
    }
    // SAFETY: By the function's requirement it is a handle, to which the list of handles has a
    // reference until the module is unloaded.
    Some(unsafe { &*session.cast::<Handle>() })
}

/// Calls `use_it` with a session. `ENODEV` if it is closed. `use_it` does not sleep.
///
/// # Safety
///
/// As of [`handle()`].
pub(crate) unsafe fn with_client<R>(
    session: *const c_void,
    use_it: impl FnOnce(&Client) -> Result<R>,
) -> Result<R> {
    // SAFETY: By the function's requirement.
    let handle = unsafe { handle(session) }.ok_or(ENODEV)?;
    let guard = rcu::read_lock();
    use_it(handle.client.load_ref(&guard).ok_or(ENODEV)?)
}

/// The caller's callback for events. `EINVAL` if there is none.
///
/// # Safety
///
/// `ops` must be null, or valid, and as [`LinkCallback::new()`] asks for.
pub(crate) unsafe fn link_callback(ops: *const RawOps) -> Result<LinkCallback> {
    // SAFETY: By the function's requirement.
    let ops = unsafe { ops.as_ref() }.ok_or(EINVAL)?;
    let function = ops.link_ev.ok_or(EINVAL)?;
    // SAFETY: By the function's requirement.
    Ok(unsafe { LinkCallback::new(function, ops.private) })
}

/// The caller's callback for the end of a request. `EINVAL` if there is none.
///
/// # Safety
///
/// `ops` must be null, or valid, and as [`Confirmation::new()`] asks for.
pub(crate) unsafe fn confirmation(ops: *const RawRequestOps) -> Result<Confirmation> {
    // SAFETY: By the function's requirement.
    let ops = unsafe { ops.as_ref() }.ok_or(EINVAL)?;
    let function = ops.conf_fn.ok_or(EINVAL)?;
    // SAFETY: By the function's requirement.
    Ok(unsafe { Confirmation::new(function, ops.private) })
}

/// What a request of direction `dir` with `count` segments is.
pub(crate) fn kind(dir: c_int, count: c_uint) -> Result<(Kind, Direction)> {
    match (dir, count) {
        (READ, _) => Ok((Kind::Read, Direction::FromDevice)),
        (WRITE, 0) => Ok((Kind::HeaderOnly, Direction::ToDevice)),
        (WRITE, _) => Ok((Kind::Write, Direction::ToDevice)),
        _ => Err(EINVAL),
    }
}

/// Copies a message to `room`. `EMSGSIZE` if it is longer.
///
/// # Safety
///
/// There must be `nr` vectors at `vec`, each of memory that can be read.
pub(crate) unsafe fn gather<'a>(
    vec: *const RawVec,
    nr: usize,
    room: &'a mut [u8],
) -> Result<&'a [u8]> {
    let mut used = 0usize;
    for index in 0..nr {
        if vec.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the function's requirement.
        let RawVec { base, len } = unsafe { vec.add(index).read() };
        let end = used.checked_add(len).ok_or(EMSGSIZE)?;
        let to = room.get_mut(used..end).ok_or(EMSGSIZE)?;
        if len != 0 && base.is_null() {
            return Err(EINVAL);
        }
        if len != 0 {
            // SAFETY: By the function's requirement there are that many bytes, and there is as much
            // room, which is this function's own.
            unsafe { ptr::copy_nonoverlapping(base, to.as_mut_ptr(), len) };
        }
        used = end;
    }
    room.get(..used).ok_or(EMSGSIZE)
}

/// The addresses of a caller's paths. `EINVAL` for a bad number of them, or another port than
/// `port`.
///
/// # Safety
///
/// There must be `count` paths at `paths`, each with a valid destination and perhaps a source.
pub(crate) unsafe fn path_addresses(
    paths: *const RawPath,
    count: usize,
    port: u16,
) -> Result<KVec<PathAddress>> {
    if paths.is_null() || count == 0 || count > MAX_PATHS_NUM {
        return Err(EINVAL);
    }
    let mut addresses = KVec::with_capacity(count, GFP_KERNEL)?;
    // SAFETY: By the function's requirement.
    for path in unsafe { slice::from_raw_parts(paths, count) } {
        // SAFETY: By the function's requirement.
        let destination = unsafe { read_address(path.dst) }?;
        if destination.port() != Some(port) {
            pr_err!(
                "rtrs_clt_open: a path leads to port {}, but the session is on port {}\n",
                destination.port().map_or(0, u32::from),
                port
            );
            return Err(EINVAL);
        }
        let src = if path.src.is_null() {
            None
        } else {
            // SAFETY: By the function's requirement.
            Some(addresses::from_socket(&unsafe { read_address(path.src) }?)?)
        };
        let dst = addresses::from_socket(&destination)?;
        addresses.push(PathAddress { src, dst }, GFP_KERNEL)?;
    }
    Ok(addresses)
}

/// Reads an address. `EINVAL` for null, `EAFNOSUPPORT` for another family than ours.
///
/// # Safety
///
/// As of [`SocketAddress::from_sockaddr()`], if it is not null.
pub(crate) unsafe fn read_address(raw: *const u8) -> Result<SocketAddress> {
    if raw.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the function's requirement.
    unsafe { SocketAddress::from_sockaddr(raw) }
}

/// Writes an address. `EINVAL` for null.
///
/// # Safety
///
/// `to` must be null, or valid for writes of a `struct sockaddr_storage`.
pub(crate) unsafe fn write_address(to: *mut u8, address: &SocketAddress) -> Result {
    if to.is_null() {
        return Err(EINVAL);
    }
    let bytes = address.as_bytes();
    // SAFETY: By the function's requirement; that is how long the structure is.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// Writes `text` and a NUL, cut to `len` bytes; returns how many were written before the NUL (C:
/// `scnprintf`).
///
/// # Safety
///
/// There must be room for `len` bytes at `to`.
pub(crate) unsafe fn write_text(text: &[u8], to: *mut u8, len: usize) -> c_int {
    let Some(most) = len.checked_sub(1) else {
        return 0;
    };
    let written = text.len().min(most);
    // SAFETY: By the function's requirement; that and the NUL are at most `len` bytes.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to, written);
        to.add(written).write(0);
    }
    // At most as long as a text of that type.
    written as c_int
}
