// SPDX-License-Identifier: GPL-2.0

//! Histograms as lines of text that fit into 80 columns.

use crate::model::Bucket;
use crate::model::StageLatency;
use crate::output::nanoseconds;

/// The length of the longest bar.
const BAR: u64 = 50;

/// A line for each doubling of the time: the least time, a bar, and the number of requests.
pub fn bars(stage: &StageLatency) -> Vec<String> {
    let rows = doublings(&stage.buckets);
    let most = rows.iter().map(|row| row.requests).max().unwrap_or(0);
    let line = |row: &Bucket| {
        let length = u128::from(row.requests)
            .saturating_mul(BAR.into())
            .checked_div(most.into())
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0);
        // A few requests have a bar, too.
        let length = length.max(usize::from(row.requests != 0));
        let bar = "#".repeat(length);
        let least = nanoseconds(row.least_ns);
        format!("  {least:>9}  {bar:<50}  {}", row.requests)
    };
    rows.iter().map(line).collect()
}

/// Joins buckets, so that each begins at twice the time of the bucket before.
fn doublings(buckets: &[Bucket]) -> Vec<Bucket> {
    let mut rows: Vec<Bucket> = Vec::new();
    for bucket in buckets {
        let least_ns = match bucket.least_ns.checked_ilog2() {
            Some(octave) => 1u64.checked_shl(octave).unwrap_or(0),
            None => 0,
        };
        match rows.last_mut() {
            Some(row) if row.least_ns == least_ns => {
                row.requests = row.requests.saturating_add(bucket.requests);
            }
            _ => rows.push(Bucket {
                least_ns,
                requests: bucket.requests,
            }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(buckets: &[(u64, u64)]) -> StageLatency {
        let buckets = buckets
            .iter()
            .map(|&(least_ns, requests)| Bucket { least_ns, requests });
        StageLatency {
            stage: "whole".to_owned(),
            requests: 0,
            mean_ns: None,
            p50_ns: None,
            p90_ns: None,
            p99_ns: None,
            p999_ns: None,
            max_ns: None,
            buckets: buckets.collect(),
        }
    }

    #[test]
    fn four_buckets_are_a_line() {
        let lines = bars(&stage(&[
            (1024, 10),
            (1280, 20),
            (1536, 0),
            (1792, 20),
            (2048, 0),
            (2560, 0),
            (3072, 0),
            (3584, 0),
            (4096, 1),
        ]));
        let full = "#".repeat(50);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], format!("       1 us  {full}  50"));
        assert_eq!(lines[1].trim_end(), format!("       2 us  {:50}  0", ""));
        assert_eq!(lines[2].trim_end(), format!("       4 us  {:50}  1", "#"));
    }

    #[test]
    fn lines_fit_into_80_columns() {
        let lines = bars(&stage(&[(0, 1), (1 << 36, 999_999_999_999)]));
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    }

    #[test]
    fn nothing_has_no_line() {
        assert!(bars(&stage(&[])).is_empty());
    }
}
