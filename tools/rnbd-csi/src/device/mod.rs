// SPDX-License-Identifier: GPL-2.0

//! The block devices that volumes are on this node.
//!
//! - [`disk`]: maps disks of servers.
//! - [`mirror`]: starts and stops the mirrors of mirrored volumes.
//! - [`note`]: how the servers of mirrored volumes are reached.
//! - [`parked`]: the records of mirrored volumes that were here.
//! - [`refused`]: what helps when a mirror is not started.
//! - [`tend`]: brings legs back.

mod disk;
mod mirror;
mod note;
mod parked;
mod refused;
mod tend;

use std::fmt;
use std::path::PathBuf;

use rnbdctl::config::DEFAULT_HOLD_MS;
use rnbdctl::model::AccessMode as Access;
use rnbdctl::model::ClientDevice;
use rnbdctl::model::DeviceState;
use rnbdctl::System;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::VolumeCondition;
use crate::mounts;
use crate::mounts::DeviceNumber;
use crate::volume::Context;
use crate::volume::VolumeId;
use disk::Disks;
use mirror::Mirrors;

/// The block device that a volume is on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The kernel's name: `rnbd0`.
    pub(crate) name: String,
    /// Its size.
    pub(crate) bytes: Option<u64>,
    /// How it may be used; `None` if the kernel does not say.
    pub(crate) access: Option<Access>,
}

impl From<ClientDevice> for Device {
    fn from(device: ClientDevice) -> Self {
        Self {
            name: device.name,
            bytes: device.size_bytes,
            access: device.access_mode,
        }
    }
}

/// Brings volumes to this node as block devices, and takes them away.
#[derive(Debug)]
pub(crate) struct Devices {
    system: System,
    disks: Disks,
    mirrors: Mirrors,
}

impl Devices {
    /// Makes the devices of the node with the id `node_id`.
    pub(crate) fn new(system: System, node_id: &str) -> Self {
        Self {
            disks: Disks::new(system.clone(), node_id),
            mirrors: Mirrors::new(system.clone()),
            system,
        }
    }

    /// The machine.
    pub(crate) fn system(&self) -> &System {
        &self.system
    }

    /// Returns the block device of a volume; `None` if the volume is not on this node.
    pub(crate) fn find(&self, id: &VolumeId) -> Result<Option<Device>> {
        match id {
            VolumeId::Disk(disk) => Ok(self.disks.find(disk)?.map(Device::from)),
            VolumeId::Mirror(mirror) => self.mirrors.find(mirror),
        }
    }

    /// Returns the block device of a volume; `NOT_FOUND` if the volume is not on this node.
    pub(crate) fn need(&self, id: &VolumeId) -> Result<Device> {
        self.find(id)?.ok_or_else(|| not_staged(id))
    }

    /// Returns the path of a device's node.
    pub(crate) fn node(&self, device: &Device) -> PathBuf {
        self.system.device_node(&device.name)
    }

    /// Brings a volume to this node, and returns its device. A device that is there already stays
    /// as it is. Blocks while servers are being connected.
    pub(crate) fn bring(&self, id: &VolumeId, context: &Context, access: Access) -> Result<Device> {
        match id {
            VolumeId::Disk(disk) => {
                let hold_ms = context.hold_ms.unwrap_or(DEFAULT_HOLD_MS);
                let device = self.disks.map(disk, context, access, hold_ms)?;
                Ok(device.into())
            }
            VolumeId::Mirror(mirror) => self.mirrors.bring(mirror, context, access, &self.disks),
        }
    }

    /// Takes a volume away from this node. What an earlier call has taken away is left out.
    pub(crate) fn take_away(&self, id: &VolumeId) -> Result {
        match id {
            VolumeId::Disk(disk) => self.disks.unmap(disk),
            VolumeId::Mirror(mirror) => self.mirrors.take_away(mirror, &self.disks),
        }
    }

    /// Returns whether a volume has a fault, with words for the fault; `NOT_FOUND` if the volume is
    /// not on this node.
    pub(crate) fn condition(&self, id: &VolumeId) -> Result<VolumeCondition> {
        let message = match id {
            VolumeId::Disk(disk) => match self.disks.find(disk)? {
                Some(device) => self.disks.condition(&device)?,
                None => return Err(not_staged(id)),
            },
            VolumeId::Mirror(mirror) => self.mirrors.condition(mirror, &self.disks)?,
        };
        Ok(VolumeCondition {
            abnormal: !message.is_empty(),
            message,
        })
    }

    /// Grows the mirror of a mirrored volume to the size of its legs, unless the mirror has
    /// `required` bytes already. With `required` 0 the mirror always grows. For a volume on a
    /// single disk there is nothing to do. `NOT_FOUND` if the mirror does not run, `UNAVAILABLE` if
    /// the mirror is not whole.
    pub(crate) fn grow(&self, id: &VolumeId, required: u64) -> Result {
        let VolumeId::Mirror(mirror) = id else {
            return Ok(());
        };
        let have = self.need(id)?.bytes.unwrap_or_default();
        match required != 0 && have >= required {
            true => Ok(()),
            false => self.mirrors.grow(mirror).map(drop),
        }
    }

    /// The sizes of the disks of a volume, of those that are here. A leg whose server is away is
    /// left out: its server announces nothing, and the mirror does not grow without it.
    pub(crate) fn disk_sizes(&self, id: &VolumeId) -> Result<Vec<u64>> {
        let counts = |device: &ClientDevice| match id {
            VolumeId::Disk(_) => true,
            VolumeId::Mirror(_) => device.state == DeviceState::Open,
        };
        let mut sizes = Vec::new();
        for disk in id.disks() {
            let device = self.disks.find(disk)?.filter(counts);
            sizes.extend(device.and_then(|device| device.size_bytes));
        }
        Ok(sizes)
    }

    /// The numbers of the devices of all mirrored volumes on this node. A mirror that is stopped
    /// meanwhile is left out.
    pub(crate) fn mirrors(&self) -> Result<Vec<DeviceNumber>> {
        let names = self.mirrors.running()?;
        let nodes = names.iter().map(|name| self.system.device_node(name));
        let numbers = nodes.filter_map(|node| match mounts::device_number(&node) {
            Err(_) if !node.exists() => None,
            number => Some(number),
        });
        numbers.collect()
    }
}

/// The failure of a call for a volume that is not on this node.
fn not_staged(id: &impl fmt::Display) -> Status {
    Status::not_found(format!("volume {id} is not staged on this node"))
}
