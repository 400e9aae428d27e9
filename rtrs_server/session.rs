// SPDX-License-Identifier: GPL-2.0

//! Sessions: what the paths of one client have in common.

use core::fmt::Write as _;

use kernel::{
    new_mutex,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        cm::NewId,
        QueuePair, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    }, //
};
use proto::{
    addr::Address,
    client_id::ClientId,
    name::SessName,
    path_state::ServerState,
    rtrs::{
        ConnReq,
        Uuid,
        MAX_PATHS_NUM, //
    },
    text::Text, //
};

use crate::{
    clients::SessionPlace,
    connection::Connection,
    context::Context,
    operation::{
        PathIo,
        SessionHandler, //
    },
    origin::Origin,
    path::{
        Given,
        Path,
        PathOwner, //
    },
    path_core::SharedName,
    session_io::{
        Needs,
        SessionIo, //
    },
    sysfs::SessionSysfs, //
};

/// The user of the transport: what a listener's sessions are for.
pub trait Server: Send + Sync + 'static {
    /// Decides whether a client that has no session gets one; the client is told the error.
    /// `client` is the client's address; `None` if the address is only the client's word. Process
    /// context; waits for nothing slow.
    ///
    /// `EHOSTDOWN` tells the client that the server goes away on purpose. It is not logged, since
    /// the client comes again and again.
    fn admits(&self, client: Option<Address>) -> Result {
        let _ = client;
        Ok(())
    }

    /// What the sessions of the listener need; always the same. Any context.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The first path of a client is up.
    ///
    /// Process context; may sleep. An error refuses the client and closes its path.
    fn session_up(&self, session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>>;
}

/// What a session tells its listener. Sleeps.
pub(crate) trait SessionOwner: Send + Sync + 'static {
    /// The user of the transport; `ESHUTDOWN` once the listener is closed.
    fn server(&self) -> Result<Arc<dyn Server>>;

    /// Takes the name that the client gives `session` on `path`; see [`PathOwner::set_name()`].
    fn set_name(&self, session: &Session, name: &SessName, path: &Path) -> Result;

    /// Removes `session`, which has no path any more and gets no other.
    fn remove(&self, session: &Arc<Session>);
}

/// The user of the session, as long as a path is up.
struct Up {
    paths: usize,
    place: Option<SessionPlace>,
    handler: Option<Arc<dyn SessionHandler>>,
}

/// The calls of [`Session::count_old_requests`] in a row that may leave the chunks out.
const MAX_SKIPPED: u32 = 15;

/// The last look of [`Session::count_old_requests`] at the chunks, or the state before any look.
struct Look {
    /// The number of begun requests, read before that look; see [`Session::count_begun_requests`].
    requests: u64,
    /// That look found no chunk in use.
    is_idle: bool,
    /// The calls since then that have left the chunks out.
    skipped: u32,
}

/// A client: its paths, and the chunks that it writes its requests to. The chunks are made once the
/// client has given its name.
///
/// # Invariants
///
/// - `gone` is set with `paths` locked and empty; no path is added afterwards.
/// - `epoch` is changed with `up` locked.
/// - `up.handler` and `up.place` are there while `up.paths` is not 0.
/// - `io` is set with `up` locked.
#[pin_data]
pub struct Session {
    owner: Arc<dyn SessionOwner>,
    context: Arc<Context>,
    uuid: Uuid,
    /// What the listener's user needs.
    needs: Needs,
    name: SharedName,
    /// The client, if it has proved its identity. Set by the first path that is established.
    identity: SetOnce<Option<ClientId>>,
    /// The number of requests that the client had given up when the session was made.
    given_up: u32,
    gone: Atomic<bool>,
    /// The number that `ring_work` sends, with [`RUNG`]; 0 before the first number.
    doorbell: Atomic<u32>,
    #[pin]
    ring_work: Work<Self>,
    /// How often the session has lost its last path that was up.
    epoch: Atomic<u32>,
    #[pin]
    paths: Mutex<KVec<Arc<Path>>>,
    #[pin]
    up: Mutex<Up>,
    /// The parts of the session that requests use. Set when the first path comes up, and kept until
    /// the session ends.
    io: SetOnce<Arc<SessionIo<PathIo>>>,
    /// The origins of the paths that were up, each once; at most [`MAX_PATHS_NUM`]. Locked while
    /// `identity` is set. The lock is not that of `up`: the user sleeps with `up` locked, and a
    /// connection request must not wait for the user.
    #[pin]
    origins: Mutex<KVec<Origin>>,
    #[pin]
    look: Mutex<Look>,
    #[pin]
    sysfs: SessionSysfs,
}

