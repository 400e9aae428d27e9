// SPDX-License-Identifier: GPL-2.0

//! The disks whose reservations are kept: disks that are open, and disks with registered machines.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    mm::without_io,
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    sysfs::SysfsOutput, //
};
use proto::{
    disk_id::{
        self,
        Ambiguous,
        DiskId, //
    },
    rnbd::{
        Command,
        Wwid, //
    },
    text::{
        Text,
        Untrusted, //
    }, //
};

use crate::{
    disk::{
        Disk,
        LocalId, //
    },
    reservation_store::ReservationStore,
    reservations::Reservations, //
};

/// The most disks with registered machines.
const MAX_DISKS: usize = 256;

/// A disk that is known.
///
/// # Invariants
///
/// `users` is the number of [`ReservedDisk`]s with these reservations. It is not 0 if no machine is
/// registered.
struct Known {
    disk: DiskId<LocalId>,
    reservations: Arc<Reservations>,
    users: usize,
    /// The first machine is about to register.
    is_admitted: bool,
}

/// The reservations of all disks that are open or have registered machines.
#[pin_data]
pub(crate) struct ReservedDisks {
    /// Sorted by when the server first opened the disk. The lock is taken before the lock of a
    /// disk's state, and is not held while anything is waited for; see [`Reservations`] on memory.
    #[pin]
    disks: Mutex<KVec<Known>>,
    store: Option<Arc<ReservationStore>>,
}

