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

/// Boxes in the order in which they came. In another order an old box could wait for ever while new
/// ones come.
pub(crate) struct Fifo<T> {
    /// The later boxes, the newest first.
    newer: BoxList<T>,
    /// The earlier boxes, the oldest first.
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

    /// Adds a box.
    pub(crate) fn push(&mut self, value: KBox<Linked<T>>) {
        self.newer.push(value);
    }

    /// Takes out the oldest box.
    pub(crate) fn pop(&mut self) -> Option<KBox<Linked<T>>> {
        if self.older.is_empty() {
            // This reverses the order; each box is moved once.
            for value in mem::take(&mut self.newer) {
                self.older.push(value);
            }
        }
        self.older.next()
    }
}
