// SPDX-License-Identifier: GPL-2.0

//! Paths: the connections between one address of the client and one of the server.
//!
//! A path is made when its first connection is requested, established when the client has all of
//! its connections and has named its session, and closed once, by its own work item. What
//! requests need is behind a gate: they enter it, and the close waits until they have left.

use core::mem;
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
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
use kernel_ext::{
    impl_has_delayed_work,
    net::socket_address::SocketAddress,
    new_delayed_work,
    rdma::{
        cm::NewId,
        message_buffers::{
            Incoming,
            MessageBuffer, //
        },
        ProtectionDomain,
        QueuePair, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        gate::{
            Entered,
            Gate, //
        },
        set_once::SetOnce, //
    },
    workqueue::{
        self,
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use proto::{
    addr::Address,
    path_state::{
        ServerEvent,
        ServerState, //
    },
    rtrs::{
        path_number,
        ConnReq,
        Imm,
        Uuid,
        CONNECT_TIMEOUT_MS,
        FEATURE_COALESCED_RESPONSES,
        FEATURE_PATH_END,
        FEATURE_SHORT_RESPONSES, //
    }, //
};
use rtrs_core::{
    connection::SERVICE_CID,
    heartbeat::{
        Action,
        Heartbeat, //
    }, //
};

use crate::{
    connection::Connection,
    info,
    memory::PathMemory,
    path_end::{
        self,
        PathEnd, //
    },
    path_io::PathIo,
    session::Session,
    stats::PathStats,
    sysfs::PathDirectory, //
};

/// The work item that closes a path.
const CLOSE: u64 = 0;
/// The work item that establishes a path.
const ESTABLISH: u64 = 1;
/// The work item that ends other paths.
pub(crate) const ASKED: u64 = 2;

/// What only process context uses, one at a time: while connections are made, when the path is
/// established, and when it is closed. Who does the latter two takes it out of its place.
#[derive(Default)]
pub(crate) struct Setup {
    /// By number; empty once the path is being established or closed.
    pub(crate) queue_pairs: KVec<Option<QueuePair<Connection>>>,
    /// `None` when the path is established or closed.
    pub(crate) memory: Option<PathMemory>,
    pub(crate) domain: Option<Arc<ProtectionDomain>>,
    /// Where the client's information request goes.
    pub(crate) info: Option<MessageBuffer<Incoming>>,
    pub(crate) directory: Option<PathDirectory>,
    /// The session counts this path as up.
    pub(crate) up: bool,
}

/// Which of the extensions that a client offers are used.
fn used_features(offered: u32) -> u32 {
    if offered & FEATURE_SHORT_RESPONSES == 0 {
        // Without it each answer has a message of its own.
        return 0;
    }
    offered & (FEATURE_SHORT_RESPONSES | FEATURE_COALESCED_RESPONSES | FEATURE_PATH_END)
}

/// A path of a session.
#[pin_data]
pub(crate) struct Path {
    session: Arc<Session>,
    uuid: Uuid,
    recon_cnt: u16,
    /// The client knew of no other path that is up.
    first: bool,
    /// How often the session had lost its last path when the client asked for this one.
    losses: u32,
    num_connections: u16,
    /// The extensions that both ends use.
    features: u32,
    local: SocketAddress,
    peer: SocketAddress,
    /// See [`Path::client`].
    client: Option<Address>,
    name: CString,
    max_send_sge: usize,
    writes_per_answer: u32,
    state: Atomic<u32>,
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the last connection was requested, in ms after `origin`.
    last_request: Atomic<i64>,
    /// The length of the client's information request, in bytes.
    info_len: Atomic<u32>,
    heartbeat: Heartbeat,
    stats: PathStats,
    io: SetOnce<Gate<PathIo>>,
    #[pin]
    end: PathEnd,
    #[pin]
    setup: Mutex<Setup>,
    #[pin]
    close_work: Work<Self, CLOSE>,
    #[pin]
    establish_work: Work<Self, ESTABLISH>,
    #[pin]
    asked_work: Work<Self, ASKED>,
    /// Closes the path if it is not established in time; then drives the heartbeat.
    #[pin]
    timer: DelayedWork<Self>,
}

impl_has_work! {
    impl HasWork<Self, CLOSE> for Path { self.close_work }
    impl HasWork<Self, ESTABLISH> for Path { self.establish_work }
    impl HasWork<Self, ASKED> for Path { self.asked_work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Path { self.timer }
}

impl Path {
    /// Makes a path for the connections of `request`, without any yet. Sleeps.
    pub(crate) fn new(
        session: &Arc<Session>,
        request: &ConnReq,
        id: &NewId<'_>,
    ) -> Result<Arc<Self>> {
        let (device, local, peer) = (id.device(), id.local_address(), id.peer_address());
        let context = session.context();
        let domain = ProtectionDomain::new(device)?;
        let features = used_features(request.features);
        let memory = PathMemory::new(
            &domain,
            session.chunks(),
            session.layout(),
            context.settings.always_invalidate,
            features & FEATURE_COALESCED_RESPONSES != 0,
        )?;
        let max_send_sge = memory
            .chunks
            .max_sges()
            .min(device.max_send_sge() as usize)
            .clamp(1, crate::answer::MAX_SEND_SGE);
        let writes_per_answer =
            u32::try_from(memory.chunks.max_sges().div_ceil(max_send_sge))?.max(1);
        let mut queue_pairs = KVec::with_capacity(usize::from(request.cid_num), GFP_KERNEL)?;
        for _ in 0..request.cid_num {
            queue_pairs.push(None, GFP_KERNEL)?;
        }
        let setup = Setup {
            queue_pairs,
            memory: Some(memory),
            domain: Some(domain),
            info: None,
            directory: None,
            up: false,
        };
        let stats = PathStats::new()?;
        let end = PathEnd::new()?;
        let name = CString::try_from_fmt(fmt!("{}@{}", peer, local))?;
        let path = Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                uuid: request.sess_uuid,
                recon_cnt: request.recon_cnt,
                first: request.first_conn,
                losses: session.losses(),
                num_connections: request.cid_num,
                features,
                local,
                peer,
                client: id.client(),
                name,
                max_send_sge,
                writes_per_answer,
                state: Atomic::new(ServerState::Connecting.to_u32()),
                origin: Instant::now(),
                last_request: Atomic::new(0),
                info_len: Atomic::new(0),
                heartbeat: Heartbeat::new(context.settings.heartbeat),
                stats,
                io: SetOnce::new(),
                end <- end,
                setup <- new_mutex!(setup, "rtrs_server::Path::setup"),
                close_work <- new_work!("rtrs_server::Path::close_work"),
                establish_work <- new_work!("rtrs_server::Path::establish_work"),
                asked_work <- new_work!("rtrs_server::Path::asked_work"),
                timer <- new_delayed_work!(&context.queue, "rtrs_server::Path::timer"),
            }),
            GFP_KERNEL,
        )?;
        // Not queued yet, so it is now.
        let _ = DelayedWork::queue(path.clone(), msecs_to_jiffies(CONNECT_TIMEOUT_MS));
        Ok(path)
    }

    /// Whether the client takes the path for the first one of a session that has lost its last path
    /// `losses` times.
    pub(crate) fn may_begin_anew(&self, losses: u32) -> bool {
        self.first && self.losses == losses
    }

    /// The session.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The path's identity, as the client chose it.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Which of the client's attempts to connect made it.
    pub(crate) fn recon_cnt(&self) -> u16 {
        self.recon_cnt
    }

    /// Its number in messages on other paths.
    pub(crate) fn number(&self) -> u32 {
        path_number(&self.uuid, self.recon_cnt)
    }

    /// Who is to be told of its end.
    pub(crate) fn end(&self) -> &PathEnd {
        &self.end
    }

    /// Has the ends of other paths seen to that the client has asked for. Any context.
    pub(crate) fn queue_asked(self: &Arc<Self>) {
        // If it is queued already, it will see all that was noted.
        let _ = self
            .session
            .context()
            .queue
            .enqueue::<Self, ASKED>(self.clone());
    }

    /// How many connections the client makes.
    pub(crate) fn num_connections(&self) -> u16 {
        self.num_connections
    }

    /// The extensions that both ends use, as the client's first connection request offered them.
    pub(crate) fn features(&self) -> u32 {
        self.features
    }

    /// The server's address.
    pub(crate) fn local(&self) -> &SocketAddress {
        &self.local
    }

    /// The client's address.
    pub(crate) fn peer(&self) -> &SocketAddress {
        &self.peer
    }

    /// The client's address; `None` if it is nothing but the client's word. See [`NewId::client`].
    pub(crate) fn client(&self) -> Option<Address> {
        self.client
    }

    /// The name of the directory in sysfs, and in events: `client@server`.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// The most scatter entries of an RDMA write.
    pub(crate) fn max_send_sge(&self) -> usize {
        self.max_send_sge
    }

    /// The most RDMA writes that the data of an answer takes.
    pub(crate) fn writes_per_answer(&self) -> u32 {
        self.writes_per_answer
    }

    /// Signs of life of the client.
    pub(crate) fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// Counts requests.
    pub(crate) fn stats(&self) -> &PathStats {
        &self.stats
    }

    /// What is used one at a time. Sleeps.
    pub(crate) fn setup(&self) -> &Mutex<Setup> {
        &self.setup
    }

    /// What requests need, unless the path is not established or is being closed. Any context.
    #[inline]
    pub(crate) fn io(&self) -> Option<Entered<PathIo>> {
        self.io.as_ref()?.enter()
    }

    /// Lets requests in. `EEXIST` if they are already.
    pub(crate) fn set_io(&self, io: PathIo) -> Result {
        if self.io.populate(Gate::new(io)?) {
            Ok(())
        } else {
            Err(EEXIST)
        }
    }

    /// The state.
    #[inline]
    pub(crate) fn state(&self) -> ServerState {
        ServerState::try_from(self.state.load(ordering::Relaxed)).unwrap_or(ServerState::Closed)
    }

    /// Whether the path carries requests.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.state.load(ordering::Relaxed) == ServerState::Connected.to_u32()
    }

    /// Does what `event` does to the state; false if that is nothing. Any context.
    pub(crate) fn change_state(&self, event: ServerEvent) -> bool {
        loop {
            let old = self.state();
            let Some(new) = old.next(event) else {
                return false;
            };
            let (old, new) = (old.to_u32(), new.to_u32());
            if self.state.cmpxchg(old, new, ordering::Full).is_ok() {
                return true;
            }
        }
    }

    /// Notes that a connection was requested: the path has more time to be established.
    pub(crate) fn touch(&self) {
        self.last_request
            .store(self.origin.elapsed().as_millis(), ordering::Relaxed);
    }

    /// How long ago the last connection was requested, in ms.
    pub(crate) fn idle_ms(&self) -> i64 {
        self.origin
            .elapsed()
            .as_millis()
            .saturating_sub(self.last_request.load(ordering::Relaxed))
    }

    /// Closes the path, in the background; false if it was being closed already. Any context.
    pub(crate) fn close(self: &Arc<Self>) -> bool {
        let first = self.change_state(ServerEvent::Close);
        if first {
            // Cannot fail: it is queued once, and the queue outlives the listener, which waits.
            let _ = self
                .session
                .context()
                .queue
                .enqueue::<Self, CLOSE>(self.clone());
        }
        first
    }

    /// The information request came. Any context.
    pub(crate) fn info_received(self: &Arc<Self>, len: u32) {
        self.info_len.store(len, ordering::Relaxed);
        // Cannot be queued yet: there is only one receive for it.
        let _ = self
            .session
            .context()
            .queue
            .enqueue::<Self, ESTABLISH>(self.clone());
    }

    /// The length of the information request, in bytes.
    pub(crate) fn info_len(&self) -> u32 {
        self.info_len.load(ordering::Relaxed)
    }

    /// Begins with heartbeats, or comes back for the next one.
    pub(crate) fn start_heartbeat(self: &Arc<Self>) {
        let _ = DelayedWork::modify(self.clone(), self.heartbeat.interval());
    }

    /// Ends the time within which the path has to be established; nothing but
    /// [`Path::start_heartbeat`] runs the timer again. Sleeps.
    pub(crate) fn stop_timer(self: &Arc<Self>) {
        DelayedWork::cancel_sync(self);
    }

    /// Sends answers that were left over by a burst that sleeps, after which no other one came.
    fn send_collected(&self) {
        let Some(io) = self.io() else { return };
        for queue_pair in &io.queue_pairs {
            queue_pair.handler().send_collected(&io);
        }
    }

    /// An interval of the heartbeat has passed.
    fn beat(self: &Arc<Self>) {
        self.send_collected();
        match self.heartbeat.tick() {
            Action::Send => {
                let Some(io) = self.io() else { return };
                let Some(queue_pair) = io.queue_pair(SERVICE_CID) else {
                    return;
                };
                if let Err(error) = queue_pair.handler().send_immediate(queue_pair, Imm::HbMsg) {
                    kernel_ext::pr_err_ratelimited!(
                        "<{}>: sending a heartbeat failed: {:?}\n",
                        self,
                        error
                    );
                    self.close();
                    return;
                }
            }
            Action::Wait => {}
            Action::Fail => {
                kernel_ext::pr_err_ratelimited!(
                    "<{}>: no heartbeat from the client, closing the path\n",
                    self
                );
                self.close();
                return;
            }
        }
        let _ = DelayedWork::queue(self.clone(), self.heartbeat.interval());
    }

    /// Takes the path down. Called once, in its own work.
    fn teardown(self: &Arc<Self>) {
        // The state says that neither is queued again, or does nothing if it is.
        workqueue::cancel_sync::<Self, ESTABLISH>(self);
        DelayedWork::cancel_sync(self);

        // Ending a connection waits for its event handler, and a handler that makes a connection
        // waits for this lock, so it is only held to take everything out.
        let mut setup = mem::take(&mut *self.setup.lock());
        for queue_pair in setup.queue_pairs.iter().flatten() {
            queue_pair.disconnect();
        }
        if let Some(io) = self.io() {
            // All at once, so that the waits for the peer's answers overlap.
            for queue_pair in &io.queue_pairs {
                queue_pair.disconnect();
            }
        }
        path_end::ended(self);
        if let Some(io) = self.io() {
            for queue_pair in &io.queue_pairs {
                queue_pair.drain();
            }
            // No completion comes any more, so nobody goes on with these.
            io.release_leftovers();
        }
        // Nor is this queued again.
        workqueue::cancel_sync::<Self, ASKED>(self);
        // Waits for the operations.
        let io = self.io.as_ref().and_then(Gate::close);
        if let Some(io) = &io {
            // An operation may have been put to wait since.
            io.release_leftovers();
        }
        drop(setup.directory.take());
        if mem::replace(&mut setup.up, false) {
            self.session.path_down(self);
        }
        setup.queue_pairs.clear();
        drop(io);
        drop(setup);

        self.change_state(ServerEvent::Closed);
        self.session.remove_path(self);
    }
}

