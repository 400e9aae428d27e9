// SPDX-License-Identifier: GPL-2.0

//! The inline functions of the RDMA core that the IO path uses.
//!
//! Would be: `rust/helpers/rdma.c`, which the compiler inlines where `CONFIG_RUST_INLINE_HELPERS`
//! is on. Elsewhere helpers are calls, and a request takes several of them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    bindings,
    prelude::*, //
};
use core::ptr;

/// Calls a function of the device's table, which every device has that kernel code can use.
macro_rules! device_op {
    ($device:expr, $op:ident ( $($argument:expr),* )) => {
        // SAFETY: By the function's requirement.
        match unsafe { (*$device).ops.$op } {
            // SAFETY: As above.
            Some(call) => unsafe { call($($argument),*) },
            None => EOPNOTSUPP.to_errno(),
        }
    };
}

/// Posts send-side work requests; those before `bad` were posted if it fails.
///
/// # Safety
///
/// `qp` is valid, `wr` a linked list of complete requests.
#[inline(always)]
pub(super) unsafe fn post_send(
    qp: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad: &mut *const bindings::ib_send_wr,
) -> c_int {
    device_op!((*qp).device, post_send(qp, wr, bad))
}

/// Posts receives.
///
/// # Safety
///
/// `qp` is valid, `wr` a linked list of complete requests.
#[inline(always)]
pub(super) unsafe fn post_recv(qp: *mut bindings::ib_qp, wr: *const bindings::ib_recv_wr) -> c_int {
    let mut bad = ptr::null();
    // SAFETY: By the function's requirement.
    let device = unsafe { (*qp).device };
    device_op!(device, post_recv(qp, wr, &mut bad))
}

/// Takes up to `count` completions out of a queue.
///
/// # Safety
///
/// `cq` is valid and nobody else polls it; there is room for `count` at `wc`.
#[inline(always)]
pub(super) unsafe fn poll_cq(
    cq: *mut bindings::ib_cq,
    count: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    device_op!((*cq).device, poll_cq(cq, count, wc))
}

/// Asks for an event; positive if there is something already and `flags` asks for that.
///
/// # Safety
///
/// `cq` is valid.
#[inline(always)]
pub(super) unsafe fn req_notify_cq(
    cq: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    device_op!((*cq).device, req_notify_cq(cq, flags))
}

/// Whether a device is software that uses the CPU's addresses, so that there is nothing to be
/// synchronised.
///
/// # Safety
///
/// `device` is valid.
#[inline(always)]
pub(crate) unsafe fn is_virtual(device: *mut bindings::ib_device) -> bool {
    // SAFETY: By the function's requirement.
    unsafe { (*device).dma_device.is_null() }
}

/// Lets the CPU see what the device wrote.
///
/// # Safety
///
/// `device` is valid, and the range is part of what is mapped for it in this direction.
#[inline(always)]
pub(crate) unsafe fn sync_for_cpu(
    device: *mut bindings::ib_device,
    address: u64,
    len: usize,
    direction: bindings::dma_data_direction,
) {
    // SAFETY: By the function's requirement.
    unsafe {
        if !is_virtual(device) {
            bindings::rnbd_helper_ib_dma_sync_single_for_cpu(device, address, len, direction)
        }
    }
}

/// Lets the device see what the CPU wrote.
///
/// # Safety
///
/// As [`sync_for_cpu()`].
#[inline(always)]
pub(crate) unsafe fn sync_for_device(
    device: *mut bindings::ib_device,
    address: u64,
    len: usize,
    direction: bindings::dma_data_direction,
) {
    // SAFETY: By the function's requirement.
    unsafe {
        if !is_virtual(device) {
            bindings::rnbd_helper_ib_dma_sync_single_for_device(device, address, len, direction)
        }
    }
}
