// SPDX-License-Identifier: GPL-2.0

//! The stages in which requests spend their time.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use super::Side;
use super::Version;

/// The measurements, of both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The version of the JSON output. It changes when a field is removed or changes its meaning,
    /// not when a field is added.
    pub version: Version,
    /// The time of the measurement, in seconds.
    pub seconds: u32,
    /// The devices that this machine has mapped, and those that it exports.
    pub devices: Vec<DeviceLatency>,
}

/// The requests of a device that ended during the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceLatency {
    /// The kernel's name: `rnbd0`, or `sda` for an exported device.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindLatency {
    /// `read`, `write` or `other`.
    #[schemars(extend("enum" = ["read", "write", "other"]))]
    pub kind: String,
    /// The mean time of the network: the client's `remote` less the server's `whole`. `None` if
    /// only one end is known. Only for a client's device.
    pub network_mean_ns: Option<u64>,
    /// The stages. The last stage is the whole time.
    pub stages: Vec<StageLatency>,
}

/// A stage of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageLatency {
    /// The name: at a client `wait`, `remote`, `whole`; at a server `queue`, `disk`, `response`,
    /// `whole`.
    #[schemars(extend("enum" = ["wait", "remote", "queue", "disk", "response", "whole"]))]
    pub stage: String,
    /// The number of requests.
    pub requests: u64,
    /// The mean; `None` without requests, as the times below.
    pub mean_ns: Option<u64>,
    /// The time that 50 % of the requests have not exceeded, up to a quarter too long.
    pub p50_ns: Option<u64>,
    /// See `p50_ns`: 90 %.
    pub p90_ns: Option<u64>,
    /// See `p50_ns`: 99 %.
    pub p99_ns: Option<u64>,
    /// See `p50_ns`: 99.9 %.
    pub p999_ns: Option<u64>,
    /// See `p50_ns`: all requests.
    pub max_ns: Option<u64>,
    /// The buckets from the first to the last bucket with requests.
    pub buckets: Vec<Bucket>,
}

/// The number of requests that took about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// The least time of the bucket. The bucket ends where the next bucket begins.
    pub least_ns: u64,
    /// The number of requests.
    pub requests: u64,
}

impl KindLatency {
    /// A stage by its name.
    pub fn stage(&self, name: &str) -> Option<&StageLatency> {
        self.stages.iter().find(|stage| stage.stage == name)
    }

    /// The number of requests in the last stage.
    pub fn requests(&self) -> u64 {
        self.stages.last().map_or(0, |whole| whole.requests)
    }
}
