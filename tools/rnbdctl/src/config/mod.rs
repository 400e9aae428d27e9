// SPDX-License-Identifier: GPL-2.0

//! The configuration file, `/etc/rnbd/rnbd.toml`: which sessions and devices this machine shall
//! have.
//!
//! Nothing here looks at the machine; see [`crate::apply`] for that.

mod error;
pub mod keys;
mod parse;
pub mod running;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proto::addr::PathAddress;
use proto::rnbd::IoMode;
use proto::setting::Setting;
use proto::setting::HOLD_DISK_IO;
use proto::setting::IO_TIMEOUT;

pub use error::ConfigError;
pub use error::ConfigErrors;
pub use parse::parse;
pub use write::to_toml;

use crate::model::AccessMode;
use crate::model::Policy;
use crate::server_name::ServerName;

/// Where the file is if nobody says otherwise.
pub const DEFAULT_FILE: &str = "/etc/rnbd/rnbd.toml";

/// How long the requests of a session that this program makes wait while no path is up, in ms, if
/// the user does not say: as long as those of NVMe over fabrics. Sessions that are made without
/// this program have the module's default, as with the C module.
pub const DEFAULT_HOLD_MS: i32 = 600_000;

/// The most paths of a session (`MAX_PATHS_NUM` of the C client).
pub const MAX_PATHS: usize = 128;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// In the order of the file; no two have the same name.
    pub sessions: Vec<Session>,
}

/// A session with a server. What is `None` or not there is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name, on client and server; valid for the kernel, and without white space.
    pub name: String,
    /// The paths that are given by addresses: at most [`MAX_PATHS`], no two alike. At least one if
    /// there are no `hosts`.
    pub paths: Vec<PathAddress>,
    /// The servers that are given by host names, which have to be looked up.
    pub hosts: Vec<ServerName>,
    /// The paths that were found when `hosts` were looked up. Those that lead to another machine
    /// than the session's are no failure.
    pub found: Vec<PathAddress>,
    /// The server's port. It cannot be read back, so it matters only when the session is made.
    pub dest_port: Option<u16>,
    /// Which path a request takes.
    pub policy: Option<Policy>,
    /// Polling queues of the session's only device; -1: as many as CPUs.
    pub nr_poll_queues: Option<i32>,
    /// Numbers that are files of the session, by name; see [`crate::model::Settings`].
    pub settings: BTreeMap<&'static str, i32>,
    /// At least one, no two with the same path.
    pub devices: Vec<Device>,
}

/// A device of the server. A number that is `None` is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its path as the server understands it.
    pub path: String,
    /// What may be done with it.
    pub access_mode: AccessMode,
    /// How the server reads and writes the disk; as the server is set if not given.
    pub io_mode: Option<IoMode>,
    /// How long a request may be in flight, in ms; see [`proto::setting::IO_TIMEOUT`].
    pub io_timeout_ms: Option<i32>,
    /// How long requests wait while no path is up, in ms; see [`proto::setting::HOLD_DISK_IO`].
    pub hold_io_ms: Option<i32>,
}

impl Device {
    /// The tunables of a device, with the values that it shall have.
    pub fn tunables(&self) -> [(Setting, Option<i32>); 2] {
        [
            (IO_TIMEOUT, self.io_timeout_ms),
            (HOLD_DISK_IO, self.hold_io_ms),
        ]
    }
}

/// Gives the name of a session whose name the file leaves out: by the server's name, and by what
/// tells it apart from other sessions with that server ([`crate::identity::purpose`]).
pub type Namer<'n> = &'n dyn Fn(&str, &str) -> String;

impl Session {
    /// Every path, those that were found included.
    pub fn all_paths(&self) -> impl Iterator<Item = &PathAddress> {
        self.paths.iter().chain(&self.found)
    }
}

impl Config {
    /// Reads and checks a file; an error names file, line and key. `namer` names sessions.
    pub fn load(file: &Path, namer: Namer<'_>) -> Result<Self, ConfigErrors> {
        let shown = file.display().to_string();
        let text = fs::read(file).map_err(|error| ConfigErrors::unreadable(&shown, &error))?;
        let text = String::from_utf8(text).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = error.as_bytes().get(..valid).unwrap_or(&[]);
            ConfigErrors::not_utf8(&shown, before)
        })?;
        parse(&shown, &text, namer)
    }

    /// How many devices all sessions have together.
    pub fn device_count(&self) -> usize {
        self.sessions.iter().map(|s| s.devices.len()).sum()
    }
}

#[cfg(test)]
mod tests;
