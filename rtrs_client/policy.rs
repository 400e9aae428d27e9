// SPDX-License-Identifier: GPL-2.0

//! The policy of a session, which chooses the path of each request.

use kernel::{
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

use proto::policy::{
    choose,
    Candidate,
    PolicyKind, //
};

use crate::path::Path;

/// The policy of a session.
pub(crate) struct Policy {
    kind: Atomic<u32>,
    /// By connection.
    turns: KVec<Turn>,
}

/// The turn of the paths, for the requests of one connection. Round-robin sends by the path whose
/// turn it is; min-inflight begins its search there.
///
/// Has a cache line of its own. Only CPUs whose requests the connection carries touch it: one CPU,
/// or several with the module parameter `nr_connections`.
#[repr(align(64))]
struct Turn(Atomic<u32>);

impl Turn {
    /// The number of the next request. Two tasks that ask at the same time may get the same number:
    /// tasks on CPUs that share the connection, or a task that was moved to another CPU meanwhile.
    #[inline]
    fn next(&self) -> u32 {
        let number = self.0.load(ordering::Relaxed);
        self.0.store(number.wrapping_add(1), ordering::Relaxed);
        number
    }
}

impl Policy {
    /// The default policy, as in C. Sleeps.
    pub(crate) fn new(num_connections: u16) -> Result<Self> {
        let mut turns = KVec::with_capacity(usize::from(num_connections), GFP_KERNEL)?;
        for connection in 0..num_connections {
            // The turns begin differently, so that CPUs that act in step use different paths.
            turns.push(Turn(Atomic::new(u32::from(connection))), GFP_KERNEL)?;
        }
        Ok(Self {
            kind: Atomic::new(PolicyKind::MinInflight as u32),
            turns,
        })
    }

    /// The policy in force. Any context.
    pub(crate) fn kind(&self) -> PolicyKind {
        // Only the numbers of policies are stored.
        PolicyKind::try_from(self.kind.load(ordering::Relaxed)).unwrap_or(PolicyKind::MinInflight)
    }

    /// Changes the policy. Any context.
    pub(crate) fn set(&self, kind: PolicyKind) {
        self.kind.store(kind as u32, ordering::Relaxed);
    }

    /// The paths in the order in which a request on `connection` tries them: the chosen path, then
    /// the paths behind it in the list, then those before it. So a request that the chosen path
    /// refuses goes to the next path in the list, whatever the policy. All paths are always among
    /// them: a failover gives up a request that no path here takes, which fails all paths.
    ///
    /// Any context, under the RCU read lock: takes no lock, and writes only state of this
    /// connection.
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

    /// The index of the path for a request on `connection`. Context as of [`Self::order`].
    fn choose(&self, paths: &KVec<Arc<Path>>, guard: &rcu::Guard, connection: usize) -> usize {
        let seen = paths.iter().map(|path| Seen {
            path,
            guard,
            connection,
        });
        choose(self.kind(), seen, || {
            let turn = self.turns.get(connection);
            turn.map_or(0, Turn::next)
        })
    }
}

/// A path as a request on `connection` sees it.
struct Seen<'a> {
    path: &'a Path,
    guard: &'a rcu::Guard,
    connection: usize,
}

impl Candidate for Seen<'_> {
    #[inline]
    fn is_connected(&self) -> bool {
        self.path.is_connected()
    }

    #[inline]
    fn sent_by_policy(&self) -> i32 {
        let set = self.path.connections(self.guard);
        set.and_then(|set| set.incarnation.requests())
            .map_or(i32::MAX, |requests| {
                requests.sent_by_policy_on(self.connection)
            })
    }

    #[inline]
    fn latency_ns(&self) -> u64 {
        self.path.heartbeat.latency_ns()
    }
}
