// SPDX-License-Identifier: GPL-2.0

//! What a path waits for that is being taken down.

use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

/// What a path that is being taken down is to hear from the server by another path.
pub(super) struct Ending(Atomic<u32>);

impl Ending {
    /// Nothing is awaited. Neither this nor the next is the number of a path.
    const NONE: u32 = u32::MAX;
    /// The server has ended the path.
    const CONFIRMED: u32 = u32::MAX - 1;

    /// Nothing is awaited.
    pub(super) fn new() -> Self {
        Self(Atomic::new(Self::NONE))
    }

    /// From here on the end of path `number` is awaited.
    pub(super) fn begin(&self, number: u32) {
        self.0.store(number, ordering::Relaxed);
    }

    /// Nothing is awaited any more.
    pub(super) fn end(&self) {
        self.0.store(Self::NONE, ordering::Relaxed);
    }

    /// Whether what was awaited has come.
    pub(super) fn is_confirmed(&self) -> bool {
        self.0.load(ordering::Acquire) == Self::CONFIRMED
    }

    /// The server has ended path `number`; whether that was awaited here. Any context.
    pub(super) fn confirm(&self, number: u32) -> bool {
        number < Self::CONFIRMED
            && self
                .0
                .cmpxchg(number, Self::CONFIRMED, ordering::Full)
                .is_ok()
    }
}
