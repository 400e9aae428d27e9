// SPDX-License-Identifier: GPL-2.0

//! Completion queues.
//!
//! Would be: `rust/kernel/rdma/cq.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    device::{
        Device,
        DeviceHandle,
        DRAIN_ENTRIES, //
    },
    poller::{
        Hook,
        Poller, //
    }, //
};
use crate::{
    bindings,
    preempt,
    prelude::*,
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
    sync::Arc,
    task::Task,
    time::{
        delay::fsleep,
        Delta, //
    },
    types::NotThreadSafe, //
};

/// The context in which completion handlers run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollContext {
    /// In softirq context, on the CPU of the completion vector.
    Softirq,
    /// In [`CompletionQueue::process_direct()`], and while a queue pair is drained.
    Direct,
    /// On a workqueue of the user, in process context. The handler is told when a burst begins and
    /// ends.
    Bursts,
}

/// How long to wait before polling again, where no event tells of a change.
const POLL_INTERVAL: Delta = Delta::from_micros(100);

/// The most completions that are handled at a time.
const POLL_BUDGET: c_int = 64;

/// A completion queue (`ib_cq`).
///
/// Each queue pair holds a reference. Dropping the last reference sleeps. Where sleeping is not
/// allowed the queue is left behind, see [`preempt`](crate::preempt).
///
/// # Invariants
///
/// - `raw` is a valid completion queue of `device`, owned by this type.
/// - Each queue pair on this queue holds a [`Reservation`], and so a reference to this value.
/// - `reserved` is the number of entries of all reservations, at most `capacity`.
/// - In [`PollContext::Direct`], `ib_process_cq_direct()` is only called by the task with the
///   address in `polling`, which is null while no task polls.
/// - In [`PollContext::Bursts`], and only then, there is a `poller`. The queue was made for the
///   poller, which alone polls it.
pub struct CompletionQueue {
    raw: NonNull<bindings::ib_cq>,
    context: PollContext,
    capacity: u32,
    reserved: Atomic<u32>,
    polling: Atomic<*mut bindings::task_struct>,
    poller: Option<Pin<KBox<Poller>>>,
    device: DeviceHandle,
}

// SAFETY: The C functions that are called on a completion queue may be called from any task.
unsafe impl Send for CompletionQueue {}

// SAFETY: As above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Allocates a completion queue with room for `entries` completions.
    ///
    /// `vector` is taken modulo the device's number of completion vectors. The RDMA core lists the
    /// queue under the name `owner`. Sleeps. `EINVAL` for [`PollContext::Bursts`], see
    /// [`Self::in_bursts()`], or if there are too many entries.
    pub fn new(
        device: &Device,
        owner: &'static CStr,
        entries: u32,
        vector: u32,
        context: PollContext,
    ) -> Result<Arc<Self>> {
        let poll_context = match context {
            PollContext::Softirq => bindings::ib_poll_context_IB_POLL_SOFTIRQ,
            PollContext::Direct => bindings::ib_poll_context_IB_POLL_DIRECT,
            PollContext::Bursts => return Err(EINVAL),
        };
        let attributes = attributes(device, entries, vector)?;
        let device = device.handle()?;
        // SAFETY: The handle keeps the device; the private pointer is not used.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                device.as_raw(),
                ptr::null_mut(),
                c_int::try_from(attributes.cqe)?,
                c_int::try_from(attributes.comp_vector)?,
                poll_context,
                owner.as_char_ptr(),
            )
        })?;
        Self::own(raw, context, attributes.cqe, None, device)
    }

    /// As [`Self::new()`], but for one queue pair. The handler of that queue pair runs on `queue`,
    /// and is told when a burst of completions begins and ends.
    ///
    /// The device's own moderation of completion events is not used for this queue, as it may be
    /// for other queues. Sleeps. `ESHUTDOWN` if the workqueue is being destroyed.
    pub fn in_bursts(
        device: &Device,
        owner: &'static CStr,
        entries: u32,
        vector: u32,
        queue: &QueueHandle,
    ) -> Result<Arc<Self>> {
        let attributes = attributes(device, entries, vector)?;
        let device = device.handle()?;
        let poller = Poller::new(queue)?;
        // SAFETY: The handle keeps the device, and the poller, which is the context, stays as long
        // as the queue.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_create_cq(
                device.as_raw(),
                Some(Poller::completed),
                None,
                poller.context(),
                &attributes,
                owner.as_char_ptr(),
            )
        })?;
        // SAFETY: The queue was made with the poller's context, and `drop` stops the poller before
        // it destroys the queue.
        unsafe { poller.start(raw) };
        Self::own(
            raw,
            PollContext::Bursts,
            attributes.cqe,
            Some(poller),
            device,
        )
    }

    fn own(
        raw: *mut bindings::ib_cq,
        context: PollContext,
        capacity: u32,
        poller: Option<Pin<KBox<Poller>>>,
        device: DeviceHandle,
    ) -> Result<Arc<Self>> {
        // INVARIANT: `raw` was just made for `device`, and for `poller` if there is one; nothing is
        // reserved, and no task polls. If the allocation fails, the value is dropped, and the queue
        // with it.
        Ok(Arc::new(
            Self {
                raw: NonNull::new(raw).ok_or(ENOMEM)?,
                context,
                capacity,
                reserved: Atomic::new(0),
                polling: Atomic::new(ptr::null_mut()),
                poller,
                device,
            },
            GFP_KERNEL,
        )?)
    }

    /// Whether the caller is a handler of this queue's completions. A handler must not wait for
    /// handlers of the same queue.
    pub(super) fn is_handling(&self) -> bool {
        match self.context {
            PollContext::Softirq => !preempt::may_sleep(),
            PollContext::Direct => self.polling.load(ordering::Relaxed) == Task::current_raw(),
            PollContext::Bursts => self
                .poller
                .as_ref()
                .is_some_and(|poller| poller.is_running_here()),
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Sets the hook that handles bursts; does nothing unless the queue is one of
    /// [`Self::in_bursts()`]. `EBUSY` if there is a hook already. Sleeps.
    ///
    /// # Safety
    ///
    /// `hook` stays valid until [`Self::unhook()`] has returned.
    pub(super) unsafe fn hook(&self, hook: *mut Hook) -> Result {
        match &self.poller {
            // SAFETY: By the function's requirement.
            Some(poller) => unsafe { poller.hook(hook) },
            None => Ok(()),
        }
    }

    /// Takes the hook out. The hook is not used any more when this returns. Sleeps.
    pub(super) fn unhook(&self) {
        if let Some(poller) = &self.poller {
            poller.unhook();
        }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.raw.as_ptr()
    }

    /// The context in which handlers run.
    pub fn context(&self) -> PollContext {
        self.context
    }

    /// Runs the handlers of up to `budget` completions, and returns the number of completions.
    ///
    /// Only for [`PollContext::Direct`]: returns 0 for another kind of queue, and while another
    /// task polls. Handlers run in the caller's context. Must not be called from a handler.
    #[inline]
    pub fn process_direct(&self, budget: u32) -> u32 {
        if self.context != PollContext::Direct {
            return 0;
        }
        // With a budget of -1 the C function would not stop at all.
        let Ok(budget) = c_int::try_from(budget) else {
            return 0;
        };
        let Some(_polling) = Polling::begin(self) else {
            return 0;
        };
        // SAFETY: The queue is valid, and the address of this task is in `polling`.
        let done = unsafe { bindings::ib_process_cq_direct(self.as_raw(), budget) };
        // The number is not negative, and at most the budget.
        done as u32
    }

    /// Keeps other tasks from polling until the guard is dropped. Sleeps.
    pub(super) fn exclude_polling(&self) -> PollingExcluded<'_> {
        if self.context != PollContext::Direct {
            return PollingExcluded(self, None);
        }
        loop {
            if let Some(polling) = Polling::begin(self) {
                return PollingExcluded(self, Some(polling));
            }
            fsleep(POLL_INTERVAL);
        }
    }

    /// Reserves `entries` for a queue pair, and those for draining. `EINVAL` if not as many are
    /// left.
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

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            preempt::leave_behind(&raw mut bindings::__this_module, "a completion queue");
            // The queue stays, so the poller and the device must stay as well.
            mem::forget((self.poller.take(), self.device.handle()));
            return;
        }
        let Some(poller) = self.poller.take() else {
            // SAFETY: The queue is owned. A queue pair on it would hold a reference, so there is
            // none, and nothing is in flight.
            unsafe { bindings::rnbd_helper_ib_free_cq(self.as_raw()) };
            return;
        };
        poller.stop();
        // SAFETY: As above. The poller, which alone polls the queue, has stopped.
        let error = unsafe { bindings::ib_destroy_cq_user(self.as_raw(), ptr::null_mut()) };
        poller.stop();
        if error != 0 {
            // The queue still exists, and an event would go to the poller. So the poller stays,
            // which keeps the workqueue.
            mem::forget(poller);
        }
    }
}

