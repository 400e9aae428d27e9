// SPDX-License-Identifier: GPL-2.0

//! The client's side: mapped devices, and the sessions that carry them.

use std::path::PathBuf;

use clap::ValueEnum;
use proto::rnbd::IoMode;
use proto::setting;
use proto::setting::Setting;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use super::Path;
use super::Settings;

/// This machine as a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Client {
    /// Whether `rnbd_client` is loaded.
    pub loaded: bool,
    /// The mapped devices, by name.
    pub devices: Vec<ClientDevice>,
    /// The sessions of `rtrs_client`, by name.
    pub sessions: Vec<ClientSession>,
}

/// A `/dev/rnbd<N>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientDevice {
    /// The kernel's name: `rnbd0`.
    pub name: String,
    /// The device node: `/dev/rnbd0`.
    pub path: String,
    /// The session that carries the device.
    pub session: String,
    /// The disk's path at the server, as it was mapped.
    pub device_path: String,
    /// The access mode; `None` if the module gives an unknown value.
    pub access_mode: Option<AccessMode>,
    /// How the server was asked to read and write the disk. `None` if the module does not say (as
    /// the C module), or says something unknown.
    pub io_mode: Option<IoModeWish>,
    /// Whether the device works.
    pub state: DeviceState,
    /// Whether the server's administrator has closed the device. Then only a remap of this very
    /// device opens it again.
    pub closed_by_server: bool,
    /// The size in bytes; `None` if the module does not say.
    pub size_bytes: Option<u64>,
    /// The number of queues for polled IO; `None` if the module does not say.
    pub poll_queues: Option<u32>,
    /// The time that a request may be in flight, in ms; 0: as long as it takes. `None` if the
    /// module has no such limit (as the C module), or says something unknown.
    #[schemars(range(min = 0))]
    pub io_timeout_ms: Option<i32>,
    /// The time that requests wait while no path is up, in ms; -1: as the session says. `None` if
    /// the module has no such time for devices, or says something unknown.
    #[schemars(range(min = -1))]
    pub hold_io_ms: Option<i32>,
    /// The number of requests that were ended because of `io_timeout_ms`, modulo 2^32.
    pub io_timeouts: Option<u32>,
    /// The number of requests that took too long and that the server may still be at work on. While
    /// there are such requests, requests of the device fail at once.
    pub io_unanswered: Option<u32>,
    /// Its folder `rnbd` in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl ClientDevice {
    /// All tunables of a device: their names (which are also the names of their files), ranges and
    /// defaults.
    pub const TUNABLES: [Setting; 2] = [setting::IO_TIMEOUT, setting::HOLD_DISK_IO];

    /// The value of the tunable called `name`, if there is one and the module has it.
    pub fn tunable(&self, name: &str) -> Option<i32> {
        match name {
            _ if name == setting::IO_TIMEOUT.name => self.io_timeout_ms,
            _ if name == setting::HOLD_DISK_IO.name => self.hold_io_ms,
            _ => None,
        }
    }

    /// The time that requests wait while no path of `session` is up, in ms; 0: they fail at once.
    /// The session's time counts for a device without a time of its own.
    pub fn hold_ms(&self, session: &ClientSession) -> i64 {
        let own = self
            .hold_io_ms
            .filter(|&ms| ms != setting::HOLD_DISK_IO.default);
        own.map(i64::from)
            .or_else(|| session.settings.get(setting::HOLD_IO.name))
            .unwrap_or(0)
    }
}

/// Whether a device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// The device is being mapped.
    Init,
    /// The device is mapped and takes requests.
    Open,
    /// The server cannot be reached, or does not have the device open.
    Closed,
    /// The device is being unmapped.
    Unmapped,
    /// The module says something else.
    Unknown,
}

impl DeviceState {
    /// Parses the file `state`.
    pub fn parse(text: &str) -> Self {
        match text {
            "init" => Self::Init,
            "open" => Self::Open,
            "closed" => Self::Closed,
            "unmapped" => Self::Unmapped,
            _ => Self::Unknown,
        }
    }

    /// The state, as the modules write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Unmapped => "unmapped",
            Self::Unknown => "unknown",
        }
    }
}

/// How a disk is mapped.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// For reading
    Ro,
    /// For reading and writing, by one client at a time
    Rw,
    /// For reading and writing, beside another client that may write, too
    Migration,
}

impl AccessMode {
    /// Parses the file `access_mode`; `None` if the text is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ro" => Some(Self::Ro),
            "rw" => Some(Self::Rw),
            "migration" => Some(Self::Migration),
            _ => None,
        }
    }

    /// The mode, as the modules write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
            Self::Migration => "migration",
        }
    }
}

/// How the server was asked to read and write a disk. It does not say how the server does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IoModeWish {
    /// The server was not asked: it goes by its own setting.
    Any,
    /// Past its page cache.
    Direct,
    /// Through its page cache.
    Buffered,
}

