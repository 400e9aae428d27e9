// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::history::sparkline;
use super::history::Key;
use super::history::LENGTH;
use super::sample::DeviceKey;
use super::sample::DeviceSample;
use super::sample::PathKey;
use super::sample::PathSample;
use super::*;
use crate::model::BlockStat;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Side;

fn key(device_path: &str) -> DeviceKey {
    DeviceKey {
        name: "rnbd0".into(),
        session: "s".into(),
        device_path: device_path.into(),
    }
}

fn at(seconds: u64, device_path: &str, stat: BlockStat) -> Sample {
    let state = DeviceState::Open;
    Sample {
        at: Duration::from_secs(seconds),
        devices: [(key(device_path), DeviceSample { state, stat })].into(),
        ..Sample::default()
    }
}

fn only(rates: &Rates) -> &DeviceRates {
    assert_eq!(rates.devices.len(), 1);
    &rates.devices[0]
}

const BUSY: BlockStat = BlockStat {
    reads: 1000,
    read_bytes: 4_096_000,
    read_ms: 500,
    writes: 100,
    write_bytes: 1 << 20,
    write_ms: 4_294_967_000,
    inflight: 7,
    busy_ms: 4_294_967_290,
    discards: 0,
    flushes: 0,
};

#[test]
fn rates_are_per_second() {
    let mut later = BUSY;
    later.reads += 400;
    later.read_bytes += 4096 * 400;
    later.read_ms += 100;
    later.busy_ms = BUSY.busy_ms + 1;
    let rates = Rates::between(&at(10, "d", BUSY), &at(12, "d", later));
    assert_eq!(rates.seconds, 2.0);
    let device = only(&rates);
    assert_eq!(device.flow.read_iops, Some(200.0));
    assert_eq!(device.flow.read_bytes_per_s, Some(819_200.0));
    assert_eq!(device.flow.write_iops, Some(0.0));
    assert_eq!((device.read_ms, device.write_ms), (Some(0.25), None));
    assert_eq!(device.inflight, 7);
    assert_eq!(device.busy, Some(0.0005));
    assert_eq!(rates.total().iops(), Some(200.0));
}

#[test]
fn times_of_32_bits_wrap() {
    let mut later = BUSY;
    later.writes += 10;
    later.write_ms = 96 + 204;
    later.busy_ms = 494;
    let rates = Rates::between(&at(0, "d", BUSY), &at(1, "d", later));
    let device = only(&rates);
    assert_eq!(device.write_ms, Some(59.6));
    assert_eq!(device.busy, Some(0.5));
}

#[test]
fn counters_that_were_set_back_say_nothing_once() {
    let reset = BlockStat {
        reads: 5,
        ..BlockStat::default()
    };
    let rates = Rates::between(&at(0, "d", BUSY), &at(1, "d", reset));
    let device = only(&rates);
    assert_eq!(
        (device.flow.iops(), device.read_ms, device.busy),
        (None, None, None)
    );
    assert_eq!(rates.total().iops(), Some(0.0));
    let next = BlockStat { reads: 8, ..reset };
    let rates = Rates::between(&at(1, "d", reset), &at(2, "d", next));
    assert_eq!(only(&rates).flow.read_iops, Some(3.0));
}

#[test]
fn a_device_that_vanishes_and_returns() {
    let nothing = Sample {
        at: Duration::from_secs(1),
        ..Sample::default()
    };
    let mut history = History::default();
    let device = Key::Device("rnbd0".into(), "s".into());
    let mut more = BUSY;
    more.reads += 100;
    let samples = [
        at(0, "d", BUSY),
        nothing,
        at(2, "d", more),
        at(3, "d", more),
    ];
    let mut seen = Vec::new();
    for pair in samples.windows(2) {
        let rates = Rates::between(&pair[0], &pair[1]);
        history.push(&rates);
        seen.push((
            rates.devices.first().map(|d| d.flow.iops()),
            history.get(&device).is_some(),
        ));
    }
    assert_eq!(
        seen,
        [(None, false), (Some(None), true), (Some(Some(0.0)), true)]
    );
}

