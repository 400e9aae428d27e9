// SPDX-License-Identifier: GPL-2.0

//! Where the time of requests goes.

use serde::Deserialize;
use serde::Serialize;

use super::Side;

/// What was measured, of both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The version of the JSON output.
    pub version: u32,
    /// For how long it was measured.
    pub seconds: u32,
    /// The devices: those that this machine has mapped, and those that it exports.
    pub devices: Vec<DeviceLatency>,
}

/// The requests of a device that came to an end meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLatency {
    /// The kernel's name: `rnbd0`, or `sda` of an exported one.
    pub name: String,
    /// This machine's end.
    pub side: Side,
    /// The session.
    pub session: String,
    /// The disk's path at the server, as it was mapped.
    pub device_path: String,
    /// Reads, writes, and other requests.
    pub kinds: Vec<KindLatency>,
}

/// The requests of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindLatency {
    /// `read`, `write` or `other`.
    pub kind: String,
    /// What the network took in the mean: the client's `remote` less the server's `whole`; `None`
    /// if only one end is known. Only of a client's device.
    pub network_mean_ns: Option<u64>,
    /// The stages, of which the last one is the whole.
    pub stages: Vec<StageLatency>,
}

/// A stage of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLatency {
    /// The name: of a client `wait`, `remote`, `whole`; of a server `queue`, `disk`, `response`,
    /// `whole`.
    pub stage: String,
    /// How many requests were counted.
    pub requests: u64,
    /// The mean; `None` without requests, as all that follow.
    pub mean_ns: Option<u64>,
    /// The times that so many requests of a hundred have not exceeded, up to a quarter too long.
    pub p50_ns: Option<u64>,
    /// See `p50_ns`.
    pub p90_ns: Option<u64>,
    /// See `p50_ns`.
    pub p99_ns: Option<u64>,
    /// See `p50_ns`: 99.9 of a hundred.
    pub p999_ns: Option<u64>,
    /// See `p50_ns`: all of them.
    pub max_ns: Option<u64>,
    /// From the first bucket with requests to the last.
    pub buckets: Vec<Bucket>,
}

/// How many requests took about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The least time of the bucket; the next one begins where it ends.
    pub least_ns: u64,
    /// How many requests it has.
    pub requests: u64,
}

impl KindLatency {
    /// A stage by its name.
    pub fn stage(&self, name: &str) -> Option<&StageLatency> {
        self.stages.iter().find(|stage| stage.stage == name)
    }

    /// How many requests there were, by the last stage.
    pub fn requests(&self) -> u64 {
        self.stages.last().map_or(0, |whole| whole.requests)
    }
}
