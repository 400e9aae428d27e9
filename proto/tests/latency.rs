// SPDX-License-Identifier: GPL-2.0

//! Histograms of the times of requests.

use proptest::prelude::*;
use proto::latency::{
    bucket,
    least_ns,
    Histogram,
    Kind,
    BUCKETS,
    MAX_TEXT, //
};

/// The text of a histogram, as the kernel writes it.
fn text(histogram: &Histogram, ns: u64) -> String {
    let mut text = format!("requests {}\nns {ns}\n", histogram.requests());
    for (least, count) in histogram.buckets().filter(|(_, count)| *count != 0) {
        text += &format!("{least} {count}\n");
    }
    text
}

fn of(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::EMPTY;
    times.iter().for_each(|ns| histogram.add(*ns));
    histogram
}

#[test]
fn buckets_follow_each_other() {
    assert_eq!(least_ns(0), 0);
    assert_eq!(least_ns(1), 1024);
    assert_eq!(least_ns(2), 1280);
    assert_eq!(least_ns(BUCKETS - 1), 1 << 36);
    for place in 1..BUCKETS {
        let least = least_ns(place);
        assert_eq!(bucket(least), place, "{least} begins bucket {place}");
        assert_eq!(
            bucket(least - 1),
            place - 1,
            "{least} - 1 is in the bucket before"
        );
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    assert_eq!(least_ns(usize::MAX), 1 << 36);
}

#[test]
fn kinds_have_their_places() {
    for (place, kind) in Kind::ALL.iter().enumerate() {
        assert_eq!(kind.index(), place);
    }
}

#[test]
fn nothing_has_no_mean() {
    assert_eq!(Histogram::EMPTY.mean_ns(), None);
    assert_eq!(Histogram::EMPTY.percentile_ns(5000), None);
    assert_eq!(Histogram::EMPTY.buckets().count(), 0);
}

#[test]
fn percentiles_are_the_ends_of_buckets() {
    // 90 requests of 2 us, 9 of 1 ms, one of 100 s.
    let mut times = vec![2_048; 90];
    times.extend([1_000_000; 9]);
    times.push(100_000_000_000);
    let histogram = of(&times);
    assert_eq!(histogram.percentile_ns(5000), Some(2_560));
    assert_eq!(histogram.percentile_ns(9000), Some(2_560));
    assert_eq!(histogram.percentile_ns(9001), Some(1 << 20));
    assert_eq!(histogram.percentile_ns(9900), Some(1 << 20));
    assert_eq!(histogram.percentile_ns(10_000), Some(1 << 36));
    assert_eq!(histogram.percentile_ns(u32::MAX), Some(1 << 36));
    assert_eq!(histogram.percentile_ns(0), Some(2_560));
}

#[test]
fn what_is_no_histogram_is_refused() {
    let good = "requests 3\nns 3400\n1024 2\n1280 1\n";
    assert!(Histogram::parse(good.as_bytes()).is_some());
    assert!(Histogram::parse(b"requests 0\nns 0\n").is_some());
    for bad in [
        "",
        "requests 0\n",
        "requests 0\nns 0",
        "requests 1\nns 0\n",
        "requests 2\nns 9\n1024 1\n",
        "requests 1\nns 9\n1025 1\n",
        "requests 1\nns 9\n1024\n",
        "requests 1\nns 9\n1024 x\n",
        "requests 1\nns 9\n1024 1\n\n",
        "ns 9\nrequests 0\n",
    ] {
        assert_eq!(Histogram::parse(bad.as_bytes()), None, "{bad:?}");
    }
}

#[test]
fn the_longest_text_fits() {
    let mut text = format!("requests {}\nns {}\n", u64::MAX, u64::MAX);
    for place in 0..BUCKETS {
        text += &format!("{} {}\n", least_ns(place), u64::MAX);
    }
    assert!(text.len() <= MAX_TEXT, "{} > {MAX_TEXT}", text.len());
}

proptest! {
    #[test]
    fn a_bucket_has_its_times(ns: u64) {
        let place = bucket(ns);
        prop_assert!(place < BUCKETS);
        prop_assert!(least_ns(place) <= ns);
        if place + 1 < BUCKETS {
            prop_assert!(ns < least_ns(place + 1));
        }
    }

    #[test]
    fn text_says_all(times in prop::collection::vec(0u64..1 << 40, 0..100)) {
        let histogram = of(&times);
        let ns: u64 = times.iter().sum();
        let read = Histogram::parse(text(&histogram, ns).as_bytes());
        prop_assert_eq!(read.as_ref(), Some(&histogram));
        prop_assert_eq!(histogram.mean_ns(), ns.checked_div(times.len() as u64));
    }

    #[test]
    fn differences_and_sums_fit(
        one in prop::collection::vec(any::<u64>(), 0..50),
        two in prop::collection::vec(any::<u64>(), 0..50),
    ) {
        let (before, more) = (of(&one), of(&two));
        let mut after = before.clone();
        after.merge(&more);
        prop_assert_eq!(after.requests(), (one.len() + two.len()) as u64);
        prop_assert_eq!(after.since(&before), more);
    }

    #[test]
    fn percentiles_do_not_lie(
        times in prop::collection::vec(0u64..1 << 35, 1..200),
        share in 1u32..=10_000,
    ) {
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let wanted = (sorted.len() * share as usize).div_ceil(10_000);
        let exact = sorted[wanted - 1];
        let shown = of(&times).percentile_ns(share).unwrap();
        prop_assert!(exact < shown);
        prop_assert!(shown <= (exact + exact / 4).max(1024) + 1, "{shown} for {exact}");
    }
}
