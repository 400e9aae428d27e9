// SPDX-License-Identifier: GPL-2.0

//! A session: the paths to one server and the tags that its users share.

use core::ops::Deref;
use kernel::{
    new_mutex,
    sync::{
        rcu,
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        rcu::RcuArc,
        state_cell::Owned, //
    },
    sysfs::Directory, //
};
use proto::{
    addr::PathAddress,
    name::SessName,
    rtrs::MAX_PATHS_NUM, //
};

use crate::{
    events::SessionEvents,
    globals::globals,
    path::{
        Path,
        PathOwner, //
    },
    policy::Policy,
    requests::{
        request::Request,
        tags::Tags, //
    },
    session_core::SessionCore,
    sessions::RetryPaths,
    settings::Reconnect,
    sysfs::{
        PathFiles,
        SessionControl,
        SessionFiles, //
    }, //
};

/// The parameters of a session to be opened.
pub struct OpenParams<'a> {
    /// The name, which the server sees too: no `/` and no `.`.
    pub name: &'a CStr,
    /// The paths; at least one, at most [`MAX_PATHS_NUM`].
    pub paths: &'a [PathAddress],
    /// The server's port.
    pub port: u16,
    /// The number of queues for polled requests, which raise no interrupts.
    pub num_poll_queues: u32,
    /// How paths are connected again. `None`: by the module parameters.
    pub reconnect: Option<Reconnect>,
}

impl<'a> OpenParams<'a> {
    /// No polled queues. Paths are connected again by the module parameters.
    pub fn new(name: &'a CStr, paths: &'a [PathAddress], port: u16) -> Self {
        Self {
            name,
            paths,
            port,
            num_poll_queues: 0,
            reconnect: None,
        }
    }
}

/// The paths. The list is changed under a lock, and published for the IO path by an RCU pointer.
struct Paths {
    list: KVec<(Arc<Path>, Option<PathFiles>)>,
    /// Whether no path may be added any more.
    closing: bool,
}

/// A session.
#[pin_data]
pub struct Session {
    core: Arc<SessionCore>,
    /// The tags of `core`, for the IO path.
    pub(crate) tags: Arc<Tags>,
    /// The paths that the IO path chooses from.
    pub(crate) paths: RcuArc<KVec<Arc<Path>>>,
    pub(crate) policy: Policy,
    #[pin]
    control: Mutex<Paths>,
    /// Held while a path gets its name.
    #[pin]
    naming: Mutex<()>,
    #[pin]
    files: Mutex<Option<SessionFiles<Self>>>,
}

impl Deref for Session {
    type Target = SessionCore;

    #[inline(always)]
    fn deref(&self) -> &SessionCore {
        &self.core
    }
}

impl Session {
    /// Connects to a server and makes the session's files in sysfs. Sleeps.
    ///
    /// `EINVAL` for a bad name or number of paths, `EEXIST` for a path given twice or a session
    /// name in use, otherwise the error of the first path that could not be connected (C:
    /// `rtrs_clt_open`).
    pub fn open(params: &OpenParams<'_>, events: Arc<dyn SessionEvents>) -> Result<Arc<Self>> {
        let session = Self::unconnected(params, events)?;
        let opened = globals()?
            .sessions
            .add(session.clone())
            .and_then(|()| session.open_paths(params.paths));
        if let Err(error) = opened {
            session.close();
            return Err(error);
        }
        session.availability.tell_user(true);
        Ok(session)
    }

    /// Makes the session without paths.
    // Not inlined: the stack that this takes is free again when a path is connected, which needs
    // most of the stack.
    #[inline(never)]
    fn unconnected(params: &OpenParams<'_>, events: Arc<dyn SessionEvents>) -> Result<Arc<Self>> {
        let name = SessName::new(params.name.to_bytes()).map_err(|error| {
            pr_err!("session name: {}\n", error.message().as_str());
            EINVAL
        })?;
        if params.paths.is_empty() || params.paths.len() > MAX_PATHS_NUM {
            return Err(EINVAL);
        }
        let globals = globals()?;
        let queue = globals.queue.clone();
        let core = SessionCore::new(name, params.port, params.num_poll_queues, queue, events)?;
        if let Some(reconnect) = &params.reconnect {
            core.settings.set_reconnect(reconnect);
        }
        let session = Arc::pin_init(
            try_pin_init!(Self {
                tags: core.tags.clone(),
                paths: RcuArc::new(None),
                policy: Policy::new(core.num_connections())?,
                control <- new_mutex!(Paths { list: KVec::new(), closing: false }),
                naming <- new_mutex!(()),
                files <- new_mutex!(None),
                core,
            }),
            GFP_KERNEL,
        )?;
        *session.files.lock() = Some(SessionFiles::new(&session)?);
        Ok(session)
    }

    fn open_paths(self: &Arc<Self>, addresses: &[PathAddress]) -> Result {
        for (index, address) in addresses.iter().enumerate() {
            self.add_first_path(address, index == 0)?;
        }
        self.make_tags()
    }

