// SPDX-License-Identifier: GPL-2.0

//! What a path counts (C: `rtrs-clt-stats.c`).
//!
//! The counters of the IO path are those of a connection, whose completions come one at a time, or
//! those of a CPU.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    cpu,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

use crate::requests::request::{
    Kind,
    Request, //
};

/// The requests of one kind that the server has responded to on a connection.
///
/// Only the completion handler of the connection counts, so an addition is no atomic one.
struct Responded {
    requests: Atomic<u64>,
    bytes: Atomic<u64>,
}

impl Responded {
    const fn new() -> Self {
        Self {
            requests: Atomic::new(0),
            bytes: Atomic::new(0),
        }
    }

    #[inline(always)]
    fn add(&self, bytes: u64) {
        let add = |counter: &Atomic<u64>, number| {
            let sum = counter.load(ordering::Relaxed).wrapping_add(number);
            counter.store(sum, ordering::Relaxed);
        };
        add(&self.requests, 1);
        add(&self.bytes, bytes);
    }

    fn reset(&self) {
        self.requests.store(0, ordering::Relaxed);
        self.bytes.store(0, ordering::Relaxed);
    }
}

/// The counters of a connection.
#[repr(align(64))]
struct ConnectionStats {
    reads: Responded,
    writes: Responded,
}

/// The counters of a CPU: completions that were to come to it, and completions that came to it
/// instead of another one.
#[repr(align(64))]
struct CpuStats {
    migrated_from: Atomic<u64>,
    migrated_to: Atomic<u64>,
}

/// The sums of [`Stats`] that the file `rdma` shows.
#[derive(Clone, Copy)]
pub(crate) struct RdmaSums {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) failovers: u64,
}

/// What a path counts.
pub(crate) struct Stats {
    connections: KVec<ConnectionStats>,
    cpus: KVec<CpuStats>,
    failovers: Atomic<u64>,
    /// Begins at -1, so that the first connect makes it 0.
    reconnects: Atomic<i32>,
    failed_reconnects: Atomic<i32>,
}

impl Stats {
    /// All zero, for a path of this many connections. Sleeps.
    pub(crate) fn new(num_connections: usize) -> Result<Arc<Self>> {
        let mut connections = KVec::with_capacity(num_connections, GFP_KERNEL)?;
        for _ in 0..num_connections {
            connections.push(
                ConnectionStats {
                    reads: Responded::new(),
                    writes: Responded::new(),
                },
                GFP_KERNEL,
            )?;
        }
        let mut cpus = KVec::new();
        for _ in 0..cpu::nr_cpu_ids() {
            cpus.push(
                CpuStats {
                    migrated_from: Atomic::new(0),
                    migrated_to: Atomic::new(0),
                },
                GFP_KERNEL,
            )?;
        }
        let stats = Self {
            connections,
            cpus,
            failovers: Atomic::new(0),
            reconnects: Atomic::new(-1),
            failed_reconnects: Atomic::new(0),
        };
        Ok(Arc::new(stats, GFP_KERNEL)?)
    }

    /// The number of connections.
    pub(crate) fn num_connections(&self) -> usize {
        self.connections.len()
    }

    /// The server has responded to `request`. For the completion handler of its connection.
    #[inline(always)]
    pub(crate) fn responded(&self, request: &Request) {
        let bytes = request.data_len() as u64;
        let bytes = bytes.wrapping_add(u64::from(request.header_len()));
        if let Some(connection) = self.connections.get(usize::from(request.connection)) {
            match request.kind {
                Kind::Read => connection.reads.add(bytes),
                Kind::Write | Kind::HeaderOnly => connection.writes.add(bytes),
            }
        }
    }

    /// A completion that belongs to CPU `expected` came to CPU `actual`. Any context.
    #[inline]
    pub(crate) fn completed_on(&self, expected: u32, actual: u32) {
        if expected == actual {
            return;
        }
        if let (Some(from), Some(to)) = (
            self.cpus.get(expected as usize),
            self.cpus.get(actual as usize),
        ) {
            from.migrated_from.add(1u64, ordering::Relaxed);
            to.migrated_to.add(1u64, ordering::Relaxed);
        }
    }

    /// The path has taken a request of one that failed.
    pub(crate) fn failed_over(&self) {
        self.failovers.add(1u64, ordering::Relaxed);
    }

    /// The path was connected.
    pub(crate) fn connected(&self) {
        self.reconnects.add(1, ordering::Relaxed);
    }

    /// The path could not be connected again.
    pub(crate) fn reconnect_failed(&self) {
        self.failed_reconnects.add(1, ordering::Relaxed);
    }

    /// The sums over all connections.
    pub(crate) fn rdma(&self) -> RdmaSums {
        let sum = |counter: fn(&ConnectionStats) -> &Atomic<u64>| {
            let counters = self.connections.iter().map(counter);
            counters.fold(0, |sum: u64, counter| {
                sum.wrapping_add(counter.load(ordering::Relaxed))
            })
        };
        RdmaSums {
            reads: sum(|connection| &connection.reads.requests),
            read_bytes: sum(|connection| &connection.reads.bytes),
            writes: sum(|connection| &connection.writes.requests),
            write_bytes: sum(|connection| &connection.writes.bytes),
            failovers: self.failovers.load(ordering::Relaxed),
        }
    }

    /// For each CPU, the completions that were to come to it and did not.
    pub(crate) fn migrated_from(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus
            .iter()
            .map(|cpu| cpu.migrated_from.load(ordering::Relaxed))
    }

    /// For each CPU, the completions that came to it instead of another one.
    pub(crate) fn migrated_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus
            .iter()
            .map(|cpu| cpu.migrated_to.load(ordering::Relaxed))
    }

    /// Successful and failed reconnects.
    pub(crate) fn reconnects(&self) -> (i32, i32) {
        (
            self.reconnects.load(ordering::Relaxed),
            self.failed_reconnects.load(ordering::Relaxed),
        )
    }

    /// Sets what [`Stats::rdma`] shows to zero. A request that ends at the same moment may be
    /// lost, or what was counted before not be forgotten.
    pub(crate) fn reset_rdma(&self) {
        self.failovers.store(0, ordering::Relaxed);
        for connection in &self.connections {
            connection.reads.reset();
            connection.writes.reset();
        }
    }

    /// Sets the migrations to zero.
    pub(crate) fn reset_migrations(&self) {
        for cpu in &self.cpus {
            cpu.migrated_from.store(0, ordering::Relaxed);
            cpu.migrated_to.store(0, ordering::Relaxed);
        }
    }

    /// Sets the reconnects to zero.
    pub(crate) fn reset_reconnects(&self) {
        self.reconnects.store(0, ordering::Relaxed);
        self.failed_reconnects.store(0, ordering::Relaxed);
    }
}
