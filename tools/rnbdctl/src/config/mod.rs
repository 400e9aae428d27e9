// SPDX-License-Identifier: GPL-2.0

//! The configuration file, `/etc/rnbd/rnbd.toml`: the sessions and devices that this machine shall
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

use crate::mirror::create::PlannedLeg;
use crate::mirror::MirrorName;
use crate::model::AccessMode;
use crate::model::Policy;
use crate::server_name::ServerName;

/// The default path of the file.
pub const DEFAULT_FILE: &str = "/etc/rnbd/rnbd.toml";

/// The default time in ms that requests wait while no path is up, for sessions that this program
/// makes: as long as with NVMe over fabrics. Other sessions have the module's default, which is the
/// same as with the C module.
pub const DEFAULT_HOLD_MS: i32 = 600_000;

/// The most paths of a session (`MAX_PATHS_NUM` of the C client).
pub const MAX_PATHS: usize = 128;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The sessions in the order of the file. No two have the same name.
    pub sessions: Vec<Session>,
    /// The mirrors in the order of the file. No two have the same name or a leg in common. Each leg
    /// is a device of a session of the file.
    pub mirrors: Vec<Mirror>,
}

/// A mirror over disks of several servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The mirror's name.
    pub name: MirrorName,
    /// Whether the legs are reserved for this machine.
    pub reserve: bool,
    /// The legs: at least two, no two alike.
    pub legs: Vec<PlannedLeg>,
}

/// A session with a server. Values that are `None` or missing are left as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's name, on client and server; valid for the kernel, and without white space.
    pub name: String,
    /// The paths that are given by addresses: at most [`MAX_PATHS`], no two alike. At least one
    /// path if there are no `hosts`.
    pub paths: Vec<PathAddress>,
    /// The servers that are given by host names, which have to be looked up.
    pub hosts: Vec<ServerName>,
    /// The paths that were found by looking `hosts` up. It is not a failure if some of them lead to
    /// another machine than the session's.
    pub found: Vec<PathAddress>,
    /// The server's port. It only matters when the session is made, since it cannot be read back.
    pub dest_port: Option<u16>,
    /// How the path of a request is chosen.
    pub policy: Option<Policy>,
    /// The number of polling queues of the session's only device; -1: as many as CPUs.
    pub nr_poll_queues: Option<i32>,
    /// The tunables of the session, by name; see [`crate::model::Settings`].
    pub settings: BTreeMap<&'static str, i32>,
    /// The devices: at least one, no two with the same path.
    pub devices: Vec<Device>,
}

/// A device of the server. A number that is `None` is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's path, as the server understands it.
    pub path: String,
    /// The access mode.
    pub access_mode: AccessMode,
    /// How the server reads and writes the disk; as the server's setting says if not given.
    pub io_mode: Option<IoMode>,
    /// The time that a request may be in flight, in ms; see [`proto::setting::IO_TIMEOUT`].
    pub io_timeout_ms: Option<i32>,
    /// The time that requests wait while no path is up, in ms; see
    /// [`proto::setting::HOLD_DISK_IO`].
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

/// Makes the name of a session that has no name in the file, from the server's name and the
/// session's purpose ([`crate::identity::purpose`]).
pub type Namer<'n> = &'n dyn Fn(&str, &str) -> String;

impl Session {
    /// Every path, including found paths.
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

    /// The number of devices of all sessions.
    pub fn device_count(&self) -> usize {
        self.sessions.iter().map(|s| s.devices.len()).sum()
    }
}

#[cfg(test)]
mod tests;
