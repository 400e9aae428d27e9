// SPDX-License-Identifier: GPL-2.0

//! Receives that are posted again after they have completed, several at a time.
//!
//! Would be: part of `rust/kernel/rdma/qp.rs`.

use crate::{
    bindings,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ptr, //
};

/// A receive and its buffer.
struct Entry {
    wr: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    /// The number of the round in which the entry was linked last.
    round: u64,
}

/// The receives of a queue pair.
///
/// # Invariants
///
/// - Each work request is complete. Its scatter entry, if it has one, is `sge` of the same
///   [`Entry`].
/// - The links and rounds of the entries, and `chain`, `waiting` and `round`, are only changed by
///   the caller that changed `busy` from false to true, until that caller changes `busy` back.
/// - `chain` is null or the first of `waiting` linked requests: those of the entries with the
///   current `round`. Each post starts a new round number, so no entry counts as linked.
pub(super) struct Receives {
    entries: KVVec<UnsafeCell<Entry>>,
    chain: Atomic<*mut bindings::ib_recv_wr>,
    waiting: Atomic<u32>,
    round: Atomic<u64>,
    at_once: u32,
    busy: Atomic<bool>,
}

// SAFETY: The pointers are to entries, which are owned, and to `ib_cqe`s, which the queue pair owns
// of which this value is a part.
unsafe impl Send for Receives {}

// SAFETY: The fields that are not atomic are only used by the caller that has changed `busy` to
// true.
unsafe impl Sync for Receives {}

impl Receives {
    /// Makes receives. `at_once` receives are posted again at a time. Sleeps.
    ///
    /// # Safety
    ///
    /// The `ib_cqe`s stay as long as the result is used.
    pub(super) unsafe fn new(
        receives: impl ExactSizeIterator<
            Item = Result<(*mut bindings::ib_cqe, Option<bindings::ib_sge>)>,
        >,
        at_once: u32,
    ) -> Result<Self> {
        let mut entries = KVVec::with_capacity(receives.len(), GFP_KERNEL)?;
        for receive in receives {
            let (cqe, sge) = receive?;
            let entry = Entry {
                wr: bindings::ib_recv_wr {
                    next: ptr::null_mut(),
                    __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                        wr_cqe: ManuallyDrop::new(cqe),
                    },
                    sg_list: ptr::null_mut(),
                    num_sge: c_int::from(sge.is_some()),
                },
                sge: sge.unwrap_or_default(),
                round: 0,
            };
            entries.push(UnsafeCell::new(entry), GFP_KERNEL)?;
        }
        // The entries do not move from here on.
        let mut next: *mut bindings::ib_recv_wr = ptr::null_mut();
        for entry in entries.iter_mut().rev() {
            let entry = entry.get_mut();
            entry.wr.sg_list = &raw mut entry.sge;
            entry.wr.next = next;
            next = &raw mut entry.wr;
        }
        let waiting = u32::try_from(entries.len())?;
        // INVARIANT: As made above; all are linked.
        Ok(Self {
            entries,
            chain: Atomic::new(next),
            waiting: Atomic::new(waiting),
            round: Atomic::new(0),
            at_once,
            busy: Atomic::new(false),
        })
    }

    /// Calls `post` with the list of all linked requests.
    ///
    /// `EBUSY` if another call is running.
    pub(super) fn post_linked(
        &self,
        post: impl FnOnce(*const bindings::ib_recv_wr) -> Result,
    ) -> Result {
        if self.busy.xchg(true, ordering::Acquire) {
            return Err(EBUSY);
        }
        // INVARIANT: None are linked.
        self.next_round();
        let first = self.chain.xchg(ptr::null_mut(), ordering::Relaxed);
        let result = if first.is_null() { Ok(()) } else { post(first) };
        self.busy.store(false, ordering::Release);
        result
    }

    /// Links receive `index`, which has completed, and calls `post` if `at_once` receives are
    /// linked. Any context.
    ///
    /// `EINVAL` if there is no such receive, or if the receive is linked already. `EBUSY` if
    /// another call is running.
    #[inline(always)]
    pub(super) fn again(
        &self,
        index: usize,
        post: impl FnOnce(*const bindings::ib_recv_wr) -> Result,
    ) -> Result {
        let entry = self.entries.get(index).ok_or(EINVAL)?.get();
        if self.busy.xchg(true, ordering::Acquire) {
            return Err(EBUSY);
        }
        let round = self.round.load(ordering::Relaxed);
        // SAFETY: This call has changed `busy` to true, so no other call reads or changes the
        // entry.
        let wr = unsafe {
            if (*entry).round == round {
                // If the entry were linked once more, the list would have no end.
                self.busy.store(false, ordering::Release);
                return Err(EINVAL);
            }
            (*entry).round = round;
            (*entry).wr.next = self.chain.load(ordering::Relaxed);
            &raw mut (*entry).wr
        };
        let waiting = self.waiting.load(ordering::Relaxed).wrapping_add(1);
        let result = if waiting < self.at_once {
            // INVARIANT: One more is linked.
            self.chain.store(wr, ordering::Relaxed);
            self.waiting.store(waiting, ordering::Relaxed);
            Ok(())
        } else {
            // INVARIANT: None are linked.
            self.chain.store(ptr::null_mut(), ordering::Relaxed);
            self.next_round();
            post(wr)
        };
        self.busy.store(false, ordering::Release);
        result
    }

    /// Starts a new round, in which no entry is linked. Only for the caller that has set `busy`.
    #[inline(always)]
    fn next_round(&self) {
        self.waiting.store(0, ordering::Relaxed);
        // The number would take centuries to wrap around.
        let round = self.round.load(ordering::Relaxed).wrapping_add(1);
        self.round.store(round, ordering::Relaxed);
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/receive.rs"]
mod tests;
