// SPDX-License-Identifier: GPL-2.0

//! A group of sessions with different servers, to which the same writes are sent.
//!
//! The writes of a group are numbered, from 1. Each write is sent to all [members](member) that
//! take writes at that moment, and ends when each of these members has confirmed it or has failed
//! ([`pending`]). A member's list ([`missed`]) has the numbers of the writes that the member has
//! not confirmed. The list lacks no such write. It has no confirmed write either, unless it [is not
//! exact](missed::Missed::is_exact). [`reads`] chooses the member that is read.

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
    /// No members.
    pub const NONE: Self = Self(0);

    /// The members of these bits; bits beyond [`MAX_MEMBERS`] are left out.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0xffff)
    }

    /// As bits.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Only `member`; no members if there can be no such member.
    pub const fn only(member: usize) -> Self {
        if member < MAX_MEMBERS {
            // The shift is less than the number's bits.
            Self(1u32.wrapping_shl(member as u32))
        } else {
            Self::NONE
        }
    }

    /// These members and `member`.
    pub const fn with(self, member: usize) -> Self {
        Self(self.0 | Self::only(member).0)
    }

    /// These members without all of `others`.
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether `member` is among them.
    pub const fn has(self, member: usize) -> bool {
        self.0 & Self::only(member).0 != 0
    }

    /// Whether there are no members.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers of the members, from the lowest.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let lowest = left.trailing_zeros();
            // Clears the lowest bit; 0 stays 0.
            left &= left.wrapping_sub(1);
            (lowest < u32::BITS).then_some(lowest as usize)
        })
    }
}
