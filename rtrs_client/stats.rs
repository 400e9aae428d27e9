// SPDX-License-Identifier: GPL-2.0

//! The statistics of a path (C: `rtrs-clt-stats.c`).
//!
//! Each counter of the IO path belongs to a connection, whose completions come one at a time, or to
//! a CPU.

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

/// The counters of a CPU: completions that were expected on it and came to another CPU, and
/// completions that came to it and were expected on another CPU.
#[repr(align(64))]
struct CpuStats {
    migrated_from: Atomic<u64>,
    migrated_to: Atomic<u64>,
}

/// The statistics of a path.
pub(crate) struct Stats {
    /// The requests that the server has responded to.
    traffic: Traffic,
    cpus: KVec<CpuStats>,
    failovers: Atomic<u64>,
    /// Begins at -1, so the first connect makes it 0.
    reconnects: Atomic<i32>,
    failed_reconnects: Atomic<i32>,
}

impl Stats {
    /// Makes statistics that are all zero, for a path of this many connections. Sleeps.
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

    /// Counts `request`, to which the server has responded. For the completion handler of its
    /// connection.
    #[inline(always)]
    pub(crate) fn responded(&self, request: &Request) {
        let bytes = request.data_len() as u64;
        let bytes = bytes.wrapping_add(u64::from(request.header_len()));
        let is_read = request.kind == Kind::Read;
        self.traffic
            .count(request.connection & !FLAGS, is_read, bytes);
    }

    /// Counts a completion that was expected on CPU `expected` and came to CPU `actual`. Any
    /// context.
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

    /// Counts a request that the path has taken over from a failed path.
    pub(crate) fn failed_over(&self) {
        self.failovers.add(1u64, ordering::Relaxed);
    }

    /// Counts a connect of the path.
    pub(crate) fn connected(&self) {
        self.reconnects.add(1, ordering::Relaxed);
    }

    /// Counts a failed attempt to connect the path again.
    pub(crate) fn reconnect_failed(&self) {
        self.failed_reconnects.add(1, ordering::Relaxed);
    }

    /// The requests that the server has responded to.
    pub(crate) fn totals(&self) -> Totals {
        self.traffic.totals()
    }

    /// The number of requests that were taken over from other paths.
    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(ordering::Relaxed)
    }

    /// For each CPU, the completions that were expected on it and came to another CPU.
    pub(crate) fn migrated_from(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus
            .iter()
            .map(|cpu| cpu.migrated_from.load(ordering::Relaxed))
    }

    /// For each CPU, the completions that came to it and were expected on another CPU.
    pub(crate) fn migrated_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.cpus
            .iter()
            .map(|cpu| cpu.migrated_to.load(ordering::Relaxed))
    }

    /// The numbers of successful and failed reconnects.
    pub(crate) fn reconnects(&self) -> (i32, i32) {
        (
            self.reconnects.load(ordering::Relaxed),
            self.failed_reconnects.load(ordering::Relaxed),
        )
    }

    /// Sets the numbers of [`Self::totals()`] and [`Self::failovers()`] to zero.
    pub(crate) fn reset_rdma(&self) {
        self.failovers.store(0, ordering::Relaxed);
        self.traffic.reset();
    }

    /// Sets the numbers of migrated completions to zero.
    pub(crate) fn reset_migrations(&self) {
        for cpu in &self.cpus {
            cpu.migrated_from.store(0, ordering::Relaxed);
            cpu.migrated_to.store(0, ordering::Relaxed);
        }
    }

    /// Sets the numbers of reconnects to zero.
    pub(crate) fn reset_reconnects(&self) {
        self.reconnects.store(0, ordering::Relaxed);
        self.failed_reconnects.store(0, ordering::Relaxed);
    }
}
