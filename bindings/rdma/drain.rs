// SPDX-License-Identifier: GPL-2.0

//! Waiting until nothing is in flight on a queue pair.

use super::{
    cq::{
        CompletionQueue,
        PollingExcluded, //
    },
    verbs, //
};
use crate::{
    bindings,
    prelude::*,
    sync::completion::Completion, //
};
use core::{
    mem::ManuallyDrop,
    pin::Pin,
    ptr, //
};
use kernel::{
    container_of,
    error::to_result, //
};

/// A work request that completes after all requests that were posted before it.
///
/// Pinned until the work request has completed, as the request carries its address.
#[pin_data]
struct Marker {
    cqe: bindings::ib_cqe,
    #[pin]
    done: Completion,
}

impl Marker {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cqe: bindings::ib_cqe {
                done: Some(Self::complete),
            },
            done <- Completion::new(),
        })
    }

    /// # Safety
    ///
    /// Only to be called by the RDMA core for a request that carries a marker's `cqe`.
    unsafe extern "C" fn complete(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
        // SAFETY: The core passes a valid completion with the `cqe` that was posted.
        let cqe = unsafe { *(*wc).__bindgen_anon_1.wr_cqe };
        // SAFETY: The marker stays until this function completes `done`.
        let marker = unsafe { &*container_of!(cqe, Self, cqe) };
        marker.done.complete_all();
    }

    /// Posts the marker by `post` and waits until it has completed. Calls `post` again while the
    /// queue is full.
    fn pass(
        self: Pin<&Self>,
        polling: &PollingExcluded<'_>,
        post: impl Fn(*mut bindings::ib_cqe) -> c_int,
    ) -> Result {
        let cqe = (&raw const self.cqe).cast_mut();
        loop {
            match to_result(post(cqe)) {
                Ok(()) => break,
                // The queue is full of requests that are being flushed.
                Err(error) if error == ENOMEM => polling.make_progress(),
                Err(error) => return Err(error),
            }
        }
        while !self.done.is_done() {
            polling.make_progress_or_wait(&self.done);
        }
        Ok(())
    }
}

/// Waits until all requests that were posted have completed and their handlers have returned.
///
/// Only handlers may post concurrently: their requests are flushed, and may be in flight
/// afterwards. Sleeps. An error is the driver's, for example if the device is gone: it is not known
/// then when the queue pair is drained.
///
/// `ib_drain_qp()` needs room in the queues for its own requests. If there is none, it warns and
/// does not wait. So markers go through the queues first, and are posted again until there is room.
///
/// # Safety
///
/// `qp` must be a valid queue pair on `queue`.
pub(super) unsafe fn drain(qp: *mut bindings::ib_qp, queue: &CompletionQueue) -> Result {
    let polling = queue.exclude_polling();
    let mut attributes = bindings::ib_qp_attr {
        qp_state: bindings::ib_qp_state_IB_QPS_ERR,
        ..Default::default()
    };
    let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
    // SAFETY: The queue pair is valid.
    let mut drained = to_result(unsafe { bindings::ib_modify_qp(qp, &mut attributes, mask) });
    if drained.is_ok() {
        pin_init::stack_pin_init!(let marker = Marker::new());
        let sends = marker.as_ref().pass(&polling, |cqe| {
            let wr = bindings::ib_send_wr {
                __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(cqe),
                },
                opcode: bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
                ..Default::default()
            };
            let wr = bindings::ib_rdma_wr {
                wr,
                ..Default::default()
            };
            // SAFETY: The queue pair and the request are valid; the marker stays until it is done.
            unsafe { verbs::post_send(qp, &wr.wr, &mut ptr::null()) }
        });
        pin_init::stack_pin_init!(let marker = Marker::new());
        let receives = marker.as_ref().pass(&polling, |cqe| {
            let wr = bindings::ib_recv_wr {
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(cqe),
                },
                ..Default::default()
            };
            // SAFETY: As above.
            unsafe { verbs::post_recv(qp, &wr) }
        });
        drained = sends.and(receives);
    }
    // SAFETY: The queue pair is valid. Its completion queue comes from `ib_alloc_cq()`, or from
    // `__ib_create_cq()` if it is polled in bursts. For a queue that is polled in bursts the poller
    // calls `done`, too, and `poll_ctx` is zero, `IB_POLL_SOFTIRQ`, so this function does not poll
    // the queue.
    unsafe { bindings::ib_drain_qp(qp) };
    drained
}