/// Set in `Session::doorbell` once there is a number to ring with: numbers have 28 bits.
const RUNG: u32 = 1 << 31;

impl_has_work! {
    impl HasWork<Self> for Session { self.ring_work }
}

impl Session {
    /// Makes a session without paths and without chunks for the client of `request`. Sleeps.
    /// `ENOMEM` also if the memory for the chunks is missing now: later the client could not be
    /// told the reason.
    pub(crate) fn new(
        owner: Arc<dyn SessionOwner>,
        context: &Arc<Context>,
        request: &ConnReq,
        needs: Needs,
    ) -> Result<Arc<Self>> {
        let layout = &context.settings.layout;
        SessionIo::<PathIo>::check_memory(layout, needs, context.pool.chunks())?;
        let name = SharedName::new()?;
        Arc::pin_init(
            pin_init!(Self {
                owner,
                context: context.clone(),
                uuid: request.paths_uuid,
                needs,
                name,
                identity: SetOnce::new(),
                given_up: request.given_up,
                gone: Atomic::new(false),
                doorbell: Atomic::new(0),
                ring_work <- new_work!("rtrs_server::Session::ring_work"),
                epoch: Atomic::new(0),
                paths <- new_mutex!(KVec::new(), "rtrs_server::Session::paths"),
                up <- new_mutex!(
                    Up {
                        paths: 0,
                        place: None,
                        handler: None,
                    },
                    "rtrs_server::Session::up"
                ),
                io: SetOnce::new(),
                origins <- new_mutex!(KVec::new(), "rtrs_server::Session::origins"),
                look <- new_mutex!(
                    Look {
                        requests: 0,
                        is_idle: true,
                        skipped: 0,
                    },
                    "rtrs_server::Session::look"
                ),
                sysfs <- SessionSysfs::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// The name that the client gave the session; empty before its first path is up. Any context.
    pub fn name(&self) -> &CStr {
        self.name.as_cstr()
    }

    /// The client, if it has proved its identity; `None` before the first path is up. Any context.
    pub fn client_id(&self) -> Option<&ClientId> {
        self.identity.as_ref().and_then(Option::as_ref)
    }

    /// The number of chunks, which is the most requests in flight. Any context.
    pub fn queue_depth(&self) -> u32 {
        self.context.settings.layout.queue_depth()
    }

    /// The most data of one request, in bytes. Any context.
    pub fn max_io_size(&self) -> u32 {
        self.context.settings.max_io_size
    }

    /// Rings at the client, with the low 28 bits of `number`, on every path that is up and whose
    /// client knows of doorbells. Any context; never sleeps.
    ///
    /// The number is sent in the background. If several numbers come before that, only the last one
    /// is sent. A client may miss a number when a path is lost or connected. So the user tells its
    /// news when the client asks, and a client asks when it is connected again.
    pub fn ring(self: &Arc<Self>, number: u32) {
        self.doorbell.store(number | RUNG, ordering::Release);
        // If the work is queued already, it will see this number.
        let _ = self.context.queue.enqueue::<Self, 0>(self.clone());
    }

    /// Counts the requests that owned their chunk at the last look and still do: at most one for
    /// each chunk. Sleeps, but not for long. A request that is found takes longer to end: call this
    /// a few times a second at most.
    ///
    /// If the last look found no chunk in use, and no request has begun since, the chunks are left
    /// out, [`MAX_SKIPPED`] times in a row at most.
    pub fn count_old_requests(&self) -> u32 {
        let Some(io) = self.io.as_ref() else {
            return 0;
        };
        let requests = self.count_begun_requests();
        let mut look = self.look.lock();
        if look.is_idle && look.requests == requests && look.skipped < MAX_SKIPPED {
            look.skipped = look.skipped.wrapping_add(1);
            return 0;
        }
        let (old, is_used) = io.claims().count_old();
        // A request claims its chunk before the request is counted, and `requests` was read before
        // the look. So a request that claims its chunk after the look makes the number grow.
        *look = Look {
            requests,
            is_idle: !is_used,
            skipped: 0,
        };
        old
    }

    /// The requests that the paths that are up have begun. Sleeps, but not for long.
    ///
    /// The number can come back to an earlier number: it gets smaller when a path goes, and when an
    /// administrator sets the counters of a path to zero.
    fn count_begun_requests(&self) -> u64 {
        let paths = self.paths.lock();
        let entered = paths.iter().filter_map(|path| path.core().enter());
        entered.fold(0, |sum, io| {
            let totals = io.traffic.totals();
            sum.wrapping_add(totals.reads).wrapping_add(totals.writes)
        })
    }

    /// Rings on `path` with the last number, if there is a number. Sleeps, but not for long.
    fn ring_at(&self, path: &Path) {
        let number = self.doorbell.load(ordering::Acquire);
        if number & RUNG != 0 {
            path.ring(number & !RUNG);
        }
    }

    /// The name, once the client has given it.
    pub(crate) fn sessname(&self) -> Option<&SessName> {
        self.name.get()
    }

    /// Gives the session its name, once. `EINVAL` if it has another name.
    pub(crate) fn name_once(&self, name: &SessName) -> Result {
        if self.name.set(name) {
            return Ok(());
        }
        pr_err_ratelimited!(
            "<{}>: refused: a path that gives the session another name\n",
            self.name()
        );
        Err(EINVAL)
    }

    /// The identity that all paths of the client share.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// The number of requests that the client had given up when the session was made.
    pub(crate) fn given_up(&self) -> u32 {
        self.given_up
    }

    /// Whether a path from `origin` was up. Sleeps, but not for long.
    pub(crate) fn had_path_from(&self, origin: &Origin) -> bool {
        self.origins.lock().contains(origin)
    }

    /// The paths. Sleeps.
    pub(crate) fn paths(&self) -> &Mutex<KVec<Arc<Path>>> {
        &self.paths
    }

    /// Whether the last path has gone; the session then gets no other path.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(ordering::Relaxed)
    }

    /// Whether all paths are being closed. Sleeps.
    pub(crate) fn is_closing(&self) -> bool {
        self.paths.lock().iter().all(|path| {
            matches!(
                path.core().state(),
                ServerState::Closing | ServerState::Closed
            )
        })
    }

    /// Makes a path for the connections of `request`. Sleeps.
    pub(crate) fn new_path(
        self: &Arc<Self>,
        request: &ConnReq,
        id: &NewId<'_>,
    ) -> Result<Arc<Path>> {
        let epoch = self.epoch.load(ordering::Relaxed);
        let owner = self.clone();
        let (context, needs) = (&self.context, self.needs);
        Path::new(owner, &self.name, context, needs, epoch, request, id)
    }

    /// Removes the session from its listener if it has no path. Sleeps.
    pub(crate) fn remove_if_unused(self: &Arc<Self>) {
        let paths = self.paths.lock();
        if !paths.is_empty() {
            return;
        }
        // INVARIANT: The paths are locked and empty.
        self.gone.store(true, ordering::Relaxed);
        drop(paths);
        self.owner.remove(self);
    }

    /// Closes all paths, in the background. Sleeps.
    pub(crate) fn close(&self) {
        for path in self.paths.lock().iter() {
            path.close();
        }
    }

    /// Tells the user of the path, and of the session if no other path is up. Returns the user, and
    /// what requests need of the session. The session's memory is allocated on NUMA node `node` if
    /// possible.
    ///
    /// The user forgets the session when its last path is lost. `ECONNRESET` if the client may not
    /// know of that: it believed that another path was up, or the path was being connected at that
    /// time.
    fn tell_user(self: &Arc<Self>, path: &Path, node: i32) -> Result<Given> {
        let mut up = self.up.lock();
        if up.handler.is_none() && !path.may_begin_anew(self.epoch.load(ordering::Relaxed)) {
            pr_err_ratelimited!(
                "<{}>: refused: the session has lost its last path, and the client may not know \
                 that\n",
                path
            );
            return Err(ECONNRESET);
        }
        self.origins.lock().reserve(1, GFP_KERNEL)?;
        let (handler, place) = match &up.handler {
            Some(handler) => (handler.clone(), None),
            None => {
                let place = self.context.clients.session(*path.ticket().client())?;
                (self.owner.server()?.session_up(self)?, Some(place))
            }
        };
        let taken = handler.path_up(path.client()).and_then(|()| {
            self.memory(node)
                .inspect_err(|_| handler.path_down(path.client()))
        });
        let io = match taken {
            Ok(io) => io,
            Err(error) => {
                if up.handler.is_none() {
                    handler.session_down();
                }
                return Err(error);
            }
        };
        let (origin, mut origins) = (Origin::of_path(path), self.origins.lock());
        if !origins.contains(&origin) && origins.len() < MAX_PATHS_NUM {
            // There is room: no other path adds an origin while `up` is locked.
            let _ = origins.push_within_capacity(origin);
        }
        drop(origins);
        if let Some(place) = place {
            up.handler = Some(handler.clone());
            up.place = Some(place);
        }
        // At most `MAX_PATHS_NUM`.
        up.paths = up.paths.wrapping_add(1);
        Ok(Given {
            handler,
            session: io,
        })
    }

    /// Returns what requests need of the session; the first path that is up makes it. Sleeps;
    /// called with `up` locked.
    fn memory(&self, node: i32) -> Result<Arc<SessionIo<PathIo>>> {
        if let Some(io) = self.io.as_ref() {
            return Ok(io.clone());
        }
        let context = &self.context;
        let (layout, pool) = (&context.settings.layout, context.pool.chunks());
        let io = SessionIo::new(layout, self.needs, node, pool, &context.workers)?;
        // INVARIANT: The caller has locked `up`.
        self.io.populate(io.clone());
        Ok(io)
    }

    /// Tells the user that a path that was up is down. Sleeps.
    fn tell_user_down(&self, path: &Path) {
        let mut up = self.up.lock();
        if let Some(handler) = &up.handler {
            handler.path_down(path.client());
        }
        // Each path that was up goes down once.
        up.paths = up.paths.wrapping_sub(1);
        if up.paths == 0 {
            self.epoch.fetch_add(1, ordering::Relaxed);
            if let Some(handler) = up.handler.take() {
                handler.session_down();
            }
            up.place = None;
        }
    }
}

impl WorkItem for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for path in this.paths.lock().iter() {
            this.ring_at(path);
        }
    }
}

impl PathOwner for Session {
    fn path_answered(&self, path: &Path) {
        // Later numbers are sent by this path, too, as the path is in its new state. An earlier
        // number may have been sent only by paths that were dying.
        self.ring_at(path);
    }

