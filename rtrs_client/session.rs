// SPDX-License-Identifier: GPL-2.0

//! A session: the paths to one server and the tags that its users share.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    cpu,
    module::ModuleReference,
    pr_err_ratelimited,
    random,
    rdma::Device,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        box_slot::BoxSlot,
        completion::KillableMutex,
        rcu::RcuArc,
        set_once::SetOnce, //
    },
    sysfs::Directory,
    workqueue::QueueHandle, //
};
use proto::{
    addr::PathAddress,
    name::SessName,
    rtrs::{
        ConnAccept,
        MAX_PATHS_NUM,
        MAX_SEGMENTS, //
    }, //
};
use rtrs_core::connection::QueueSizes;

use crate::{
    link::Link,
    outage::Outage,
    path::Path,
    permit::SubmitError,
    policy::Policy,
    request::Request,
    service::Service,
    settings::Settings,
    sysfs::{
        PathFiles,
        SessionFiles, //
    }, //
};

/// What a session tells its user.
pub trait SessionEvents: Send + Sync + 'static {
    /// A request that was submitted is finished. Called exactly once for each, in the context of
    /// the completion queue (softirq, or the poller) or of a teardown (process); never sleeps.
    /// The tag's permit can be taken again from here on.
    fn complete(&self, tag: u32, result: Result);

    /// A request that was submitted was not answered, and could not be sent on another path, for
    /// the reason given as by [`Submission::add`](crate::Submission::add). The server may have
    /// carried it out or not, and may be about to. Otherwise as [`SessionEvents::complete`], which
    /// is not called for it; any context, never sleeps.
    fn unanswered(&self, tag: u32, error: SubmitError);

    /// The session lost its last path, or has one again. Process context; may sleep, but not
    /// close the session.
    fn link_event(&self, event: LinkEvent);

    /// Keeps the user's module loaded: whoever removes a path by sysfs may be the last one to let
    /// go of the session, some time after it was closed. Any context. `ENODEV` if it is being
    /// unloaded.
    fn module(&self) -> Result<ModuleReference>;
}

/// See [`SessionEvents::link_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The first path is up again.
    Reconnected,
    /// The last path is gone.
    Disconnected,
}

/// How a session is opened.
pub struct OpenParams<'a> {
    /// Its name, which the server sees too: no `/` and no `.`.
    pub name: &'a CStr,
    /// The paths; at least one, at most [`MAX_PATHS_NUM`].
    pub paths: &'a [PathAddress],
    /// The server's port.
    pub port: u16,
    /// Connections for requests that are polled for instead of raising interrupts.
    pub nr_poll_queues: u32,
}

/// The most that one segment of a request's data has, in bytes; it is also the alignment that
/// lets segments be registered together.
pub(crate) const SEGMENT_SIZE: u32 = 4096;

/// The most of a server's chunks that are used: more tags than a block driver has use for
/// (`BLK_MQ_MAX_DEPTH`) nobody needs; and one for service requests.
const MAX_QUEUE_DEPTH: u32 = 10240 + 1;

/// What all paths of a session agree on; set by the first one.
#[derive(Clone, Copy)]
struct Limits {
    /// The chunks that are used: as many as the first path's device has room for, and at most
    /// [`MAX_QUEUE_DEPTH`].
    queue_depth: u16,
    /// The server's chunks.
    num_chunks: u16,
    max_io_size: u32,
}

/// The paths; changed under a lock, read by the IO path through an RCU pointer.
struct Paths {
    list: KVec<(Arc<Path>, Option<PathFiles>)>,
    /// No path may be added any more.
    closing: bool,
}

