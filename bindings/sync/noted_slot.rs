// SPDX-License-Identifier: GPL-2.0

//! A slot for a box, which can keep a number while the box is out.

use super::atomic::{
    ordering,
    Atomic, //
};
use crate::prelude::*;
use core::{
    marker::PhantomData,
    ptr, //
};

/// This bit is set in a word that is a number, shifted by one bit. It is clear in pointers.
const NUMBER: usize = 1;

/// This bit is set in a pointer to a box that was put aside.
const ASIDE: usize = 2;

/// A slot for one box, in one word.
///
/// A box in the slot is either ready, for [`Self::take()`], or aside, for [`Self::take_aside()`].
/// While the box is out, one number can be left for the holder of the box. The holder gets the
/// number when it puts the box back. All operations may be used in any context and concurrently. An
/// operation that succeeds is one atomic operation.
///
/// # Invariants
///
/// `word` is one of these:
///
/// - null: the box is out;
/// - a word with [`NUMBER`] set: the box is out, and a number was left;
/// - a pointer from `KBox::into_raw()` that the slot owns, with [`ASIDE`] set if the box was put
///   aside.
pub struct NotedSlot<T> {
    word: Atomic<*mut T>,
    _owned: PhantomData<KBox<T>>,
}

// SAFETY: The slot owns a `KBox<T>`, which may be sent where `T` may.
unsafe impl<T: Send> Send for NotedSlot<T> {}

// SAFETY: Through a shared reference a box only moves in or out as a whole, by an atomic exchange;
// no reference to the `T` is ever handed out.
unsafe impl<T: Send> Sync for NotedSlot<T> {}

impl<T> NotedSlot<T> {
    /// Ensures that both bits are clear in a pointer to a `T`.
    const ALIGNED: () = assert!(align_of::<T>() > NUMBER | ASIDE);

    /// Makes a slot that holds `value`, ready.
    pub fn new(value: KBox<T>) -> Self {
        let () = Self::ALIGNED;
        // INVARIANT: The word is a pointer from `KBox::into_raw()`.
        Self {
            word: Atomic::new(KBox::into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Takes the box out if it is ready. Only one of several concurrent callers gets the box.
    #[inline]
    pub fn take(&self) -> Option<KBox<T>> {
        let word = self.word.load(ordering::Relaxed);
        if word.is_null() || word.addr() & (NUMBER | ASIDE) != 0 {
            return None;
        }
        // INVARIANT: The new word is null.
        self.word
            .cmpxchg(word, ptr::null_mut(), ordering::Full)
            .ok()?;
        // SAFETY: By the type invariant the word came from `KBox::into_raw()`, and the exchange
        // took it out of the slot.
        Some(unsafe { KBox::from_raw(word) })
    }

    /// Takes the box out if it was put aside. Only one of several concurrent callers gets the box.
    #[inline]
    pub fn take_aside(&self) -> Option<KBox<T>> {
        let word = self.word.load(ordering::Relaxed);
        if word.addr() & (NUMBER | ASIDE) != ASIDE {
            return None;
        }
        // INVARIANT: The new word is null.
        self.word
            .cmpxchg(word, ptr::null_mut(), ordering::Full)
            .ok()?;
        // SAFETY: As in `take()`, without the bit for a box that was put aside.
        Some(unsafe { KBox::from_raw(word.map_addr(|address| address & !ASIDE)) })
    }

    /// Leaves `number` for the holder of the box. False if the box is in the slot, if another
    /// number was left already, or if `number` needs all bits of a word.
    #[inline]
    pub fn note(&self, number: u64) -> bool {
        let Some(word) = usize::try_from(number)
            .ok()
            .filter(|number| number.leading_zeros() > 0)
        else {
            return false;
        };
        let word = ptr::without_provenance_mut((word << 1) | NUMBER);
        // INVARIANT: The new word is a number.
        self.word
            .cmpxchg(ptr::null_mut(), word, ordering::Full)
            .is_ok()
    }

    /// Puts the box back, ready. If a number was left meanwhile, the box is not put back: the
    /// caller gets the box and the number, and the slot is empty.
    #[inline]
    pub fn put(&self, value: KBox<T>) -> Result<(), (KBox<T>, u64)> {
        self.put_as(value, 0)
    }

    /// Puts the box back, aside, where [`Self::take()`] does not find it.
    ///
    /// If a number was left meanwhile, the caller gets the box and the number, and the slot is
    /// empty, as with [`Self::put()`].
    #[inline]
    pub fn put_aside(&self, value: KBox<T>) -> Result<(), (KBox<T>, u64)> {
        self.put_as(value, ASIDE)
    }

    #[inline]
    fn put_as(&self, value: KBox<T>, bits: usize) -> Result<(), (KBox<T>, u64)> {
        let raw = KBox::into_raw(value);
        let word = raw.map_addr(|address| address | bits);
        loop {
            // INVARIANT: The new word is a pointer from `KBox::into_raw()`, with `ASIDE` set if the
            // box is put aside.
            let Err(found) = self.word.cmpxchg(ptr::null_mut(), word, ordering::Full) else {
                return Ok(());
            };
            // INVARIANT: The new word is null.
            if self
                .word
                .cmpxchg(found, ptr::null_mut(), ordering::Full)
                .is_err()
            {
                continue;
            }
            if found.addr() & NUMBER != 0 {
                // SAFETY: The pointer is still the caller's, as it is not in the slot.
                return Err((unsafe { KBox::from_raw(raw) }, (found.addr() >> 1) as u64));
            }
            // There was another box. A caller that puts back the box that it took cannot get here.
            // SAFETY: By the type invariant the word came from `KBox::into_raw()`, and the exchange
            // took it out of the slot.
            drop(unsafe { KBox::from_raw(found.map_addr(|address| address & !ASIDE)) });
        }
    }
}

impl<T> Drop for NotedSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
        drop(self.take_aside());
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/noted_slot.rs"]
mod tests;