    fn set_name(&self, name: &SessName, path: &Path) -> Result {
        self.owner.set_name(self, name, path)
    }

    fn set_identity(&self, client: Option<&ClientId>, path: &Path) -> Result {
        let client = client.copied();
        // If two paths are established at once, the path that locks second finds the identity that
        // the first path has set.
        let _one_at_a_time = self.origins.lock();
        if self.identity.populate(client) || self.identity.as_ref() == Some(&client) {
            return Ok(());
        }
        let proved = |client: Option<&ClientId>| {
            Text::<80>::from_fn(|out| match client {
                Some(client) => write!(out, "client id {client}"),
                None => out.write_str("a client without a proof of identity"),
            })
        };
        pr_err_ratelimited!(
            "<{}>: refused: a path of {} for the session of {}\n",
            path,
            proved(client.as_ref()).as_str(),
            proved(self.client_id()).as_str()
        );
        Err(EKEYREJECTED)
    }

    fn path_up(
        self: Arc<Self>,
        path: &Arc<Path>,
        service: &QueuePair<Connection<PathIo>>,
    ) -> Result<Given> {
        let node = service.id().device().ok_or(ENODEV)?.numa_node();
        let given = self.tell_user(path, node)?;
        self.sysfs
            .add(path, service, &self.name, &given.session, &self.context)
            .inspect_err(|_| self.tell_user_down(path))?;
        Ok(given)
    }

    fn path_down(&self, path: &Arc<Path>) {
        self.sysfs.remove(path);
        self.tell_user_down(path);
    }

    fn path_closed(self: Arc<Self>, path: &Arc<Path>) {
        self.paths.lock().retain(|other| !Arc::ptr_eq(other, path));
        self.remove_if_unused();
    }

    fn has_only(&self, path: &Arc<Path>) -> bool {
        let paths = self.paths.lock();
        paths.iter().all(|other| Arc::ptr_eq(other, path))
    }

    fn for_each_path(&self, f: &mut dyn FnMut(&Arc<Path>)) {
        self.paths.lock().iter().for_each(f);
    }
}