/// The size and the vector of a completion queue with room for `entries`, and for those of
/// draining.
fn attributes(device: &Device, entries: u32, vector: u32) -> Result<bindings::ib_cq_init_attr> {
    Ok(bindings::ib_cq_init_attr {
        cqe: entries.checked_add(DRAIN_ENTRIES).ok_or(EINVAL)?,
        comp_vector: vector % device.num_comp_vectors(),
        flags: 0,
    })
}

/// The right of this task to poll a [`PollContext::Direct`] queue.
///
/// # Invariants
///
/// The queue's `polling` is the task that made this.
struct Polling<'a>(&'a CompletionQueue, NotThreadSafe);

impl<'a> Polling<'a> {
    /// `None` while any task polls, the caller's included.
    #[inline]
    fn begin(queue: &'a CompletionQueue) -> Option<Self> {
        let polling = &queue.polling;
        polling
            .cmpxchg(ptr::null_mut(), Task::current_raw(), ordering::Acquire)
            .ok()?;
        // INVARIANT: `polling` was just set to this task.
        Some(Self(queue, NotThreadSafe))
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.polling.store(ptr::null_mut(), ordering::Release);
    }
}

/// Keeps other tasks from polling a [`PollContext::Direct`] queue while it exists.
pub(super) struct PollingExcluded<'a>(&'a CompletionQueue, Option<Polling<'a>>);

impl PollingExcluded<'_> {
    /// Waits a short time, and lets handlers run.
    pub(super) fn make_progress(&self) {
        self.poll();
        fsleep(POLL_INTERVAL);
    }

    /// Lets handlers run until `done` is completed or a short time has passed.
    pub(super) fn make_progress_or_wait(&self, done: &Completion) {
        if self.poll() {
            if !done.is_done() {
                fsleep(POLL_INTERVAL);
            }
        } else {
            done.wait();
        }
    }

    /// Runs the handlers of completions if this task is to poll the queue. Returns whether it is.
    fn poll(&self) -> bool {
        if self.1.is_some() {
            // SAFETY: The queue is valid, and the address of this task is in `polling`.
            unsafe { bindings::ib_process_cq_direct(self.0.as_raw(), POLL_BUDGET) };
        }
        self.1.is_some()
    }
}

/// A queue pair's share of a completion queue.
///
/// # Invariants
///
/// `entries` are part of `queue.reserved`.
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
        // INVARIANT: `reserve()` has added this number.
        self.queue
            .reserved
            .fetch_sub(self.entries, ordering::Relaxed);
    }
}
