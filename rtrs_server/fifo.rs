// SPDX-License-Identifier: GPL-2.0

//! Boxes in the order in which they came.

use core::mem;
use kernel_ext::{
    prelude::*,
    sync::box_slot::{
        BoxList,
        Linked, //
    }, //
};

/// Boxes in the order in which they came: while new ones come all the time, one that came early
/// would otherwise wait for ever behind them.
pub(crate) struct Fifo<T> {
    /// The later ones, the newest first.
    newer: BoxList<T>,
    /// Those before them, the oldest first.
    older: BoxList<T>,
}

impl<T> Fifo<T> {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            newer: BoxList::new(),
            older: BoxList::new(),
        }
    }

    /// Adds one.
    pub(crate) fn push(&mut self, value: KBox<Linked<T>>) {
        self.newer.push(value);
    }

    /// Takes out the oldest one.
    pub(crate) fn pop(&mut self) -> Option<KBox<Linked<T>>> {
        if self.older.is_empty() {
            // Each box is turned round once.
            for value in mem::take(&mut self.newer) {
                self.older.push(value);
            }
        }
        self.older.next()
    }
}