    /// Adds and connects a path. `first` if the server may make a session for it. Sleeps. `EEXIST`
    /// if the session has a path with these addresses.
    fn add_first_path(self: &Arc<Self>, address: &PathAddress, first: bool) -> Result {
        let path = {
            let mut control = self.control.lock();
            if control.closing {
                return Err(ENODEV);
            }
            if control.list.len() >= MAX_PATHS_NUM {
                return Err(ENOSPC);
            }
            let mut known = control.list.iter();
            if known.any(|(path, _)| path.is_known_as(address)) {
                pr_err!(
                    "{}: there is a path {} already\n",
                    self.name_text(),
                    address.to_text().as_str()
                );
                return Err(EEXIST);
            }
            // A server has forgotten a session without paths.
            let first = first || control.list.is_empty();
            let path = Path::new(self.clone(), address, first)?;
            control.list.push((path.clone(), None), GFP_KERNEL)?;
            if let Err(error) = self.publish(&control) {
                let _ = control.list.pop();
                return Err(error);
            }
            path
        };
        let connected = path
            .connect()
            .and_then(|()| PathFiles::new(&*self.paths_directory()?, &path));
        match connected {
            Ok(files) => {
                let mut control = self.control.lock();
                for (known, place) in control.list.iter_mut() {
                    if Arc::ptr_eq(known, &path) {
                        *place = Some(files);
                        return Ok(());
                    }
                }
                drop(control);
                // The session was closed meanwhile.
                drop(files);
                Err(ENODEV)
            }
            Err(error) => {
                self.remove_path(&path);
                Err(error)
            }
        }
    }

    /// Publishes the list of paths for the IO path. Sleeps.
    fn publish(&self, paths: &Paths) -> Result {
        let mut list = KVec::with_capacity(paths.list.len(), GFP_KERNEL)?;
        for (path, _) in &paths.list {
            list.push(path.clone(), GFP_KERNEL)?;
        }
        drop(self.paths.replace(Some(Arc::new(list, GFP_KERNEL)?)));
        Ok(())
    }

    /// Closes `path` and removes it from the list, unless another task does so. Sleeps.
    pub(crate) fn remove_path(&self, path: &Arc<Path>) {
        if !path.kill() {
            return;
        }
        let files = {
            let mut control = self.control.lock();
            let index = control
                .list
                .iter()
                .position(|(known, _)| Arc::ptr_eq(known, path));
            let removed = index.and_then(|index| control.list.remove(index).ok());
            if self.publish(&control).is_err() {
                // The IO path still sees the path, which takes no requests.
                pr_warn!(
                    "{}: no memory to take a path out of the list of paths; the path takes no \
                     requests\n",
                    self.name_text()
                );
            }
            removed
        };
        drop(files);
    }

    /// Closes all paths and removes the files. When it returns, no request is in flight, and no
    /// callback runs or will run. Sleeps. May be called again.
    pub fn close(&self) {
        self.availability.tell_user(false);
        if let Ok(globals) = globals() {
            globals.sessions.remove(self);
        }
        // From here on the list of paths does not grow.
        self.control.lock().closing = true;
        // A path that is closed waits for a grace period, too: this way a single one is enough.
        let paths = self.paths.detach();
        loop {
            let removed = self.control.lock().list.pop();
            let Some((path, files)) = removed else {
                break;
            };
            // Before the files go: a task that connects the path by sysfs is told to give up, and
            // the removal of the files need not wait long for it.
            path.kill();
            drop(files);
        }
        drop(paths);
        // A task that removes a path may have published the rest of the list meanwhile.
        drop(self.paths.replace(None));
        let files = self.files.lock().take();
        if let Some(files) = &files {
            files.remove();
        }
    }

    /// Whether a path is up. Any context.
    pub fn is_connected(&self) -> bool {
        let guard = rcu::read_lock();
        self.paths
            .load(&guard)
            .is_some_and(|paths| paths.iter().any(|path| path.is_connected()))
    }

    /// The directory of the session's paths in sysfs.
    fn paths_directory(&self) -> Result<Arc<Directory<()>>> {
        self.files
            .lock()
            .as_ref()
            .map(|files| files.paths())
            .ok_or(ENODEV)
    }
}

impl PathOwner for Session {
    fn core(&self) -> &Arc<SessionCore> {
        &self.core
    }

    fn paths(&self) -> &RcuArc<KVec<Arc<Path>>> {
        &self.paths
    }

    fn naming(&self) -> &Mutex<()> {
        &self.naming
    }

    fn fail_over<'a>(&'a self, failed: &Path, request: Owned<'a, Request>) {
        Self::fail_over(self, failed, request);
    }

    fn give_up(&self, request: Owned<'_, Request>) {
        Self::give_up(self, request);
    }

    fn remove_path(&self, path: &Arc<Path>) {
        Self::remove_path(self, path);
    }
}

impl RetryPaths for Session {
    fn retry_paths(&self) {
        if let Some(paths) = self.paths.get() {
            for path in paths.iter() {
                path.retry();
            }
        }
    }
}

impl SessionControl for Session {
    fn core(&self) -> &SessionCore {
        self
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn add_path(self: &Arc<Self>, address: &PathAddress) -> Result {
        self.add_first_path(address, false)
    }

    fn settings_changed(&self) {
        for (path, _) in &self.control.lock().list {
            path.settings_changed();
        }
    }
}
