// SPDX-License-Identifier: GPL-2.0

//! Completion queues that are worked off in bursts.
//!
//! The RDMA core's own way (`ib_alloc_cq()`) calls a handler for each completion and tells nobody
//! when it has found the last one. Whoever knows that can do once for a burst of completions what
//! it would do for each: post receives, answer requests. So this polls by itself.
//!
//! C: `ib_cq_poll_work()`

use super::verbs;
use crate::{
    bindings,
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
    mem::MaybeUninit,
    ptr, //
};
use kernel::{
    container_of,
    prelude::*,
    types::Opaque, //
};

/// Completions that are taken from the device at a time; as in the core.
const BATCH: usize = 16;

/// Completions after which others get the CPU; as in the core.
const BUDGET: usize = 256;

/// Who is told of bursts; part of a queue pair.
pub(super) struct Hook {
    /// Called when a burst begins (`true`) and when it ends.
    ///
    /// Only with the hook that it is in, as long as that is in place.
    pub(super) burst: unsafe fn(hook: *mut Hook, begins: bool),
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

// SAFETY: By the type invariant what is not atomic is used by one at a time.
unsafe impl Send for Poller {}

// SAFETY: As above.
unsafe impl Sync for Poller {}

impl Poller {
    /// Makes a poller that works on `queue`, which it keeps. May sleep. `ESHUTDOWN` if the queue is
    /// being destroyed.
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

    /// What the completion queue is to be made with, besides [`Self::completed()`].
    pub(super) fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Begins to poll `cq`.
    ///
    /// # Safety
    ///
    /// It was made with [`Self::context()`] and is not destroyed before [`Self::stop()`] has
    /// returned.
    pub(super) unsafe fn start(&self, cq: *mut bindings::ib_cq) {
        // INVARIANT: By the function's requirement.
        self.cq.store(cq, ordering::Release);
        // Asks the device for an event.
        self.enqueue();
    }

    /// Polls no more. Nothing completes any more on the queue. Sleeps.
    ///
    /// Called once more when the queue is destroyed: an event of the device may have come late, and
    /// its work has to be over before this goes.
    pub(super) fn stop(&self) {
        // First, so that work which is queued from now on finds nothing to poll.
        // INVARIANT: Null.
        self.cq.store(ptr::null_mut(), ordering::Release);
        // SAFETY: The work is initialised.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }

    /// Has `hook` told of all bursts that are found once this has returned. `EBUSY` if there is
    /// another. Sleeps; not to be called by a handler.
    ///
    /// # Safety
    ///
    /// It stays until [`Self::unhook()`] has returned.
    pub(super) unsafe fn hook(&self, hook: *mut Hook) -> Result {
        // INVARIANT: By the function's requirement.
        match self.hook.cmpxchg(ptr::null_mut(), hook, ordering::Full) {
            Ok(_) => {
                // Work that has seen no hook would poll what completes now, and tell nobody. By the
                // barrier either it is waited for here, or it sees the hook.
                // SAFETY: The work is initialised.
                unsafe { bindings::flush_work(self.work.get()) };
                Ok(())
            }
            Err(_) => Err(EBUSY),
        }
    }

    /// Forgets the hook, which is not used any more when this returns. Sleeps; not to be called by
    /// a handler.
    pub(super) fn unhook(&self) {
        // INVARIANT: The work that has seen the old one is waited for: by the barrier either
        // `flush_work()` sees that it was queued, or it sees that there is no hook.
        let _ = self.hook.xchg(ptr::null_mut(), ordering::Full);
        // SAFETY: The work is initialised.
        unsafe { bindings::flush_work(self.work.get()) };
    }

    fn enqueue(&self) {
        // SAFETY: The queue exists as it is entered; the work is initialised, and is cancelled before
        // it goes.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                self.queue.as_ptr(),
                self.work.get(),
            )
        };
    }

    /// There are completions. Any context.
    ///
    /// # Safety
    ///
    /// Only for the RDMA core, with the context that a completion queue was made with.
    pub(super) unsafe extern "C" fn completed(_cq: *mut bindings::ib_cq, context: *mut c_void) {
        // SAFETY: By the safety requirement the context is that of a poller, which goes after the
        // completion queue.
        unsafe { &*context.cast::<Self>() }.enqueue();
    }

    /// # Safety
    ///
    /// Only for the workqueue, with the work of a poller.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        let work: *mut Opaque<bindings::work_struct> = work.cast();
        // SAFETY: By the safety requirement; the poller waits for its work.
        let this = unsafe { &*container_of!(work, Self, work) };
        let cq = this.cq.load(ordering::Acquire);
        if cq.is_null() {
            return;
        }
        let hook = this.hook.load(ordering::Acquire);
        let tell = |begins| {
            if !hook.is_null() {
                // SAFETY: By the type invariant.
                unsafe { ((*hook).burst)(hook, begins) };
            }
        };
        tell(true);
        // SAFETY: By the type invariant the completion queue is ours to poll.
        let done = unsafe { this.poll(cq) };
        tell(false);
        let flags = bindings::ib_cq_notify_flags_IB_CQ_NEXT_COMP
            | bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS;
        // SAFETY: As above.
        if done >= BUDGET || unsafe { verbs::req_notify_cq(cq, flags) } > 0 {
            this.enqueue();
        }
    }

    /// Calls the handlers of what has completed; returns of how much.
    ///
    /// # Safety
    ///
    /// Only in the work item, with its completion queue.
    unsafe fn poll(&self, cq: *mut bindings::ib_cq) -> usize {
        let batch: *mut bindings::ib_wc = self.batch.get().cast();
        let mut done = 0;
        loop {
            // SAFETY: By the type invariant the batch is ours, and has that much room.
            let found = unsafe { verbs::poll_cq(cq, BATCH as c_int, batch) };
            let found = usize::try_from(found).unwrap_or(0);
            for index in 0..found {
                // SAFETY: That many completions have been written, each with the `wr_cqe` that
                // was posted.
                unsafe {
                    let wc = batch.add(index);
                    let cqe = *(*wc).__bindgen_anon_1.wr_cqe;
                    if let Some(call) = (*cqe).done {
                        call(cq, wc);
                    }
                }
            }
            done += found;
            if found < BATCH || done >= BUDGET {
                return done;
            }
        }
    }
}
