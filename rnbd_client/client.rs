// SPDX-License-Identifier: GPL-2.0

//! What all devices share, and the table of sessions.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
use kernel_ext::{
    block::{
        major::Major,
        mq::gen_disk::GenDisk, //
    },
    device::class::ClassDevice,
    ida::{
        Ida,
        IdaNumber, //
    },
    prelude::*,
    sync::completion::KillableMutex,
    sysfs::{
        Directory,
        Link, //
    }, //
};
use proto::{
    map_options::SessionOptions,
    name::SessName,
    sysfs_name, //
};

use crate::{
    disk::MAX_INDEX,
    queue::Queue,
    remote_device::RemoteDevice,
    session::{
        Session,
        SessionContext, //
    }, //
};

/// What all devices share.
#[pin_data]
pub(crate) struct Client {
    pub(crate) context: SessionContext,
    pub(crate) major: Arc<Major>,
    indices: Arc<Ida>,
    /// `/sys/class/rnbd-client/ctl/devices`.
    devices_directory: SetOnce<Directory<()>>,
    #[pin]
    sessions: Mutex<KVec<Arc<Entry>>>,
}

/// The name of a session that is in use, or is being opened or closed.
#[pin_data]
struct Entry {
    name: SessName,
    /// Taken by a task that may open the session.
    #[pin]
    opening: KillableMutex,
    /// `None` while the session is not open. Held while the session is being opened or closed, so
    /// that there is one session of a name at a time, and other tasks wait.
    #[pin]
    session: Mutex<Option<Arc<Session>>>,
    /// The number of users; changed under the lock of the table.
    #[pin]
    users: Mutex<usize>,
}

impl Client {
    /// Registers the driver. Sleeps. `EBUSY` if there is no major number, as C says.
    pub(crate) fn new(context: SessionContext) -> Result<Arc<Self>> {
        let major =
            Major::register(c"rnbd").map_err(|error| {
                pr_err!(
                "cannot register a major number for block devices, err: {}; /proc/devices lists \
                 the numbers in use\n", error.to_errno());
                EBUSY
            })?;
        Arc::pin_init(
            try_pin_init!(Self {
                context,
                major,
                indices: Ida::new()?,
                devices_directory: SetOnce::new(),
                sessions <- new_mutex!(KVec::new(), "Client::sessions"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes the directory of the links to devices, below `ctl`. Sleeps.
    pub(crate) fn set_devices_directory(&self, ctl: &ClassDevice<Client>) -> Result {
        self.devices_directory
            .populate(Directory::empty(ctl, c"devices")?);
        Ok(())
    }

    /// Removes the directory of the links, with all links in it. Sleeps.
    pub(crate) fn remove_devices_directory(&self) {
        if let Some(directory) = self.devices_directory.as_ref() {
            directory.remove();
        }
    }

    /// Makes the link of a device to its disk. Sleeps.
    pub(crate) fn link_device(&self, device: &RemoteDevice, disk: &GenDisk<Queue>) -> Result<Link> {
        let mut buffer = [0; sysfs_name::DEVICE_LINK_LEN];
        let name = sysfs_name::device_link(&device.path, &device.server.session, &mut buffer);
        let directory = self.devices_directory.as_ref().ok_or(ENODEV)?;
        Link::new(directory, disk, name)
    }

    /// Takes the index of a new disk.
    pub(crate) fn new_index(&self) -> Result<IdaNumber> {
        self.indices.allocate(MAX_INDEX)
    }

    /// Finds the session of a name, or opens one. Sleeps.
    ///
    /// `ENXIO` if there is no such session and no path to open one by; the errors of
    /// [`Session::open`].
    pub(crate) fn use_session(self: &Arc<Self>, options: &SessionOptions) -> Result<SessionUser> {
        let entry = self.enter(&options.sessname)?;
        let mut user = SessionUser {
            client: self.clone(),
            entry,
            session: None,
            is_first: false,
        };
        let entry = user.entry.clone();
        // The task that has this lock waits for the server, which may take any time.
        let _opening = entry.opening.lock_killable()?;
        let mut place = entry.session.lock();
        if place.is_none() {
            // An error drops the lock, and then the user.
            *place = Some(Session::open(&self.context, options)?);
            user.is_first = true;
        }
        user.session = place.clone();
        drop(place);
        Ok(user)
    }

    /// Counts one more user of a session's name.
    fn enter(&self, name: &SessName) -> Result<Arc<Entry>> {
        let mut sessions = self.sessions.lock();
        if let Some(entry) = sessions.iter().find(|entry| entry.name == *name) {
            let mut users = entry.users.lock();
            *users = users.checked_add(1).ok_or(EBUSY)?;
            return Ok(entry.clone());
        }
        let entry = Arc::pin_init(
            pin_init!(Entry {
                name: *name,
                opening <- KillableMutex::new(),
                session <- new_mutex!(None, "Entry::session"),
                users <- new_mutex!(1, "Entry::users"),
            }),
            GFP_KERNEL,
        )?;
        sessions.push(entry.clone(), GFP_KERNEL)?;
        Ok(entry)
    }

    /// Counts one user less, and closes the session after the last one. Sleeps.
    fn leave(&self, entry: &Arc<Entry>) {
        {
            let _sessions = self.sessions.lock();
            let mut users = entry.users.lock();
            // Each user was counted by `enter`.
            *users = users.wrapping_sub(1);
            if *users > 0 {
                return;
            }
        }
        // A task that comes now finds the entry and waits for this lock.
        let mut place = entry.session.lock();
        let unused = || *entry.users.lock() == 0;
        if !unused() {
            return;
        }
        if let Some(session) = place.take() {
            session.close();
        }
        let mut sessions = self.sessions.lock();
        if unused() {
            sessions.retain(|other| !Arc::ptr_eq(other, entry));
        }
    }
}

/// A use of a session; when the last use is dropped the session is closed, which sleeps.
pub(crate) struct SessionUser {
    client: Arc<Client>,
    entry: Arc<Entry>,
    session: Option<Arc<Session>>,
    /// The session was opened for this user.
    pub(crate) is_first: bool,
}

impl SessionUser {
    /// The session.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        self.session.clone().ok_or(ENODEV)
    }
}

impl Drop for SessionUser {
    fn drop(&mut self) {
        drop(self.session.take());
        self.client.leave(&self.entry);
    }
}
