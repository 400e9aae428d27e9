// SPDX-License-Identifier: GPL-2.0

//! Open devices, whose access is part of their type.

use kernel::{
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    block::{
        bdev::BlockDevice,
        bio::{
            BioSet,
            DeviceUse,
            OpenDevice, //
        },
        disk::{
            ReadOnly,
            ReadWrite, //
        }, //
    },
    prelude::*, //
};
use proto::rnbd::AccessMode;

use crate::io_completion::IoCompletion;

/// An open block device.
///
/// Dropped in process context; waits for requests.
pub(crate) enum Handle {
    /// For a client that may not change it.
    ReadOnly(OpenDevice<IoCompletion, ReadOnly>),
    /// For a client that may.
    ReadWrite(OpenDevice<IoCompletion, ReadWrite>),
}

/// The use of an open block device, for one request.
pub(crate) enum HandleUse {
    ReadOnly(DeviceUse<IoCompletion, ReadOnly>),
    ReadWrite(DeviceUse<IoCompletion, ReadWrite>),
}

impl Handle {
    /// Opens the device with the given path. Sleeps.
    pub(crate) fn open(
        path: &CStr,
        mode: AccessMode,
        bios: &Arc<BioSet<IoCompletion>>,
    ) -> Result<Self> {
        Ok(if mode.is_read_only() {
            Self::ReadOnly(OpenDevice::open(path, bios)?)
        } else {
            Self::ReadWrite(OpenDevice::open(path, bios)?)
        })
    }

    /// Lets the caller at the device, unless it is closed. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<HandleUse> {
        Some(match self {
            Self::ReadOnly(device) => HandleUse::ReadOnly(device.enter()?),
            Self::ReadWrite(device) => HandleUse::ReadWrite(device.enter()?),
        })
    }

    /// Closes the device when its requests are finished. Sleeps.
    pub(crate) fn close(&self) {
        match self {
            Self::ReadOnly(device) => device.close(),
            Self::ReadWrite(device) => device.close(),
        }
    }
}

impl HandleUse {
    /// The use of the device for what does not change it.
    #[inline]
    pub(crate) fn read_only(self) -> DeviceUse<IoCompletion, ReadOnly> {
        match self {
            Self::ReadOnly(device) => device,
            Self::ReadWrite(device) => device.read_only(),
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &BlockDevice {
        match self {
            Self::ReadOnly(device) => device.device(),
            Self::ReadWrite(device) => device.device(),
        }
    }
}
