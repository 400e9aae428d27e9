// SPDX-License-Identifier: GPL-2.0

//! The requests that a path has carried: the file `stats/rdma` of either end.

use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

/// The requests of one kind, and their bytes.
struct Count {
    requests: Atomic<u64>,
    bytes: Atomic<u64>,
}

/// The requests that a connection has carried, or, in the last element, the requests that were
/// counted elsewhere. Has a cache line of its own, as mostly one CPU at a time writes to it.
#[repr(align(64))]
struct Connection {
    reads: Count,
    writes: Count,
}

/// The sums over all connections.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// The reads.
    pub reads: u64,
    /// The bytes of the reads, including the user's headers.
    pub read_bytes: u64,
    /// All other requests.
    pub writes: u64,
    /// The bytes of these requests, including the user's headers.
    pub write_bytes: u64,
}

/// The requests that a path has carried, by connection (C: `rtrs_clt_stats_rdma`,
/// `rtrs_srv_stats_rdma_stats`).
///
/// The completion handler of a connection counts what the connection carries. It handles one
/// completion at a time, so it needs no atomic addition.
///
/// # Invariants
///
/// There is one element for each connection, and a last one for the counts of other contexts.
pub struct Traffic(KVec<Connection>);

impl Count {
    const fn new() -> Self {
        Self {
            requests: Atomic::new(0),
            bytes: Atomic::new(0),
        }
    }

    fn reset(&self) {
        self.requests.store(0, ordering::Relaxed);
        self.bytes.store(0, ordering::Relaxed);
    }
}

impl Connection {
    const fn new() -> Self {
        Self {
            reads: Count::new(),
            writes: Count::new(),
        }
    }

    #[inline(always)]
    fn count(&self, is_read: bool) -> &Count {
        if is_read {
            &self.reads
        } else {
            &self.writes
        }
    }
}

impl Traffic {
    /// Makes counters that are all zero, for a path of this many connections. Sleeps.
    pub fn new(num_connections: usize) -> Result<Self> {
        let mut connections = KVec::new();
        for _ in 0..=num_connections {
            connections.push(Connection::new(), GFP_KERNEL)?;
        }
        // INVARIANT: There is one element more than connections.
        Ok(Self(connections))
    }

    /// The number of connections.
    pub fn num_connections(&self) -> usize {
        self.0.len().wrapping_sub(1)
    }

    /// Counts a request of connection `cid` with this many bytes. Only for the completion handler
    /// of the connection: in another context a count may be lost.
    #[inline(always)]
    pub fn count(&self, cid: u16, is_read: bool, bytes: u64) {
        if let Some(connection) = self.0.get(usize::from(cid)) {
            // Only the completion handler of the connection adds to these counters.
            let add = |counter: &Atomic<u64>, number| {
                let sum = counter.load(ordering::Relaxed).wrapping_add(number);
                counter.store(sum, ordering::Relaxed);
            };
            let count = connection.count(is_read);
            add(&count.requests, 1);
            add(&count.bytes, bytes);
        }
    }

    /// As [`Self::count()`], for any other context.
    pub fn count_elsewhere(&self, is_read: bool, bytes: u64) {
        if let Some(connection) = self.0.last() {
            let count = connection.count(is_read);
            count.requests.add(1u64, ordering::Relaxed);
            count.bytes.add(bytes, ordering::Relaxed);
        }
    }

    /// The sums so far. Any context.
    pub fn totals(&self) -> Totals {
        let sum = |of: fn(&Connection) -> &Atomic<u64>| {
            let counts = self.0.iter().map(of);
            counts.fold(0u64, |sum, count| {
                sum.wrapping_add(count.load(ordering::Relaxed))
            })
        };
        Totals {
            reads: sum(|connection| &connection.reads.requests),
            read_bytes: sum(|connection| &connection.reads.bytes),
            writes: sum(|connection| &connection.writes.requests),
            write_bytes: sum(|connection| &connection.writes.bytes),
        }
    }

    /// Sets all counters to zero. A connection that counts a request at the same moment may keep
    /// its old counts, or lose the request. Any context.
    pub fn reset(&self) {
        for connection in &self.0 {
            connection.reads.reset();
            connection.writes.reset();
        }
    }
}
