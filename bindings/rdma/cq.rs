// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{
    poller::{
        Hook,
        Poller, //
    },
    Device,
    DeviceHandle,
    CALLER, //
};
use crate::{
    bindings,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion, //
    },
    workqueue::QueueHandle, //
};
use core::{
    mem,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Where completion handlers run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollContext {
    /// In softirq context, on the CPU of the completion vector.
    Softirq,
    /// On the RDMA core's per-CPU workqueue: process context.
    Workqueue,
    /// On the RDMA core's unbound workqueue: process context.
    UnboundWorkqueue,
    /// In [`CompletionQueue::process_direct()`], and while a queue pair is drained.
    Direct,
    /// On a workqueue of the user, which is told of bursts: process context.
    Bursts,
}

/// Entries that are added to what is asked for, for draining both queues of a queue pair.
pub(crate) const DRAIN_ENTRIES: u32 = 2;

/// How long to wait for something that somebody else does without telling.
const POLL_INTERVAL: Delta = Delta::from_micros(100);

/// The most completions at a time.
const POLL_BUDGET: c_int = 64;

/// A completion queue (`ib_cq`).
///
/// Dropping the last reference sleeps; each queue pair holds one.
///
/// # Invariants
///
/// - `raw` is a valid completion queue of `device`, owned by this type.
/// - `reserved` is the number of entries that queue pairs reserved, at most `capacity`.
/// - In [`PollContext::Direct`], `ib_process_cq_direct()` is only called by who set `polling`.
/// - In [`PollContext::Bursts`], the queue was made for `poller`, which alone polls it.
pub struct CompletionQueue {
    raw: NonNull<bindings::ib_cq>,
    context: PollContext,
    capacity: u32,
    reserved: Atomic<u32>,
    polling: Atomic<bool>,
    /// With [`PollContext::Bursts`].
    poller: Option<Pin<KBox<Poller>>>,
    _device: DeviceHandle,
}

// SAFETY: The functions that are called on a completion queue may be called from any thread.
unsafe impl Send for CompletionQueue {}

// SAFETY: As above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Allocates a completion queue with room for `entries` completions.
    ///
    /// `vector` is taken modulo the device's number of completion vectors. Sleeps. `EINVAL` for
    /// [`PollContext::Bursts`]; see [`Self::in_bursts()`].
    pub fn new(
        device: &Device,
        entries: u32,
        vector: u32,
        context: PollContext,
    ) -> Result<Arc<Self>> {
        let device = device.handle()?;
        let capacity = entries.checked_add(DRAIN_ENTRIES).ok_or(EINVAL)?;
        let vector = vector.checked_rem(device.num_comp_vectors()).unwrap_or(0);
        let poll_context = match context {
            PollContext::Softirq => bindings::ib_poll_context_IB_POLL_SOFTIRQ,
            PollContext::Workqueue => bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            PollContext::UnboundWorkqueue => bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE,
            PollContext::Direct => bindings::ib_poll_context_IB_POLL_DIRECT,
            PollContext::Bursts => return Err(EINVAL),
        };
        // SAFETY: The handle keeps the device; the private pointer is not used.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device.as_raw(),
                ptr::null_mut(),
                c_int::try_from(capacity).map_err(|_| EINVAL)?,
                c_int::try_from(vector).map_err(|_| EINVAL)?,
                poll_context,
                CALLER.as_char_ptr(),
            )
        })?;
        let Some(raw) = NonNull::new(raw) else {
            return Err(ENOMEM);
        };
        // INVARIANT: `raw` was just made for `device`; nothing is reserved, nobody polls. If the
        // allocation fails, the value is dropped, and the queue with it.
        Ok(Arc::new(
            Self {
                raw,
                context,
                capacity,
                reserved: Atomic::new(0),
                polling: Atomic::new(false),
                poller: None,
                _device: device,
            },
            GFP_KERNEL,
        )?)
    }

    /// As [`Self::new()`], for one queue pair, whose handler runs on `queue` and is told when a
    /// burst of completions begins and ends.
    ///
    /// The device does not moderate its events by itself, which it may do for other queues. Sleeps.
    /// `ESHUTDOWN` if the workqueue is being destroyed.
    pub fn in_bursts(
        device: &Device,
        entries: u32,
        vector: u32,
        queue: &QueueHandle,
    ) -> Result<Arc<Self>> {
        let device = device.handle()?;
        let capacity = entries.checked_add(DRAIN_ENTRIES).ok_or(EINVAL)?;
        let poller = Poller::new(queue)?;
        let attributes = bindings::ib_cq_init_attr {
            cqe: capacity,
            comp_vector: vector.checked_rem(device.num_comp_vectors()).unwrap_or(0),
            flags: 0,
        };
        // SAFETY: The handle keeps the device, and the context stays as long as the queue.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device.as_raw(),
                Some(Poller::completed),
                None,
                poller.context(),
                &attributes,
                CALLER.as_char_ptr(),
            )
        })?;
        let Some(raw) = NonNull::new(raw) else {
            return Err(ENOMEM);
        };
        // SAFETY: The queue was made with it, and is destroyed by `drop` when it has stopped.
        unsafe { poller.start(raw.as_ptr()) };
        // INVARIANT: `raw` was just made for `device` and `poller`; nothing is reserved.
        Ok(Arc::new(
            Self {
                raw,
                context: PollContext::Bursts,
                capacity,
                reserved: Atomic::new(0),
                polling: Atomic::new(false),
                poller: Some(poller),
                _device: device,
            },
            GFP_KERNEL,
        )?)
    }

    /// Has `hook` told of bursts, if there are any. `EBUSY` if another one is. Sleeps.
    ///
    /// # Safety
    ///
    /// It stays until [`Self::unhook()`] has returned.
    pub(super) unsafe fn hook(&self, hook: *mut Hook) -> Result {
        match &self.poller {
            // SAFETY: By the function's requirement.
            Some(poller) => unsafe { poller.hook(hook) },
            None => Ok(()),
        }
    }

    /// Forgets the hook, which is not used any more when this returns. Sleeps.
    pub(super) fn unhook(&self) {
        if let Some(poller) = &self.poller {
            poller.unhook();
        }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// Where handlers run.
    pub fn context(&self) -> PollContext {
        self.context
    }

    /// Runs the handlers of up to `budget` completions; returns how many there were.
    ///
    /// Only for [`PollContext::Direct`]; returns 0 for others, and while somebody else polls.
    /// Handlers run in the caller's context. Must not be called from a handler.
    #[inline]
    pub fn process_direct(&self, budget: u32) -> u32 {
        if self.context != PollContext::Direct {
            return 0;
        }
        // With -1, the C function would not stop at all.
        let Ok(budget) = c_int::try_from(budget) else {
            return 0;
        };
        if self.polling.xchg(true, ordering::Acquire) {
            return 0;
        }
        // SAFETY: By the type invariant the queue is valid, and we are the one that set `polling`.
        let done = unsafe { bindings::ib_process_cq_direct(self.as_raw(), budget) };
        self.polling.store(false, ordering::Release);
        u32::try_from(done).unwrap_or(0)
    }

    /// Keeps others from polling until the guard goes. Sleeps.
    pub(super) fn exclude_polling(&self) -> PollingExcluded<'_> {
        if self.context == PollContext::Direct {
            while self.polling.xchg(true, ordering::Acquire) {
                fsleep(POLL_INTERVAL);
            }
        }
        PollingExcluded(self)
    }

    /// Reserves `entries` for a queue pair, besides those for draining. `EINVAL` if there are not
    /// as many left.
    pub(super) fn reserve(self: &Arc<Self>, entries: u32) -> Result<Reservation> {
        let entries = entries.checked_add(DRAIN_ENTRIES).ok_or(EINVAL)?;
        let mut old = self.reserved.load(ordering::Relaxed);
        loop {
            let new = old.checked_add(entries).ok_or(EINVAL)?;
            if new > self.capacity {
                return Err(EINVAL);
            }
            // INVARIANT: `new` is at most `capacity`.
            match self.reserved.cmpxchg(old, new, ordering::Relaxed) {
                Ok(_) => break,
                Err(current) => old = current,
            }
        }
        Ok(Reservation {
            queue: self.clone(),
            entries,
        })
    }
}

