// SPDX-License-Identifier: GPL-2.0

//! One difference between file and machine.

use std::fmt;

use proto::addr::PathAddress;
use proto::setting::Setting;
use schemars::JsonSchema;
use serde::Serialize;

use crate::address::path_text;
use crate::config::Device;
use crate::model::ClientDevice;
use crate::model::Policy;

/// A change that has to be made to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Sets a number of the session; `from` is not known before there is a session.
    Set {
        /// The number.
        setting: Setting,
        /// The present value.
        from: Option<i64>,
        /// The value to set.
        to: i32,
    },
    /// Sets how the path of a request is chosen.
    SetPolicy {
        /// The present policy, if it is known.
        from: Option<Policy>,
        /// The policy to set.
        to: Policy,
    },
    /// Adds a path that the session does not have.
    AddPath(PathAddress),
    /// Connects a path again that is not connected; holds the name of its folder.
    Reconnect(String),
    /// Maps a device that is not mapped.
    Map(Device),
    /// Unmaps a device that is mapped in another way, and maps it again.
    MapAgain {
        /// The device as it is.
        mapped: ClientDevice,
        /// The device as the file says.
        device: Device,
        /// The difference, in words.
        why: String,
    },
    /// Opens a device again that is closed though there is a connection, unless the server's
    /// administrator has closed it.
    Reopen(ClientDevice),
    /// Sets a number of a device.
    SetDevice {
        /// The device's path at the server.
        path: String,
        /// The device; `None` before it is mapped.
        mapped: Option<ClientDevice>,
        /// The number.
        setting: Setting,
        /// The value to set.
        to: i32,
    },
    /// Unmaps a device that is not in the file.
    Unmap(ClientDevice),
    /// Removes a path that is not in the file; holds the name of its folder.
    RemovePath(String),
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ChangeOperation")]
pub enum Operation {
    /// Adds something.
    Add,
    /// Changes something.
    Change,
    /// Removes something.
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

    /// Whether the change sets a number of a device that has to be mapped before.
    pub fn waits_for_map(&self) -> bool {
        matches!(self, Self::SetDevice { mapped: None, .. })
    }

    /// The object of the change: a device, a path, or a key of the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Set { setting, .. } | Self::SetDevice { setting, .. } => setting.name,
            Self::SetPolicy { .. } => "policy",
            Self::AddPath(_) | Self::Reconnect(_) | Self::RemovePath(_) => "path",
            Self::Map(_) | Self::MapAgain { .. } | Self::Reopen(_) | Self::Unmap(_) => "device",
        }
    }

    /// The name of the device or path; `None` for a number or the policy of the session.
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

    /// The present value, as far as it is known and useful.
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

    /// The new value.
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
