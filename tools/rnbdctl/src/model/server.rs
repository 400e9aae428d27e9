// SPDX-License-Identifier: GPL-2.0

//! The server's side: exported devices, and the sessions of clients.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::AccessMode;
use super::Path;

/// This machine as a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Server {
    /// Whether `rnbd_server` is loaded.
    pub loaded: bool,
    /// The devices that clients have mapped, by name.
    pub devices: Vec<ServerDevice>,
    /// The sessions of clients, by name.
    pub sessions: Vec<ServerSession>,
}

/// A block device that clients have mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerDevice {
    /// The kernel's name: `sda`.
    pub name: String,
    /// The sessions that have mapped the device, and how.
    pub exports: Vec<Export>,
}

/// A device in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Export {
    /// The session.
    pub session: String,
    /// The path that the client asked for.
    pub device_path: String,
    /// The access mode; `None` if the module says something unknown.
    pub access_mode: Option<AccessMode>,
    /// Its folder in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerSession {
    /// The name, which the client chose.
    pub name: String,
    /// The memory of the session's buffers; `None` with the C module.
    pub memory_bytes: Option<u64>,
    /// The part of that memory that is from the pool; `None` with the C module.
    pub pooled_memory_bytes: Option<u64>,
    /// Its paths, by name.
    pub paths: Vec<Path>,
    /// Its folder in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}