impl CompletionQueue {
    /// Waits until no softirq is about to ask for another interrupt. Sleeps.
    ///
    /// `ib_free_cq()` waits for a softirq that polls, but not for one that has just stopped to do
    /// so and is still about to touch the queue (`ib_poll_handler()`, after `irq_poll_complete()`).
    ///
    /// # Safety
    ///
    /// Only for a queue of [`PollContext::Softirq`] on which nothing is in flight, before it is
    /// destroyed.
    unsafe fn settle_softirq(&self) {
        // SAFETY: In this context the union holds the softirq's part, and has been initialised.
        let poll = unsafe { &raw mut (*self.as_raw()).__bindgen_anon_1.iop };
        // SAFETY: As above. From here on none is scheduled; then none is running any more, since
        // a softirq is a reader of RCU; and what was switched off is switched on again, as
        // `ib_free_cq()` expects it. Nothing completes any more that could schedule one then.
        unsafe {
            bindings::irq_poll_disable(poll.cast());
            kernel::bindings::synchronize_rcu_expedited();
            bindings::irq_poll_enable(poll.cast());
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if self.context == PollContext::Softirq {
            // SAFETY: The queue is of this context, and not used any more.
            unsafe { self.settle_softirq() };
        }
        if let Some(poller) = self.poller.take() {
            poller.stop();
            // SAFETY: As below; nobody polls it any more.
            let error = unsafe { bindings::ib_destroy_cq_user(self.raw.as_ptr(), ptr::null_mut()) };
            poller.stop();
            if error != 0 {
                // The queue is still there, and an event would go to the poller, which keeps the
                // workqueue.
                mem::forget(poller);
            }
            return;
        }
        // SAFETY: By the type invariant the queue is ours; queue pairs on it hold references to
        // `self`, so there are none.
        unsafe { bindings::ib_free_cq(self.raw.as_ptr()) };
    }
}

/// Nobody polls a [`PollContext::Direct`] queue by [`CompletionQueue::process_direct()`] while
/// this exists.
pub(super) struct PollingExcluded<'a>(&'a CompletionQueue);

