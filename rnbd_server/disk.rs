// SPDX-License-Identifier: GPL-2.0

//! Open disks, whatever requests go through.

use kernel_ext::{
    block::{
        bdev::BlockDevice,
        disk::{
            UniqueIdKind,
            UNIQUE_ID_LEN, //
        }, //
    },
    fs::file::{
        FileId,
        Found,
        RegularFile, //
    },
    prelude::*, //
};
use proto::{
    disk_id::DiskId,
    rnbd::{
        IdKind,
        UniqueId,
        Wwid, //
    }, //
};

/// An open disk.
#[derive(Clone, Copy)]
pub(crate) enum Disk<'a> {
    /// A block device.
    BlockDevice(&'a BlockDevice),
    /// A regular file.
    File(&'a RegularFile),
}

/// Tells a disk from the other disks of this server, whatever clients call the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalId {
    /// The kernel's number of a block device.
    BlockDevice(u32),
    /// The number of a file and of its file system.
    File(FileId),
}

impl LocalId {
    /// Which disk was found by a path. Sleeps. Errors are those of `statx`.
    pub(crate) fn of(found: &Found) -> Result<Self> {
        match found.device_number() {
            Some(number) => Ok(Self::BlockDevice(number)),
            None => found.file_id().map(Self::File),
        }
    }
}

impl Disk<'_> {
    /// Which disk it is. Any context.
    pub(crate) fn local_id(&self) -> LocalId {
        match self {
            Self::BlockDevice(device) => LocalId::BlockDevice(device.number()),
            Self::File(file) => LocalId::File(file.facts().id),
        }
    }

    /// Which disk it is, also when nobody has had it open meanwhile; `wwid` is its name in the
    /// world. Any context.
    pub(crate) fn lasting_id(&self, wwid: Wwid) -> DiskId<LocalId> {
        DiskId {
            place: self.local_id(),
            wwid,
            sequence: match self {
                Self::BlockDevice(device) => device.disk_sequence(),
                Self::File(file) => u64::from(file.facts().generation),
            },
        }
    }

    /// Whether the disk has become read-only. Never true of a file: a file system that fails or is
    /// shut down refuses its writes, with an error for each. Any context.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Self::BlockDevice(device) => device.is_read_only(),
            Self::File(_) => false,
        }
    }

    /// Whether the disk was removed. A file stays as long as it is open. Any context.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::BlockDevice(device) => device.is_gone(),
            Self::File(_) => false,
        }
    }

    /// How many requests of the disk are in flight, as the disk counts them; a file does not. Any
    /// context.
    pub(crate) fn requests_in_flight(&self) -> Option<u32> {
        match self {
            Self::BlockDevice(device) => Some(device.requests_in_flight()),
            Self::File(_) => None,
        }
    }

    /// The disk's name in the world; [`Wwid::NONE`] if it has none. Sleeps. Errors of
    /// [`BlockDevice::unique_id`]: then the name is unknown now.
    pub(crate) fn wwid(&self) -> Result<Wwid> {
        Ok(match self {
            Self::BlockDevice(device) => {
                unique_id(device)?.map_or(Wwid::NONE, |id| Wwid::of_disk(&id, device.partition()))
            }
            Self::File(file) => {
                let facts = file.facts();
                Wwid::of_file(&facts.fs_uuid, facts.id.ino, facts.generation)
            }
        })
    }
}

/// The identifier that a disk has in itself. Sleeps.
fn unique_id(device: &BlockDevice) -> Result<Option<UniqueId>> {
    let kinds = [
        (UniqueIdKind::Naa, IdKind::Naa),
        (UniqueIdKind::Eui, IdKind::Eui),
    ];
    for (asked, kind) in kinds {
        let mut id = [0; UNIQUE_ID_LEN];
        let Some(len) = device.unique_id(asked, &mut id)? else {
            continue;
        };
        if let Some(id) = UniqueId::new(kind, id.get(..len).unwrap_or(&[])) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}
