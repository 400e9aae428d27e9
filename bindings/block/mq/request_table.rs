// SPDX-License-Identifier: GPL-2.0

//! Requests in flight, by their tags. Would be a new part of `kernel::block::mq`.

use super::{
    expired::ExpiredRequest,
    request::OwnedRequest, //
};
use crate::{
    bindings,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::alloc::flags::GFP_KERNEL;

/// In a slot: [`RequestTable::take_expired`] has taken out the last request of this tag, and no
/// caller of [`RequestTable::take`] has looked for the request since. No request has this address,
/// as requests are aligned.
const EXPIRING: *mut bindings::request = ptr::without_provenance_mut(1);

/// Holds the requests of one tag set that wait for a response. Each request can be taken out by its
/// tag, once. Dropping the table fails the requests in it.
///
/// # Invariants
///
/// - Each slot is null, or [`EXPIRING`], or comes from `OwnedRequest::<D>::into_raw` and is owned
///   by the slot.
/// - The request in a slot has the index of the slot as its tag, and its tag set is `set`. The
///   requests of a tag set that a driver owns have different tags; see [`OwnedRequest::tag()`].
/// - A slot becomes [`EXPIRING`] when [`Self::take_expired()`] takes a request out of it, and stays
///   so until the next [`Self::take()`], [`Self::put_back()`] or [`Self::insert()`] for its tag.
pub struct RequestTable<D> {
    slots: KVVec<Atomic<*mut bindings::request>>,
    /// The tag set, only for comparison; null before the first request.
    set: Atomic<*mut bindings::blk_mq_tag_set>,
    _owned: PhantomData<OwnedRequest<D>>,
}

// SAFETY: The table owns requests, which are `Send`.
unsafe impl<D> Send for RequestTable<D> {}

// SAFETY: Through a shared reference requests are only moved in and out, by atomic exchanges.
unsafe impl<D> Sync for RequestTable<D> {}

impl<D> RequestTable<D> {
    /// Makes a table for the tags of a set with this queue depth. May sleep.
    pub fn new(queue_depth: u32) -> Result<Self> {
        let mut slots = KVVec::with_capacity(usize::try_from(queue_depth)?, GFP_KERNEL)?;
        for _ in 0..queue_depth {
            // INVARIANT: The slot is null.
            slots.push(Atomic::new(ptr::null_mut()), GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            set: Atomic::new(ptr::null_mut()),
            _owned: PhantomData,
        })
    }

    /// Puts a request into the slot of its tag. Any context.
    ///
    /// The handle is returned if the table has no such tag, or holds requests of another tag set.
    #[inline]
    pub fn insert(&self, request: OwnedRequest<D>) -> Result<(), OwnedRequest<D>> {
        match self.slots.get(request.tag() as usize) {
            Some(slot) if self.is_of(request.set()) => {
                // INVARIANT: The pointer comes from `into_raw`. The slot is null or `EXPIRING`: a
                // request in it would have the tag set and the tag of the new request, and the
                // driver owns both.
                slot.store(request.into_raw(), ordering::Release);
                Ok(())
            }
            _ => Err(request),
        }
    }

    /// Whether the table holds requests of `set`. The first request determines the tag set.
    #[inline]
    fn is_of(&self, set: *mut bindings::blk_mq_tag_set) -> bool {
        let known = self.set.load(ordering::Relaxed);
        if !known.is_null() {
            return known == set;
        }
        match self.set.cmpxchg(known, set, ordering::Relaxed) {
            Ok(_) => true,
            Err(other) => other == set,
        }
    }

    /// Takes out the request with this tag. Only one of several callers gets the request. A full
    /// barrier. Any context.
    #[inline]
    pub fn take(&self, tag: u32) -> Option<OwnedRequest<D>> {
        let slot = self.slots.get(tag as usize)?;
        // INVARIANT: The slot is null.
        let raw = slot.xchg(ptr::null_mut(), ordering::Full);
        // One comparison for both null and `EXPIRING`.
        if raw.addr() <= EXPIRING.addr() {
            return None;
        }
        // SAFETY: By the type invariant a slot that is neither null nor `EXPIRING` owns its
        // request, which comes from `into_raw`. The exchange emptied the slot, so only this caller
        // owns the request now.
        Some(unsafe { OwnedRequest::from_raw(raw) })
    }

    /// Takes out the request with this tag, if it is the same as `request`. While the caller owns
    /// the request it neither ends nor comes again, so no other request gets its tag. The slot
    /// notes whether a caller of [`Self::take()`] looks for the request meanwhile; see
    /// [`Self::put_back()`]. Any context.
    pub fn take_expired<S>(
        &self,
        tag: u32,
        request: &ExpiredRequest<'_, D, S>,
    ) -> Option<OwnedRequest<D>> {
        let slot = self.slots.get(tag as usize)?;
        // INVARIANT: The request is taken out.
        let taken = slot.cmpxchg(request.as_raw(), EXPIRING, ordering::Full);
        // SAFETY: The slot had the address of a request, which is neither null nor `EXPIRING`. So
        // by the type invariant the slot owned the request, which comes from `into_raw`. The slot
        // owns nothing now, so only this caller owns the request.
        Some(unsafe { OwnedRequest::from_raw(taken.ok()?) })
    }

    /// Puts a request back that [`Self::take_expired()`] has taken out. Any context.
    ///
    /// The handle is returned if a caller of [`Self::take()`] has looked for the request since:
    /// that caller has found nothing and does not look again, so the holder of the handle must end
    /// the request. The handle is also returned if [`Self::take_expired()`] did not take out the
    /// last request of this tag, and in the cases of [`Self::insert()`].
    pub fn put_back(&self, request: OwnedRequest<D>) -> Result<(), OwnedRequest<D>> {
        let slot = match self.slots.get(request.tag() as usize) {
            Some(slot) if self.is_of(request.set()) => slot,
            _ => return Err(request),
        };
        let raw = request.into_raw();
        // INVARIANT: The pointer comes from `into_raw`, and the tag and the tag set are right. The
        // slot owned nothing.
        match slot.cmpxchg(EXPIRING, raw, ordering::Full) {
            Ok(_) => Ok(()),
            // SAFETY: The pointer comes from `into_raw` above, and the slot did not get it.
            Err(_) => Err(unsafe { OwnedRequest::from_raw(raw) }),
        }
    }
}

impl<D> Drop for RequestTable<D> {
    fn drop(&mut self) {
        for tag in 0..self.slots.len() {
            drop(self.take(tag as u32));
        }
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../../kunit/request_table.rs"]
mod tests;
