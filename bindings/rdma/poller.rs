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

/// Completions that are taken from the device at a time; as in the core.
const BATCH: usize = 16;

/// Completions after which other work gets the CPU; as in the core.
const BUDGET: usize = 256;

/// What handles the completions of a queue; part of a queue pair.
pub(super) struct Hook {
    /// Handles all that `polled` has, as one burst.
    ///
    /// Only with the hook that it is in, as long as that is in place.
    pub(super) burst: unsafe fn(hook: *mut Hook, polled: &mut Polled<'_>),
}

/// The completions of one burst.
///
/// # Invariants
///
/// `cq` is valid and polled by the holder of this alone, and so is `batch` used, which has room for
/// [`BATCH`] completions.
pub(super) struct Polled<'a> {
    cq: *mut bindings::ib_cq,
    batch: *mut bindings::ib_wc,
    /// How many there were; at most `BUDGET` and a batch.
    done: usize,
    is_last: bool,
    _poller: PhantomData<&'a Poller>,
}

impl Polled<'_> {
    /// The next completions; `None` after the last ones, or if there were enough.
    pub(super) fn next_batch(&mut self) -> Option<&[bindings::ib_wc]> {
        if self.is_last || self.done >= BUDGET {
            return None;
        }
        // SAFETY: By the type invariant the queue is ours, and there is that much room.
        let found = unsafe { verbs::poll_cq(self.cq, BATCH as c_int, self.batch) };
        // A driver that fails has found nothing, and none finds more than there is room for.
        let found = found.clamp(0, BATCH as c_int) as usize;
        self.is_last = found < BATCH;
        self.done += found;
        // SAFETY: That many completions have been written, and are not changed as long as `self` is
        // borrowed.
        Some(unsafe { slice::from_raw_parts(self.batch, found) })
    }

    /// Calls what `wc` itself names, as the RDMA core does.
    ///
    /// # Safety
    ///
    /// `wc` comes from [`Self::next_batch()`].
    pub(super) unsafe fn call(cq: *mut bindings::ib_cq, wc: &bindings::ib_wc) {
        // SAFETY: Each completion has the `wr_cqe` that was posted, which stays until this is
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

    /// Whether the caller is in the work item of this poller.
    pub(super) fn is_running_here(&self) -> bool {
        // SAFETY: The function has no requirements.
        unsafe { bindings::current_work() == self.work.get() }
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

    /// Has the work done on this CPU; false if it is queued already. Any context.
    fn enqueue(&self) -> bool {
        // SAFETY: The queue exists as it is entered; the work is initialised, and is cancelled
        // before it goes.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                self.queue.as_ptr(),
                self.work.get(),
            )
        }
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
                    // SAFETY: It comes from there.
                    unsafe { Polled::call(cq, wc) };
                }
            }
        } else {
            // SAFETY: By the type invariant.
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
