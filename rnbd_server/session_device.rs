// SPDX-License-Identifier: GPL-2.0

//! A device that a session has open.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_info_ratelimited,
    sysfs::Directory, //
};
use proto::{
    name::Name,
    rnbd::{
        AccessMode,
        Open, //
    }, //
};

use crate::{
    export::ExportOpen,
    handle::{
        Handle,
        HandleUse, //
    },
    session::Session,
    sysfs, //
};

/// A device that a session has open.
///
/// It and its directory keep each other until [`SessionDevice::close`].
#[pin_data]
pub(crate) struct SessionDevice {
    session: Arc<Session>,
    id: u32,
    name: Name,
    mode: AccessMode,
    handle: Handle,
    #[pin]
    shown: Mutex<Option<Shown>>,
}

/// What others see of an open device.
struct Shown {
    // Removed before the directory of the export that it is in.
    directory: Directory<SessionDevice>,
    export: ExportOpen,
}

impl SessionDevice {
    /// Makes a device and its directory. Sleeps.
    ///
    /// `EEXIST` if the session has the same disk open under another name.
    pub(crate) fn new(
        session: &Arc<Session>,
        id: u32,
        message: &Open,
        handle: Handle,
        export: ExportOpen,
    ) -> Result<Arc<Self>> {
        let device = Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                id,
                name: message.dev_name,
                mode: message.access_mode,
                handle,
                shown <- new_mutex!(None, "SessionDevice::shown"),
            }),
            GFP_KERNEL,
        )?;
        let directory = Directory::new(
            export.sessions(),
            session.name().as_cstr(),
            sysfs::SESSION_DEVICE,
            device.clone(),
        )?;
        *device.shown.lock() = Some(Shown { directory, export });
        Ok(device)
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The number that the client knows the device by.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The path below the search path that the client gave.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// What the client may do.
    pub(crate) fn mode(&self) -> AccessMode {
        self.mode
    }

    /// Lets the caller at the device, unless it is closed. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<HandleUse> {
        self.handle.enter()
    }

    /// Closes the device when its requests are finished, and removes its directory. Sleeps.
    ///
    /// Called with the control lock of the session held, and not from a function of the directory
    /// that has not released its protection.
    pub(crate) fn close(&self) {
        let shown = self.shown.lock().take();
        if let Some(Shown { directory, export }) = shown {
            directory.remove();
            self.handle.close();
            pr_info_ratelimited!(
                "session {:?}: closed device {:?}\n",
                self.session.name().as_cstr(),
                export.device_name()
            );
        }
    }
}
