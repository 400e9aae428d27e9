// SPDX-License-Identifier: GPL-2.0

//! Who has not ended a request of a group yet, in one word, so that exactly one party finds that it
//! was the last.
//!
//! Bits 0 to 15 are the members that the request was sent to, or is about to be, and that have not
//! ended it; bit 16 is its sender, until it has sent all; bits 32 to 47 are the members that have
//! not confirmed it, and bits 48 to 63 those of them that may have it all the same. Each party
//! takes its own bit away, once, with one atomic addition of [`ended`]: since no other party
//! changes that bit, nothing carries over to another one. The addition tells the party what was
//! there before, and so whether it [was the last](Word::is_over).

use super::{
    Members,
    MAX_MEMBERS, //
};

/// Where the bit of the sender is.
const SENDER: u32 = MAX_MEMBERS as u32;

/// Where the members that have not confirmed it begin.
const FAILED: u32 = 32;

/// Where those begin that may have it all the same.
const UNANSWERED: u32 = 48;

/// How a party has ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server has confirmed it, or, for the sender, all was sent.
    Confirmed,
    /// The server has responded with an error, or the request was not sent.
    Refused,
    /// There was no response: the server may have carried it out, or be about to.
    Unanswered,
}

/// A party that ends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The task that sends it to the members: it has begun with all of them.
    Sender,
    /// A member, which is below [`MAX_MEMBERS`].
    Member(usize),
}

/// What is left of a request: the value of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// A request that is about to be sent to `members`.
    pub const fn begin(members: Members) -> Self {
        Self(members.to_bits() as u64 | 1u64.wrapping_shl(SENDER))
    }

    /// The value that [`Self::to_u64`] gave.
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// As a number, to be stored.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The value after [`ended`] was added, which gave `before`.
    pub const fn after(before: u64, change: u64) -> Self {
        Self(before.wrapping_add(change))
    }

    /// Whether all have ended it.
    pub const fn is_over(self) -> bool {
        self.0 as u32 == 0
    }

    /// The members that have not confirmed it.
    pub const fn failed(self) -> Members {
        Members::from_bits(self.0.wrapping_shr(FAILED) as u32)
    }

    /// The members that have not responded.
    pub const fn unanswered(self) -> Members {
        Members::from_bits(self.0.wrapping_shr(UNANSWERED) as u32)
    }
}

/// What is added to the word when `party` has ended the request. Nothing for a member that there
/// cannot be.
pub const fn ended(party: Party, how: End) -> u64 {
    match party {
        Party::Sender => 1u64.wrapping_shl(SENDER).wrapping_neg(),
        Party::Member(member) => {
            let bit = Members::only(member).to_bits() as u64;
            let (failed, unanswered) = (bit.wrapping_shl(FAILED), bit.wrapping_shl(UNANSWERED));
            match how {
                End::Confirmed => bit.wrapping_neg(),
                End::Refused => failed.wrapping_sub(bit),
                End::Unanswered => (failed | unanswered).wrapping_sub(bit),
            }
        }
    }
}
