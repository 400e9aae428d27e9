// SPDX-License-Identifier: GPL-2.0

//! The choice of the member of a group that is read.

use super::{
    Members,
    MAX_MEMBERS, //
};

/// How a member is chosen for a read, among the members that may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// One member after the other.
    RoundRobin,
    /// The member whose reads took the least time of late. Now and then each other member, so that
    /// its time is known.
    LeastLatency,
    /// This member; if it may not be read, the member with the lowest number that may.
    Fixed(usize),
}

/// One of this many reads goes to the next member in turn, so that its time is known.
const PROBE: u64 = 64;

/// The text is not a policy.
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

    /// The member in `allowed` for read number `turn`; `None` if `allowed` is empty. `latency`
    /// returns how long reads of a member take, 0 if that is not known.
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

/// The member of `allowed` whose turn it is.
fn in_turn(allowed: Members, turn: u64) -> Option<usize> {
    let count = u64::from(allowed.to_bits().count_ones());
    let place = turn.checked_rem(count)?;
    allowed.iter().nth(usize::try_from(place).ok()?)
}

/// The average time of a member's reads, with one more read that took `latest`; late reads count
/// most. Times are in any unit; 0 only if no time is known.
pub fn average(known: u64, latest: u64) -> u64 {
    let latest = latest.max(1);
    if known == 0 {
        return latest;
    }
    // The sum is at most the greater of the two times.
    let (old, new) = (
        known.wrapping_sub(known.wrapping_div(8)),
        latest.wrapping_div(8),
    );
    old.wrapping_add(new).max(1)
}
