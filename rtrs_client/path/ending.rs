// SPDX-License-Identifier: GPL-2.0

//! The server's confirmation that a path has ended, which a path that is taken down waits for.

use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

/// The server's confirmation, which comes by another path, that it has ended this path.
pub(super) struct Ending(Atomic<u32>);

impl Ending {
    /// Nothing is awaited. No path has this number or [`Self::CONFIRMED`]: numbers are below 2^28.
    const NONE: u32 = u32::MAX;
    /// The server has ended the path.
    const CONFIRMED: u32 = u32::MAX - 1;

    /// Makes an object that awaits nothing.
    pub(super) fn new() -> Self {
        Self(Atomic::new(Self::NONE))
    }

    /// Awaits the end of path `number` from here on.
    pub(super) fn begin(&self, number: u32) {
        self.0.store(number, ordering::Relaxed);
    }

    /// Awaits nothing any more.
    pub(super) fn end(&self) {
        self.0.store(Self::NONE, ordering::Relaxed);
    }

    /// Whether the awaited confirmation has come.
    pub(super) fn is_confirmed(&self) -> bool {
        self.0.load(ordering::Acquire) == Self::CONFIRMED
    }

    /// Notes that the server has ended path `number`, and returns whether that was awaited here.
    /// Any context.
    pub(super) fn confirm(&self, number: u32) -> bool {
        number < Self::CONFIRMED
            && self
                .0
                .cmpxchg(number, Self::CONFIRMED, ordering::Full)
                .is_ok()
    }
}
