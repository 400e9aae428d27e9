// SPDX-License-Identifier: GPL-2.0

//! Polling of completion queues in bursts.
//!
//! This module polls completion queues itself, so that a handler is told when a burst of
//! completions ends. The handler can then do work once for the burst, rather than for each
//! completion: post receives, send responses. The RDMA core (`ib_alloc_cq()`) calls a handler for
//! each completion, and does not tell which one is the last.
//!
//! C: `ib_cq_poll_work()`

use super::verbs;
use crate::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        gate::Entered, //
    },
    workqueue::{
        QueueHandle,
        RawQueue, //
    }, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr,
    slice, //
};
use kernel::{
    container_of,
    types::Opaque, //
};

/// Completions that are taken from the device at a time; as in the RDMA core.
const BATCH: usize = 16;

/// Completions after which other work gets the CPU; as in the RDMA core.
const BUDGET: usize = 256;

/// The handler of a queue's completions; part of a queue pair.
pub(super) struct Hook {
    /// Handles all completions of `polled`, as one burst.
    ///
    /// To be called only with the hook that has this function, and only while that hook is set.
    pub(super) burst: unsafe fn(hook: *mut Hook, polled: &mut Polled<'_>),
}

/// The completions of one burst.
///
/// # Invariants
///
/// `cq` is valid, and `batch` has room for [`BATCH`] completions. Only the holder of this value
/// polls `cq` and uses `batch`.
pub(super) struct Polled<'a> {
    cq: *mut bindings::ib_cq,
    batch: *mut bindings::ib_wc,
    /// The number of completions so far; less than `BUDGET + BATCH`.
    done: usize,
    is_last: bool,
    _poller: PhantomData<&'a Poller>,
}

impl Polled<'_> {
    /// The next completions; `None` after the last ones, or when [`BUDGET`] is reached.
    pub(super) fn next_batch(&mut self) -> Option<&[bindings::ib_wc]> {
        if self.is_last || self.done >= BUDGET {
            return None;
        }
        // SAFETY: By the type invariant only this value's holder polls the queue, and `batch` has
        // room for `BATCH` completions.
        let found = unsafe { verbs::poll_cq(self.cq, BATCH as c_int, self.batch) };
        // An error of the driver counts as no completion.
        let found = found.clamp(0, BATCH as c_int) as usize;
        self.is_last = found < BATCH;
        self.done += found;
        // SAFETY: `found` completions have been written, and are not changed as long as `self` is
        // borrowed.
        Some(unsafe { slice::from_raw_parts(self.batch, found) })
    }

    /// Calls the function `done` of the `cqe` of `wc`, as the RDMA core does.
    ///
    /// # Safety
    ///
    /// `wc` comes from [`Self::next_batch()`].
    pub(super) unsafe fn call(cq: *mut bindings::ib_cq, wc: &bindings::ib_wc) {
        // SAFETY: Each completion has the `wr_cqe` that was posted, which stays until its `done` is
        // called.
        unsafe {
            let cqe = *wc.__bindgen_anon_1.wr_cqe;
            if let Some(done) = (*cqe).done {
                done(cq, ptr::from_ref(wc).cast_mut());
            }
        }
    }

    /// The completion queue.
    pub(super) fn cq(&self) -> *mut bindings::ib_cq {
        self.cq
    }
}

/// Polls a completion queue in a work item.
///
/// # Invariants
///
/// - `cq` is null or the completion queue that was made with this as its context.
/// - `hook` is null or valid until [`Poller::unhook()`] has returned.
/// - `batch` is only used by the work item, of which one runs at a time.
#[pin_data]
pub(super) struct Poller {
    #[pin]
    work: Opaque<bindings::work_struct>,
    queue: Entered<RawQueue>,
    cq: Atomic<*mut bindings::ib_cq>,
    hook: Atomic<*mut Hook>,
    batch: UnsafeCell<[MaybeUninit<bindings::ib_wc>; BATCH]>,
}

// SAFETY: By the type invariant `batch` is used by one task at a time. The other fields are atomic
// or not changed.
unsafe impl Send for Poller {}

// SAFETY: As above.
unsafe impl Sync for Poller {}

impl Poller {
    /// Makes a poller whose work runs on `queue`; the poller keeps the queue. May sleep.
    /// `ESHUTDOWN` if the queue is being destroyed.
    pub(super) fn new(queue: &QueueHandle) -> Result<Pin<KBox<Self>>> {
        let queue = queue.enter().ok_or(ESHUTDOWN)?;
        KBox::pin_init(
            pin_init!(Self {
                work <- Opaque::ffi_init(|slot: *mut bindings::work_struct| {
                    // SAFETY: `slot` is valid for writes, and pinned.
                    unsafe {
                        bindings::init_work_with_key(
                            slot,
                            Some(Self::run),
                            false,
                            c"rdma_poller".as_char_ptr(),
                            kernel::static_lock_class!().as_ptr(),
                        )
                    };
                }),
                queue,
                // INVARIANT: Both are null.
                cq: Atomic::new(ptr::null_mut()),
                hook: Atomic::new(ptr::null_mut()),
                batch: UnsafeCell::new([const { MaybeUninit::uninit() }; BATCH]),
            }),
            GFP_KERNEL,
        )
    }

