// SPDX-License-Identifier: GPL-2.0

//! What changes on this client: devices, sessions and paths.
//!
//! - [`diff`]: the changes between two moments, as plain data.
//! - [`wake`]: waits until something may have changed.

mod diff;
mod wake;

use serde::Serialize;

pub use diff::between;
pub use wake::Wake;

/// Something has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What has happened.
    pub event: What,
    /// The device that it happened to, if it is one: `rnbd0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The session of the device or the path, or the one that it happened to.
    pub session: String,
    /// The path of the device's disk at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The path that it happened to, if it is one: `SOURCE@DESTINATION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the state or the size was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Another part of a session's paths is up.
    SessionState,
    /// A path was added.
    PathAdded,
    /// A path was removed.
    PathRemoved,
    /// A path was connected or disconnected.
    PathState,
}
