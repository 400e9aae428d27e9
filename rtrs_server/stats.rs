// SPDX-License-Identifier: GPL-2.0

//! Counters of a path.

use kernel::prelude::*;
use kernel_ext::percpu::{
    Counter,
    PerCpu, //
};

/// The requests of one direction.
#[derive(Default)]
struct Requests {
    count: Counter,
    bytes: Counter,
}

/// The requests that one CPU has taken.
#[derive(Default)]
struct CpuStats {
    reads: Requests,
    writes: Requests,
}

/// The requests of a path, per CPU (C: `rtrs_srv_stats_rdma_stats`).
pub(crate) struct PathStats {
    cpus: PerCpu<CpuStats>,
}

/// Sums over all CPUs.
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl PathStats {
    /// Nothing counted. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            cpus: PerCpu::new(CpuStats::default)?,
        })
    }

    /// Counts a request whose data and header take `bytes` of the chunk.
    #[inline]
    pub(crate) fn count(&self, is_read: bool, bytes: u64) {
        let stats = self.cpus.current();
        let requests = if is_read { &stats.reads } else { &stats.writes };
        requests.count.inc();
        requests.bytes.add(bytes);
    }

    /// What was counted so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            reads: self.cpus.sum(|stats| stats.reads.count.get()),
            read_bytes: self.cpus.sum(|stats| stats.reads.bytes.get()),
            writes: self.cpus.sum(|stats| stats.writes.count.get()),
            written_bytes: self.cpus.sum(|stats| stats.writes.bytes.get()),
        }
    }

    /// Begins at zero again.
    pub(crate) fn reset(&self) {
        for (_, stats) in self.cpus.iter() {
            for requests in [&stats.reads, &stats.writes] {
                requests.count.reset();
                requests.bytes.reset();
            }
        }
    }
}
