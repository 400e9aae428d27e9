// SPDX-License-Identifier: GPL-2.0

//! The folder that keeps reservations over a restart of the server: a file for each disk that has a
//! wwid and registered machines.
//!
//! Files are read and written on the workers for commands and where disks are opened, never where
//! requests are handled. Meanwhile only the lock of the disk's commands is held. So a file system
//! that hangs holds up commands for disks that have a wwid, and the first open of such a disk.
//! Memory for these files is allocated without waiting for IO, see
//! [`Reservations`](crate::reservations).

use kernel::{
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    fs::{
        directory::{
            Directory,
            Failed, //
        },
        file::RegularFile, //
    },
    module_param::ParameterString,
    pr_err_ratelimited,
    prelude::*, //
};
use proto::{
    reservation::Table,
    reservation_state::{
        self,
        FileName,
        SavedState, //
    },
    rnbd::Wwid, //
};
use rtrs_core::error::from_errno;

use crate::{
    machine::Machine,
    reservation_table::new_table, //
};

/// The file that the administrator makes in the folder. A folder whose file system is not mounted
/// yet has no such file. Without this check such a folder would be taken for one without
/// reservations.
const MARKER: &CStr = c"rnbd-reservations";

/// The name of the file that is being written, before it gets the name of the disk's file.
fn temporary_name(wwid: &Wwid) -> FileName {
    FileName::from_fn(|out| core::fmt::Write::write_fmt(out, format_args!("{wwid}.new")))
}

/// The folder that keeps the files.
pub(crate) struct ReservationStore {
    directory: Directory,
}

impl ReservationStore {
    /// Opens the folder that the administrator has given; `None` if no folder is given. Sleeps.
    ///
    /// Errors of [`Directory::open`], and `ENOENT` if the folder has no file [`MARKER`]; all are
    /// logged.
    pub(crate) fn open(path: &ParameterString) -> Result<Option<Arc<Self>>> {
        if path.as_bytes().is_empty() {
            return Ok(None);
        }
        let directory = Directory::open(path.as_c_str()).inspect_err(|error| {
            pr_err!(
                "state_dir: cannot use the folder {:?}: {:?}; make the folder, or set another\n",
                path.as_c_str(),
                error
            );
        })?;
        directory.read(MARKER, &mut []).inspect_err(|error| {
            pr_err!(
                "state_dir: {:?} has no file {:?} ({:?}): if the folder's file system is mounted, \
                 make an empty file of this name\n",
                path.as_c_str(),
                MARKER,
                error
            );
        })?;
        Ok(Some(Arc::new(Self { directory }, GFP_KERNEL)?))
    }

    /// Whether a file is in the folder: as a disk it would let clients change what is kept. Sleeps.
    pub(crate) fn holds(&self, file: &RegularFile) -> bool {
        self.directory.holds(file)
    }

    /// Reads the table of a disk from its file; `None` if there is no file. Sleeps.
    ///
    /// `EUCLEAN` if the file is not valid, errors of [`Directory::read`]; all are logged.
    pub(crate) fn load(&self, wwid: &Wwid) -> Result<Option<KBox<Table<Machine>>>> {
        let file = reservation_state::file_name(wwid).ok_or(EINVAL)?;
        // One byte more than a valid file has, to find out longer ones.
        let room = reservation_state::MAX_SIZE.wrapping_add(1);
        let mut buffer = KVVec::from_elem(0u8, room, GFP_KERNEL)?;
        // A write that has failed may have left a name that is not on stable storage yet.
        let synced = self.directory.sync();
        let read = synced.and_then(|()| self.directory.read(file.as_cstr(), &mut buffer));
        let len = match read {
            Ok(len) => len,
            Err(ENOENT) => return Ok(None),
            Err(error) => {
                pr_err_ratelimited!(
                    "state_dir: cannot read {:?}: {:?}; the disk is not opened until the file can \
                     be read\n",
                    file.as_cstr(),
                    error
                );
                return Err(storage_error(error));
            }
        };
        let saved = SavedState::parse(buffer.get(..len).unwrap_or(&[]), wwid);
        let saved = saved
            .inspect_err(|refused| {
                pr_err_ratelimited!(
                    "state_dir: {:?} makes no sense: {}; the disk is not opened until the file is \
                     removed, and with it the disk's reservation\n",
                    file.as_cstr(),
                    refused.message().as_str()
                );
            })
            .map_err(|refused| from_errno(refused.errno()))?;
        table_of(&saved).map(Some)
    }

    /// Replaces the file of a disk, or removes it if no machine is registered. The change is on
    /// stable storage when this returns. Sleeps; one call at a time for a disk.
    ///
    /// Errors of [`Directory::replace`], which are logged.
    pub(crate) fn save(&self, wwid: &Wwid, table: &Table<Machine>) -> Result<(), Failed> {
        let file = reservation_state::file_name(wwid).ok_or_else(|| Failed::before(EINVAL))?;
        let done = if table.is_empty() {
            self.directory.remove(file.as_cstr()).map(|_| ())
        } else {
            let bytes = bytes_of(wwid, table).map_err(Failed::before)?;
            let temporary = temporary_name(wwid);
            self.directory
                .replace(file.as_cstr(), temporary.as_cstr(), &bytes)
        };
        done.map_err(|failed| {
            pr_err_ratelimited!(
                "state_dir: cannot write {:?}: {:?}; commands about reservations of this disk fail \
                 until the folder can be written\n",
                file.as_cstr(),
                failed.error
            );
            Failed {
                error: storage_error(failed.error),
                ..failed
            }
        })
    }

    /// Removes the file of a disk; returns whether there was a file. Sleeps. Errors of
    /// [`Directory::remove`].
    pub(crate) fn remove(&self, wwid: &Wwid) -> Result<bool> {
        let file = reservation_state::file_name(wwid).ok_or(EINVAL)?;
        let removed = self.directory.remove(file.as_cstr());
        removed.map_err(|failed| storage_error(failed.error))
    }
}

/// The error that a client is told when the file system fails. Other numbers have a meaning for the
/// client, such as a reservation conflict or a command that goes on.
fn storage_error(error: Error) -> Error {
    match error {
        ENOSPC | EROFS | ENOMEM => error,
        _ => EIO,
    }
}

/// The table that a file holds. Sleeps.
// Not inlined, so that opening a disk does not need the room that this takes on the stack.
#[inline(never)]
fn table_of(saved: &SavedState<'_>) -> Result<KBox<Table<Machine>>> {
    let mut registrants = KVec::new();
    for (name, key) in saved.registrants() {
        registrants.push((Machine::of(name)?, key), GFP_KERNEL)?;
    }
    let mut table = new_table()?;
    saved
        .restore(&mut table, registrants.into_iter())
        .ok_or(EINVAL)?;
    Ok(table)
}

/// The file of a disk.
fn bytes_of(wwid: &Wwid, table: &Table<Machine>) -> Result<KVVec<u8>> {
    let size = reservation_state::size(table.registrants().count());
    let mut bytes = KVVec::from_elem(0u8, size, GFP_KERNEL)?;
    if reservation_state::write(table, wwid, Machine::name, &mut bytes) {
        Ok(bytes)
    } else {
        Err(EINVAL)
    }
}
