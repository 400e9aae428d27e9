// SPDX-License-Identifier: GPL-2.0

//! A value that has one owner at a time, and the state in which the last owner left it.
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

/// A value in a cell, and a number that says what it is used for.
///
/// A caller that expects one state takes the value out of it, and nobody else gets it until that
/// caller puts it back, in a state of its choice. So what happens at most once, whatever the order
/// of events, is a step from one state to the next, without a lock and without moving the value.
/// All operations may be used in any context.
///
/// # Invariants
///
/// While `state` is [`Self::OWNED`] or [`Self::NOTABLE`], the value belongs to the one [`Owned`] of
/// this cell; otherwise no reference to it exists.
pub struct StateCell<T> {
    state: Atomic<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: The cell owns the value.
unsafe impl<T: Send> Send for StateCell<T> {}

// SAFETY: Through a shared reference the value only goes to one owner at a time.
unsafe impl<T: Send> Sync for StateCell<T> {}

impl<T> StateCell<T> {
    /// The state of a value that has an owner. A value that is put back in this state stays out of
    /// reach.
    const OWNED: u64 = u64::MAX;

    /// As [`Self::OWNED`], of an owner for which [`Self::note()`] can mark the cell.
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

    /// Takes the value, if it is in `state`; of several callers one gets it. A full barrier if it
    /// succeeds.
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
            // INVARIANT: No reference existed, and this is the one owner.
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

    /// Changes the state from `from` to `to`; whether it was `from`. A full barrier if it succeeds.
    #[inline]
    pub fn change(&self, from: u64, to: u64) -> bool {
        if from >= Self::NOTABLE || to >= Self::NOTABLE {
            return false;
        }
        // INVARIANT: No reference existed, and none is made.
        self.state.cmpxchg(from, to, ordering::Full).is_ok()
    }
}

/// The value of a cell, for its one owner. Dropping it puts the value back in state 0.
///
/// # Invariants
///
/// The state of the cell is [`StateCell::OWNED`] or [`StateCell::NOTABLE`], and this is the only
/// owner.
pub struct Owned<'a, T> {
    cell: &'a StateCell<T>,
    _value: PhantomData<&'a mut T>,
}

impl<T> Owned<'_, T> {
    /// Puts the value back in `state`, unless [`StateCell::note()`] has marked the cell since the
    /// value was taken: then the owner keeps it, and learns of nothing more. An owner that did not
    /// take it by [`StateCell::take_notable()`] keeps it, too. A full barrier if it succeeds.
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

    /// Puts the value back in `state`. What the owner did before happens before what the next owner
    /// does.
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
        // SAFETY: By the type invariant there is no other reference than those made of this owner.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Owned<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the type invariant there is no other reference than those made of this owner,
        // which is borrowed exclusively.
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
