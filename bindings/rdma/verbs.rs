// SPDX-License-Identifier: GPL-2.0

//! The inline functions of the RDMA core that the IO path uses.
//!
//! Would be: `rust/helpers/rdma.c`, whose functions the compiler inlines where
//! `CONFIG_RUST_INLINE_HELPERS` is on. Elsewhere helpers are calls, and a request takes several of
//! them.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    bindings,
    prelude::*, //
};
use core::ptr;

/// Calls a function of the device's table. Every device that kernel code can use has all of these
/// functions.
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

/// Posts send-side work requests. If it fails, the requests before `bad` were posted.
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
/// `cq` is valid and not polled by any other task, and there is room for `count` completions at
/// `wc`.
#[inline(always)]
pub(super) unsafe fn poll_cq(
    cq: *mut bindings::ib_cq,
    count: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    device_op!((*cq).device, poll_cq(cq, count, wc))
}

/// Asks for an event at the next completion. Positive if there may be completions already and
/// `flags` has `IB_CQ_REPORT_MISSED_EVENTS`.
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

/// Whether a device is a software device, which uses the CPU's addresses. Memory need not be
/// synchronised for it.
///
/// # Safety
///
/// `device` is valid.
#[inline(always)]
pub(crate) unsafe fn is_virtual(device: *mut bindings::ib_device) -> bool {
    // SAFETY: By the function's requirement.
    unsafe { (*device).dma_device.is_null() }
}

/// Makes what the device wrote visible to the CPU.
///
/// # Safety
///
/// `device` is valid, and the range is part of a mapping for it in this direction.
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

/// Makes what the CPU wrote visible to the device.
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
