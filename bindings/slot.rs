// SPDX-License-Identifier: GPL-2.0

//! A place that holds at most one box and hands it to exactly one taker.

use crate::atomic::{
    ordering,
    Atomic, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::prelude::*;

/// An atomic `Option<KBox<T>>`.
///
/// Requests in flight are passed on through such slots: whoever takes the box out owns the
/// request, so that a request that is answered twice, or answered while its path fails, is
/// finished exactly once and without a lock. All operations may be used in any context; a box
/// that is dropped by the caller runs `T`'s drop there.
///
/// # Invariants
///
/// `pointer` is null or came from `KBox::into_raw` and is owned by the slot.
pub struct BoxSlot<T> {
    pointer: Atomic<*mut T>,
    _owned: PhantomData<KBox<T>>,
}

// SAFETY: The slot owns a `KBox<T>`, which may be sent where `T` may.
unsafe impl<T: Send> Send for BoxSlot<T> {}

// SAFETY: Through a shared reference a box only moves in or out as a whole, by an atomic
// exchange; no reference to the `T` is ever handed out.
unsafe impl<T: Send> Sync for BoxSlot<T> {}

impl<T> BoxSlot<T> {
    /// Makes an empty slot.
    pub const fn empty() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            pointer: Atomic::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Makes a slot that holds `value`.
    pub fn new(value: KBox<T>) -> Self {
        // INVARIANT: The pointer comes from `KBox::into_raw`.
        Self {
            pointer: Atomic::new(KBox::into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Takes the box out; of several concurrent callers one gets it.
    #[inline]
    pub fn take(&self) -> Option<KBox<T>> {
        Self::own(self.pointer.xchg(ptr::null_mut(), ordering::Full))
    }

    /// Puts `value` in and returns what was there before.
    #[inline]
    #[must_use = "the box that was in the slot is dropped here otherwise"]
    pub fn put(&self, value: KBox<T>) -> Option<KBox<T>> {
        // INVARIANT: The new pointer comes from `KBox::into_raw`.
        Self::own(self.pointer.xchg(KBox::into_raw(value), ordering::Full))
    }

    /// Whether the slot holds nothing at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pointer.load(ordering::Relaxed).is_null()
    }

    /// Makes a box of a pointer that was in the slot and is not any more.
    fn own(raw: *mut T) -> Option<KBox<T>> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the pointer came from `KBox::into_raw`, and the exchange
        // that took it out of the slot made the caller its only owner.
        Some(unsafe { KBox::from_raw(raw) })
    }
}

impl<T> Drop for BoxSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
