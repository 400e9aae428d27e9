// SPDX-License-Identifier: GPL-2.0

//! Devices that sessions have open: the modes that exclude each other, and the directories
//! (`/sys/class/rnbd-server/ctl/devices/<device>/`).

use kernel::{
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    fs::file::RegularFile,
    pr_err_ratelimited,
    prelude::*,
    sysfs::{
        Attribute,
        Directory,
        Link,
        StoreContext,
        SysfsOutput, //
    }, //
};
use proto::{
    access::Writers,
    name::SessName,
    rnbd::{
        AccessMode,
        IoMode, //
    },
    sysfs_name::{
        file_device,
        FILE_DEVICE_LEN, //
    },
    text::{
        Text,
        Untrusted, //
    },
    PATH_MAX, //
};
use rtrs_core::{
    error::from_errno,
    sysfs::is_text, //
};

use crate::{
    disk::{
        Disk,
        LocalId, //
    },
    handle::HandleUse,
    reservations::Reservations,
    reserved_disks::{
        ReservedDisk,
        ReservedDisks, //
    }, //
};

/// All devices that sessions have open.
#[pin_data]
pub(crate) struct Exports {
    /// Held while a device's directory is made and removed, so that the next open of the device
    /// finds it whole or not at all.
    #[pin]
    list: Mutex<KVec<Entry>>,
    devices: Directory<()>,
    reserved: Arc<ReservedDisks>,
}

/// A device that sessions have open.
struct Entry {
    local_id: LocalId,
    /// How all sessions use the disk. A request past the page cache would not see what a request
    /// through the page cache has written.
    io_mode: IoMode,
    export: Arc<Export>,
    writers: Writers,
    opens: usize,
}

/// The directory of a device that sessions have open.
struct Export {
    /// The kernel's name of a block device; for the name of a file see [`file_device`].
    name: CString,
    _block_dev: Option<Link>,
    sessions: Directory<()>,
    directory: Directory<Shown>,
    shown: Arc<Shown>,
    reserved: Arc<ReservedDisk>,
}

/// The data that the files of a device's directory show.
#[pin_data]
struct Shown {
    /// The path of a file; empty for a block device.
    path: CString,
    reservations: Arc<Reservations>,
    /// The disk, until the directory is removed.
    #[pin]
    reserved: Mutex<Option<Arc<ReservedDisk>>>,
}

/// How the disk is reserved.
const RESERVATIONS: Attribute<Shown> =
    Attribute::read_only(c"reservations", |shown, out| shown.reservations.show(out));

/// Removes the reservation and all registrants.
const CLEAR_RESERVATIONS: Attribute<Shown> = Attribute::read_write(
    c"clear_reservations",
    |_, out| out.print(fmt!("Usage: echo 1 > clear_reservations\n")),
    store_clear,
);

/// The files of a block device's directory (`/sys/class/rnbd-server/ctl/devices/<device>/`).
const BLOCK_FILES: &[Attribute<Shown>] = &[RESERVATIONS, CLEAR_RESERVATIONS];

/// The files of a file's directory.
const FILES: &[Attribute<Shown>] = &[
    RESERVATIONS,
    CLEAR_RESERVATIONS,
    Attribute::read_only(c"path", show_path),
];

fn show_path(shown: &Arc<Shown>, out: &mut SysfsOutput<'_>) -> Result {
    out.write_bytes(shown.path.to_bytes());
    out.write_bytes(b"\n");
    Ok(())
}

fn store_clear(shown: &Arc<Shown>, context: &StoreContext<'_>, bytes: &[u8]) -> Result {
    if !is_text(bytes, "1") {
        pr_err_ratelimited!(
            "device {:?}: clear_reservations: invalid value '{}', write 1\n",
            shown.path,
            Text::<100>::of(&Untrusted(bytes)).as_str()
        );
        return Err(EINVAL);
    }
    // Keeps the disk known: an open of the disk meanwhile finds this table, whose file is written.
    let reserved = shown.reserved.lock().clone().ok_or(ENODEV)?;
    // The file system may hang. Without this, the removal of the directory would wait for it, and
    // with that all sessions that open or close a disk.
    context.release_protection()?;
    reserved.reservations().clear()
}

