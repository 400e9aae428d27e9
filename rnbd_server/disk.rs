// SPDX-License-Identifier: GPL-2.0

//! Open disks, of either kind: block devices and files.

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
    /// The number of the disk that was found by a path. Sleeps. Errors of `statx`.
    pub(crate) fn of(found: &Found) -> Result<Self> {
        match found.device_number() {
            Some(number) => Ok(Self::BlockDevice(number)),
            None => found.file_id().map(Self::File),
        }
    }
}

impl Disk<'_> {
    /// The number of the disk. Any context.
    pub(crate) fn local_id(&self) -> LocalId {
        match self {
            Self::BlockDevice(device) => LocalId::BlockDevice(device.number()),
            Self::File(file) => LocalId::File(file.facts().id),
        }
    }

    /// The identity of the disk, also over a time in which no session has the disk open; `wwid` is
    /// the disk's wwid. Any context.
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

    /// Whether the disk has become read-only. False for a file: a file system that fails or is shut
    /// down refuses each write with an error instead. Any context.
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

    /// The number of the disk's requests in flight, as the disk counts them; a file has no such
    /// count. Any context.
    pub(crate) fn requests_in_flight(&self) -> Option<u32> {
        match self {
            Self::BlockDevice(device) => Some(device.requests_in_flight()),
            Self::File(_) => None,
        }
    }

    /// The disk's wwid; [`Wwid::NONE`] if it has none. Sleeps. Errors of
    /// [`BlockDevice::unique_id`]: then the wwid is unknown now.
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

/// The identifier that the disk itself gives. Sleeps.
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
