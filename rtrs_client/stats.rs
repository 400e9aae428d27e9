// SPDX-License-Identifier: GPL-2.0

//! What a path counts (C: `rtrs-clt-stats.c`).
//!
//! The counters of the IO path are those of a connection, whose completions come one at a time, or
//! those of a CPU.

use kernel::sync::Arc;
use kernel_ext::{
    cpu,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use rtrs_core::traffic::{
    Totals,
    Traffic, //
};

use crate::requests::{
    request::{
        Kind,
        Request, //
    },
    tags::FLAGS, //
};

/// The counters of a CPU: completions that were to come to it, and completions that came to it
/// instead of another one.
#[repr(align(64))]
struct CpuStats {
    migrated_from: Atomic<u64>,
    migrated_to: Atomic<u64>,
}

/// What a path counts.
pub(crate) struct Stats {
    /// The requests that the server has responded to.
    traffic: Traffic,
    cpus: KVec<CpuStats>,
    failovers: Atomic<u64>,
    /// Begins at -1, so that the first connect makes it 0.
    reconnects: Atomic<i32>,
    failed_reconnects: Atomic<i32>,
}

impl Stats {
    /// All zero, for a path of this many connections. Sleeps.
    pub(crate) fn new(num_connections: usize) -> Result<Arc<Self>> {
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
            traffic: Traffic::new(num_connections)?,
            cpus,
            failovers: Atomic::new(0),
            reconnects: Atomic::new(-1),
            failed_reconnects: Atomic::new(0),
        };
        Ok(Arc::new(stats, GFP_KERNEL)?)
    }

    /// The number of connections.
    pub(crate) fn num_connections(&self) -> usize {
        self.traffic.num_connections()
    }

    /// The server has responded to `request`. For the completion handler of its connection.
    #[inline(always)]
    pub(crate) fn responded(&self, request: &Request) {
        let bytes = request.data_len() as u64;
        let bytes = bytes.wrapping_add(u64::from(request.header_len()));
        let is_read = request.kind == Kind::Read;
        self.traffic
            .count(request.connection & !FLAGS, is_read, bytes);
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

    /// The requests that the server has responded to.
    pub(crate) fn totals(&self) -> Totals {
        self.traffic.totals()
    }

    /// The requests that were taken over from other paths.
    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(ordering::Relaxed)
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

    /// Sets what [`Self::totals()`] and [`Self::failovers()`] show to zero.
    pub(crate) fn reset_rdma(&self) {
        self.failovers.store(0, ordering::Relaxed);
        self.traffic.reset();
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
