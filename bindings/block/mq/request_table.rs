// SPDX-License-Identifier: GPL-2.0

//! Requests in flight, by their tags. Would be a new part of `kernel::block::mq`.

use super::request::OwnedRequest;
use crate::bindings;
use crate::sync::atomic::{
    ordering,
    Atomic, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    alloc::flags::GFP_KERNEL,
    prelude::*, //
};

/// Holds the requests that wait for a response; each can be taken out by its tag, once.
///
/// Dropping the table fails what is in it.
///
/// # Invariants
///
/// Each slot is null or comes from `OwnedRequest::<D>::into_raw` and is owned by the slot.
pub struct RequestTable<D> {
    slots: KVVec<Atomic<*mut bindings::request>>,
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
            _owned: PhantomData,
        })
    }

    /// Puts a request in the slot of its tag. Any context.
    ///
    /// The handle comes back if the table has no such tag, or has a request there, which would be
    /// one of another tag set.
    #[inline]
    pub fn insert(&self, request: OwnedRequest<D>) -> Result<(), OwnedRequest<D>> {
        let Some(slot) = self.slots.get(request.tag() as usize) else {
            return Err(request);
        };
        let raw = request.into_raw();
        // INVARIANT: `raw` comes from `into_raw`.
        match slot.cmpxchg(ptr::null_mut(), raw, ordering::Full) {
            Ok(_) => Ok(()),
            // SAFETY: The slot did not take what came from `into_raw` just now.
            Err(_) => Err(unsafe { OwnedRequest::from_raw(raw) }),
        }
    }

    /// Takes the request of this tag out; of several callers one gets it. Any context.
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
}

impl<D> Drop for RequestTable<D> {
    fn drop(&mut self) {
        for tag in 0..self.slots.len() {
            drop(self.take(tag as u32));
        }
    }
}
