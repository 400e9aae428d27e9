// SPDX-License-Identifier: GPL-2.0

//! What a path counts (C: `rtrs-clt-stats.c`).
//!
//! The counters of the IO path lie in one cache line for each connection, which only the CPU whose
//! requests the connection carries writes to.

use kernel::prelude::*;
use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

use crate::request::Kind;

/// The counters of one connection.
#[repr(align(64))]
struct ConnectionStats {
    reads: Atomic<u64>,
    read_bytes: Atomic<u64>,
    writes: Atomic<u64>,
    write_bytes: Atomic<u64>,
}

/// The counters of a CPU: completions that were to come to it, and completions that came to it
/// instead of another one.
#[repr(align(64))]
struct CpuStats {
    migrated_from: Atomic<u64>,
    migrated_to: Atomic<u64>,
}

/// The sums of [`Stats`] that the file `rdma` shows.
#[derive(Clone, Copy, Default)]
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
    /// All zero, for this many connections and possible CPUs. May sleep.
    pub(crate) fn new(num_connections: u16, num_cpus: u32) -> Result<Self> {
        let mut connections = KVec::with_capacity(usize::from(num_connections), GFP_KERNEL)?;
        for _ in 0..num_connections {
            connections.push(
                ConnectionStats {
                    reads: Atomic::new(0),
                    read_bytes: Atomic::new(0),
                    writes: Atomic::new(0),
                    write_bytes: Atomic::new(0),
                },
                GFP_KERNEL,
            )?;
        }
        let mut cpus = KVec::with_capacity(num_cpus as usize, GFP_KERNEL)?;
        for _ in 0..num_cpus {
            cpus.push(
                CpuStats {
                    migrated_from: Atomic::new(0),
                    migrated_to: Atomic::new(0),
                },
                GFP_KERNEL,
            )?;
        }
        Ok(Self {
            connections,
            cpus,
            failovers: Atomic::new(0),
            reconnects: Atomic::new(-1),
            failed_reconnects: Atomic::new(0),
        })
    }

    /// A request is being sent; `bytes` of header and data. Any context.
    #[inline]
    pub(crate) fn submitted(&self, connection: usize, kind: Kind, bytes: usize) {
        if let Some(stats) = self.connections.get(connection) {
            let (count, sum) = match kind {
                Kind::Read => (&stats.reads, &stats.read_bytes),
                Kind::Write | Kind::HeaderOnly => (&stats.writes, &stats.write_bytes),
            };
            count.add(1u64, ordering::Relaxed);
            sum.add(bytes as u64, ordering::Relaxed);
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
        let mut sums = RdmaSums {
            failovers: self.failovers.load(ordering::Relaxed),
            ..RdmaSums::default()
        };
        for stats in &self.connections {
            let add = |sum: &mut u64, counter: &Atomic<u64>| {
                *sum = sum.wrapping_add(counter.load(ordering::Relaxed));
            };
            add(&mut sums.reads, &stats.reads);
            add(&mut sums.read_bytes, &stats.read_bytes);
            add(&mut sums.writes, &stats.writes);
            add(&mut sums.write_bytes, &stats.write_bytes);
        }
        sums
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

    /// Sets what [`Stats::rdma`] shows to zero.
    pub(crate) fn reset_rdma(&self) {
        self.failovers.store(0, ordering::Relaxed);
        for stats in &self.connections {
            stats.reads.store(0, ordering::Relaxed);
            stats.read_bytes.store(0, ordering::Relaxed);
            stats.writes.store(0, ordering::Relaxed);
            stats.write_bytes.store(0, ordering::Relaxed);
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
