// SPDX-License-Identifier: GPL-2.0

//! The choice of the path of a session for a request.
//!
//! Documentation/changing.md lists the other files that a new policy touches.

use crate::{
    number::{
        self,
        Base, //
    },
    numbered::numbered, //
};

numbered! {
    /// The ways to choose a path (C: `enum rtrs_mp_policy`).
    pub enum PolicyKind: u32 {
        /// Each path in turn.
        RoundRobin = 0,
        /// The path with the fewest requests in flight on the connection that the request would
        /// take ([`Candidate::sent_by_policy()`]); paths with equally few take turns.
        MinInflight = 1,
        /// The path whose last heartbeat had the shortest round trip.
        MinLatency = 2,
    }
}

impl PolicyKind {
    /// The name and the short name in sysfs.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::RoundRobin => ("round-robin", "RR"),
            Self::MinInflight => ("min-inflight", "MI"),
            Self::MinLatency => ("min-latency", "ML"),
        }
    }

    /// Parses a policy: its number, its short name, or a text that begins with its name, so that
    /// the text in sysfs can be written back. Upper and lower case are the same (C:
    /// `mpath_policy_store`).
    pub fn parse(written: &[u8]) -> Option<Self> {
        let number = number::parse_i32(written, Base::Decimal);
        let word = written.strip_suffix(b"\n").unwrap_or(written);
        Self::ALL.iter().copied().find(|kind| {
            let (name, short) = kind.names();
            number == Ok(*kind as i32)
                || word.eq_ignore_ascii_case(short.as_bytes())
                || word
                    .get(..name.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
        })
    }
}

/// The properties of a path for a policy.
pub trait Candidate {
    /// Whether the path can carry requests.
    fn is_connected(&self) -> bool;
    /// The requests in flight on the connection that the new request would take, as far as a policy
    /// has sent them. Requests that were sent while the session had no other path may be left out.
    fn sent_by_policy(&self) -> i32;
    /// The round-trip time of the last heartbeat, in ns. 0 before the first one of the path; the
    /// time is kept over a reconnection.
    fn latency_ns(&self) -> u64;
}

/// The index of the path for a request. 0 if no path is connected, or perhaps if a path was lost
/// meanwhile: the caller tries the other paths in turn.
///
/// `turn` returns the number of this request, counted by connection. It is called at most once.
/// Called for each request under the RCU read lock, in any context: must not sleep.
#[inline]
pub fn choose<P: Candidate>(
    kind: PolicyKind,
    paths: impl Iterator<Item = P> + Clone,
    turn: impl FnOnce() -> u32,
) -> usize {
    let mut connected = paths.enumerate().filter(|(_, path)| path.is_connected());
    let chosen = match kind {
        PolicyKind::RoundRobin => {
            turn_among(&connected, turn).and_then(|first| connected.nth(first))
        }
        PolicyKind::MinInflight => {
            // The search begins at another path each time, and the first minimum counts. Otherwise
            // a CPU with one request at a time would only ever use the first path.
            turn_among(&connected, turn).and_then(|first| {
                let from_first = connected.clone().skip(first).chain(connected.take(first));
                from_first.min_by_key(|(_, path)| path.sent_by_policy())
            })
        }
        PolicyKind::MinLatency => connected.min_by_key(|(_, path)| path.latency_ns()),
    };
    chosen.map_or(0, |(index, _)| index)
}

/// The number of the request modulo the number of connected paths. So a path that is not connected
/// has no turn that would fall to its neighbour. `None` if no path is connected.
#[inline]
fn turn_among<T>(
    connected: &(impl Iterator<Item = T> + Clone),
    turn: impl FnOnce() -> u32,
) -> Option<usize> {
    let up = connected.clone().count();
    (turn() as usize).checked_rem(up)
}