impl WorkItem<CLOSE> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.teardown();
    }
}

impl WorkItem<ESTABLISH> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(error) = info::establish(&this) {
            kernel_ext::pr_err_ratelimited!("<{}>: path was not established: {:?}\n", this, error);
            this.close();
        }
    }
}

impl DelayedWorkItem for Path {
    fn run(this: Arc<Self>) {
        match this.state() {
            ServerState::Connecting => {
                let left = i64::from(CONNECT_TIMEOUT_MS).saturating_sub(this.idle_ms());
                match u32::try_from(left) {
                    Ok(left) if left > 0 => {
                        let _ = DelayedWork::queue(this.clone(), msecs_to_jiffies(left));
                        if this.state() == ServerState::Connected {
                            // Whoever began with heartbeats meanwhile could not queue it.
                            this.start_heartbeat();
                        }
                    }
                    _ => {
                        kernel_ext::pr_err_ratelimited!(
                            "<{}>: closing a path that was never established\n",
                            this
                        );
                        this.close();
                    }
                }
            }
            ServerState::Connected => this.beat(),
            ServerState::Closing | ServerState::Closed => {}
        }
    }
}

impl fmt::Display for Path {
    /// The session's name, once it has one, and the addresses in the order of the name in sysfs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.session.sessname() {
            name.write_to(f)?;
            f.write_str(" ")?;
        }
        f.write_fmt(fmt!("{}@{}", self.peer, self.local))
    }
}