/// A session's open of a device, in some mode. Dropped in process context.
pub(crate) struct ExportOpen {
    exports: Arc<Exports>,
    export: Arc<Export>,
    mode: AccessMode,
    io_mode: IoMode,
}

impl Export {
    /// Makes the directory. `taken` tells whether another device has a name. Sleeps.
    fn new(
        devices: &Directory<()>,
        disk: &HandleUse,
        reserved: Arc<ReservedDisk>,
        taken: impl Fn(&CStr) -> bool,
    ) -> Result<Self> {
        let (name, path, files) = match disk.disk() {
            Disk::BlockDevice(device) => (device.name()?, CString::try_from(c"")?, BLOCK_FILES),
            Disk::File(file) => {
                let (name, path) = names_of(file, taken)?;
                (name, path, FILES)
            }
        };
        reserved.reservations().set_name(&name)?;
        reserved.reservations().tell_if_not_kept();
        let reservations = reserved.reservations().clone();
        let shown_disk = Some(reserved.clone());
        let shown = Arc::pin_init(
            pin_init!(Shown {
                path,
                reservations,
                reserved <- new_mutex!(shown_disk, "Shown::reserved"),
            }),
            GFP_KERNEL,
        )?;
        let directory = Directory::new(devices, &name, files, shown.clone())?;
        let sessions = Directory::empty(&directory, c"sessions")?;
        let link = match disk.disk() {
            Disk::BlockDevice(device) => Some(Link::new(&directory, device, c"block_dev")),
            Disk::File(_) => None,
        };
        Ok(Self {
            _block_dev: link.transpose()?,
            name,
            sessions,
            directory,
            shown,
            reserved,
        })
    }

    /// Removes the directory. Sleeps, but not for a file system.
    fn remove(&self) {
        let reserved = self.shown.reserved.lock().take();
        // The export keeps the disk, too.
        drop(reserved);
        self.sessions.remove();
        self.directory.remove();
    }
}

/// The name of a file's directory, and the file's path. Sleeps.
///
/// A file that is open may have been replaced. Then the open file has the name, and the new file at
/// its path gets a name with its number.
fn names_of(file: &RegularFile, taken: impl Fn(&CStr) -> bool) -> Result<(CString, CString)> {
    let mut buffer = KVec::from_elem(0u8, PATH_MAX, GFP_KERNEL)?;
    let path = file.path(&mut buffer)?;
    let mut name = [0; FILE_DEVICE_LEN];
    if taken(file_device(path.to_bytes(), None, &mut name)) {
        let number = file.facts().id.ino;
        file_device(path.to_bytes(), Some(number), &mut name);
    }
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| EINVAL)?;
    Ok((CString::try_from(name)?, CString::try_from(path)?))
}

impl Entry {
    /// Counts one more session that has the device open; see [`Exports::open`] for the errors.
    fn join(&mut self, io_mode: IoMode, mode: AccessMode, session: &SessName) -> Result {
        if self.io_mode != io_mode {
            pr_err_ratelimited!(
                "session {:?}: device {:?} is open with io mode '{}' by other sessions: map it \
                 with that mode, or without io_mode=\n",
                session.as_cstr(),
                &*self.export.name,
                self.io_mode.as_str()
            );
            return Err(EBUSY);
        }
        let opens = self.opens.checked_add(1).ok_or(EOVERFLOW)?;
        self.writers = self.writers.opened(mode).map_err(|denied| {
            pr_err_ratelimited!(
                "session {:?}: opening device {:?}: {}\n",
                session.as_cstr(),
                &*self.export.name,
                denied.message().as_str()
            );
            from_errno(denied.errno())
        })?;
        self.opens = opens;
        Ok(())
    }
}

