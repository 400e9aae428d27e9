// SPDX-License-Identifier: GPL-2.0

//! Changes on this client: devices, sessions, paths and mirrors.
//!
//! - [`diff`]: the changes between two moments, as plain data.
//! - [`mirrors`]: the changes of mirrors between two moments.
//! - [`wake`]: waits until something may have changed.

mod diff;
mod mirrors;
mod wake;

use schemars::JsonSchema;
use serde::Serialize;

pub use diff::between;
pub use mirrors::between as between_mirrors;
pub use wake::Wake;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Event {
    /// The kind of the change.
    pub event: What,
    /// The device, for an event of a device or of a leg: `rnbd0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The mirror, for an event of a mirror or of a leg.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The session, or the session of the device, the path or the leg; `None` for an event of a
    /// mirror as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The path of the device's or the leg's disk at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The path, for an event of a path: `SOURCE@DESTINATION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The old state, the old size in bytes, or the percentage that was copied before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The new state, the new size in bytes, or the percentage that is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "EventKind")]
pub enum What {
    /// A device was mapped.
    DeviceMapped,
    /// A device was unmapped.
    DeviceUnmapped,
    /// A device has another state.
    DeviceState,
    /// A device has another size, in bytes.
    DeviceSize,
    /// A session was made.
    SessionMade,
    /// A session has ended.
    SessionEnded,
    /// The number of a session's paths that are up has changed between none, some and all.
    SessionState,
    /// A path was added.
    PathAdded,
    /// A path was removed.
    PathRemoved,
    /// A path was connected or disconnected.
    PathState,
    /// A mirror changed its state (whole, recovering, degraded, broken, stopped), or was made or
    /// removed.
    MirrorState,
    /// md has copied another tenth of the data that it copies in a mirror.
    MirrorProgress,
    /// A leg of a mirror changed its state.
    MirrorLeg,
}
