// SPDX-License-Identifier: GPL-2.0

//! The rates between two samples.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::sample::DeviceKey;
use super::sample::DeviceSample;
use super::sample::PathKey;
use super::sample::PathSample;
use super::Sample;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::Side;

/// Requests and bytes per second. `None` if unknown: when a device is seen for the first time, and
/// when its counters were set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Flow {
    /// Reads per second.
    pub read_iops: Option<f64>,
    /// Writes per second.
    pub write_iops: Option<f64>,
    /// Bytes read per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written per second.
    pub write_bytes_per_s: Option<f64>,
}

impl Flow {
    /// Reads and writes per second.
    pub fn iops(&self) -> Option<f64> {
        Some(self.read_iops? + self.write_iops?)
    }

    /// Bytes read and written per second.
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.read_bytes_per_s? + self.write_bytes_per_s?)
    }
}

/// The rates of a device.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceRates {
    /// The kernel's name.
    pub name: String,
    /// The session that carries the device.
    pub session: String,
    /// The disk's path at the server.
    pub device_path: String,
    /// Whether the device works.
    pub state: DeviceState,
    /// Requests and bytes per second.
    #[serde(flatten)]
    pub flow: Flow,
    /// The mean time of a read, in ms; `None` without reads.
    pub read_ms: Option<f64>,
    /// The mean time of a write, in ms; `None` without writes.
    pub write_ms: Option<f64>,
    /// Requests in flight.
    pub inflight: u64,
    /// The part of the time during which requests were in flight, 0 to 1.
    pub busy: Option<f64>,
}

/// The rates of a path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PathRates {
    /// The path's name: `source@destination`.
    pub name: String,
    /// The session.
    pub session: String,
    /// This machine's end.
    pub side: Side,
    /// Whether the path is up.
    pub state: PathState,
    /// Requests and bytes per second.
    #[serde(flatten)]
    pub flow: Flow,
    /// Requests in flight, if the module counts them.
    pub inflight: Option<u64>,
    /// The round trip of the last heartbeats, in ns.
    pub latency_ns: Option<u64>,
    /// The number of times that the path was connected again, since it was made.
    pub reconnects: Option<u64>,
    /// The number of failed attempts to connect the path again.
    pub failed_reconnects: Option<u64>,
    /// The number of requests that came from a path that failed.
    pub failovers: Option<u64>,
}

/// The rates of all devices and paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Rates {
    /// The time over which rates were taken, in seconds.
    pub seconds: f64,
    /// The mapped devices.
    pub devices: Vec<DeviceRates>,
    /// The paths, the client's and then the server's.
    pub paths: Vec<PathRates>,
}

impl Rates {
    /// Compares a sample with an earlier sample. A device that only one sample has, or that was
    /// mapped again between them, has no rates.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let time = after.at.saturating_sub(before.at);
        let devices = after.devices.iter();
        let paths = after.paths.iter();
        Self {
            seconds: time.as_secs_f64(),
            devices: devices
                .map(|(key, now)| device(key, before.devices.get(key), now, time))
                .collect(),
            paths: paths
                .map(|(key, now)| path(key, before.paths.get(key), now, time))
                .collect(),
        }
    }

    /// The sum over all devices; unknown rates are left out.
    pub fn total(&self) -> Flow {
        let sum = |value: fn(&Flow) -> Option<f64>| {
            let known = self.devices.iter().filter_map(|device| value(&device.flow));
            Some(known.fold(0.0, |sum, value| sum + value))
        };
        Flow {
            read_iops: sum(|flow| flow.read_iops),
            write_iops: sum(|flow| flow.write_iops),
            read_bytes_per_s: sum(|flow| flow.read_bytes_per_s),
            write_bytes_per_s: sum(|flow| flow.write_bytes_per_s),
        }
    }
}

/// The increase of a counter; `None` if the counter was set back, or belongs to another device with
/// the same name.
fn grown(before: u64, after: u64) -> Option<u64> {
    after.checked_sub(before)
}

/// The increase of a time in ms. The kernel prints the times of disks with 32 bits. They wrap
/// around after 50 days, sooner with many requests at a time.
fn grown_ms(before: u64, after: u64) -> u64 {
    match after.checked_sub(before) {
        Some(grown) => grown,
        None => after.wrapping_sub(before) & u64::from(u32::MAX),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate needs no more than 15 digits"
)]
fn per_second(count: u64, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| count as f64 / seconds)
}

#[expect(clippy::cast_precision_loss, reason = "as above")]
fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// The increase of a device's or a path's counters between two samples.
#[derive(Clone, Copy)]
struct Grown {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Grown {
    fn flow(self, time: Duration) -> Flow {
        Flow {
            read_iops: per_second(self.reads, time),
            write_iops: per_second(self.writes, time),
            read_bytes_per_s: per_second(self.read_bytes, time),
            write_bytes_per_s: per_second(self.write_bytes, time),
        }
    }
}

fn device(
    key: &DeviceKey,
    before: Option<&DeviceSample>,
    now: &DeviceSample,
    time: Duration,
) -> DeviceRates {
    let mut rates = DeviceRates {
        name: key.name.clone(),
        session: key.session.clone(),
        device_path: key.device_path.clone(),
        state: now.state,
        flow: Flow::default(),
        read_ms: None,
        write_ms: None,
        inflight: now.stat.inflight,
        busy: None,
    };
    let after = &now.stat;
    let grown = before.map(|before| &before.stat).and_then(|before| {
        let grown = Grown {
            reads: grown(before.reads, after.reads)?,
            writes: grown(before.writes, after.writes)?,
            read_bytes: grown(before.read_bytes, after.read_bytes)?,
            write_bytes: grown(before.write_bytes, after.write_bytes)?,
        };
        Some((before, grown))
    });
    if let Some((before, grown)) = grown {
        rates.flow = grown.flow(time);
        rates.read_ms = mean(grown_ms(before.read_ms, after.read_ms), grown.reads);
        rates.write_ms = mean(grown_ms(before.write_ms, after.write_ms), grown.writes);
        let busy = per_second(grown_ms(before.busy_ms, after.busy_ms), time);
        rates.busy = busy.map(|ms| (ms / 1000.0).min(1.0));
    }
    rates
}

fn path(key: &PathKey, before: Option<&PathSample>, now: &PathSample, time: Duration) -> PathRates {
    let after = &now.stats;
    let grown = before.map(|before| &before.stats).and_then(|before| {
        Some(Grown {
            reads: grown(before.reads, after.reads)?,
            writes: grown(before.writes, after.writes)?,
            read_bytes: grown(before.read_bytes, after.read_bytes)?,
            write_bytes: grown(before.write_bytes, after.write_bytes)?,
        })
    });
    PathRates {
        name: key.name.clone(),
        session: key.session.clone(),
        side: key.side,
        state: now.state,
        flow: grown.map_or_else(Flow::default, |grown| grown.flow(time)),
        inflight: after.inflight,
        latency_ns: now.latency_ns,
        reconnects: after.reconnects,
        failed_reconnects: after.failed_reconnects,
        failovers: after.failovers,
    }
}
