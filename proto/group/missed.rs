// SPDX-License-Identifier: GPL-2.0

//! The writes that a member has not confirmed, by their numbers.

use core::ops::DerefMut;

/// Writes with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// The last, not less than the first.
    pub last: u64,
}

impl Range {
    /// A free place of the list.
    pub const EMPTY: Self = Self { first: 1, last: 0 };
}

/// Whether `number` is the next number after `before`.
const fn follows(number: u64, before: u64) -> bool {
    number.wrapping_sub(before) == 1 && number != 0
}

/// The writes that a member has not confirmed.
///
/// The list has as many places as `S`, and so is never longer than that. When a place is lacking,
/// the two neighbouring ranges with the fewest writes between them are joined, and the writes
/// between them are then on the list, too. So the list never lacks a write; [`Self::is_exact`]
/// tells whether it may have more writes than it should.
///
/// # Invariants
///
/// The first `used` places have ranges in the order of their numbers. At least one write is between
/// two neighbouring ranges.
pub struct Missed<S> {
    places: S,
    used: usize,
    is_exact: bool,
}

impl<S: DerefMut<Target = [Range]>> Missed<S> {
    /// An empty list in `places`, at least two.
    pub fn new(places: S) -> Self {
        // INVARIANT: No place is used.
        Self {
            places,
            used: 0,
            is_exact: true,
        }
    }

    /// The list, in the order of the numbers.
    pub fn ranges(&self) -> &[Range] {
        self.places.get(..self.used).unwrap_or(&[])
    }

    /// Whether the list has no writes.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether the list has only writes that the member has not confirmed.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Whether `number` is in the list.
    pub fn has(&self, number: u64) -> bool {
        let mut ranges = self.ranges().iter();
        ranges.any(|range| range.first <= number && number <= range.last)
    }

    /// Adds a write; changes nothing if the list has it.
    pub fn add(&mut self, number: u64) {
        // The first range that ends at `number`, just before `number`, or behind it.
        let mut ranges = self.ranges().iter();
        let at = ranges.position(|range| number <= range.last || follows(number, range.last));
        let at = at.unwrap_or(self.used);
        if let Some(range) = self
            .places
            .get_mut(..self.used)
            .and_then(|all| all.get_mut(at))
        {
            if range.first <= number || follows(range.first, number) {
                // INVARIANT: The range grows by one write at most, at either end, and so meets only
                // its neighbours.
                range.first = range.first.min(number);
                range.last = range.last.max(number);
                return self.join(at);
            }
        }
        self.insert(
            at,
            Range {
                first: number,
                last: number,
            },
        );
    }

    /// Takes the writes from `first` to `last` out of the list, because the member has them or
    /// their effect. An empty list is exact again.
    ///
    /// Returns false and changes nothing if that would need another place and all places are used.
    #[must_use]
    pub fn remove(&mut self, first: u64, last: u64) -> bool {
        let mut inner = self.ranges().iter();
        let splits = inner.any(|range| range.first < first && last < range.last);
        if splits && self.used >= self.places.len() {
            return false;
        }
        let mut at = 0;
        while let Some(range) = self.ranges().get(at).copied() {
            if last < first || range.last < first || last < range.first {
                at = at.wrapping_add(1);
                continue;
            }
            // Neither end overflows where it is used: there it is inside the range.
            let before = Range {
                last: first.wrapping_sub(1),
                ..range
            };
            let behind = Range {
                first: last.wrapping_add(1),
                ..range
            };
            match (range.first < first, last < range.last) {
                (false, false) => self.take_out(at),
                (true, false) => self.set(at, before),
                (false, true) => self.set(at, behind),
                (true, true) => {
                    self.set(at, before);
                    self.insert(at.wrapping_add(1), behind);
                    break;
                }
            }
        }
        if self.is_empty() {
            self.is_exact = true;
        }
        true
    }

    fn set(&mut self, at: usize, range: Range) {
        if let Some(place) = self.places.get_mut(at) {
            *place = range;
        }
    }

    /// Inserts `range` at position `at`.
    fn insert(&mut self, at: usize, range: Range) {
        if self.used >= self.places.len() {
            // Only `add` gets here, with one write, which may be inside the joined range now.
            self.join_closest();
            return self.add(range.first);
        }
        self.used = self.used.wrapping_add(1);
        let used = self.used;
        if let Some(tail) = self.places.get_mut(at..used) {
            tail.rotate_right(1);
        }
        self.set(at, range);
    }

    fn take_out(&mut self, at: usize) {
        let used = self.used;
        if let Some(tail) = self.places.get_mut(at..used) {
            tail.rotate_left(1);
            self.used = used.wrapping_sub(1);
        }
    }

    /// Makes the range at `at` and the next one a single range, if no write is between them.
    fn join(&mut self, at: usize) {
        let next = at.wrapping_add(1);
        if let (Some(range), Some(behind)) = (
            self.ranges().get(at).copied(),
            self.ranges().get(next).copied(),
        ) {
            if behind.first <= range.last || follows(behind.first, range.last) {
                self.set(
                    at,
                    Range {
                        last: behind.last,
                        ..range
                    },
                );
                self.take_out(next);
            }
        }
    }

    /// Makes the two neighbours with the fewest writes between them a single range.
    fn join_closest(&mut self) {
        let pairs = self.ranges().windows(2).enumerate();
        let gaps = pairs.filter_map(|(at, pair)| match pair {
            [range, behind] => Some((behind.first.wrapping_sub(range.last), at)),
            _ => None,
        });
        let (_, at) = gaps.min().unwrap_or((0, 0));
        let next = at.wrapping_add(1);
        if let (Some(range), Some(behind)) = (
            self.ranges().get(at).copied(),
            self.ranges().get(next).copied(),
        ) {
            self.set(
                at,
                Range {
                    last: behind.last,
                    ..range
                },
            );
            self.take_out(next);
            self.is_exact = false;
        }
    }
}