/// A session.
#[pin_data]
pub struct Session {
    name: SessName,
    pub(crate) uuid: [u8; 16],
    pub(crate) port: u16,
    num_irq_queues: u16,
    num_poll_queues: u16,
    pub(crate) queue: QueueHandle,
    events: Arc<dyn SessionEvents>,
    limits: SetOnce<Limits>,
    /// The segments of a request that every path can carry.
    max_segments: Atomic<u32>,
    tags: SetOnce<KVVec<BoxSlot<Request>>>,
    /// What the IO path chooses from.
    pub(crate) paths: RcuArc<KVec<Arc<Path>>>,
    #[pin]
    control: Mutex<Paths>,
    /// Held while a path learns its name.
    #[pin]
    pub(crate) naming: Mutex<()>,
    #[pin]
    pub(crate) link: Link,
    pub(crate) outage: Outage,
    /// Lets one path at a time ask the server for what may become a new session.
    #[pin]
    pub(crate) turn: KillableMutex,
    pub(crate) settings: Settings,
    pub(crate) policy: Policy,
    #[pin]
    pub(crate) service: Service,
    #[pin]
    files: Mutex<Option<SessionFiles>>,
}

/// The connections of a path: those for requests, and one for service.
fn total_connections(num_irq_queues: u16, num_poll_queues: u16) -> u16 {
    num_irq_queues
        .saturating_add(num_poll_queues)
        .saturating_add(1)
}

impl Session {
    /// Connects to a server and makes the session's files in sysfs. Sleeps.
    ///
    /// `EINVAL` for a bad name or number of paths, `EEXIST` for a path given twice or a session
    /// name in use, otherwise what the first path that could not be connected says (C:
    /// `rtrs_clt_open`).
    pub fn open(params: &OpenParams<'_>, events: Arc<dyn SessionEvents>) -> Result<Arc<Self>> {
        let name = SessName::new(params.name.to_bytes()).map_err(|error| {
            pr_err!("session name: {}\n", error.message().as_str());
            EINVAL
        })?;
        if params.paths.is_empty() || params.paths.len() > MAX_PATHS_NUM {
            return Err(EINVAL);
        }
        let num_irq_queues = u16::try_from(cpu::nr_cpu_ids()).map_err(|_| EINVAL)?;
        let num_poll_queues = u16::try_from(params.nr_poll_queues).map_err(|_| EINVAL)?;
        let connections = total_connections(num_irq_queues, num_poll_queues);
        let session = Arc::pin_init(
            try_pin_init!(Self {
                name,
                uuid: random::uuid(),
                port: params.port,
                num_irq_queues,
                num_poll_queues,
                queue: crate::globals()?.queue.clone(),
                events,
                limits: SetOnce::new(),
                max_segments: Atomic::new(MAX_SEGMENTS),
                tags: SetOnce::new(),
                paths: RcuArc::new(None),
                control <- new_mutex!(Paths { list: KVec::new(), closing: false }),
                naming <- new_mutex!(()),
                link <- Link::new(),
                outage: Outage::new(),
                turn <- KillableMutex::new(),
                settings: Settings::new(),
                policy: Policy::new(connections)?,
                service <- Service::new(),
                files <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )?;
        *session.files.lock() = Some(SessionFiles::new(&session)?);
        let opened = crate::globals()
            .and_then(|globals| globals.sessions.add(&session))
            .and_then(|()| session.open_paths(params.paths));
        if let Err(error) = opened {
            session.close();
            return Err(error);
        }
        session.tell_user(true);
        Ok(session)
    }

    fn open_paths(self: &Arc<Self>, addresses: &[PathAddress]) -> Result {
        for (index, address) in addresses.iter().enumerate() {
            self.add_path(address, index == 0)?;
        }
        let limits = self.limits.as_ref().ok_or(EINVAL)?;
        let depth = usize::from(limits.queue_depth);
        let segments = self.max_segments();
        let mut tags = KVVec::with_capacity(depth, GFP_KERNEL)?;
        for tag in 0..u32::from(limits.queue_depth) {
            tags.push(BoxSlot::new(Request::new(tag, segments)?), GFP_KERNEL)?;
        }
        self.tags.populate(tags);
        Ok(())
    }

    /// Adds and connects a path. Sleeps. `EEXIST` if there is one with these addresses.
    pub(crate) fn add_path(self: &Arc<Self>, address: &PathAddress, first: bool) -> Result {
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
            // A server has forgotten a session that has no path any more.
            let path = Path::new(self.clone(), address, first || control.list.is_empty())?;
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

    /// Lets the IO path see the list of paths. Sleeps.
    fn publish(&self, paths: &Paths) -> Result {
        let mut list = KVec::with_capacity(paths.list.len(), GFP_KERNEL)?;
        for (path, _) in &paths.list {
            list.push(path.clone(), GFP_KERNEL)?;
        }
        drop(self.paths.replace(Some(Arc::new(list, GFP_KERNEL)?)));
        Ok(())
    }

    /// Closes `path` and forgets it, if nobody else does. Sleeps.
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
                // The IO path goes on seeing a path that takes no requests.
                pr_warn!("{}: no memory to forget a path\n", self.name_text());
            }
            removed
        };
        drop(files);
    }

