// SPDX-License-Identifier: GPL-2.0

//! A cell with a value that has at most one owner at a time, and with a state that the last owner
//! has set.
//!
//! Would extend: `rust/kernel/sync/`.

use crate::sync::atomic::{
    ordering,
    Atomic, //
};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

/// A cell with a value, and a state: a number that tells the use of the value.
///
/// A caller takes the value out of the state that it expects. No other caller gets the value until
/// the first one puts it back, in a state of its choice. So each step from one state to the next
/// happens at most once, in any order of events, without a lock and without moving the value. All
/// operations may be used in any context.
///
/// # Invariants
///
/// While `state` is [`Self::OWNED`] or [`Self::NOTABLE`], the value belongs to the only [`Owned`]
/// of this cell. Otherwise no reference to the value exists.
pub struct StateCell<T> {
    state: Atomic<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: The cell owns the value.
unsafe impl<T: Send> Send for StateCell<T> {}

// SAFETY: Through a shared reference the value goes to only one owner at a time.
unsafe impl<T: Send> Sync for StateCell<T> {}

impl<T> StateCell<T> {
    /// The state of a value that has an owner. A value that is put back in this state cannot be
    /// taken any more.
    const OWNED: u64 = u64::MAX;

    /// As [`Self::OWNED`], but [`Self::note()`] can mark the cell for the owner.
    const NOTABLE: u64 = u64::MAX - 1;

    /// Makes a cell in `state`.
    pub const fn new(value: T, state: u64) -> Self {
        // INVARIANT: There is no reference to the value.
        Self {
            state: Atomic::new(state),
            value: UnsafeCell::new(value),
        }
    }

    /// The state at this moment.
    #[inline]
    pub fn state(&self) -> u64 {
        self.state.load(ordering::Relaxed)
    }

    /// Takes the value, if the cell is in `state`. Only one of several callers gets the value. A
    /// full barrier if it succeeds.
    #[inline(always)]
    pub fn take(&self, state: u64) -> Option<Owned<'_, T>> {
        self.take_as(state, Self::OWNED)
    }

    /// As [`Self::take()`], for an owner that puts the value back by [`Owned::put_unless_noted()`].
    pub fn take_notable(&self, state: u64) -> Option<Owned<'_, T>> {
        self.take_as(state, Self::NOTABLE)
    }

    #[inline(always)]
    fn take_as(&self, state: u64, owned: u64) -> Option<Owned<'_, T>> {
        if state >= Self::NOTABLE {
            return None;
        }
        match self.state.cmpxchg(state, owned, ordering::Full) {
            // INVARIANT: No reference existed, and this is the only owner.
            Ok(_) => Some(Owned {
                cell: self,
                _value: PhantomData,
            }),
            Err(_) => None,
        }
    }

    /// Marks the cell for the owner that took the value by [`Self::take_notable()`]. Returns false
    /// if there is no such owner, or if the cell is marked already. A full barrier if it succeeds.
    pub fn note(&self) -> bool {
        // INVARIANT: The owner stays the same.
        self.state
            .cmpxchg(Self::NOTABLE, Self::OWNED, ordering::Full)
            .is_ok()
    }

    /// Changes the state from `from` to `to`. False, and nothing is changed, if the state is not
    /// `from`. A full barrier if it succeeds.
    #[inline]
    pub fn change(&self, from: u64, to: u64) -> bool {
        if from >= Self::NOTABLE || to >= Self::NOTABLE {
            return false;
        }
        // INVARIANT: No reference existed, and none is made.
        self.state.cmpxchg(from, to, ordering::Full).is_ok()
    }
}

/// The ownership of a cell's value. Dropping it puts the value back in state 0.
///
/// # Invariants
///
/// The state of the cell is [`StateCell::OWNED`] or [`StateCell::NOTABLE`], and this is the only
/// owner of the value.
pub struct Owned<'a, T> {
    cell: &'a StateCell<T>,
    _value: PhantomData<&'a mut T>,
}

impl<T> Owned<'_, T> {
    /// Puts the value back in `state`, unless [`StateCell::note()`] has marked the cell since the
    /// value was taken. If it is marked, the owner keeps the value, and the cell cannot be marked
    /// again. An owner that did not take the value by [`StateCell::take_notable()`] keeps it, too.
    /// A full barrier if it succeeds.
    pub fn put_unless_noted(self, state: u64) -> Result<(), Self> {
        let this = ManuallyDrop::new(self);
        let cell = this.cell;
        // INVARIANT: The owner gives up the value, or nothing has changed.
        match cell
            .state
            .cmpxchg(StateCell::<T>::NOTABLE, state, ordering::Full)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(ManuallyDrop::into_inner(this)),
        }
    }

    /// Puts the value back in `state`. All accesses of this owner happen before those of the next
    /// owner.
    #[inline(always)]
    pub fn put(self, state: u64) {
        // INVARIANT: The owner gives up the value.
        ManuallyDrop::new(self)
            .cell
            .state
            .store(state, ordering::Release);
    }
}

impl<T> Deref for Owned<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: By the type invariant only references that were made from this owner exist.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Owned<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariant only references that were made from this owner exist, and
        // it is borrowed exclusively.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for Owned<'_, T> {
    fn drop(&mut self) {
        // INVARIANT: The owner gives up the value.
        self.cell.state.store(0, ordering::Release);
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/state_cell.rs"]
mod tests;
