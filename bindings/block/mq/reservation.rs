// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk: the requests of the block layer to a driver.
//!
//! If the caller is a program, `block/ioctl.c` has checked the permission, and that the device is
//! not a partition. Callers in the kernel (dm, nfsd, the SCSI target) check for themselves. For
//! them a partition means its whole disk, as in `drivers/scsi/sd.c`.
//!
//! C header: [`include/linux/pr.h`](srctree/include/linux/pr.h)

use crate::prelude::*;

/// A change of the reservation or the registrations of a disk. Keys and types (C: `enum pr_type`)
/// come from the user, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Registers, changes or removes a key.
    Register {
        /// The caller's key, 0 if it has none.
        old: u64,
        /// The new key, 0 for none.
        new: u64,
        /// Whether `old` is ignored, so that the caller's present key does not matter.
        ignore_key: bool,
    },
    /// Takes the reservation.
    Reserve {
        /// The caller's key.
        key: u64,
        /// The type.
        kind: u32,
        /// Whether the user asks that `key` is ignored.
        ignore_key: bool,
    },
    /// Gives the reservation up.
    Release {
        /// The caller's key.
        key: u64,
        /// The type of the present reservation.
        kind: u32,
    },
    /// Removes the registrants with a given key, and takes their reservation.
    Preempt {
        /// The caller's key: the argument `old_key`, as in `drivers/scsi/sd.c` and
        /// `drivers/nvme/host/pr.c`.
        key: u64,
        /// The key to remove.
        victim: u64,
        /// The type of the new reservation.
        kind: u32,
        /// Whether the requests of the removed registrants must be aborted.
        abort: bool,
    },
    /// Removes the reservation and all registrants.
    Clear {
        /// The caller's key.
        key: u64,
    },
}

/// The reservation of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The holder's key; 0 if there is none, or if all registrants hold it.
    pub key: u64,
    /// The number of changes of keys.
    pub generation: u32,
    /// The type (C: `enum pr_type`); 0 if there is no reservation.
    pub kind: u32,
}

/// The number of keys that are registered with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The number of changes of keys.
    pub generation: u32,
    /// The number of all keys, also if not all of them fitted.
    pub count: u32,
}

/// The reason for which nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The reservation of another machine forbids it (`PR_STS_RESERVATION_CONFLICT`).
    Conflict,
    /// There is no path to the disk (`PR_STS_PATH_FAILED`).
    PathFailed,
    /// Another error, as its number. `drivers/scsi/sd.c` and `drivers/nvme/host/pr.c` return
    /// `PR_STS_IOERR` for most errors of the disk; the number names the error.
    Errno(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Errno(error)
    }
}