impl ReservedDisks {
    /// Makes an empty list; the store may have the reservations of further disks. Sleeps.
    pub(crate) fn new(store: Option<Arc<ReservationStore>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                disks <- new_mutex!(KVec::new(), "ReservedDisks::disks"),
                store,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the reservations of a disk that is opened, by whichever of its devices. The
    /// reservations are the same as when the disk was last closed. At the first open they are those
    /// of the store. Sleeps.
    ///
    /// Errors of [`Self::find_or_add`] and [`Reservations::load`]. `EPERM`, which is logged, if the
    /// disk is a file of the store's folder. `EAGAIN`, which is logged, if there is a store and the
    /// disk's wwid is unknown now: the store may have a reservation of the disk.
    pub(crate) fn opened(self: &Arc<Self>, disk: &Disk<'_>) -> Result<Arc<ReservedDisk>> {
        if let (Disk::File(file), Some(store)) = (disk, &self.store) {
            if store.holds(file) {
                pr_err_ratelimited!(
                    "a file of state_dir is not opened as a disk: keep state_dir out of \
                     dev_search_path\n"
                );
                return Err(EPERM);
            }
        }
        let wwid = match disk.wwid() {
            Err(error) if self.store.is_some() => {
                pr_err_ratelimited!(
                    "{:?}: the disk's wwid cannot be read now ({:?}), nor its reservation found in \
                     state_dir: the disk is not opened: look at the disk, and map it again when \
                     its wwid can be read\n",
                    disk.local_id(),
                    error
                );
                return Err(EAGAIN);
            }
            known => known.unwrap_or(Wwid::NONE),
        };
        let disk = disk.lasting_id(wwid);
        let opened = ReservedDisk {
            reservations: self.find_or_add(disk)?,
            disks: self.clone(),
        };
        // Without the list's lock: the file system may take its time, and after an error `opened`
        // is dropped, which takes the lock.
        opened.reservations.load(&wwid)?;
        Ok(Arc::new(opened, GFP_KERNEL)?)
    }

    /// Returns the reservations of a disk, with one more user. `EBUSY`, which is logged, if several
    /// known disks are this one, see [`Ambiguous`].
    fn find_or_add(&self, disk: DiskId<LocalId>) -> Result<Arc<Reservations>> {
        without_io(|| self.find_or_add_locked(disk))
    }

    fn find_or_add_locked(&self, disk: DiskId<LocalId>) -> Result<Arc<Reservations>> {
        let mut disks = self.disks.lock();
        disks.retain(|known| {
            let is_gone = known.users == 0 && known.disk.is_replaced_by(&disk);
            if is_gone {
                pr_info_ratelimited!(
                    "another disk has replaced device {:?}, whose reservations are dropped\n",
                    known.reservations.name()
                );
            }
            !is_gone
        });
        let found = disk_id::find(disks.iter().map(|known| &known.disk), &disk);
        let place = found.map_err(|Ambiguous| {
            pr_err_ratelimited!(
                "{:?}: the server knows the disk twice, by its wwid {:?} and from before its wwid \
                 was known: the disk is not opened until the sessions that have it open since then \
                 close it, and their keys are dropped (ctl/kept_reservations)\n",
                disk.place,
                disk.wwid
            );
            EBUSY
        })?;
        if let Some(known) = place.and_then(|place| disks.get_mut(place)) {
            known.users = known.users.checked_add(1).ok_or(EOVERFLOW)?;
            if !disk.wwid.is_empty() {
                known.disk = disk;
            }
            return Ok(known.reservations.clone());
        }
        let reservations = Reservations::new(self.store.clone())?;
        let known = Known {
            disk,
            reservations: reservations.clone(),
            users: 1,
            is_admitted: false,
        };
        disks.push(known, GFP_KERNEL)?;
        Ok(reservations)
    }

    /// Takes a user away: a device of the disk was closed by the last session. Sleeps.
    fn closed(&self, reservations: &Arc<Reservations>) {
        let mut disks = self.disks.lock();
        let is_it = |known: &Known| known.is_of(reservations);
        if let Some(known) = disks.iter_mut().find(|known| is_it(known)) {
            // The caller is one of the users.
            known.users = known.users.wrapping_sub(1);
        }
        // INVARIANT: A disk without users is kept only if it has registrants.
        disks.retain(|known| !is_it(known) || known.users != 0 || !reservations.is_empty());
    }

    /// Makes room for a disk with which a machine registers while no other machine is registered.
    /// The machine is to be registered while the result is kept. Sleeps.
    ///
    /// If there are too many disks, a disk is forgotten that is not open and whose reservations are
    /// in the store. If there is no such disk, a disk that is neither open nor reserved, nor in the
    /// store, is dropped with its keys: the one that is known for longest. `ENOSPC`, which is
    /// logged, if there is no disk of this kind either.
    fn admit<'a>(&'a self, reservations: &'a Arc<Reservations>) -> Result<Admitted<'a>> {
        let mut disks = self.disks.lock();
        let is_counted = |known: &&Known| known.is_admitted || !known.reservations.is_empty();
        if disks.iter().filter(is_counted).count() >= MAX_DISKS {
            forget_one(&mut disks, reservations)?;
        }
        let mut known = disks.iter_mut();
        if let Some(known) = known.find(|known| known.is_of(reservations)) {
            known.is_admitted = true;
        }
        // Without the lock, since the store may have to write.
        Ok(Admitted {
            disks: self,
            reservations,
        })
    }

    /// Writes a line about each disk that no session has open: its name and how it is reserved.
    /// Sleeps.
    pub(crate) fn show_kept(&self, out: &mut SysfsOutput<'_>) -> Result {
        let disks = self.disks.lock();
        let mut kept = disks.iter().filter(|known| known.users == 0);
        kept.try_for_each(|known| known.reservations.show_line(&known.disk.wwid, out))
    }

    /// Drops the reservations of a disk that no session has open. `name` is the name of the disk's
    /// directory, or its wwid. Sleeps.
    ///
    /// `ENOENT` if there is no such disk, `EEXIST` if several disks have had that name; errors of
    /// [`ReservationStore::save`].
    pub(crate) fn drop_kept(self: &Arc<Self>, name: &[u8]) -> Result {
        match self.use_kept(name)? {
            // The disk is forgotten when it is dropped, since no machine is registered then.
            Some(disk) => disk.reservations.clear()?,
            None => self.drop_stored(name)?,
        }
        pr_info_ratelimited!(
            "kept_reservations: the administrator has dropped the reservations of {:?}\n",
            Text::<100>::of(&Untrusted(name)).as_str()
        );
        Ok(())
    }

    /// Finds the known disk of this name that is not open, and becomes its user. `EEXIST` if there
    /// are several.
    fn use_kept(self: &Arc<Self>, name: &[u8]) -> Result<Option<ReservedDisk>> {
        let mut disks = self.disks.lock();
        let is_it = |known: &Known| {
            let is_named =
                known.reservations.name().to_bytes() == name || known.disk.wwid.as_bytes() == name;
            known.users == 0 && is_named
        };
        let count = disks.iter().filter(|known| is_it(known)).count();
        let Some(known) = disks.iter_mut().find(|known| is_it(known)) else {
            return Ok(None);
        };
        if count != 1 {
            return Err(EEXIST);
        }
        known.users = 1;
        Ok(Some(ReservedDisk {
            disks: self.clone(),
            reservations: known.reservations.clone(),
        }))
    }

    /// Removes the file of the disk with this wwid; the server has not had the disk open since it
    /// was started. `ENOENT` if there is no file.
    fn drop_stored(self: &Arc<Self>, name: &[u8]) -> Result {
        let wwid = Wwid::from_text(name).ok_or(ENOENT)?;
        let disk = self.add_absent(wwid)?;
        if disk.reservations.remove_unread(&wwid)? {
            Ok(())
        } else {
            Err(ENOENT)
        }
    }

    /// Adds a disk with this wwid that has no device: an open of the disk finds its reservations,
    /// and waits for their turn only. `ENOENT` if the disk is known.
    fn add_absent(self: &Arc<Self>, wwid: Wwid) -> Result<ReservedDisk> {
        without_io(|| self.add_absent_locked(wwid))
    }

    fn add_absent_locked(self: &Arc<Self>, wwid: Wwid) -> Result<ReservedDisk> {
        let mut disks = self.disks.lock();
        if disks.iter().any(|known| known.disk.wwid == wwid) {
            return Err(ENOENT);
        }
        let reservations = Reservations::new(self.store.clone())?;
        let known = Known {
            // No block device has this number.
            disk: DiskId {
                place: LocalId::BlockDevice(0),
                wwid,
                sequence: 0,
            },
            reservations: reservations.clone(),
            users: 1,
            is_admitted: false,
        };
        disks.push(known, GFP_KERNEL)?;
        Ok(ReservedDisk {
            disks: self.clone(),
            reservations,
        })
    }
}

/// Forgets a disk to make room for another one; see [`ReservedDisks::admit`].
fn forget_one(disks: &mut KVec<Known>, new: &Reservations) -> Result {
    let mut places = disks.iter();
    let saved = places.position(|known| known.users == 0 && known.reservations.is_saved());
    if let Some(place) = saved {
        // The reservations are read again when the disk is opened.
        drop(disks.remove(place));
        return Ok(());
    }
    let droppable = |known: &Known| {
        let reservations = &known.reservations;
        known.users == 0 && reservations.is_only_here() && !reservations.is_reserved()
    };
    let mut places = disks.iter();
    let Some(place) = places.position(droppable) else {
        pr_err_ratelimited!(
            "device {:?}: no machine can register: {} other disks have registered machines, and \
             the server keeps no more; remove the registrations of a disk: write its name to \
             ctl/kept_reservations, or 1 to clear_reservations of an open disk\n",
            new.name(),
            MAX_DISKS
        );
        return Err(ENOSPC);
    };
    let dropped = disks.remove(place).map_err(|_| EINVAL)?;
    pr_info_ratelimited!(
        "the keys that are registered with {:?} are dropped to make room for those of {:?}\n",
        dropped.reservations.name(),
        new.name()
    );
    Ok(())
}

impl Known {
    /// Whether this is the disk with these reservations.
    fn is_of(&self, reservations: &Arc<Reservations>) -> bool {
        Arc::ptr_eq(&self.reservations, reservations)
    }
}

/// The first machine may register with a disk. Dropped when the machine is registered, or is not to
/// be.
struct Admitted<'a> {
    disks: &'a ReservedDisks,
    reservations: &'a Arc<Reservations>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut disks = self.disks.disks.lock();
        let mut known = disks.iter_mut();
        if let Some(known) = known.find(|known| known.is_of(self.reservations)) {
            known.is_admitted = false;
        }
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