#[test]
fn another_device_of_the_same_name_is_another() {
    let mut more = BUSY;
    more.reads += 1_000_000;
    let rates = Rates::between(&at(0, "old", BUSY), &at(1, "new", more));
    assert_eq!(only(&rates).flow.iops(), None);
}

#[test]
fn no_time_between_samples_is_no_rate() {
    let rates = Rates::between(&at(5, "d", BUSY), &at(5, "d", BUSY));
    assert_eq!(only(&rates).flow.iops(), None);
    // A clock that goes backwards would be a bug elsewhere, but must not show as a number.
    let rates = Rates::between(&at(5, "d", BUSY), &at(4, "d", BUSY));
    assert_eq!(only(&rates).flow.iops(), None);
}

#[test]
fn paths() {
    let key = PathKey {
        side: Side::Client,
        session: "s".into(),
        name: "ip:10.0.0.1@ip:10.0.0.2".into(),
    };
    let sample = |seconds, rdma: &str, reconnects: &str| {
        let counters = PathSample {
            state: PathState::Connected,
            latency_ns: Some(1500),
            stats: PathStats::parse(rdma, reconnects),
        };
        Sample {
            at: Duration::from_secs(seconds),
            paths: [(key.clone(), counters)].into(),
            ..Sample::default()
        }
    };
    let rates = Rates::between(
        &sample(0, "1 4096 2 8192 3 4", "-1 0"),
        &sample(4, "9 36864 2 8192 1 5", "-1 2"),
    );
    let path = &rates.paths[0];
    assert_eq!(
        (path.flow.read_iops, path.flow.write_iops),
        (Some(2.0), Some(0.0))
    );
    assert_eq!(path.flow.read_bytes_per_s, Some(8192.0));
    assert_eq!((path.inflight, path.failovers), (Some(1), Some(5)));
    assert_eq!(
        (path.reconnects, path.failed_reconnects),
        (Some(0), Some(2))
    );
}

#[test]
fn lines_of_bars() {
    assert_eq!(sparkline(&VecDeque::from([0, 1, 35, 70]), 6), "   ▁▄█");
    assert_eq!(sparkline(&VecDeque::from([9, 9, 0, 1]), 2), " █");
    assert_eq!(
        sparkline(&VecDeque::from([u64::MAX, u64::MAX / 2]), 2),
        "█▄"
    );
    assert_eq!(sparkline(&VecDeque::new(), 3), "   ");
}

#[test]
fn history_is_bounded() {
    let mut history = History::default();
    for _ in 0..LENGTH + 10 {
        history.push(&Rates::default());
    }
    assert_eq!(history.get(&Key::Total).unwrap().iops.len(), LENGTH);
}

fn any_stat() -> impl Strategy<Value = BlockStat> {
    proptest::collection::vec(any::<u64>(), 17).prop_map(|numbers| {
        let text: Vec<_> = numbers.iter().map(ToString::to_string).collect();
        BlockStat::parse(&text.join(" ")).unwrap()
    })
}

proptest! {
    #[test]
    fn rates_are_never_negative(before in any_stat(), after in any_stat(), time in 0u64..10) {
        let rates = Rates::between(&at(0, "d", before), &at(time, "d", after));
        let device = only(&rates);
        let flow = [device.flow.iops(), device.flow.bytes_per_s()];
        let times = [device.read_ms, device.write_ms, device.busy];
        for number in flow.into_iter().chain(times).flatten() {
            prop_assert!(number.is_finite() && number >= 0.0, "{device:?}");
        }
        prop_assert!(device.busy.unwrap_or(0.0) <= 1.0);
        let mut history = History::default();
        history.push(&rates);
    }
}
