// SPDX-License-Identifier: GPL-2.0

//! Counters of a path.

use kernel::prelude::*;
use kernel_ext::percpu::Counters;

/// The indices of the counters.
const READS: usize = 0;
const READ_BYTES: usize = 1;
const WRITES: usize = 2;
const WRITTEN_BYTES: usize = 3;

/// The requests of a path (C: `rtrs_srv_stats_rdma_stats`).
pub(crate) struct PathStats(Counters<4>);

/// Sums over all CPUs.
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl PathStats {
    /// Nothing counted. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Counters::new()?))
    }

    /// Counts a request whose data and header take `bytes` of the chunk. Any context.
    #[inline]
    pub(crate) fn count(&self, is_read: bool, bytes: u64) {
        let (count, total) = if is_read {
            (READS, READ_BYTES)
        } else {
            (WRITES, WRITTEN_BYTES)
        };
        self.0.add(count, 1);
        self.0.add(total, bytes);
    }

    /// What was counted so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            reads: self.0.sum(READS),
            read_bytes: self.0.sum(READ_BYTES),
            writes: self.0.sum(WRITES),
            written_bytes: self.0.sum(WRITTEN_BYTES),
        }
    }

    /// Begins at zero again.
    pub(crate) fn reset(&self) {
        self.0.reset();
    }
}
