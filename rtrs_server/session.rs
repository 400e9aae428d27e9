// SPDX-License-Identifier: GPL-2.0

//! Sessions: what the paths of one client have in common.

use kernel::{
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
    time::{
        msecs_to_jiffies,
        Instant,
        Monotonic, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::rdma::chunk::ChunkSet;
use proto::{
    name::SessName,
    path_state::ServerState,
    rtrs::{
        ChunkLayout,
        ConnReq,
        Uuid,
        MAX_HDR_SIZE,
        MAX_PATHS_NUM, //
    }, //
};

use crate::{
    context::Context,
    listener::{
        Listening,
        SessionHandler, //
    },
    origin::Origin,
    owner::ChunkOwners,
    path::Path,
    private::PrivatePages,
    request,
    sysfs::SessionDirectory, //
};

/// How long to wait for a session to go that has the name of a new one, in ms.
const NAME_TIMEOUT_MS: i64 = 10_000;
/// How often to look meanwhile whether the new one is still wanted, in ms.
const NAME_WAIT_MS: u32 = 100;

/// The user of the session, as long as a path is up.
struct Up {
    paths: usize,
    handler: Option<Arc<dyn SessionHandler>>,
}

/// A client, with the chunks that it writes its requests to and the paths it comes by.
#[pin_data]
pub struct Session {
    listening: Arc<Listening>,
    uuid: Uuid,
    name: SetOnce<SessName>,
    chunks: Arc<ChunkSet>,
    private: PrivatePages,
    owners: ChunkOwners,
    /// The requests that the client had given up when the session was made.
    given_up: u32,
    /// The last path has gone, and the session with it. Set with `paths` locked.
    gone: Atomic<bool>,
    /// How often the last path that was up has gone. Changed with `up` locked.
    losses: Atomic<u32>,
    #[pin]
    paths: Mutex<KVec<Arc<Path>>>,
    #[pin]
    up: Mutex<Up>,
    /// Where paths came from that were up, each once; no more than [`MAX_PATHS_NUM`]. With a lock of
    /// their own: who asks for them must not wait for the user, which closes disks with `up` locked.
    #[pin]
    origins: Mutex<KVec<Origin>>,
    #[pin]
    directory: Mutex<Option<SessionDirectory>>,
    /// Goes on with requests that waited for their chunk.
    #[pin]
    resume_work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.resume_work }
}

impl Session {
    /// Makes a session without paths for the client of `request`, and allocates its chunks, on NUMA
    /// node `node` if possible. Sleeps.
    pub(crate) fn new(
        listening: &Arc<Listening>,
        request: &ConnReq,
        node: i32,
    ) -> Result<Arc<Self>> {
        let context = &listening.context;
        let layout = &context.settings.layout;
        let chunks = ChunkSet::new(
            layout.queue_depth() as usize,
            layout.chunk_size() as usize,
            node,
            context.pool.chunks(),
        )
        .inspect_err(|error| {
            kernel_ext::pr_err_ratelimited!(
                "no {} KiB of memory for a session: {:?}\n",
                layout.total_size() >> 10,
                error
            );
        })?;
        let private = PrivatePages::new(layout, node)?;
        let owners = ChunkOwners::new(layout.queue_depth())?;
        Arc::pin_init(
            pin_init!(Self {
                listening: listening.clone(),
                uuid: request.paths_uuid,
                name: SetOnce::new(),
                chunks,
                private,
                owners,
                given_up: request.given_up,
                gone: Atomic::new(false),
                losses: Atomic::new(0),
                paths <- new_mutex!(KVec::new(), "rtrs_server::Session::paths"),
                up <- new_mutex!(
                    Up {
                        paths: 0,
                        handler: None,
                    },
                    "rtrs_server::Session::up"
                ),
                origins <- new_mutex!(KVec::new(), "rtrs_server::Session::origins"),
                directory <- new_mutex!(None, "rtrs_server::Session::directory"),
                resume_work <- new_work!("rtrs_server::Session::resume_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The name that the client gave the session; empty before its first path is up. Any context.
    pub fn name(&self) -> &CStr {
        self.sessname().map_or(c"", |name| name.as_cstr())
    }

    /// The number of chunks, hence of requests in flight. Any context.
    pub fn queue_depth(&self) -> u32 {
        self.layout().queue_depth()
    }

    /// The most data of one request, in bytes. Any context.
    pub fn max_io_size(&self) -> u32 {
        self.layout().chunk_size().saturating_sub(MAX_HDR_SIZE)
    }

    /// The name, once the client has given it.
    pub(crate) fn sessname(&self) -> Option<&SessName> {
        self.name.as_ref()
    }

    /// The identity that all paths of the client share.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// How the chunks are numbered.
    pub(crate) fn layout(&self) -> &ChunkLayout {
        &self.context().settings.layout
    }

    /// What the module keeps.
    pub(crate) fn context(&self) -> &Context {
        &self.listening.context
    }

    /// The memory.
    pub(crate) fn chunks(&self) -> &Arc<ChunkSet> {
        &self.chunks
    }

    /// Pages for the data of small writes.
    #[inline]
    pub(crate) fn private(&self) -> &PrivatePages {
        &self.private
    }

    /// Who uses which chunk.
    pub(crate) fn owners(&self) -> &ChunkOwners {
        &self.owners
    }

    /// The requests that the client had given up when the session was made.
    pub(crate) fn given_up(&self) -> u32 {
        self.given_up
    }

    /// Whether a path from there was up. Sleeps, but waits for nobody else's work.
    pub(crate) fn had_path_from(&self, origin: &Origin) -> bool {
        self.origins.lock().contains(origin)
    }

    /// The paths. Sleeps.
    pub(crate) fn paths(&self) -> &Mutex<KVec<Arc<Path>>> {
        &self.paths
    }

    /// Whether the last path has gone, so that the session cannot get another one.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(ordering::Relaxed)
    }

    /// Whether all paths are being closed. Sleeps.
    fn is_closing(&self) -> bool {
        let is_closing =
            |path: &Arc<Path>| matches!(path.state(), ServerState::Closing | ServerState::Closed);
        self.paths.lock().iter().all(is_closing)
    }

    /// The session's directory in sysfs. Sleeps.
    pub(crate) fn directory(&self) -> &Mutex<Option<SessionDirectory>> {
        &self.directory
    }

    /// The owner of chunk `id` has finished. Any context.
    #[inline(always)]
    pub(crate) fn release(self: &Arc<Self>, id: u32) {
        if self.owners.release(id) {
            self.resume();
        }
    }

    /// Has those go on that wait for a chunk.
    #[cold]
    #[inline(never)]
    fn resume(self: &Arc<Self>) {
        // It may be queued already, and will then see this chunk, too.
        let _ = self.context().queue.enqueue::<Self, 0>(self.clone());
    }

    /// Takes the name that the client gives on one of its paths. Sleeps.
    ///
    /// A session of that name which is being closed is waited for, as long as `path` is wanted: a
    /// client that unmaps its last device and maps it again is faster than the close. `EPERM` if
    /// another session has the name, `EINVAL` if this one has another.
    pub(crate) fn set_name(&self, name: &SessName, path: &Path) -> Result {
        let mut sessions = self.listening.sessions.lock();
        let began = Instant::<Monotonic>::now();
        while let Some(other) = sessions
            .iter()
            .find(|other| other.uuid != self.uuid && other.sessname() == Some(name))
        {
            if began.elapsed().as_millis() >= NAME_TIMEOUT_MS
                || !other.is_closing()
                || path.state() != ServerState::Connecting
            {
                kernel_ext::pr_err_ratelimited!(
                    "session name {} is in use by another client\n",
                    name.as_cstr()
                );
                return Err(EPERM);
            }
            // What woke us up is seen at the next look.
            let _ = self
                .listening
                .session_gone
                .wait_interruptible_timeout(&mut sessions, msecs_to_jiffies(NAME_WAIT_MS));
        }
        if self.name.populate(*name) || self.sessname() == Some(name) {
            Ok(())
        } else {
            kernel_ext::pr_err_ratelimited!(
                "<{}>: a path gives the session another name\n",
                self.name()
            );
            Err(EINVAL)
        }
    }

    /// How often the session was without a path that is up, after it had one.
    pub(crate) fn losses(&self) -> u32 {
        self.losses.load(ordering::Relaxed)
    }

    /// A path is up: returns the user, who is told of it. Sleeps.
    ///
    /// The user has forgotten all when the last path was lost. `ECONNRESET` if the client may not
    /// know, as it believed that another path was up, or as the path was being connected then.
    pub(crate) fn path_up(self: &Arc<Self>, path: &Path) -> Result<Arc<dyn SessionHandler>> {
        let mut up = self.up.lock();
        if up.handler.is_none() && !path.may_begin_anew(self.losses()) {
            kernel_ext::pr_err_ratelimited!(
                "<{}>: the last path was lost, which the client may not know\n",
                path
            );
            return Err(ECONNRESET);
        }
        self.origins.lock().reserve(1, GFP_KERNEL)?;
        let handler = match &up.handler {
            Some(handler) => handler.clone(),
            None => self.listening.server()?.session_up(self)?,
        };
        if let Err(error) = handler.path_up(path.client()) {
            if up.handler.is_none() {
                handler.session_down();
            }
            return Err(error);
        }
        let (origin, mut origins) = (Origin::of_path(path), self.origins.lock());
        if !origins.contains(&origin) && origins.len() < MAX_PATHS_NUM {
            // There is room: nobody else adds one while `up` is locked.
            let _ = origins.push_within_capacity(origin);
        }
        drop(origins);
        up.handler = Some(handler.clone());
        up.paths = up.paths.saturating_add(1);
        Ok(handler)
    }

    /// A path that was up is down, and nothing of it is left. Sleeps.
    pub(crate) fn path_down(&self, path: &Path) {
        let mut up = self.up.lock();
        if let Some(handler) = &up.handler {
            handler.path_down(path.client());
        }
        up.paths = up.paths.saturating_sub(1);
        if up.paths == 0 {
            self.losses.fetch_add(1, ordering::Relaxed);
            if let Some(handler) = up.handler.take() {
                handler.session_down();
            }
        }
    }

    /// Forgets a path that is closed; the last one takes the session with it. Sleeps.
    pub(crate) fn remove_path(self: &Arc<Self>, path: &Arc<Path>) {
        self.paths.lock().retain(|other| !Arc::ptr_eq(other, path));
        self.remove_if_unused();
    }

    /// Removes the session from its listener if it has no path. Sleeps.
    pub(crate) fn remove_if_unused(self: &Arc<Self>) {
        let paths = self.paths.lock();
        if !paths.is_empty() {
            return;
        }
        self.gone.store(true, ordering::Relaxed);
        drop(paths);
        self.listening
            .sessions
            .lock()
            .retain(|other| !Arc::ptr_eq(other, self));
        self.listening.session_gone.notify_all();
    }

    /// Closes all paths, in the background. Sleeps.
    pub(crate) fn close(&self) {
        for path in self.paths.lock().iter() {
            path.close();
        }
    }
}

impl WorkItem for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        request::resume_parked(&this);
    }
}
