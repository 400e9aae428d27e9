// SPDX-License-Identifier: GPL-2.0

//! From which lost paths a request was sent again that may still be at work there.
//!
//! A server takes a path anew only when it has finished the path's requests of before. So a path
//! that is back has none of them, and until then it may have one. A request can be sent again
//! several times, and then all of these paths have to be back.

/// How many lost paths are told apart.
const TOLD_APART: usize = 63;

/// A lost path in a [`ResentFrom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPath(u64);

impl LostPath {
    /// The path at this place, of at most [`TOLD_APART`].
    const fn at(place: usize) -> Self {
        // It is less than the bits of the number.
        Self(1u64.wrapping_shl(place as u32))
    }

    /// Any path beyond those that are told apart.
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

    /// As a number, to be stored.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The request is sent again that `path` had.
    pub const fn and(self, path: LostPath) -> Self {
        Self(self.0 | path.0)
    }

    /// `path` is back.
    pub const fn without(self, path: LostPath) -> Self {
        Self(self.0 & !path.0)
    }

    /// All paths of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `path` is one of them.
    const fn has(self, path: LostPath) -> bool {
        self.0 & path.0 != 0
    }
}

/// The lost paths of a session that may be in a [`ResentFrom`] of it.
///
/// # Invariants
///
/// No two numbers are the same, except for 0, which is no path.
pub struct LostPaths {
    numbers: [u32; TOLD_APART],
}

impl LostPaths {
    /// There is none.
    pub const NONE: Self = Self {
        numbers: [0; TOLD_APART],
    };

    /// The lost path of this number, which is not 0 and names nothing but that loss.
    ///
    /// `in_use` gives the union of all sets of the session. It is only asked when the places are
    /// used up: a path that is in no set gives up its place. Paths that get no place even then are
    /// not told apart, and [`Self::back`] finds none of them; a set that has one of them has it as
    /// long as there is the request.
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

    /// The path of this number is back: it is to be taken out of all sets before this object is
    /// used again. Nothing if no set has it.
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

    /// Gives `number`, which has no place, a free one.
    fn add(&mut self, number: u32) -> Option<LostPath> {
        let mut places = self.numbers.iter_mut().enumerate();
        let (place, free) = places.find(|(_, known)| **known == 0)?;
        // INVARIANT: No place has this number.
        *free = number;
        Some(LostPath::at(place))
    }
}
