// SPDX-License-Identifier: GPL-2.0

//! Devices that sessions have open: who may open them, and their directories
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
    block::bdev::BlockDevice,
    pr_err_ratelimited,
    prelude::*,
    sysfs::{
        Directory,
        Link, //
    }, //
};
use proto::{
    access::Writers,
    name::SessName,
    rnbd::AccessMode, //
};

use rtrs_core::error::from_errno;

/// All devices that sessions have open.
#[pin_data]
pub(crate) struct Exports {
    /// Held while a device's directory is made and removed, so that the next open of the device
    /// finds it whole or not at all.
    #[pin]
    list: Mutex<KVec<Entry>>,
    devices: Directory<()>,
}

/// A device that sessions have open.
struct Entry {
    export: Arc<Export>,
    writers: Writers,
    opens: usize,
}

/// The directory of a device that sessions have open.
struct Export {
    /// The kernel's name of the device.
    name: CString,
    _block_dev: Link,
    sessions: Directory<()>,
    directory: Directory<()>,
}

/// That a session has a device open in some mode. Dropped in process context.
pub(crate) struct ExportOpen {
    exports: Arc<Exports>,
    export: Arc<Export>,
    mode: AccessMode,
}

impl Export {
    fn new(devices: &Directory<()>, device: &BlockDevice, name: CString) -> Result<Self> {
        let directory = Directory::empty(devices, &name)?;
        let sessions = Directory::empty(&directory, c"sessions")?;
        Ok(Self {
            _block_dev: Link::new(&directory, device, c"block_dev")?,
            name,
            sessions,
            directory,
        })
    }

    /// Removes the directory. Sleeps.
    fn remove(&self) {
        self.sessions.remove();
        self.directory.remove();
    }
}

impl Exports {
    /// Makes an empty list with directories below `devices`. Sleeps.
    pub(crate) fn new(devices: Directory<()>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "Exports::list"),
                devices,
            }),
            GFP_KERNEL,
        )
    }

    /// Notes that `session` has opened `device`. Sleeps.
    ///
    /// `EPERM` if the mode is not possible together with those of the other sessions.
    pub(crate) fn open(
        self: &Arc<Self>,
        device: &BlockDevice,
        mode: AccessMode,
        session: &SessName,
    ) -> Result<ExportOpen> {
        let name = device.name()?;
        let mut list = self.list.lock();
        if let Some(entry) = list
            .iter_mut()
            .find(|entry| entry.export.name.to_bytes() == name.to_bytes())
        {
            let opens = entry.opens.checked_add(1).ok_or(EOVERFLOW)?;
            entry.writers = entry.writers.opened(mode).map_err(|denied| {
                pr_err_ratelimited!(
                    "session {:?}: opening device {:?}: {}\n",
                    session.as_cstr(),
                    &*name,
                    denied.message().as_str()
                );
                from_errno(denied.errno())
            })?;
            entry.opens = opens;
            return Ok(ExportOpen {
                exports: self.clone(),
                export: entry.export.clone(),
                mode,
            });
        }
        let export = Arc::new(Export::new(&self.devices, device, name)?, GFP_KERNEL)?;
        let writers = Writers::NONE
            .opened(mode)
            .map_err(|denied| from_errno(denied.errno()))?;
        list.push(
            Entry {
                export: export.clone(),
                writers,
                opens: 1,
            },
            GFP_KERNEL,
        )?;
        Ok(ExportOpen {
            exports: self.clone(),
            export,
            mode,
        })
    }
}

impl ExportOpen {
    /// The kernel's name of the device.
    pub(crate) fn device_name(&self) -> &CStr {
        &self.export.name
    }

    /// Where the sessions that have the device open are shown.
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
        // This is one of them.
        entry.opens = entry.opens.wrapping_sub(1);
        if entry.opens == 0 {
            // Not left to the drop of the last reference, when the list is not locked any more.
            self.export.remove();
            list.retain(|entry| !ours(entry));
        }
    }
}
