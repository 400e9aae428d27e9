// SPDX-License-Identifier: GPL-2.0

//! A slot for one box and a stack of boxes, from which each box is taken exactly once.
//!
//! Would extend: `rust/kernel/list/` and `rust/kernel/alloc/kbox.rs`. The stack is the one of
//! [`include/linux/llist.h`](srctree/include/linux/llist.h).

use crate::prelude::*;
use crate::sync::atomic::{
    ordering,
    Atomic, //
};
use core::{
    marker::PhantomData,
    ops::{
        Deref,
        DerefMut, //
    },
    ptr, //
};

/// An atomic `Option<KBox<T>>`.
///
/// Requests in flight are passed on through such slots: the caller that takes the box out owns the
/// request. So a request that gets two responses, or a response while its path fails, is finished
/// exactly once, without a lock. All operations may be used in any context. If a caller drops a
/// box, the drop of `T` runs in the caller's context.
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

    /// Takes the box out. Only one of several concurrent callers gets the box.
    pub fn take(&self) -> Option<KBox<T>> {
        // INVARIANT: The new pointer is null.
        let old = self.pointer.xchg(ptr::null_mut(), ordering::Full);
        // SAFETY: The exchange above has taken the pointer out.
        unsafe { Self::own(old) }
    }

    /// Puts `value` in and returns the box that was in the slot.
    #[must_use = "the box that was in the slot is dropped here otherwise"]
    pub fn put(&self, value: KBox<T>) -> Option<KBox<T>> {
        // INVARIANT: The new pointer comes from `KBox::into_raw`.
        let old = self.pointer.xchg(KBox::into_raw(value), ordering::Full);
        // SAFETY: The exchange above has taken the pointer out.
        unsafe { Self::own(old) }
    }

    /// Whether the slot is empty at this moment.
    pub fn is_empty(&self) -> bool {
        self.pointer.load(ordering::Relaxed).is_null()
    }

    /// Makes a box of a pointer that was taken out of the slot.
    ///
    /// # Safety
    ///
    /// The caller must have taken `raw` out of the slot by an exchange.
    unsafe fn own(raw: *mut T) -> Option<KBox<T>> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the pointer came from `KBox::into_raw`. The caller has
        // exchanged it for another one, so the caller owns the box.
        Some(unsafe { KBox::from_raw(raw) })
    }
}

impl<T> Drop for BoxSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A value that can be put on a [`BoxStack`].
pub struct Linked<T> {
    /// Only used while the value is on a stack or in a list.
    next: *mut Linked<T>,
    value: T,
}

// SAFETY: Only stacks and lists use the pointer, and they own the next box.
unsafe impl<T: Send> Send for Linked<T> {}

// SAFETY: A shared reference only gives access to the value.
unsafe impl<T: Sync> Sync for Linked<T> {}

impl<T> Linked<T> {
    /// Prepares `value` for a stack.
    pub const fn new(value: T) -> Self {
        Self {
            next: ptr::null_mut(),
            value,
        }
    }
}

impl<T> Deref for Linked<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Linked<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A stack of boxes. Boxes are added in any context and without a lock, and are taken out all at
/// once.
///
/// # Invariants
///
/// `top`, and `next` of each box in turn, is null or came from `KBox::into_raw`. The stack owns
/// them all.
pub struct BoxStack<T> {
    top: Atomic<*mut Linked<T>>,
    _owned: PhantomData<KBox<Linked<T>>>,
}

// SAFETY: The stack owns boxes, which may be sent where `T` may.
unsafe impl<T: Send> Send for BoxStack<T> {}

// SAFETY: Through a shared reference boxes move in and out by atomic exchange.
unsafe impl<T: Send> Sync for BoxStack<T> {}

impl<T> BoxStack<T> {
    /// Makes an empty stack.
    pub const fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            top: Atomic::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Adds a box. A full barrier.
    pub fn push(&self, value: KBox<Linked<T>>) {
        let value = KBox::into_raw(value);
        let mut top = self.top.load(ordering::Relaxed);
        loop {
            // SAFETY: The box is not on the stack yet, so it is ours.
            unsafe { (*value).next = top };
            // INVARIANT: The old top follows the new one. If the old top was taken and pushed again
            // in between, the exchange is still right: boxes are only taken all at once, so the box
            // that is on top now is followed by the boxes of the stack.
            match self.top.cmpxchg(top, value, ordering::Full) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Whether the stack is empty at this moment.
    pub fn is_empty(&self) -> bool {
        self.top.load(ordering::Relaxed).is_null()
    }

    /// Takes all boxes out. A full barrier.
    pub fn take_all(&self) -> BoxList<T> {
        // INVARIANT: The list owns the boxes that the stack owned.
        BoxList {
            top: self.top.xchg(ptr::null_mut(), ordering::Full),
            _owned: PhantomData,
        }
    }
}

impl<T> Drop for BoxStack<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// The boxes of a [`BoxStack`], the last one first.
///
/// # Invariants
///
/// `top`, and `next` of each box in turn, is null or came from `KBox::into_raw`. The list owns them
/// all.
pub struct BoxList<T> {
    top: *mut Linked<T>,
    _owned: PhantomData<KBox<Linked<T>>>,
}

impl<T> BoxList<T> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            top: ptr::null_mut(),
            _owned: PhantomData,
        }
    }

    /// Adds a box, which will be the next one that is taken out.
    #[inline]
    pub fn push(&mut self, mut value: KBox<Linked<T>>) {
        value.next = self.top;
        // INVARIANT: The new box is followed by the old boxes of the list.
        self.top = KBox::into_raw(value);
    }

    /// Whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.top.is_null()
    }
}

impl<T> Default for BoxList<T> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: The list owns boxes, which may be sent where `T` may.
unsafe impl<T: Send> Send for BoxList<T> {}

impl<T> Iterator for BoxList<T> {
    type Item = KBox<Linked<T>>;

    fn next(&mut self) -> Option<KBox<Linked<T>>> {
        if self.top.is_null() {
            return None;
        }
        // SAFETY: `top` is not null, so it came from `KBox::into_raw`, and the list owns the box.
        let value = unsafe { KBox::from_raw(self.top) };
        // INVARIANT: The list owns the rest of the boxes.
        self.top = value.next;
        Some(value)
    }
}

impl<T> Drop for BoxList<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
