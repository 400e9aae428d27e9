// SPDX-License-Identifier: GPL-2.0

//! What a path counts (C: `rtrs-clt-stats.c`).
//!
//! The counters of the IO path are those of a CPU, which alone writes to them.

use kernel::prelude::*;
use kernel_ext::{
    percpu::Counters,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

use crate::requests::request::{
    Kind,
    Request, //
};

/// What is counted of requests that are sent, by CPU: the number of each kind, then its bytes.
mod sent {
    pub(super) const READS: usize = 0;
    pub(super) const READ_BYTES: usize = 1;
    pub(super) const WRITES: usize = 2;
    pub(super) const WRITE_BYTES: usize = 3;
    pub(super) const COUNT: usize = 4;
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
    sent: Counters<{ sent::COUNT }>,
    cpus: KVec<CpuStats>,
    failovers: Atomic<u64>,
    /// Begins at -1, so that the first connect makes it 0.
    reconnects: Atomic<i32>,
    failed_reconnects: Atomic<i32>,
}

impl Stats {
    /// All zero, for this many possible CPUs. May sleep.
    pub(crate) fn new(num_cpus: u32) -> Result<Self> {
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
            sent: Counters::new()?,
            cpus,
            failovers: Atomic::new(0),
            reconnects: Atomic::new(-1),
            failed_reconnects: Atomic::new(0),
        })
    }

    /// A request is being sent. Any context.
    #[inline(always)]
    pub(crate) fn submitted(&self, request: &Request) {
        let bytes = request.data_len() as u64;
        let bytes = bytes.wrapping_add(u64::from(request.header_len()));
        match request.kind {
            Kind::Read => self.sent.add_two(sent::READS, 1, bytes),
            Kind::Write | Kind::HeaderOnly => self.sent.add_two(sent::WRITES, 1, bytes),
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

    /// The sums over all CPUs.
    pub(crate) fn rdma(&self) -> RdmaSums {
        RdmaSums {
            reads: self.sent.sum(sent::READS),
            read_bytes: self.sent.sum(sent::READ_BYTES),
            writes: self.sent.sum(sent::WRITES),
            write_bytes: self.sent.sum(sent::WRITE_BYTES),
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

    /// Sets what [`Stats::rdma`] shows to zero.
    pub(crate) fn reset_rdma(&self) {
        self.failovers.store(0, ordering::Relaxed);
        self.sent.reset();
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