    /// Closes all paths and removes the files. When it returns, no request is in flight and no
    /// callback runs or will run. Sleeps; idempotent.
    pub fn close(&self) {
        self.tell_user(false);
        if let Ok(globals) = crate::globals() {
            globals.sessions.remove(self);
        }
        // From here on the list of paths does not grow.
        self.control.lock().closing = true;
        loop {
            let removed = self.control.lock().list.pop();
            let Some((path, files)) = removed else {
                break;
            };
            // Before the files go: whoever connects it by sysfs is told to give up, not waited for.
            path.kill();
            drop(files);
        }
        drop(self.paths.replace(None));
        let files = self.files.lock().take();
        if let Some(files) = &files {
            files.remove();
        }
    }

    /// Has paths that wait to connect again do it now. Sleeps.
    pub(crate) fn retry_paths(&self) {
        if let Some(paths) = self.paths.get() {
            for path in paths.iter() {
                path.retry();
            }
        }
    }

    /// The name. Any context.
    pub fn name(&self) -> &CStr {
        self.name.as_cstr()
    }

    /// The name as it goes to the server.
    pub(crate) fn session_name(&self) -> SessName {
        self.name
    }

    /// The name, for log lines.
    pub(crate) fn name_text(&self) -> &str {
        self.name().to_str().unwrap_or("?")
    }

    /// The tags that users may use: one less than the server's chunks that are used, of which the
    /// last is the transport's own. Any context.
    #[inline]
    pub fn queue_depth(&self) -> u32 {
        self.service_tag().unwrap_or(0)
    }

    /// The tag of service requests.
    #[inline]
    pub(crate) fn service_tag(&self) -> Option<u32> {
        u32::from(self.limits.as_ref()?.queue_depth).checked_sub(1)
    }

    /// The most data of one request, in bytes. Any context.
    pub fn max_io_size(&self) -> u32 {
        let by_segments = u32::from(self.max_segments()).saturating_mul(SEGMENT_SIZE);
        self.limits
            .as_ref()
            .map_or(0, |limits| limits.max_io_size.min(by_segments))
    }

    /// The most segments of one request, each of at most 4 KiB. Any context.
    pub fn max_segments(&self) -> u16 {
        (self.max_segments.load(ordering::Relaxed) & 0xffff) as u16
    }

    /// The queues for requests that raise interrupts: one for each CPU. Any context.
    pub fn num_irq_queues(&self) -> u16 {
        self.num_irq_queues
    }

    /// The queues for requests that are polled; their numbers follow those of the others. Any
    /// context.
    pub fn num_poll_queues(&self) -> u16 {
        self.num_poll_queues
    }

    /// The connections of each path.
    pub(crate) fn num_connections(&self) -> u16 {
        total_connections(self.num_irq_queues, self.num_poll_queues)
    }

    /// Whether a path is up. Any context.
    pub fn is_connected(&self) -> bool {
        let guard = rcu::read_lock();
        self.paths
            .load(&guard)
            .is_some_and(|paths| paths.iter().any(|path| path.is_connected()))
    }

    /// Lets a change of the settings take effect on all paths. Sleeps.
    pub(crate) fn settings_changed(&self) {
        for (path, _) in &self.control.lock().list {
            path.settings_changed();
        }
    }

