// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk, as the block layer asks a driver for them.
//!
//! For a program, `block/ioctl.c` has checked that it may ask, and that the disk is no partition.
//! Callers in the kernel (dm, nfsd, the SCSI target) check for themselves; a partition stands for
//! its whole disk then, as with `drivers/scsi/sd.c`.
//!
//! C header: [`include/linux/pr.h`](srctree/include/linux/pr.h)

use crate::prelude::*;

/// A change of which machines may use a disk. Keys and types (C: `enum pr_type`) are as the user
/// wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Registers a key, changes or removes it.
    Register {
        /// The caller's key, 0 if it has none.
        old: u64,
        /// The key to have, 0 for none.
        new: u64,
        /// Whatever key the caller has, `old` is not looked at.
        ignore_key: bool,
    },
    /// Takes the reservation.
    Reserve {
        /// The caller's key.
        key: u64,
        /// The type.
        kind: u32,
        /// The user asks that `key` is not looked at.
        ignore_key: bool,
    },
    /// Gives the reservation up.
    Release {
        /// The caller's key.
        key: u64,
        /// The type of the reservation that there is.
        kind: u32,
    },
    /// Removes the registrants with a key, and takes their reservation.
    Preempt {
        /// The caller's key: `drivers/scsi/sd.c` and `drivers/nvme/host/pr.c` give it for
        /// `old_key`.
        key: u64,
        /// The key to remove.
        victim: u64,
        /// The type of the reservation that is taken.
        kind: u32,
        /// The victims' requests are to be aborted.
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

/// How many keys are registered with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The number of changes of keys.
    pub generation: u32,
    /// The number of keys, whether or not there was room for them.
    pub count: u32,
}

/// Why nothing was done.
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
