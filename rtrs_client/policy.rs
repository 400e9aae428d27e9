// SPDX-License-Identifier: GPL-2.0

//! Which path a request takes.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::atomic::{
    ordering,
    Atomic, //
};

use crate::path::Path;

/// The ways to choose a path (C: `enum rtrs_mp_policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    /// One after the other.
    RoundRobin = 0,
    /// The one with the fewest requests in flight on the connection in question.
    MinInflight = 1,
    /// The one whose last heartbeat came back first.
    MinLatency = 2,
}

impl PolicyKind {
    /// Its name and short name in sysfs.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::RoundRobin => ("round-robin", "RR"),
            Self::MinInflight => ("min-inflight", "MI"),
            Self::MinLatency => ("min-latency", "ML"),
        }
    }

    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::RoundRobin, Self::MinInflight, Self::MinLatency];

    /// The policy that `text` names: its number, its name or its short name in any case.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let (name, short) = kind.names();
            let number = [b'0'.saturating_add(*kind as u8)];
            text == number
                || text.eq_ignore_ascii_case(name.as_bytes())
                || text.eq_ignore_ascii_case(short.as_bytes())
        })
    }
}

/// The policy of a session.
pub(crate) struct Policy {
    kind: Atomic<u32>,
    /// By connection.
    turns: KVec<Turn>,
}

/// Whose turn it is among the paths, for the requests of one connection.
///
/// A cache line of its own: it is only touched by the CPU whose requests the connection carries.
#[repr(align(64))]
struct Turn(Atomic<u32>);

impl Policy {
    /// The default, as in C. May sleep.
    pub(crate) fn new(num_connections: u16) -> Result<Self> {
        let mut turns = KVec::with_capacity(usize::from(num_connections), GFP_KERNEL)?;
        for connection in 0..num_connections {
            // So that CPUs that do the same at the same time use different paths.
            turns.push(Turn(Atomic::new(u32::from(connection))), GFP_KERNEL)?;
        }
        Ok(Self {
            kind: Atomic::new(PolicyKind::MinInflight as u32),
            turns,
        })
    }

    /// The policy in force.
    pub(crate) fn kind(&self) -> PolicyKind {
        match self.kind.load(ordering::Relaxed) {
            0 => PolicyKind::RoundRobin,
            2 => PolicyKind::MinLatency,
            _ => PolicyKind::MinInflight,
        }
    }

    /// Changes the policy.
    pub(crate) fn set(&self, kind: PolicyKind) {
        self.kind.store(kind as u32, ordering::Relaxed);
    }

    /// The paths in the order in which a request on `connection` tries them: the chosen one, then
    /// those behind it in the list.
    ///
    /// Writes only what belongs to this connection, and takes no lock.
    pub(crate) fn order<'a>(
        &self,
        paths: &'a KVec<Arc<Path>>,
        guard: &rcu::Guard,
        connection: usize,
    ) -> impl Iterator<Item = &'a Arc<Path>> {
        let first = if paths.len() < 2 {
            0
        } else {
            self.choose(paths, guard, connection)
        };
        let (before, after) = paths.split_at_checked(first).unwrap_or((paths, &[]));
        Iterator::chain(after.iter(), before)
    }

    fn choose(&self, paths: &KVec<Arc<Path>>, guard: &rcu::Guard, connection: usize) -> usize {
        let mut connected = paths
            .iter()
            .enumerate()
            .filter(|(_, path)| path.is_connected());
        let chosen = match self.kind() {
            PolicyKind::RoundRobin => {
                let turn = match self.turns.get(connection) {
                    Some(turn) => turn.0.fetch_add(1, ordering::Relaxed) as usize,
                    None => 0,
                };
                // Among those that are up, so that none gets the turns of one that is not.
                let up = connected.clone().count();
                let turn = turn.checked_rem(up).unwrap_or(0);
                connected.nth(turn)
            }
            PolicyKind::MinInflight => connected.min_by_key(|(_, path)| {
                path.connections(guard)
                    .and_then(|set| Some(set.incarnation.transfer()?.in_flight_on(connection)))
                    .unwrap_or(i32::MAX)
            }),
            PolicyKind::MinLatency => connected.min_by_key(|(_, path)| path.heartbeat.latency_ns()),
        };
        chosen.map_or(0, |(index, _)| index)
    }
}
