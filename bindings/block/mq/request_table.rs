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
/// once.
///
/// Behind the slots of tags there are spare ones, for requests that the driver has under another
/// number than their tag. Dropping the table fails what is in it.
///
/// # Invariants
///
/// - Each slot is null or comes from `OwnedRequest::<D>::into_raw` and is owned by the slot.
/// - The request in one of `slots` has the number of the slot as its tag, and its tag set is `set`.
///   The requests of a tag set that a driver owns have different tags; see [`OwnedRequest::tag()`].
pub struct RequestTable<D> {
    slots: KVVec<Atomic<*mut bindings::request>>,
    spares: KVVec<Atomic<*mut bindings::request>>,
    /// The tag set, which is only compared; null before the first request.
    set: Atomic<*mut bindings::blk_mq_tag_set>,
    _owned: PhantomData<OwnedRequest<D>>,
}

// SAFETY: The table owns requests, which are `Send`.
unsafe impl<D> Send for RequestTable<D> {}

// SAFETY: Through a shared reference requests are only moved in and out, by atomic exchanges.
unsafe impl<D> Sync for RequestTable<D> {}

impl<D> RequestTable<D> {
    /// Makes a table for the tags of a set of this queue depth, with `spares` slots behind them.
    /// May sleep.
    pub fn new(queue_depth: u32, spares: u32) -> Result<Self> {
        let empty = |count: u32| -> Result<_> {
            let mut slots = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
            for _ in 0..count {
                // INVARIANT: The slot is null.
                slots.push(Atomic::new(ptr::null_mut()), GFP_KERNEL)?;
            }
            Ok(slots)
        };
        Ok(Self {
            slots: empty(queue_depth)?,
            spares: empty(spares)?,
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

    /// Puts a request in a spare slot; numbers of spare slots follow the tags. Any context.
    ///
    /// The handle comes back if there is no such slot, or if it is taken.
    pub fn insert_spare(
        &self,
        number: u32,
        request: OwnedRequest<D>,
    ) -> Result<(), OwnedRequest<D>> {
        let Some(slot) = self.spare(number) else {
            return Err(request);
        };
        let raw = request.into_raw();
        match slot.cmpxchg(ptr::null_mut(), raw, ordering::Full) {
            // INVARIANT: The pointer comes from `into_raw`.
            Ok(_) => Ok(()),
            // SAFETY: It comes from `into_raw`, and no slot has it.
            Err(_) => Err(unsafe { OwnedRequest::from_raw(raw) }),
        }
    }

    fn spare(&self, number: u32) -> Option<&Atomic<*mut bindings::request>> {
        let index = (number as usize).checked_sub(self.slots.len())?;
        self.spares.get(index)
    }

    /// Takes the request with this number out: its tag, or that of a spare slot. Of several callers
    /// one gets it. Any context.
    #[inline]
    pub fn take(&self, number: u32) -> Option<OwnedRequest<D>> {
        let slot = match self.slots.get(number as usize) {
            Some(slot) => slot,
            None => self.spare(number)?,
        };
        let raw = slot.xchg(ptr::null_mut(), ordering::Full);
        if raw.is_null() {
            return None;
        }
        // SAFETY: What is in a slot comes from `into_raw` and is owned by the slot. The exchange
        // emptied the slot, so this caller alone owns the request now.
        Some(unsafe { OwnedRequest::from_raw(raw) })
    }

    /// The number of the slot that has the request at this moment. Looks at every spare slot.
    pub fn number_of<S>(&self, request: &ExpiredRequest<'_, D, S>) -> Option<u32> {
        let has_it = |slot: &Atomic<*mut bindings::request>| {
            slot.load(ordering::Acquire) == request.as_raw()
        };
        let tag = request.tag();
        if self.slots.get(tag as usize).is_some_and(has_it) {
            return Some(tag);
        }
        let index = self.spares.iter().position(has_it)?;
        u32::try_from(self.slots.len() + index).ok()
    }

    /// As [`Self::take()`], if it is this very request. Any context.
    pub fn take_expired<S>(
        &self,
        number: u32,
        request: &ExpiredRequest<'_, D, S>,
    ) -> Option<OwnedRequest<D>> {
        let slot = self
            .slots
            .get(number as usize)
            .or_else(|| self.spare(number))?;
        let raw = request.as_raw();
        let taken = slot.cmpxchg(raw, ptr::null_mut(), ordering::Full).ok()?;
        // SAFETY: As in `take()`.
        Some(unsafe { OwnedRequest::from_raw(taken) })
    }
}

impl<D> Drop for RequestTable<D> {
    fn drop(&mut self) {
        for tag in 0..self.slots.len() + self.spares.len() {
            drop(self.take(tag as u32));
        }
    }
}
