// SPDX-License-Identifier: GPL-2.0

//! How long requests take: histograms, as the kernel counts them and as `rnbdctl latency` reads
//! them.
//!
//! A histogram has [`BUCKETS`] buckets, four for each power of two from a microsecond on. So a time
//! is known to a quarter of its size or better. The kernel shows each histogram as a file:
//!
//! ```text
//! requests 3
//! ns 3400
//! 1024 2
//! 1280 1
//! ```
//!
//! The first line has the number of requests, the second the sum of their times. Each further line
//! is a bucket with requests: its least time in ns and the number of its requests. All numbers only
//! grow, modulo 2^64. So several programs can read the same file, and each takes the difference of
//! two reads.

use crate::number::{
    self,
    Base, //
};

/// Times below two to this power of ns are in the first bucket.
const FIRST_OCTAVE: u32 = 10;
/// Times from two to this power of ns on are in the last bucket.
const LAST_OCTAVE: u32 = 36;
/// The number of buckets for each power of two, and its logarithm.
const PER_OCTAVE: usize = 1 << PER_OCTAVE_SHIFT;
const PER_OCTAVE_SHIFT: u32 = 2;

/// The number of buckets.
pub const BUCKETS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * PER_OCTAVE + 2;

/// The length of the longest line of a bucket in bytes: the largest least time, the longest number,
/// a space and a newline.
const MAX_LINE: usize = "68719476736 18446744073709551615\n".len();
/// The length of the longest text of a histogram in bytes.
pub const MAX_TEXT: usize =
    "requests 18446744073709551615\nns 18446744073709551615\n".len() + BUCKETS * MAX_LINE;

// A file in sysfs has a page, less the byte that ends it.
const _: () = assert!(MAX_TEXT < 4096);

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Any other request: a flush, a discard, or a write of zeroes.
    Other,
}

impl Kind {
    /// All kinds, in the order of [`Self::index`].
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// The index in [`Self::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Other => 2,
        }
    }

    /// The name, which is the first part of the files' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// The stages of a request on a client, which are the last part of the files' names: until the
/// driver sends the request, from then until the response, and both together.
pub const CLIENT_STAGES: [&str; 3] = ["wait", "remote", "whole"];

/// The stages of a request on a server: until the request is given to the disk, in the disk, from
/// then until the response is sent, and all together.
pub const SERVER_STAGES: [&str; 4] = ["queue", "disk", "response", "whole"];

/// The bucket of a time: less than [`BUCKETS`].
#[inline]
pub fn bucket(ns: u64) -> usize {
    let octave = ns.checked_ilog2();
    let Some(above) = octave.and_then(|octave| octave.checked_sub(FIRST_OCTAVE)) else {
        return 0;
    };
    // The bits behind the first 1 bit. All numbers are small, so nothing wraps around.
    let shift = above.wrapping_add(FIRST_OCTAVE - PER_OCTAVE_SHIFT);
    let part = ns.wrapping_shr(shift) as usize & (PER_OCTAVE - 1);
    let whole = (above as usize).wrapping_mul(PER_OCTAVE);
    whole.wrapping_add(part).wrapping_add(1).min(BUCKETS - 1)
}

/// The least time of a bucket in ns. A number beyond the last bucket counts as the last bucket.
pub fn least_ns(bucket: usize) -> u64 {
    let Some(place) = bucket.min(BUCKETS - 1).checked_sub(1) else {
        return 0;
    };
    let (octave, part) = (place / PER_OCTAVE, place % PER_OCTAVE);
    // The result is at most two to the power of `LAST_OCTAVE`.
    let bits = PER_OCTAVE.wrapping_add(part) as u64;
    bits.wrapping_shl((octave as u32).wrapping_add(FIRST_OCTAVE - PER_OCTAVE_SHIFT))
}

/// A histogram of times.
///
/// Only programs use it. Its functions are inlined, so they are not in the modules, which do not
/// use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Histogram {
    /// No requests.
    pub const EMPTY: Self = Self {
        counts: [0; BUCKETS],
        ns: 0,
    };

    /// Parses the text of a file; `None` if the text is not a histogram.
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        let number = |digits| number::parse_u64(digits, Base::Decimal).ok();
        let requests = number(lines.next()?.strip_prefix(b"requests ")?)?;
        let mut histogram = Self {
            ns: number(lines.next()?.strip_prefix(b"ns ")?)?,
            ..Self::EMPTY
        };
        for line in lines {
            let space = line.iter().position(|byte| *byte == b' ')?;
            let (least, count) = line.split_at_checked(space)?;
            let least = number(least)?;
            let place = bucket(least);
            if least_ns(place) != least {
                return None;
            }
            let counted = histogram.counts.get_mut(place)?;
            *counted = counted.wrapping_add(number(count.strip_prefix(b" ")?)?);
        }
        (histogram.requests() == requests).then_some(histogram)
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count = count.wrapping_add(1);
        }
        self.ns = self.ns.wrapping_add(ns);
    }

    /// Adds the requests of `other`.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.wrapping_add(*more);
        }
        self.ns = self.ns.wrapping_add(other.ns);
    }

    /// The requests since `before`, an earlier look at the same histogram.
    #[inline]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (count, less) in since.counts.iter_mut().zip(&before.counts) {
            *count = count.wrapping_sub(*less);
        }
        since.ns = since.ns.wrapping_sub(before.ns);
        since
    }

    /// The number of requests.
    #[inline]
    pub fn requests(&self) -> u64 {
        self.counts
            .iter()
            .fold(0u64, |sum, count| sum.wrapping_add(*count))
    }

    /// The mean in ns, rounded down; `None` without requests.
    #[inline]
    pub fn mean_ns(&self) -> Option<u64> {
        self.ns.checked_div(self.requests())
    }

    /// The time in ns that `per_ten_thousand` of the requests have not exceeded. It is the end of a
    /// bucket, so up to a quarter too long. `None` without requests.
    ///
    /// 5000 is the median, 9990 is p99.9. More than 10000 counts as 10000, the longest time. The
    /// last bucket has no end; its beginning stands for it.
    #[inline]
    pub fn percentile_ns(&self, per_ten_thousand: u32) -> Option<u64> {
        let share = u128::from(per_ten_thousand.min(10_000));
        let wanted = u128::from(self.requests()).checked_mul(share)?;
        let wanted = wanted.div_ceil(10_000).max(1);
        let mut seen = 0u128;
        let place = self.counts.iter().position(|count| {
            seen = seen.wrapping_add(u128::from(*count));
            seen >= wanted
        })?;
        Some(least_ns(place.wrapping_add(1)))
    }

    /// The buckets from the first to the last bucket that has requests: the least time in ns and
    /// the number of requests of each.
    #[inline]
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let has = |count: &u64| *count != 0;
        let first = self.counts.iter().position(has);
        let last = self.counts.iter().rposition(has);
        let numbered = self.counts.iter().enumerate();
        numbered
            .filter(move |(place, _)| first <= Some(*place) && Some(*place) <= last)
            .map(|(place, count)| (least_ns(place), *count))
    }
}
