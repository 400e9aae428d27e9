// SPDX-License-Identifier: GPL-2.0

//! A group of sessions, each with another server, that all get the same writes.
//!
//! The writes of a group are numbered, from 1. Each is sent to all [members](member) that take
//! writes at that moment, and ends when each of these has confirmed it or has failed
//! ([`pending`]). What a member has not confirmed is on its list ([`missed`]), by numbers: no
//! write is missing there, and none is there that the member has confirmed, unless the list says
//! that it [is not exact](missed::Missed::is_exact). [`reads`] says which member is read.

pub mod member;
pub mod missed;
pub mod pending;
pub mod reads;

/// The most members of a group.
pub const MAX_MEMBERS: usize = 16;

/// Some of a group's members: bit *n* is member *n*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members(u32);

impl Members {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// The members of these bits; bits beyond [`MAX_MEMBERS`] are left out.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0xffff)
    }

    /// As bits.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Only this one; none if there can be no such member.
    pub const fn only(member: usize) -> Self {
        if member < MAX_MEMBERS {
            // It is less than the bits of the number.
            Self(1u32.wrapping_shl(member as u32))
        } else {
            Self::NONE
        }
    }

    /// These, and that one.
    pub const fn with(self, member: usize) -> Self {
        Self(self.0 | Self::only(member).0)
    }

    /// These, but for all of `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether that one is among them.
    pub const fn has(self, member: usize) -> bool {
        self.0 & Self::only(member).0 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let lowest = left.trailing_zeros();
            // Without the lowest one; of none, none are left.
            left &= left.wrapping_sub(1);
            (lowest < u32::BITS).then_some(lowest as usize)
        })
    }
}
