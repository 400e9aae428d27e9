// SPDX-License-Identifier: GPL-2.0

//! Which member of a group is read.

use super::{
    Members,
    MAX_MEMBERS, //
};

/// Which member is read, of those that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// One after the other.
    RoundRobin,
    /// That whose reads have taken least time of late; each of the others now and then, so that its
    /// time is known.
    LeastLatency,
    /// This one; if it may not be read, the one with the lowest number.
    Fixed(usize),
}

/// Every so many reads go to another member than the fastest one.
const PROBE: u64 = 64;

/// How a text of a policy is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl ReadPolicy {
    /// `round-robin`, `least-latency`, or the number of a member.
    pub fn parse(text: &[u8]) -> Result<Self, UnknownPolicy> {
        match text.trim_ascii() {
            b"round-robin" => Ok(Self::RoundRobin),
            b"least-latency" => Ok(Self::LeastLatency),
            number => {
                let number = core::str::from_utf8(number).map_err(|_| UnknownPolicy)?;
                let number = number.parse::<usize>().map_err(|_| UnknownPolicy)?;
                if number >= MAX_MEMBERS {
                    return Err(UnknownPolicy);
                }
                Ok(Self::Fixed(number))
            }
        }
    }

    /// The member for read number `turn`, of those in `allowed`; nothing if that is none.
    /// `latency` says how long reads of a member take, 0 if that is not known.
    pub fn choose(
        self,
        allowed: Members,
        turn: u64,
        latency: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        match self {
            Self::RoundRobin => in_turn(allowed, turn),
            Self::LeastLatency if turn % PROBE == 0 => in_turn(allowed, turn.wrapping_div(PROBE)),
            Self::LeastLatency => allowed.iter().min_by_key(|member| latency(*member)),
            Self::Fixed(member) if allowed.has(member) => Some(member),
            Self::Fixed(_) => allowed.iter().next(),
        }
    }
}

/// The member whose turn it is.
fn in_turn(allowed: Members, turn: u64) -> Option<usize> {
    let count = u64::from(allowed.to_bits().count_ones());
    let place = turn.checked_rem(count)?;
    allowed.iter().nth(usize::try_from(place).ok()?)
}

/// How long reads of a member take, with one more that took `latest`: an average in which the
/// latest ones count most. Times in any unit; 0 only if nothing is known.
pub fn average(known: u64, latest: u64) -> u64 {
    let latest = latest.max(1);
    if known == 0 {
        return latest;
    }
    // Together they are no more than the greater one of the two.
    let (old, new) = (
        known.wrapping_sub(known.wrapping_div(8)),
        latest.wrapping_div(8),
    );
    old.wrapping_add(new).max(1)
}
