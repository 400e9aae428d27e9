// SPDX-License-Identifier: GPL-2.0

//! Writes whose data stays in their chunks, until a session has several paths.
//!
//! The data of a write that is too long to be copied to a page stays in its chunk, and the client's
//! key for the chunk is invalidated. A second path has keys of its own for all chunks. So a second
//! path gets its keys only when no such write is left and none begins any more.

use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

/// The writes whose data is in their chunks. All methods may be called in any context.
///
/// # Invariants
///
/// Once `is_over` is set, each caller of [`Self::enter()`] calls [`Self::leave()`] at once.
pub(crate) struct InPlace {
    count: Atomic<u32>,
    is_over: Atomic<bool>,
}

impl InPlace {
    /// No writes yet.
    pub(crate) fn new() -> Self {
        Self {
            count: Atomic::new(0),
            is_over: Atomic::new(false),
        }
    }

    /// Counts a write. False if the time of such writes is over: then the caller calls
    /// [`Self::leave()`] at once.
    ///
    /// Counting is a full barrier before the look at `is_over`, and [`Self::end()`] is a full
    /// barrier before the look at the count. So the look here finds `is_over` set, or the other
    /// look finds the write.
    pub(crate) fn enter(&self) -> bool {
        self.count.fetch_add(1, ordering::Full);
        !self.is_over.load(ordering::Relaxed)
    }

    /// Ends a write that was counted, also if [`Self::enter()`] returned false. True if it was the
    /// last write that is waited for.
    pub(crate) fn leave(&self) -> bool {
        self.count.fetch_sub(1, ordering::Full) == 1 && self.is_over.load(ordering::Relaxed)
    }

    /// Ends the time of such writes: none begins any more.
    pub(crate) fn end(&self) {
        self.is_over.xchg(true, ordering::Full);
    }

    /// Whether no write is left. What the writes did has happened before.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(ordering::Acquire) == 0
    }
}
