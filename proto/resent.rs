// SPDX-License-Identifier: GPL-2.0

//! The lost paths from which a request was sent again, and where the server may still be at work on
//! it.
//!
//! A server accepts a path again only after it has finished the path's earlier requests. So a path
//! that is back has no such request, and a path that is not back may have it. A request can be sent
//! again several times; then all of these paths have to be back.

/// The number of lost paths that are told apart.
const TOLD_APART: usize = 63;

/// A lost path in a [`ResentFrom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPath(u64);

impl LostPath {
    /// The path at this place; `place` is at most [`TOLD_APART`].
    const fn at(place: usize) -> Self {
        // The shift is less than the number's bits.
        Self(1u64.wrapping_shl(place as u32))
    }

    /// Stands for all paths that are not told apart.
    const OTHER: Self = Self::at(TOLD_APART);
}

/// The lost paths from which one request was sent again, and which are not back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResentFrom(u64);

impl ResentFrom {
    /// No lost path has the request.
    pub const NOTHING: Self = Self(0);

    /// The value that [`Self::to_u64`] gave.
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// The value, to be stored.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The set after `path` is lost and its request is sent again.
    pub const fn and(self, path: LostPath) -> Self {
        Self(self.0 | path.0)
    }

    /// The set after `path` is back.
    pub const fn without(self, path: LostPath) -> Self {
        Self(self.0 & !path.0)
    }

    /// The paths of both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `path` is in the set.
    const fn has(self, path: LostPath) -> bool {
        self.0 & path.0 != 0
    }
}

/// The lost paths of a session, which may be in a [`ResentFrom`] of the session.
///
/// # Invariants
///
/// No two numbers are the same, except for 0, which marks a free place.
pub struct LostPaths {
    numbers: [u32; TOLD_APART],
}

impl LostPaths {
    /// No lost paths.
    pub const NONE: Self = Self {
        numbers: [0; TOLD_APART],
    };

    /// The lost path with this number. The number is not 0, and names only this loss of the path.
    ///
    /// `in_use` returns the union of all sets of the session. It is called only when no place is
    /// free: then paths that are in no set give up their places. A path that gets no place even
    /// then is not told apart, and [`Self::back`] does not find it. A set with such a path keeps it
    /// until the request ends.
    pub fn lost(&mut self, number: u32, in_use: impl FnOnce() -> ResentFrom) -> LostPath {
        if let Some(known) = self.find(number).or_else(|| self.add(number)) {
            return known;
        }
        let in_use = in_use();
        for (place, number) in self.numbers.iter_mut().enumerate() {
            if !in_use.has(LostPath::at(place)) {
                *number = 0;
            }
        }
        self.add(number).unwrap_or(LostPath::OTHER)
    }

    /// Takes note that the path with this number is back. The caller takes the returned path out of
    /// all sets before it uses this object again. `None` if no set has the path.
    pub fn back(&mut self, number: u32) -> Option<LostPath> {
        let path = self.find(number)?;
        for known in &mut self.numbers {
            if *known == number {
                *known = 0;
            }
        }
        Some(path)
    }

    fn find(&self, number: u32) -> Option<LostPath> {
        if number == 0 {
            return None;
        }
        let place = self.numbers.iter().position(|known| *known == number)?;
        Some(LostPath::at(place))
    }

    /// Gives `number`, which has no place, a free place.
    fn add(&mut self, number: u32) -> Option<LostPath> {
        let mut places = self.numbers.iter_mut().enumerate();
        let (place, free) = places.find(|(_, known)| **known == 0)?;
        // INVARIANT: No place has this number.
        *free = number;
        Some(LostPath::at(place))
    }
}