impl PollingExcluded<'_> {
    /// Lets some time pass, in which handlers run.
    pub(super) fn make_progress(&self) {
        self.poll();
        fsleep(POLL_INTERVAL);
    }

    /// Lets time pass, in which handlers run, until `done` is completed or a little longer.
    pub(super) fn make_progress_or_wait(&self, done: &Completion) {
        if self.poll() {
            if !done.is_done() {
                fsleep(POLL_INTERVAL);
            }
        } else {
            done.wait();
        }
    }

    /// Runs the handlers of completions, if that is for us to do, and says so.
    fn poll(&self) -> bool {
        if self.0.context != PollContext::Direct {
            return false;
        }
        // SAFETY: By the type invariant of the queue it is valid, and we are the one that set
        // `polling`.
        unsafe { bindings::ib_process_cq_direct(self.0.as_raw(), POLL_BUDGET) };
        true
    }
}

impl Drop for PollingExcluded<'_> {
    fn drop(&mut self) {
        if self.0.context == PollContext::Direct {
            self.0.polling.store(false, ordering::Release);
        }
    }
}

/// A queue pair's share of a completion queue.
pub(super) struct Reservation {
    queue: Arc<CompletionQueue>,
    entries: u32,
}

impl Deref for Reservation {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut old = self.queue.reserved.load(ordering::Relaxed);
        while let Err(current) =
            self.queue
                .reserved
                .cmpxchg(old, old.saturating_sub(self.entries), ordering::Relaxed)
        {
            old = current;
        }
    }
}
