// SPDX-License-Identifier: GPL-2.0

//! All counters at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::natural_cmp;
use crate::model::BlockStat;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Side;
use crate::Result;
use crate::System;

/// A mapped device; the same as long as it is not unmapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceKey {
    /// The kernel's name: `rnbd0`.
    pub name: String,
    /// The session that carries the device.
    pub session: String,
    /// The disk's path at the server.
    pub device_path: String,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathKey {
    /// This machine's end.
    pub side: Side,
    /// The session.
    pub session: String,
    /// The name of the path's folder.
    pub name: String,
}

impl Ord for DeviceKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        natural_cmp(&self.name, &other.name)
            .then_with(|| self.session.cmp(&other.session))
            .then_with(|| self.device_path.cmp(&other.device_path))
    }
}

impl PartialOrd for DeviceKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let side = |key: &Self| key.side == Side::Server;
        side(self)
            .cmp(&side(other))
            .then_with(|| natural_cmp(&self.session, &other.session))
            .then_with(|| natural_cmp(&self.name, &other.name))
    }
}

impl PartialOrd for PathKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The counters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSample {
    /// Whether the device works.
    pub state: DeviceState,
    /// The block layer's counters.
    pub stat: BlockStat,
}

/// The counters of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// Whether the path is up.
    pub state: PathState,
    /// The round trip of the last heartbeats in ns; only for a client's path.
    pub latency_ns: Option<u64>,
    /// The path's counters.
    pub stats: PathStats,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The time since a moment that is the same for all samples that are compared.
    pub at: Duration,
    /// The mapped devices.
    pub devices: BTreeMap<DeviceKey, DeviceSample>,
    /// The paths, the client's and then the server's.
    pub paths: BTreeMap<PathKey, PathSample>,
}

impl Sample {
    /// Reads all counters. Objects that vanish meanwhile are left out.
    pub fn take(system: &System, at: Duration) -> Result<Self> {
        let mut sample = Self {
            at,
            ..Self::default()
        };
        for device in system.client_devices()? {
            let Some(stat) = system.block_stat(&device.name)? else {
                continue;
            };
            let key = DeviceKey {
                name: device.name,
                session: device.session,
                device_path: device.device_path,
            };
            let state = device.state;
            sample.devices.insert(key, DeviceSample { state, stat });
        }
        for path in system.all_paths()? {
            let key = PathKey {
                side: path.side,
                session: path.session,
                name: path.name,
            };
            let counters = PathSample {
                state: path.state,
                latency_ns: path.latency_ns,
                stats: path.stats,
            };
            sample.paths.insert(key, counters);
        }
        Ok(sample)
    }
}
