// SPDX-License-Identifier: GPL-2.0

//! The least names of a folder behind a given name, in whatever order the folder gives its names.
//!
//! The whole folder is read for each batch of names. So a walk that goes on behind a name needs no
//! memory of the names before it, and names that come and go do not disturb it.

use crate::name::NAME_MAX;

/// The most names of a batch.
pub const MAX_BATCH: usize = 256;

/// A place for one name.
#[derive(Clone, Copy)]
pub struct Slot {
    /// Not of this name: `ranked` of slot *n* is the number of the slot with the *n*th least name,
    /// from 0.
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

/// The name at which a batch begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// The least name.
    First,
    /// This name, or the next name if there is no such name.
    At(&'a [u8]),
    /// The next name behind this name.
    Behind(&'a [u8]),
}

/// A batch of names that is being collected.
///
/// Names are compared byte by byte. The name of a folder has a slash at its end, so that the order
/// is the order of whole paths.
///
/// # Invariants
///
/// `count <= slots.len() <= MAX_BATCH`. The first `count` slots each have a name. The `ranked` of
/// slots 0 to `count - 1` are the numbers of these slots in the order of their names.
pub struct LeastNames<'a> {
    slots: &'a mut [Slot],
    count: usize,
    start: Start<'a>,
}

impl<'a> LeastNames<'a> {
    /// An empty batch for at most [`MAX_BATCH`] names, and at most as many as there are `slots`.
    pub fn new(slots: &'a mut [Slot], start: Start<'a>) -> Self {
        let len = slots.len().min(MAX_BATCH);
        // INVARIANT: There are at most `MAX_BATCH` slots, and no names.
        Self {
            slots: slots.get_mut(..len).unwrap_or(&mut []),
            count: 0,
            start,
        }
    }

    /// The number of names. If it is the number of slots, the folder may have more names behind the
    /// last name.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes a name of the folder, if the name is among the least names. A name that is too long to
    /// have a slash behind it is left out.
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
        // The usual case in a large folder: the name is not among the least names.
        if is_full && last.is_none_or(|last| name_of(self.slots, last) <= key) {
            return;
        }
        let rank = self.rank_of(key);
        // The slot of the greatest name, which drops out, or a free slot.
        let place = match last {
            Some(last) if is_full => self.slots.get(last).map_or(0, |slot| slot.ranked),
            // The count is less than `MAX_BATCH` here.
            _ => self.count as u8,
        };
        if !is_full {
            self.count = self.count.wrapping_add(1);
        }
        // INVARIANT: The ranks behind the new name move by one, and the last name of a full batch
        // drops out.
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

    /// The number of names less than `key`.
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

/// The name with number `rank` in the order of names, from 0; empty if there is none. `slots` are
/// the slots of the batch.
pub fn name_of(slots: &[Slot], rank: usize) -> &[u8] {
    let ranked = slots.get(rank).map(|slot| usize::from(slot.ranked));
    let slot = ranked.and_then(|ranked| slots.get(ranked));
    slot.and_then(|slot| slot.name.get(..usize::from(slot.len)))
        .unwrap_or(&[])
}
