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

/// Holds the requests of one tag set that wait for a response; each can be taken out by its tag,
/// once. Dropping the table fails what is in it.
///
/// # Invariants
///
/// - Each slot is null or comes from `OwnedRequest::<D>::into_raw` and is owned by the slot.
/// - The request in a slot has the number of the slot as its tag, and its tag set is `set`. The
///   requests of a tag set that a driver owns have different tags; see [`OwnedRequest::tag()`].
pub struct RequestTable<D> {
    slots: KVVec<Atomic<*mut bindings::request>>,
    /// The tag set, which is only compared; null before the first request.
    set: Atomic<*mut bindings::blk_mq_tag_set>,
    _owned: PhantomData<OwnedRequest<D>>,
}

// SAFETY: The table owns requests, which are `Send`.
unsafe impl<D> Send for RequestTable<D> {}

// SAFETY: Through a shared reference requests are only moved in and out, by atomic exchanges.
unsafe impl<D> Sync for RequestTable<D> {}

impl<D> RequestTable<D> {
    /// Makes a table for the tags of a set of this queue depth. May sleep.
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

    /// Puts a request in the slot of its tag. Any context.
    ///
    /// The handle comes back if the table has no such tag, or holds requests of another tag set.
    #[inline]
    pub fn insert(&self, request: OwnedRequest<D>) -> Result<(), OwnedRequest<D>> {
        match self.slots.get(request.tag() as usize) {
            Some(slot) if self.is_of(request.set()) => {
                // INVARIANT: The pointer comes from `into_raw`. The slot is null: a request in it
                // would have the tag set and the tag of the new request, and the driver owns both.
                slot.store(request.into_raw(), ordering::Release);
                Ok(())
            }
            _ => Err(request),
        }
    }

    /// Whether the table holds requests of `set`; the first request decides of which tag set.
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

    /// Takes the request with this tag out. Of several callers one gets it. A full barrier. Any
    /// context.
    #[inline]
    pub fn take(&self, tag: u32) -> Option<OwnedRequest<D>> {
        let slot = self.slots.get(tag as usize)?;
        let raw = slot.xchg(ptr::null_mut(), ordering::Full);
        if raw.is_null() {
            return None;
        }
        // SAFETY: What is in a slot comes from `into_raw` and is owned by the slot. The exchange
        // emptied the slot, so this caller alone owns the request now.
        Some(unsafe { OwnedRequest::from_raw(raw) })
    }

    /// As [`Self::take()`], if it is this very request. From then on it neither ends nor comes
    /// again, so its tag is its own. Any context.
    pub fn take_expired<S>(
        &self,
        tag: u32,
        request: &ExpiredRequest<'_, D, S>,
    ) -> Option<OwnedRequest<D>> {
        let slot = self.slots.get(tag as usize)?;
        let raw = request.as_raw();
        let taken = slot.cmpxchg(raw, ptr::null_mut(), ordering::Full).ok()?;
        // SAFETY: As in `take()`.
        Some(unsafe { OwnedRequest::from_raw(taken) })
    }

    /// As [`Self::insert()`], for a request that [`Self::take_expired()`] has taken; a full
    /// barrier, so that the caller can look whether something came meanwhile that found no request.
    pub fn put_back(&self, request: OwnedRequest<D>) -> Result<(), OwnedRequest<D>> {
        match self.slots.get(request.tag() as usize) {
            Some(slot) if self.is_of(request.set()) => {
                // INVARIANT: As in `insert()`.
                let _ = slot.xchg(request.into_raw(), ordering::Full);
                Ok(())
            }
            _ => Err(request),
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