    /// A path that uses `device` has learnt what the server offers; returns how many of its chunks
    /// are used. `ECONNRESET` if that does not fit the session.
    pub(crate) fn negotiated(
        &self,
        path: &Path,
        accept: &ConnAccept,
        device: &Device,
    ) -> Result<u16> {
        if accept.queue_depth < 2 {
            pr_err_ratelimited!(
                "{}: the server's queue depth of {} leaves no room for requests\n",
                path.name_text(),
                accept.queue_depth
            );
            return Err(ECONNRESET);
        }
        // Users may rely on requests of a page, as service requests do.
        if accept.max_io_size < SEGMENT_SIZE {
            pr_err_ratelimited!(
                "{}: the server's largest request of {} bytes is less than a page\n",
                path.name_text(),
                accept.max_io_size
            );
            return Err(ECONNRESET);
        }
        // One is for service requests.
        let most = QueueSizes::max_queue_depth(device).clamp(2, MAX_QUEUE_DEPTH);
        let used = most.min(u32::from(accept.queue_depth));
        let limits = Limits {
            queue_depth: u16::try_from(used)?,
            num_chunks: accept.queue_depth,
            max_io_size: accept.max_io_size,
        };
        if self.limits.populate(limits) {
            return Ok(limits.queue_depth);
        }
        match self.limits.as_ref() {
            Some(known) if known.num_chunks != accept.queue_depth => {
                pr_err_ratelimited!(
                    "{}: the server's queue depth changed from {} to {}\n",
                    path.name_text(),
                    known.num_chunks,
                    accept.queue_depth
                );
                Err(ECONNRESET)
            }
            Some(known) if known.max_io_size > accept.max_io_size => {
                pr_err_ratelimited!(
                    "{}: the server's largest request shrank from {} to {} bytes\n",
                    path.name_text(),
                    known.max_io_size,
                    accept.max_io_size
                );
                Err(ECONNRESET)
            }
            _ => Ok(self.limits.as_ref().unwrap_or(&limits).queue_depth),
        }
    }

    /// Lowers the segments of a request to what `device` can register, unless the session has
    /// made its tags already; returns them.
    pub(crate) fn limit_segments(&self, device: &Device) -> u16 {
        let pages = device.max_fast_reg_page_list_len().saturating_sub(1);
        let mine = pages.min(MAX_SEGMENTS);
        if self.tags.as_ref().is_none() && mine < u32::from(self.max_segments()) {
            self.max_segments.store(mine, ordering::Relaxed);
        }
        self.max_segments()
    }

    /// The slot of `tag`, once the session is open.
    #[inline]
    pub(crate) fn tag_slot(&self, tag: u32) -> Option<&BoxSlot<Request>> {
        self.tags.as_ref()?.get(tag as usize)
    }

    /// As [`Session::tag_slot`], but not for the tag of service requests, which is the last one.
    #[inline]
    pub(crate) fn user_slot(&self, tag: u32) -> Option<&BoxSlot<Request>> {
        let (_, users) = self.tags.as_ref()?.split_last()?;
        users.get(tag as usize)
    }

    /// The directory of the session's paths in sysfs.
    fn paths_directory(&self) -> Result<Arc<Directory<()>>> {
        self.files
            .lock()
            .as_ref()
            .map(|files| files.paths())
            .ok_or(ENODEV)
    }

    /// Whether requests are to wait for a path rather than fail: not for longer than `hold_io_ms`
    /// after the last one was lost. Any context.
    pub fn holds_io(&self) -> bool {
        self.outage.is_younger_than(self.settings.hold_io_ms())
    }

    /// As [`Session::holds_io`], for a request that was refused for [`SubmitError::NoPath`], which
    /// happens before the loss of the last path is noted. Any context.
    pub fn holds_refused_io(&self) -> bool {
        self.settings.hold_io_ms() != 0 && (self.outage.is_about_to_begin() || self.holds_io())
    }

    /// The user's half.
    pub(crate) fn events(&self) -> &Arc<dyn SessionEvents> {
        &self.events
    }
}
