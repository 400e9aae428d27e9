// SPDX-License-Identifier: GPL-2.0

//! The states of a client's device, and the only transitions between them.

use crate::{
    errno::Errno,
    numbered::numbered, //
};

numbered! {
    /// A device at the client.
    pub enum DeviceState: u32 {
        /// The server has not opened the device yet.
        Init = 0,
        /// The device can be used.
        Mapped = 1,
        /// The session has no path, or the server has closed the device; the server has to open the
        /// device again.
        Disconnected = 2,
        /// The device is being removed.
        Unmapped = 3,
    }
}

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The server has opened the device.
    Opened,
    /// The session lost its last path, or the server has closed the device.
    LinkLost,
    /// The device shall be removed.
    Unmap,
}

impl DeviceState {
    /// The text in sysfs. It differs from the state's name, because existing programs read these
    /// words.
    pub const fn sysfs_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Mapped => "open",
            Self::Disconnected => "closed",
            Self::Unmapped => "unmapped",
        }
    }

    /// The state after an event, or the C client's errno if the event is not possible.
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
