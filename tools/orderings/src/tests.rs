// SPDX-License-Identifier: GPL-2.0

//! Models of how the modules use their synchronisation.

mod box_slot;
mod claims;
mod in_place;
mod noted_slot;
mod send_queue;
mod set_once;
mod state_cell;

use crate::prelude::PinInit;
use core::pin::Pin;
use loom::{
    cell::UnsafeCell,
    thread, //
};
use std::{
    convert::Infallible,
    sync::Arc, //
};

/// Data without any protection of its own: loom fails when two threads use it and the second need
/// not see what the first did.
pub(crate) struct Data(UnsafeCell<u32>);

// SAFETY: loom lets one thread run at a time, and fails the test when two accesses have no order.
unsafe impl Sync for Data {}

impl Data {
    pub(crate) fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    /// Adds one.
    pub(crate) fn touch(&self) {
        self.0.with_mut(|value| {
            // SAFETY: loom has checked that no other thread uses it.
            unsafe { *value += 1 }
        });
    }

    /// How often it was added to.
    pub(crate) fn count(&self) -> u32 {
        self.0.with(|value| {
            // SAFETY: loom has checked that no other thread changes it.
            unsafe { *value }
        })
    }
}

/// Runs two functions on what they share, each in a thread of its own, and gives what they return.
pub(crate) fn beside<S, A, B>(shared: &Arc<S>, one: fn(&S) -> A, other: fn(&S) -> B) -> (A, B)
where
    S: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
{
    let second = shared.clone();
    let thread = thread::spawn(move || other(&second));
    let first = one(shared);
    (first, thread.join().expect("the thread has not panicked"))
}

/// Makes what an initialiser says.
pub(crate) fn made<T>(init: impl PinInit<T, Infallible>) -> Pin<Box<T>> {
    let mut place = Box::<T>::new_uninit();
    // SAFETY: The place is valid and stays where it is: it is only given away pinned.
    let Ok(()) = unsafe { init.__pinned_init(place.as_mut_ptr()) };
    // SAFETY: It was initialised.
    Box::into_pin(unsafe { place.assume_init() })
}

/// Tests that run a model with a given strength; one that is too weak has to fail, with a text.
macro_rules! models {
    ($($name:ident: $run:ident, $strength:ident $(, fails $text:literal)?;)*) => {
        $(
            #[test]
            $(#[should_panic(expected = $text)])?
            fn $name() {
                $crate::sync::atomic::model($crate::sync::atomic::Strength::$strength, $run);
            }
        )*
    };
}
pub(crate) use models;
