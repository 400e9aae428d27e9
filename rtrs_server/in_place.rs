// SPDX-License-Identifier: GPL-2.0

//! Writes whose data stays in their chunks, until a session has several paths.
//!
//! The data of a write that is too long to be copied to a page stays in its chunk, and the client's
//! key for the chunk is invalidated. A second path has keys of its own for all chunks. So it gets
//! them when no such write is left, and none begins any more.

use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

/// The writes whose data is in their chunks. All methods may be called in any context.
///
/// # Invariants
///
/// Once `is_over` is set, each call of [`Self::enter()`] that has counted leaves again at once.
pub(crate) struct InPlace {
    count: Atomic<u32>,
    is_over: Atomic<bool>,
}

impl InPlace {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            count: Atomic::new(0),
            is_over: Atomic::new(false),
        }
    }

    /// Counts a write, unless the time of such writes is over.
    ///
    /// The count is a full barrier between it and the look at `is_over`; so is [`Self::end()`]
    /// between `is_over` and the look at the count: one of the two sees the other.
    pub(crate) fn enter(&self) -> bool {
        self.count.fetch_add(1, ordering::Full);
        !self.is_over.load(ordering::Relaxed)
    }

    /// A write that was counted has ended, or did not begin as [`Self::enter()`] said no. True if
    /// it was the last one that is waited for.
    pub(crate) fn leave(&self) -> bool {
        self.count.fetch_sub(1, ordering::Full) == 1 && self.is_over.load(ordering::Relaxed)
    }

    /// No such write begins any more.
    pub(crate) fn end(&self) {
        self.is_over.xchg(true, ordering::Full);
    }

    /// Whether none is left. What they did was done before.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(ordering::Acquire) == 0
    }
}
