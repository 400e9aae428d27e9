// SPDX-License-Identifier: GPL-2.0

//! The least names of a folder that are behind a given one, whatever order the folder gives its
//! names in.
//!
//! A folder is read as a whole for each batch of names. So a walk that goes on behind a name needs
//! no memory of the names before it, and is not disturbed by names that come and go.

use crate::name::NAME_MAX;

/// The most names of a batch.
pub const MAX_BATCH: usize = 256;

/// A place for one name.
#[derive(Clone, Copy)]
pub struct Slot {
    /// The slot of the name that is as many names from the least one as this slot is from the
    /// first.
    ranked: u8,
    len: u8,
    name: [u8; NAME_MAX],
}

impl Slot {
    /// A slot without a name.
    pub const EMPTY: Self = Self {
        ranked: 0,
        len: 0,
        name: [0; NAME_MAX],
    };
}

/// Where the names of a batch begin.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// At the least name.
    First,
    /// At this name, or at the next one if there is no such name.
    At(&'a [u8]),
    /// At the name behind this one.
    Behind(&'a [u8]),
}

/// A batch of names that is being collected.
///
/// Names are compared byte by byte; that of a folder has a slash at its end, so that the order is
/// that of whole paths.
///
/// # Invariants
///
/// `count <= slots.len() <= MAX_BATCH`. The first `count` slots each have a name, and their
/// `ranked` are their numbers in the order of the names.
pub struct LeastNames<'a> {
    slots: &'a mut [Slot],
    count: usize,
    start: Start<'a>,
}

impl<'a> LeastNames<'a> {
    /// A batch without names, of at most as many names as there are `slots` and [`MAX_BATCH`].
    pub fn new(slots: &'a mut [Slot], start: Start<'a>) -> Self {
        let len = slots.len().min(MAX_BATCH);
        // INVARIANT: At most `MAX_BATCH`, and no name.
        Self {
            slots: slots.get_mut(..len).unwrap_or(&mut []),
            count: 0,
            start,
        }
    }

    /// How many names there are. If that is as many as there are slots, there may be more behind
    /// the last one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes a name of the folder, if it is among the least ones. A name that is too long to have a
    /// slash behind it is left out.
    pub fn offer(&mut self, name: &[u8], is_folder: bool) {
        let mut key = [0; NAME_MAX];
        let len = name.len().wrapping_add(usize::from(is_folder));
        let Some((to, slash)) = key
            .get_mut(..len)
            .and_then(|key| key.split_at_mut_checked(name.len()))
        else {
            return;
        };
        to.copy_from_slice(name);
        slash.fill(b'/');
        if let Some(key) = key.get(..len) {
            let is_in = match self.start {
                Start::First => true,
                Start::At(start) => key >= start,
                Start::Behind(start) => key > start,
            };
            if is_in {
                self.insert(key);
            }
        }
    }

    fn insert(&mut self, key: &[u8]) {
        let is_full = self.count == self.slots.len();
        let last = self.count.checked_sub(1);
        // The usual case of a large folder.
        if is_full && last.is_none_or(|last| name_of(self.slots, last) <= key) {
            return;
        }
        let rank = self.rank_of(key);
        // The slot of the greatest name, which goes, or one that is free.
        let place = match last {
            Some(last) if is_full => self.slots.get(last).map_or(0, |slot| slot.ranked),
            // Less than `MAX_BATCH`.
            _ => self.count as u8,
        };
        if !is_full {
            self.count = self.count.wrapping_add(1);
        }
        // INVARIANT: The ranks behind move by one, and the last one of a full batch drops out.
        let mut moved = place;
        for slot in self.slots.iter_mut().take(self.count).skip(rank) {
            moved = core::mem::replace(&mut slot.ranked, moved);
        }
        if let Some(slot) = self.slots.get_mut(usize::from(place)) {
            if let Some(to) = slot.name.get_mut(..key.len()) {
                to.copy_from_slice(key);
                // At most `NAME_MAX`.
                slot.len = key.len() as u8;
            }
        }
    }

    /// How many names are less than `key`.
    fn rank_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if name_of(self.slots, middle) < key {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The name of a batch with this number in the order of names, from 0; empty if there is none.
/// `slots` are those of the batch.
pub fn name_of(slots: &[Slot], rank: usize) -> &[u8] {
    let ranked = slots.get(rank).map(|slot| usize::from(slot.ranked));
    let slot = ranked.and_then(|ranked| slots.get(ranked));
    slot.and_then(|slot| slot.name.get(..usize::from(slot.len)))
        .unwrap_or(&[])
}
