// SPDX-License-Identifier: GPL-2.0

//! The states of a client's device, and the only way from one to another.

use crate::Errno;

/// A device at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceState {
    /// The server has not opened it yet.
    Init = 0,
    /// It can be used.
    Mapped = 1,
    /// The session has no path; the server has to open the device again.
    Disconnected = 2,
    /// It is being removed.
    Unmapped = 3,
}

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The server has opened it.
    Opened,
    /// The session lost its last path.
    LinkLost,
    /// Somebody wants to be rid of it.
    Unmap,
}

impl DeviceState {
    /// All states.
    pub const ALL: &'static [Self] =
        &[Self::Init, Self::Mapped, Self::Disconnected, Self::Unmapped];

    /// What sysfs shows; not the states' names, since programs know these words.
    pub const fn sysfs_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Mapped => "open",
            Self::Disconnected => "closed",
            Self::Unmapped => "unmapped",
        }
    }

    /// The number.
    pub const fn to_u32(self) -> u32 {
        self as u32
    }

    /// The state after an event, or the errno of the C client for an event that cannot be.
    ///
    /// A device that was not mapped when its session lost the link stays as it is.
    pub const fn next(self, event: DeviceEvent) -> Result<Self, Errno> {
        match (self, event) {
            (Self::Unmapped, DeviceEvent::Opened) => Err(Errno::ENOENT),
            (_, DeviceEvent::Opened) => Ok(Self::Mapped),
            (Self::Mapped, DeviceEvent::LinkLost) => Ok(Self::Disconnected),
            (_, DeviceEvent::LinkLost) => Ok(self),
            (Self::Unmapped, DeviceEvent::Unmap) => Err(Errno::EALREADY),
            (_, DeviceEvent::Unmap) => Ok(Self::Unmapped),
        }
    }

    /// Whether the server may be asked to open the device again (C: `rnbd_clt_remap_device`).
    pub const fn check_remap(self) -> Result<(), Errno> {
        match self {
            Self::Disconnected => Ok(()),
            Self::Unmapped => Err(Errno::ENODEV),
            Self::Mapped => Err(Errno::EALREADY),
            Self::Init => Err(Errno::EBUSY),
        }
    }
}

impl TryFrom<u32> for DeviceState {
    type Error = u32;

    /// The error is the number, which no state has.
    fn try_from(value: u32) -> Result<Self, u32> {
        Ok(match value {
            0 => Self::Init,
            1 => Self::Mapped,
            2 => Self::Disconnected,
            3 => Self::Unmapped,
            _ => return Err(value),
        })
    }
}
