// SPDX-License-Identifier: GPL-2.0

//! The parties that have not ended a request of a group yet, as bits of one word. The word tells
//! exactly one party that it was the last.
//!
//! | bits | parties |
//! |---|---|
//! | 0 to 15 | members that the request is sent to, now or soon, and that have not ended it |
//! | 16 | the sender, until it has sent the request to all members |
//! | 32 to 47 | members that have ended the request without confirming it |
//! | 48 to 63 | members of bits 32 to 47 that did not respond, and so may carry the request out |
//!
//! Each party takes its own bit away once, by one atomic addition of [`ended`]. No other party
//! changes that bit, so the addition carries nothing into another bit. The addition returns the
//! word from before it, and so tells the party whether it [was the last](Word::is_over).

use super::{
    Members,
    MAX_MEMBERS, //
};

/// The position of the sender's bit.
const SENDER: u32 = MAX_MEMBERS as u32;

/// The position of the first bit of the members that have not confirmed the request.
const FAILED: u32 = 32;

/// The position of the first bit of the members that have not responded.
const UNANSWERED: u32 = 48;

/// How a party has ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server has confirmed the request; for the sender: the request was sent to all members.
    Confirmed,
    /// The server has responded with an error, or the request was not sent to the member.
    Refused,
    /// There was no response: the server may have carried the request out, or may still do so.
    Unanswered,
}

/// A party that ends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The task that sends the request to the members. It ends when it has begun with all members.
    Sender,
    /// A member, which is below [`MAX_MEMBERS`].
    Member(usize),
}

/// The value of a request's word.
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

    /// The value, to be stored.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The value after the addition of `change`, which [`ended`] gave, to the value `before`.
    pub const fn after(before: u64, change: u64) -> Self {
        Self(before.wrapping_add(change))
    }

    /// Whether all parties have ended the request.
    pub const fn is_over(self) -> bool {
        self.0 as u32 == 0
    }

    /// The members that have ended the request without confirming it.
    pub const fn failed(self) -> Members {
        Members::from_bits(self.0.wrapping_shr(FAILED) as u32)
    }

    /// The members that have ended the request without a response.
    pub const fn unanswered(self) -> Members {
        Members::from_bits(self.0.wrapping_shr(UNANSWERED) as u32)
    }
}

/// The number to add to the word when `party` has ended the request; 0 for a member that there
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