impl Exports {
    /// Makes an empty list with directories below `devices`. Sleeps.
    pub(crate) fn new(devices: Directory<()>, reserved: Arc<ReservedDisks>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "Exports::list"),
                devices,
                reserved,
            }),
            GFP_KERNEL,
        )
    }

    /// How sessions read and write a disk that they have open; `None` if no session has it open.
    /// Sleeps.
    pub(crate) fn io_mode_of(&self, local_id: LocalId) -> Option<IoMode> {
        let list = self.list.lock();
        let entry = list.iter().find(|entry| entry.local_id == local_id)?;
        Some(entry.io_mode)
    }

    /// The writers of a disk, and how many sessions have it open. Sleeps.
    pub(crate) fn use_of(&self, local_id: LocalId) -> (Writers, usize) {
        let list = self.list.lock();
        let entry = list.iter().find(|entry| entry.local_id == local_id);
        entry.map_or((Writers::NONE, 0), |entry| (entry.writers, entry.opens))
    }

    /// Notes that `session` has opened `disk`, by whatever name. Sleeps.
    ///
    /// `EBUSY` if other sessions read and write the disk in another way, `EPERM` if the mode is not
    /// possible together with the modes of other sessions; errors of [`ReservedDisks::opened`].
    pub(crate) fn open(
        self: &Arc<Self>,
        disk: &HandleUse,
        mode: AccessMode,
        session: &SessName,
    ) -> Result<ExportOpen> {
        let local_id = disk.disk().local_id();
        // Not under the lock: the state of the disk's reservations may have to be read from a file.
        let reserved = self.reserved.opened(&disk.disk())?;
        let mut list = self.list.lock();
        if let Some(entry) = list.iter_mut().find(|entry| entry.local_id == local_id) {
            entry.join(disk.io_mode(), mode, session)?;
            return Ok(ExportOpen {
                exports: self.clone(),
                export: entry.export.clone(),
                mode,
                io_mode: entry.io_mode,
            });
        }
        let taken = |name: &CStr| {
            list.iter()
                .any(|entry| entry.export.name.to_bytes() == name.to_bytes())
        };
        let export = Arc::new(
            Export::new(&self.devices, disk, reserved, taken)?,
            GFP_KERNEL,
        )?;
        let writers = Writers::NONE
            .opened(mode)
            .map_err(|denied| from_errno(denied.errno()))?;
        let io_mode = disk.io_mode();
        let entry = Entry {
            local_id,
            io_mode,
            export: export.clone(),
            writers,
            opens: 1,
        };
        list.push(entry, GFP_KERNEL)?;
        Ok(ExportOpen {
            exports: self.clone(),
            export,
            mode,
            io_mode,
        })
    }
}

impl ExportOpen {
    /// The name of the device's directory.
    pub(crate) fn device_name(&self) -> &CStr {
        &self.export.name
    }

    /// How the session reads and writes the device.
    pub(crate) fn io_mode(&self) -> IoMode {
        self.io_mode
    }

    /// The disk, as reservations know it.
    pub(crate) fn reserved(&self) -> &Arc<ReservedDisk> {
        &self.export.reserved
    }

    /// The directory of the sessions that have the device open.
    pub(crate) fn sessions(&self) -> &Directory<()> {
        &self.export.sessions
    }
}

impl Drop for ExportOpen {
    fn drop(&mut self) {
        let mut list = self.exports.list.lock();
        let ours = |entry: &Entry| Arc::ptr_eq(&entry.export, &self.export);
        let Some(entry) = list.iter_mut().find(|entry| ours(entry)) else {
            return;
        };
        entry.writers = entry.writers.closed(self.mode);
        // This open was counted.
        entry.opens = entry.opens.wrapping_sub(1);
        if entry.opens == 0 {
            // Not left to the drop of the last reference, which comes when the list is not locked
            // any more.
            self.export.remove();
            list.retain(|entry| !ours(entry));
        }
    }
}
