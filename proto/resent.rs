// SPDX-License-Identifier: GPL-2.0

//! Which lost path may still have a request of a number that was sent again by another path.

/// The numbers of lost paths are less than this; 0 is no path.
const SEVERAL: u32 = u32::MAX;

/// The lost path from which a request was sent again, and which is not back yet.
///
/// A server takes a path anew only when it has finished the path's requests of before. So a path
/// that is back has none of them, and until then it may have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResentFrom(u32);

impl ResentFrom {
    /// No lost path has such a request.
    pub const NOTHING: Self = Self(0);

    /// The value that [`Self::to_u32`] gave.
    pub const fn from_u32(value: u32) -> Self {
        Self(value)
    }

    /// As a number, to be stored.
    pub const fn to_u32(self) -> u32 {
        self.0
    }

    /// A request is sent again that the lost path `number` had. Two lost paths are not told apart
    /// any more: no single path that comes back proves then that both have finished.
    pub const fn and(self, number: u32) -> Self {
        if self.0 == 0 || self.0 == number {
            Self(number)
        } else {
            Self(SEVERAL)
        }
    }

    /// The lost path `number` is back.
    pub const fn without(self, number: u32) -> Self {
        if self.0 == number && number != SEVERAL {
            Self::NOTHING
        } else {
            self
        }
    }
}
