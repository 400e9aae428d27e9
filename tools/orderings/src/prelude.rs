// SPDX-License-Identifier: GPL-2.0

//! What the files use of the kernel crate's prelude.

use core::ops::{
    Deref,
    DerefMut, //
};
pub(crate) use pinned_init::{
    pin_data,
    pin_init,
    PinInit, //
};

pub(crate) type KBox<T> = Box<T>;

#[derive(Debug)]
pub(crate) struct Error;

pub(crate) type Result<T = (), E = Error> = core::result::Result<T, E>;

pub(crate) const GFP_KERNEL: () = ();

/// A vector.
pub(crate) struct KVVec<T>(Vec<T>);

impl<T> KVVec<T> {
    pub(crate) fn with_capacity(capacity: usize, _flags: ()) -> Result<Self> {
        Ok(Self(Vec::with_capacity(capacity)))
    }

    pub(crate) fn push(&mut self, value: T, _flags: ()) -> Result {
        self.0.push(value);
        Ok(())
    }
}

impl<T> Deref for KVVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