    /// The context with which the completion queue must be made. Its handler must be
    /// [`Self::completed()`].
    pub(super) fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Begins to poll `cq`.
    ///
    /// # Safety
    ///
    /// `cq` was made with [`Self::context()`] and is not destroyed before [`Self::stop()`] has
    /// returned.
    pub(super) unsafe fn start(&self, cq: *mut bindings::ib_cq) {
        // INVARIANT: By the function's requirement.
        self.cq.store(cq, ordering::Release);
        // Asks the device for an event.
        self.enqueue();
    }

    /// Stops polling. Sleeps. Only to be called when nothing completes any more on the queue.
    ///
    /// To be called once more when the queue is destroyed: the device may have sent a late event,
    /// whose work must be over before the poller is freed.
    pub(super) fn stop(&self) {
        // Before the work is cancelled, so that work which is queued from now on finds nothing to
        // poll.
        // INVARIANT: Null.
        self.cq.store(ptr::null_mut(), ordering::Release);
        // SAFETY: The work is initialised.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }

    /// Whether the caller is in the work item of this poller.
    pub(super) fn is_running_here(&self) -> bool {
        // SAFETY: The function has no requirements.
        unsafe { bindings::current_work() == self.work.get() }
    }

    /// Sets the hook, which handles all bursts after this has returned. `EBUSY` if there is a hook
    /// already. Sleeps; not to be called by a handler.
    ///
    /// # Safety
    ///
    /// `hook` stays valid until [`Self::unhook()`] has returned.
    pub(super) unsafe fn hook(&self, hook: *mut Hook) -> Result {
        // INVARIANT: By the function's requirement.
        match self.hook.cmpxchg(ptr::null_mut(), hook, ordering::Full) {
            Ok(_) => {
                // Work that has seen no hook must be over before this returns, as it would handle
                // new completions without the hook. By the full barrier either `flush_work()` waits
                // for that work, or the work sees the hook.
                // SAFETY: The work is initialised.
                unsafe { bindings::flush_work(self.work.get()) };
                Ok(())
            }
            Err(_) => Err(EBUSY),
        }
    }

    /// Takes the hook out. The hook is not used any more when this returns. Sleeps; not to be
    /// called by a handler.
    pub(super) fn unhook(&self) {
        // INVARIANT: Work that has seen the old hook is over when this returns: by the full barrier
        // either `flush_work()` waits for the work, or the work sees that there is no hook.
        let _ = self.hook.xchg(ptr::null_mut(), ordering::Full);
        // SAFETY: The work is initialised.
        unsafe { bindings::flush_work(self.work.get()) };
    }

    /// Queues the work; false if it is queued already. Any context.
    fn enqueue(&self) -> bool {
        // SAFETY: The queue exists as its gate is entered. The work is initialised, and is
        // cancelled before the poller is freed.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                self.queue.as_ptr(),
                self.work.get(),
            )
        }
    }

    /// Called when the queue has completions. Any context.
    ///
    /// # Safety
    ///
    /// Only to be called by the RDMA core, with the context with which a completion queue was made.
    pub(super) unsafe extern "C" fn completed(_cq: *mut bindings::ib_cq, context: *mut c_void) {
        // SAFETY: By the safety requirement the context is a poller, which is freed after the
        // completion queue.
        unsafe { &*context.cast::<Self>() }.enqueue();
    }

    /// # Safety
    ///
    /// Only to be called by the workqueue, with the work of a poller.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        let work: *mut Opaque<bindings::work_struct> = work.cast();
        // SAFETY: By the safety requirement; the poller waits for its work.
        let this = unsafe { &*container_of!(work, Self, work) };
        let cq = this.cq.load(ordering::Acquire);
        if cq.is_null() {
            return;
        }
        // INVARIANT: The work item alone polls the queue and uses the batch.
        let mut polled = Polled {
            cq,
            batch: this.batch.get().cast(),
            done: 0,
            is_last: false,
            _poller: PhantomData,
        };
        let hook = this.hook.load(ordering::Acquire);
        if hook.is_null() {
            while let Some(batch) = polled.next_batch() {
                for wc in batch {
                    // SAFETY: The completion comes from `next_batch()`.
                    unsafe { Polled::call(cq, wc) };
                }
            }
        } else {
            // SAFETY: By the type invariant the hook is valid, and it is set.
            unsafe { ((*hook).burst)(hook, &mut polled) };
        }
        let flags = bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
            | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
        // SAFETY: As above.
        if polled.done >= BUDGET || unsafe { verbs::req_notify_cq(cq, flags) } > 0 {
            this.enqueue();
        }
    }
}