impl IoModeWish {
    /// Parses the file `io_mode`; `None` if the text is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "any" => Some(Self::Any),
            mode => IoMode::from_name(mode.as_bytes()).map(|mode| Some(mode).into()),
        }
    }

    /// The wish, as the module writes it.
    pub fn as_str(self) -> &'static str {
        self.mode().map_or("any", |mode| mode.as_str())
    }

    /// The mode that the server was asked for; `None` if it was not asked.
    pub fn mode(self) -> Option<IoMode> {
        match self {
            Self::Any => None,
            Self::Direct => Some(IoMode::Direct),
            Self::Buffered => Some(IoMode::Buffered),
        }
    }
}

impl From<Option<IoMode>> for IoModeWish {
    fn from(mode: Option<IoMode>) -> Self {
        match mode {
            None => Self::Any,
            Some(IoMode::Direct) => Self::Direct,
            Some(IoMode::Buffered) => Self::Buffered,
        }
    }
}

/// A session with a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientSession {
    /// The name, which the server sees, too.
    pub name: String,
    /// Whether its paths are up.
    pub state: SessionState,
    /// How the path of a request is chosen; `None` if the module says something unknown.
    pub policy: Option<Policy>,
    /// The tunables that the module has, by name.
    pub settings: Settings,
    /// Its paths, by name.
    pub paths: Vec<Path>,
    /// Its folder in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Whether the paths of a session are up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// All paths are up.
    Connected,
    /// Some paths are up.
    Degraded,
    /// No path is up.
    Disconnected,
}

impl SessionState {
    /// The state of a session with `up` of its `paths` up.
    pub fn of(up: usize, paths: usize) -> Self {
        match up {
            0 => Self::Disconnected,
            _ if up < paths => Self::Degraded,
            _ => Self::Connected,
        }
    }

    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Degraded => "degraded",
            Self::Disconnected => "disconnected",
        }
    }
}

impl ClientSession {
    /// The number of its paths that are up.
    pub fn paths_up(&self) -> usize {
        self.paths.iter().filter(|path| path.is_up()).count()
    }

    /// `devices` of this session by [their times](ClientDevice::hold_ms), in their order.
    pub fn by_hold_ms<'d>(
        &self,
        devices: impl IntoIterator<Item = &'d ClientDevice>,
    ) -> Vec<(i64, Vec<&'d ClientDevice>)> {
        let mut groups: Vec<(i64, Vec<_>)> = Vec::new();
        for device in devices {
            let ms = device.hold_ms(self);
            match groups.iter_mut().find(|(time, _)| *time == ms) {
                Some((_, group)) => group.push(device),
                None => groups.push((ms, vec![device])),
            }
        }
        groups
    }
}

/// How the path of a request is chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// All paths in turn
    #[value(alias = "rr")]
    RoundRobin,
    /// The path with the fewest requests in flight on the connection of the sending CPU
    #[value(alias = "mi")]
    MinInflight,
    /// The path with the shortest round trip of heartbeats
    #[value(alias = "ml")]
    MinLatency,
}

impl Policy {
    /// Parses the file `mpath_policy`, such as `min-inflight (MI: 1)`; `None` if the text is
    /// unknown.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_whitespace().next()? {
            "round-robin" => Some(Self::RoundRobin),
            "min-inflight" => Some(Self::MinInflight),
            "min-latency" => Some(Self::MinLatency),
            _ => None,
        }
    }

    /// The policy, as the modules write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::MinInflight => "min-inflight",
            Self::MinLatency => "min-latency",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proto::policy::PolicyKind;

    #[test]
    fn session_state_is_that_of_its_paths() {
        assert_eq!(SessionState::of(0, 0), SessionState::Disconnected);
        assert_eq!(SessionState::of(0, 2), SessionState::Disconnected);
        assert_eq!(SessionState::of(1, 2), SessionState::Degraded);
        assert_eq!(SessionState::of(2, 2), SessionState::Connected);
    }

    #[test]
    fn policy_is_the_first_word() {
        assert_eq!(
            Policy::parse("min-inflight (MI: 1)"),
            Some(Policy::MinInflight)
        );
        for kind in PolicyKind::ALL {
            let (name, _) = kind.names();
            assert_eq!(Policy::parse(name).map(Policy::as_str), Some(name));
        }
        assert_eq!(Policy::parse("Unknown (7)"), None);
        assert_eq!(Policy::parse(""), None);
    }

    #[test]
    fn wishes_are_read_as_they_are_written() {
        for wish in [IoModeWish::Any, IoModeWish::Direct, IoModeWish::Buffered] {
            assert_eq!(IoModeWish::parse(wish.as_str()), Some(wish));
            assert_eq!(IoModeWish::from(wish.mode()), wish);
        }
        assert_eq!(IoModeWish::parse("fileio"), None);
        assert_eq!(IoModeWish::parse(""), None);
    }
}
