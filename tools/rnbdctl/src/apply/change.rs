// SPDX-License-Identifier: GPL-2.0

//! One difference between file and machine.

use std::fmt;

use proto::addr::PathAddress;
use proto::setting::Setting;
use serde::Serialize;

use crate::address::path_text;
use crate::config::Device;
use crate::model::ClientDevice;
use crate::model::Policy;

/// What has to be done to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A number of the session; `from` is not known before there is a session.
    Set {
        /// Which.
        setting: Setting,
        /// What it is.
        from: Option<i64>,
        /// What it shall be.
        to: i32,
    },
    /// How the path of a request is chosen.
    SetPolicy {
        /// What it is, if that is known.
        from: Option<Policy>,
        /// What it shall be.
        to: Policy,
    },
    /// A path that the session does not have.
    AddPath(PathAddress),
    /// A path that is not connected; by the name of its folder.
    Reconnect(String),
    /// A device that is not mapped.
    Map(Device),
    /// A device that is mapped in another way; it is unmapped for a moment.
    MapAgain {
        /// The device as it is.
        mapped: ClientDevice,
        /// As it shall be.
        device: Device,
        /// What is different, in words.
        why: String,
    },
    /// A device that is closed, though there is a connection; not one that the server's
    /// administrator has closed.
    Reopen(ClientDevice),
    /// A number of a device.
    SetDevice {
        /// The device's path at the server.
        path: String,
        /// The device; `None` before it is mapped.
        mapped: Option<ClientDevice>,
        /// Which number.
        setting: Setting,
        /// What it shall be.
        to: i32,
    },
    /// A device that the file does not have.
    Unmap(ClientDevice),
    /// A path that the file does not have; by the name of its folder.
    RemovePath(String),
}

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Something new.
    Add,
    /// Something else than before.
    Change,
    /// Something less.
    Remove,
}

impl Operation {
    /// The sign in front of a line.
    pub const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Change => '~',
            Self::Remove => '-',
        }
    }
}

impl Change {
    /// The kind.
    pub fn operation(&self) -> Operation {
        match self {
            Self::AddPath(_) | Self::Map(_) => Operation::Add,
            Self::Unmap(_) | Self::RemovePath(_) => Operation::Remove,
            Self::Set { .. }
            | Self::SetPolicy { .. }
            | Self::SetDevice { .. }
            | Self::Reconnect(_)
            | Self::MapAgain { .. }
            | Self::Reopen(_) => Operation::Change,
        }
    }

    /// Whether it is a number of a device that is to be mapped before.
    pub fn waits_for_map(&self) -> bool {
        matches!(self, Self::SetDevice { mapped: None, .. })
    }

    /// What it is about: a device, a path, or a key of the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Set { setting, .. } | Self::SetDevice { setting, .. } => setting.name,
            Self::SetPolicy { .. } => "policy",
            Self::AddPath(_) | Self::Reconnect(_) | Self::RemovePath(_) => "path",
            Self::Map(_) | Self::MapAgain { .. } | Self::Reopen(_) | Self::Unmap(_) => "device",
        }
    }

    /// Which device or path; `None` for a number or the policy of the session.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Set { .. } | Self::SetPolicy { .. } => None,
            Self::AddPath(path) => Some(path_text(path)),
            Self::SetDevice { path, .. } => Some(path.clone()),
            Self::Reconnect(name) | Self::RemovePath(name) => Some(name.clone()),
            Self::Map(device) | Self::MapAgain { device, .. } => Some(device.path.clone()),
            Self::Reopen(device) | Self::Unmap(device) => Some(device.device_path.clone()),
        }
    }

    /// What it is, as far as that is known and says something.
    pub fn from(&self) -> Option<String> {
        match self {
            Self::Set { from, .. } => from.map(|value| value.to_string()),
            Self::SetDevice {
                mapped, setting, ..
            } => {
                let value = mapped.as_ref()?.tunable(setting.name);
                value.map(|value| value.to_string())
            }
            Self::SetPolicy { from, .. } => from.map(|policy| policy.as_str().to_owned()),
            Self::Reconnect(_) => Some("disconnected".to_owned()),
            Self::MapAgain { mapped, .. } | Self::Unmap(mapped) => Some(mapped.path.clone()),
            Self::Reopen(_) => Some("closed".to_owned()),
            Self::AddPath(_) | Self::Map(_) | Self::RemovePath(_) => None,
        }
    }

    /// What it shall be.
    pub fn to(&self) -> Option<String> {
        match self {
            Self::Set { to, .. } | Self::SetDevice { to, .. } => Some(to.to_string()),
            Self::SetPolicy { to, .. } => Some(to.as_str().to_owned()),
            Self::Reconnect(_) => Some("connected".to_owned()),
            Self::Map(device) => Some(device.access_mode.as_str().to_owned()),
            Self::MapAgain { why, .. } => Some(why.clone()),
            Self::Reopen(_) => Some("open".to_owned()),
            Self::AddPath(_) | Self::Unmap(_) | Self::RemovePath(_) => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        if let Some(name) = self.name() {
            write!(f, " {name}")?;
        }
        match (self, self.from(), self.to()) {
            (Self::Map(_), _, Some(to)) => write!(f, " ({to})"),
            (_, Some(from), Some(to)) => write!(f, ": {from} -> {to}"),
            (_, None, Some(to)) => write!(f, ": {to}"),
            (_, Some(from), None) => write!(f, " ({from})"),
            (_, None, None) => Ok(()),
        }
    }
}
