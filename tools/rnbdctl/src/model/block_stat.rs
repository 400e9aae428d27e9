// SPDX-License-Identifier: GPL-2.0

//! The block layer's counters of a disk (Documentation/block/stat.rst of the kernel).

use schemars::JsonSchema;
use serde::Serialize;

/// The counters in `/sys/block/<disk>/stat` since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlockStat {
    /// Completed reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// The sum of the times that reads took, in ms.
    pub read_ms: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// The sum of the times that writes took, in ms.
    pub write_ms: u64,
    /// Requests in flight.
    pub inflight: u64,
    /// The time with requests in flight, in ms.
    pub busy_ms: u64,
    /// Completed discards.
    pub discards: u64,
    /// Completed flushes.
    pub flushes: u64,
}

impl BlockStat {
    /// Parses the file; `None` if it does not have at least eleven numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let bytes = |sectors: u64| sectors.saturating_mul(512);
        let (first, rest) = numbers.split_first_chunk::<11>()?;
        let [reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, ..] = *first;
        let [.., inflight, busy_ms, _] = *first;
        Some(Self {
            reads,
            read_bytes: bytes(read_sectors),
            read_ms,
            writes,
            write_bytes: bytes(write_sectors),
            write_ms,
            inflight,
            busy_ms,
            discards: rest.first().copied().unwrap_or(0),
            flushes: rest.get(4).copied().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_disk() {
        let stat = BlockStat::parse("  10 0 80 5  20 1 160 7  3 9 12  4 0 32 1  6 2\n").unwrap();
        assert_eq!((stat.reads, stat.read_bytes, stat.read_ms), (10, 40960, 5));
        assert_eq!(
            (stat.writes, stat.write_bytes, stat.write_ms),
            (20, 81920, 7)
        );
        assert_eq!(
            (stat.inflight, stat.busy_ms, stat.discards, stat.flushes),
            (3, 9, 4, 6)
        );
    }

    #[test]
    fn short_or_wrong_is_nothing() {
        assert_eq!(BlockStat::parse("1 2 3 4 5 6 7 8 9 10"), None);
        assert_eq!(BlockStat::parse("1 2 3 4 5 6 x 8 9 10 11"), None);
        let huge = BlockStat::parse("0 0 18446744073709551615 0 0 0 0 0 0 0 0").unwrap();
        assert_eq!(huge.read_bytes, u64::MAX);
    }
}
