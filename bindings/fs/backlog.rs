// SPDX-License-Identifier: GPL-2.0

//! The requests of a file that wait on a CPU for a work item. Belongs to [`fs`](super).

use core::ptr::NonNull;

use crate::{
    cpu::{
        current_cpu,
        nr_cpu_ids, //
    },
    prelude::*,
    sync::spinlock_irq::{
        new_spinlock_irq,
        SpinLockIrq, //
    }, //
};

/// The place of a request in a [`Backlog`].
pub(super) struct Link {
    /// The request that waits behind this one.
    next: Option<NonNull<Link>>,
}

impl Link {
    /// A link that is in no backlog.
    pub(super) const fn new() -> Self {
        Self { next: None }
    }
}

/// The waiting requests, oldest first.
///
/// # Invariants
///
/// - `first` and `last` are both `None`, or the ends of a list by `next`. All links of the list
///   belong to the backlog.
/// - While `is_queued` is true, a work item is queued that has not called [`Backlog::hand_over`].
/// - `is_queued` is true while the list is not empty. So no request is left in the list.
struct Waiting {
    first: Option<NonNull<Link>>,
    last: Option<NonNull<Link>>,
    is_queued: bool,
}

// SAFETY: Only the owner of the backlog's lock uses the links, which belong to the backlog.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Adds a link behind all others.
    fn push(&mut self, link: NonNull<Link>) {
        match self.last.replace(link) {
            // SAFETY: By the type invariant the last link belongs to the backlog.
            Some(last) => unsafe { (*last.as_ptr()).next = Some(link) },
            None => self.first = Some(link),
        }
    }

    /// Takes the oldest link out.
    fn pop(&mut self) -> Option<NonNull<Link>> {
        let link = self.first?;
        // SAFETY: By the type invariant the link belongs to the backlog.
        self.first = unsafe { (*link.as_ptr()).next.take() };
        if self.first.is_none() {
            self.last = None;
        }
        Some(link)
    }
}

/// The requests of a file that wait on one CPU for a work item.
///
/// A work item carries out its own request, and then the requests that wait. That is cheaper than a
/// work item for each request. A request that sleeps holds up none of the others: while requests
/// wait, the work item of one more is queued, and the CPU takes that up when the first one sleeps.
pub(super) struct Backlog(Pin<KBox<SpinLockIrq<Waiting>>>);

impl Backlog {
    fn new() -> Result<Self> {
        // INVARIANT: The list is empty, and no work item is queued.
        let waiting = Waiting {
            first: None,
            last: None,
            is_queued: false,
        };
        Ok(Self(KBox::pin_init(
            new_spinlock_irq!(waiting, "kernel_ext::fs::Backlog"),
            GFP_KERNEL,
        )?))
    }

    /// Adds a request. False if the caller is to queue the request's own work item instead, at
    /// once; the request is not added then. Any context.
    ///
    /// # Safety
    ///
    /// The link is in no backlog, and stays valid until [`Self::hand_over`] or [`Self::take`]
    /// returns it.
    #[must_use = "the work item has to be queued"]
    pub(super) unsafe fn add(&self, link: NonNull<Link>) -> bool {
        let mut waiting = self.0.lock();
        if waiting.is_queued {
            waiting.push(link);
            return true;
        }
        // INVARIANT: The caller queues the work item.
        waiting.is_queued = true;
        false
    }

    /// Called by a work item that begins. Returns the request whose own work item the caller queues
    /// next, if a request waits. Any context.
    #[must_use = "the work item has to be queued"]
    pub(super) fn hand_over(&self) -> Option<NonNull<Link>> {
        let mut waiting = self.0.lock();
        let next = waiting.pop();
        // INVARIANT: The caller queues the next work item. Without one the list is empty.
        waiting.is_queued = next.is_some();
        next
    }

    /// Takes out the request that has waited longest, for the caller to carry out. Any context.
    pub(super) fn take(&self) -> Option<NonNull<Link>> {
        self.0.lock().pop()
    }
}

/// The backlogs of a file, by CPU.
pub(super) struct Backlogs(KVec<Backlog>);

impl Backlogs {
    /// Makes a backlog for each CPU. Sleeps.
    pub(super) fn new() -> Result<Self> {
        let count = nr_cpu_ids() as usize;
        let mut backlogs = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            backlogs.push(Backlog::new()?, GFP_KERNEL)?;
        }
        Ok(Self(backlogs))
    }

    /// The number of the present CPU's backlog. Any context.
    #[inline]
    pub(super) fn here() -> u32 {
        current_cpu()
    }

    /// The backlog with this number; `None` for numbers that [`Self::here`] never returns.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Backlog> {
        self.0.get(number as usize)
    }
}
