// SPDX-License-Identifier: GPL-2.0

//! The disks whose reservations are kept: those that are open, and those that machines are
//! registered with.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    sysfs::SysfsOutput, //
};
use proto::{
    disk_id::DiskId,
    rnbd::Command,
    text::{
        Text,
        Untrusted, //
    }, //
};

use crate::{
    disk::LocalId,
    reservations::Reservations, //
};

/// The most disks that machines are registered with.
const MAX_DISKS: usize = 256;

/// A disk that is known.
///
/// # Invariants
///
/// `users` counts the [`ReservedDisk`]s with these reservations. It is not 0 if no machine is
/// registered.
struct Known {
    disk: DiskId<LocalId>,
    reservations: Arc<Reservations>,
    users: usize,
}

/// The reservations of all disks that are open, or that a machine is registered with.
#[pin_data]
pub(crate) struct ReservedDisks {
    /// Sorted by when the server first opened the disk. The lock is taken before that of a disk's
    /// state, and not held while anything is waited for.
    #[pin]
    disks: Mutex<KVec<Known>>,
}

impl ReservedDisks {
    /// No disk. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                disks <- new_mutex!(KVec::new(), "ReservedDisks::disks"),
            }),
            GFP_KERNEL,
        )
    }

    /// The reservations of a disk that is opened, by whichever of its devices. They are the same as
    /// when the disk was last closed. `name` is that of its directory. Sleeps.
    pub(crate) fn opened(
        self: &Arc<Self>,
        disk: DiskId<LocalId>,
        name: &CStr,
    ) -> Result<Arc<ReservedDisk>> {
        let opened = ReservedDisk {
            reservations: self.find_or_add(disk, name)?,
            disks: self.clone(),
        };
        // Not with the list locked: it is dropped here if there is no memory.
        Ok(Arc::new(opened, GFP_KERNEL)?)
    }

    /// The reservations of a disk, with one more user.
    fn find_or_add(&self, disk: DiskId<LocalId>, name: &CStr) -> Result<Arc<Reservations>> {
        let mut disks = self.disks.lock();
        disks.retain(|known| {
            let is_gone = known.users == 0 && known.disk.is_replaced_by(&disk);
            if is_gone {
                pr_info_ratelimited!(
                    "device {:?} has come in the place of {:?}, whose reservations are dropped\n",
                    name,
                    known.reservations.name()
                );
            }
            !is_gone
        });
        if let Some(known) = disks.iter_mut().find(|known| known.disk.is_same_as(&disk)) {
            known.reservations.set_name(name)?;
            known.users = known.users.checked_add(1).ok_or(EOVERFLOW)?;
            if !disk.wwid.is_empty() {
                known.disk = disk;
            }
            return Ok(known.reservations.clone());
        }
        let reservations = Reservations::new(name)?;
        let known = Known {
            disk,
            reservations: reservations.clone(),
            users: 1,
        };
        disks.push(known, GFP_KERNEL)?;
        Ok(reservations)
    }

    /// A device of the disk was closed by the last session. Sleeps.
    fn closed(&self, reservations: &Arc<Reservations>) {
        let mut disks = self.disks.lock();
        let is_it = |known: &Known| Arc::ptr_eq(&known.reservations, reservations);
        if let Some(known) = disks.iter_mut().find(|known| is_it(known)) {
            // The caller is one of them.
            known.users = known.users.wrapping_sub(1);
        }
        // INVARIANT: A disk without users has registrants.
        disks.retain(|known| !is_it(known) || known.users != 0 || !reservations.is_empty());
    }

    /// Makes room for a disk that a machine registers with while no other one is registered; the
    /// machine is to be registered while the result is kept. Sleeps.
    ///
    /// If there are too many, the keys that are known for longest are dropped, of a disk that is
    /// neither open nor reserved. `ENOSPC`, which is logged, if there is no such disk.
    fn admit(&self, reservations: &Reservations) -> Result<impl Sized + '_> {
        let mut disks = self.disks.lock();
        let has_registrants = |known: &&Known| !known.reservations.is_empty();
        if disks.iter().filter(has_registrants).count() >= MAX_DISKS {
            let mut places = disks.iter();
            let droppable = |known: &Known| known.users == 0 && !known.reservations.is_reserved();
            let Some(place) = places.position(droppable) else {
                pr_err_ratelimited!(
                    "device {:?}: no machine can register, as machines are registered with {} \
                     other disks: remove some, see ctl/kept_reservations and clear_reservations \
                     of the open disks\n",
                    reservations.name(),
                    MAX_DISKS
                );
                return Err(ENOSPC);
            };
            let dropped = disks.remove(place).map_err(|_| EINVAL)?;
            pr_info_ratelimited!(
                "the keys that are registered with {:?} are dropped for those of {:?}\n",
                dropped.reservations.name(),
                reservations.name()
            );
        }
        Ok(disks)
    }

    /// Writes a line for each disk that no session has open: its name and what is kept. Sleeps.
    pub(crate) fn show_kept(&self, out: &mut SysfsOutput<'_>) -> Result {
        let disks = self.disks.lock();
        let mut kept = disks.iter().filter(|known| known.users == 0);
        kept.try_for_each(|known| known.reservations.show_line(&known.disk.wwid, out))
    }

    /// Drops what is kept of the disk of this name that no session has open: the name of its
    /// directory, or its name in the world. Sleeps.
    ///
    /// `ENOENT` if there is none, `EEXIST` if several disks have had that name.
    pub(crate) fn drop_kept(&self, name: &[u8]) -> Result {
        let mut disks = self.disks.lock();
        let is_it = |known: &Known| {
            let is_named =
                known.reservations.name().to_bytes() == name || known.disk.wwid.as_bytes() == name;
            known.users == 0 && is_named
        };
        match disks.iter().filter(|known| is_it(known)).count() {
            0 => return Err(ENOENT),
            1 => disks.retain(|known| !is_it(known)),
            _ => return Err(EEXIST),
        }
        pr_info_ratelimited!(
            "kept_reservations: the administrator has dropped the reservations of {:?}\n",
            Text::<100>::of(&Untrusted(name)).as_str()
        );
        Ok(())
    }
}

/// A disk that sessions have open by one of its devices, as reservations know it.
///
/// Dropped in process context.
pub(crate) struct ReservedDisk {
    disks: Arc<ReservedDisks>,
    reservations: Arc<Reservations>,
}

impl ReservedDisk {
    /// The reservations of the disk.
    pub(crate) fn reservations(&self) -> &Arc<Reservations> {
        &self.reservations
    }

    /// Does a command of the machine that has the open device `place`; see
    /// [`Reservations::execute`]. Sleeps.
    pub(crate) fn execute(&self, place: u64, command: &Command) -> Result {
        let admit = || self.disks.admit(&self.reservations);
        self.reservations.execute(place, command, admit)
    }
}

impl Drop for ReservedDisk {
    fn drop(&mut self) {
        self.disks.closed(&self.reservations);
    }
}
