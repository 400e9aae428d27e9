// SPDX-License-Identifier: GPL-2.0

//! Paths: the connections between an address of the client and an address of the server.
//!
//! A path is made when its first connection is requested. It is established when the client has all
//! of its connections and has named its session. It is taken down once, by its own work item.
//! Requests enter a gate to get what they need of the path; the end of taking the path down waits
//! until they have left. The gate only keeps the path's memory: the state says whether requests
//! begin (`path_end.rs`).

use kernel::{
    fmt,
    new_mutex,
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
        Work, //
    }, //
};
use kernel_ext::{
    impl_has_delayed_work,
    new_delayed_work,
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        cm::NewId,
        message_buffers::{
            Incoming,
            MessageBuffer, //
        },
        Device,
        ProtectionDomain,
        QueuePair, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        set_once::SetOnce, //
    },
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use proto::{
    addr::Address,
    client_id::ClientId,
    handshake::ServerHandshake,
    name::SessName,
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
        FEATURE_DOORBELL, //
    }, //
};
use rtrs_core::{
    address::{
        host_address,
        RESOURCE_OWNER, //
    },
    connection::SERVICE_CID,
    heartbeat::{
        Action,
        Heartbeat, //
    }, //
};

use crate::{
    admission::{
        MakeRoom,
        PathTicket, //
    },
    connection::Connection,
    context::Context,
    negotiation::{
        handshake,
        used_features, //
    },
    operation::{
        PathIo,
        SessionHandler, //
    },
    path_core::{
        PathCore,
        PathEvents,
        SharedName, //
    },
    path_end::PathEnd,
    response::MAX_SEND_SGE,
    session_io::{
        Needs,
        SessionIo, //
    }, //
};

/// The work item that takes a path down.
pub(crate) const CLOSE: u64 = 0;
/// The work item that establishes a path.
pub(crate) const ESTABLISH: u64 = 1;
/// The work item that ends other paths.
pub(crate) const END_OTHERS: u64 = 2;
/// The work item that looks at the client's proof of its identity.
pub(crate) const AUTHENTICATE: u64 = 3;

/// What a session gives to a path that is up.
pub(crate) struct Given {
    /// The handler of the path's requests.
    pub(crate) handler: Arc<dyn SessionHandler>,
    /// What requests need of the session.
    pub(crate) session: Arc<SessionIo<PathIo>>,
}

/// What a path tells its session. Sleeps.
pub(crate) trait PathOwner: Send + Sync + 'static {
    /// Takes the name that the client gives the session on `path`. `EPERM` if another session has
    /// the name, `EINVAL` if this session has another name.
    fn set_name(&self, name: &SessName, path: &Path) -> Result;

    /// Notes that the client of `path` has proved to be `client`, or that it has proved nothing.
    /// `EKEYREJECTED` if the session is another client's.
    fn set_identity(&self, client: Option<&ClientId>, path: &Path) -> Result;

    /// The path is up; `service` is its service connection. The session gets its memory now if it
    /// has none.
    fn path_up(
        self: Arc<Self>,
        path: &Arc<Path>,
        service: &QueuePair<Connection<PathIo>>,
    ) -> Result<Given>;

    /// A path that was up is down: none of its requests is left.
    fn path_down(&self, path: &Arc<Path>);

    /// The path is closed: its operations are over. Clients rely on it that a path is listed until
    /// then: a path that connects again is refused meanwhile.
    fn path_closed(self: Arc<Self>, path: &Arc<Path>);

    /// The client knows that the path is up.
    fn path_answered(&self, path: &Path);

    /// Whether the session has no path but `path`, not even one that is being closed.
    fn has_only(&self, path: &Arc<Path>) -> bool;

    /// Calls `f` with each path of the session.
    fn for_each_path(&self, f: &mut dyn FnMut(&Arc<Path>));
}

/// What a path has while it is being connected. Its size does not depend on what the client claims.
pub(crate) struct Setup {
    /// The queue pairs, by number of the connection: a client makes the connections in that order.
    pub(crate) queue_pairs: KVec<QueuePair<Connection<PathIo>>>,
    pub(crate) domain: Arc<ProtectionDomain>,
    /// The buffer for the client's information request.
    pub(crate) info: Option<MessageBuffer<Incoming>>,
    /// How far the proof of the client's identity has come, if the client has offered one.
    pub(crate) handshake: Option<ServerHandshake>,
    /// The buffer for the client's proof.
    pub(crate) auth: Option<MessageBuffer<Incoming>>,
}

impl Setup {
    /// Makes what a path without connections has. Sleeps.
    fn new(device: &Device, handshake: Option<ServerHandshake>) -> Result<Self> {
        Ok(Self {
            queue_pairs: KVec::new(),
            domain: ProtectionDomain::new(device, RESOURCE_OWNER)?,
            info: None,
            handshake,
            auth: None,
        })
    }
}

/// How far a path has come. Used in process context.
pub(crate) enum PathState {
    /// Its connections are being made.
    Connecting(Setup),
    /// Establishing the path has begun; the session was not told yet.
    Establishing,
    /// The session was told that the path is up; the client was not yet.
    Up,
    /// The client was told, too.
    Answered,
    /// The path is being taken down.
    Closing,
}

/// A path of a session.
///
/// # Invariants
///
/// - `close_work` is queued once, by the change of `core`'s state to closing.
/// - `state` is locked for moments only: handlers that make connections take the lock, and ending a
///   connection waits for handlers.
#[pin_data]
pub(crate) struct Path {
    core: Arc<PathCore<PathIo>>,
    owner: Arc<dyn PathOwner>,
    context: Arc<Context>,
    /// Counts the path and its connections, for the limits on clients.
    ticket: PathTicket,
    uuid: Uuid,
    recon_cnt: u16,
    /// The client knew of no other path that is up.
    first: bool,
    /// The session's epoch when the client asked for this path.
    epoch: u32,
    num_connections: u16,
    /// See [`Path::client`].
    client: Option<Address>,
    max_send_sge: usize,
    /// When the path's first connection was requested.
    begun: Instant<Monotonic>,
    /// The length of the client's information request, in bytes.
    info_len: Atomic<u32>,
    /// The length of the client's proof of its identity, in bytes.
    auth_len: Atomic<u32>,
    /// The client is refused, and is being told why.
    refused: Atomic<bool>,
    /// The client, if it has proved who it is.
    identity: SetOnce<ClientId>,
    /// Completed when the last of the posted registrations is done, and when the path is being
    /// closed.
    #[pin]
    registered: Completion,
    #[pin]
    end: PathEnd<Self>,
    #[pin]
    state: Mutex<PathState>,
    #[pin]
    close_work: Work<Self, CLOSE>,
    #[pin]
    establish_work: Work<Self, ESTABLISH>,
    #[pin]
    end_others_work: Work<Self, END_OTHERS>,
    #[pin]
    authenticate_work: Work<Self, AUTHENTICATE>,
    /// Closes the path if it is not established in time; then drives the heartbeat.
    #[pin]
    timer: DelayedWork<Self>,
}

impl_has_work! {
    impl HasWork<Self, CLOSE> for Path { self.close_work }
    impl HasWork<Self, ESTABLISH> for Path { self.establish_work }
    impl HasWork<Self, END_OTHERS> for Path { self.end_others_work }
    impl HasWork<Self, AUTHENTICATE> for Path { self.authenticate_work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Path { self.timer }
}

impl Path {
    /// Makes a path for the connections of `request`. It has no connection yet, but the first one
    /// is counted. Sleeps. `EBUSY` if this client, or all clients together, have too many.
    pub(crate) fn new(
        owner: Arc<dyn PathOwner>,
        name: &SharedName,
        context: &Arc<Context>,
        needs: Needs,
        epoch: u32,
        request: &ConnReq,
        id: &NewId<'_>,
    ) -> Result<Arc<Self>> {
        let answered_at = id.answered_at().ok_or(EAFNOSUPPORT)?;
        let ticket = context.admission.path(host_address(answered_at))?;
        let features = used_features(request.features, needs);
        let settings = &context.settings;
        let setup = Setup::new(id.device(), handshake(request, features, id)?)?;
        let max_send_sge = (id.device().max_send_sge() as usize).clamp(1, MAX_SEND_SGE);
        let core = PathCore::new(
            name,
            id.local_address(),
            id.peer_address(),
            features,
            Heartbeat::new(settings.heartbeat),
        )?;
        let end = PathEnd::new()?;
        let path = Arc::pin_init(
            pin_init!(Self {
                core,
                owner,
                context: context.clone(),
                ticket,
                uuid: request.sess_uuid,
                recon_cnt: request.recon_cnt,
                first: request.first_conn,
                epoch,
                num_connections: request.cid_num,
                client: id.client().map(host_address),
                max_send_sge,
                begun: Instant::now(),
                info_len: Atomic::new(0),
                auth_len: Atomic::new(0),
                refused: Atomic::new(false),
                identity: SetOnce::new(),
                registered <- Completion::new(),
                end <- end,
                state <- new_mutex!(PathState::Connecting(setup), "rtrs_server::Path::state"),
                close_work <- new_work!("rtrs_server::Path::close_work"),
                establish_work <- new_work!("rtrs_server::Path::establish_work"),
                end_others_work <- new_work!("rtrs_server::Path::end_others_work"),
                authenticate_work <- new_work!("rtrs_server::Path::authenticate_work"),
                timer <- new_delayed_work!(&context.timers, "rtrs_server::Path::timer"),
            }),
            GFP_KERNEL,
        )?;
        path.ticket.begin(path.clone())?;
        // The timer is not queued yet, so this queues it.
        let _ = DelayedWork::queue(path.clone(), msecs_to_jiffies(CONNECT_TIMEOUT_MS));
        Ok(path)
    }

    /// What all layers of the path share.
    pub(crate) fn core(&self) -> &Arc<PathCore<PathIo>> {
        &self.core
    }

    /// The session.
    pub(crate) fn owner(&self) -> &Arc<dyn PathOwner> {
        &self.owner
    }

    /// Counts the path and its connections, for the limits on clients.
    pub(crate) fn ticket(&self) -> &PathTicket {
        &self.ticket
    }

    /// The module's context.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether the client asked for the path in this epoch, as the first path of a session.
    pub(crate) fn may_begin_anew(&self, epoch: u32) -> bool {
        self.first && self.epoch == epoch
    }

    /// The path's identity, as the client chose it.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// The client's reconnect count when it asked for the path.
    pub(crate) fn recon_cnt(&self) -> u16 {
        self.recon_cnt
    }

    /// The path's number in messages on other paths.
    pub(crate) fn number(&self) -> u32 {
        path_number(&self.uuid, self.recon_cnt)
    }

    /// The path's end, and the ends of other paths for which the client asks on this path.
    pub(crate) fn end(&self) -> &PathEnd<Self> {
        &self.end
    }

    /// How many connections the client makes.
    pub(crate) fn num_connections(&self) -> u16 {
        self.num_connections
    }

    /// The client's address; `None` if the address is only the client's word. See
    /// [`NewId::client`].
    pub(crate) fn client(&self) -> Option<Address> {
        self.client
    }

    /// The most scatter entries of an RDMA write.
    pub(crate) fn max_send_sge(&self) -> usize {
        self.max_send_sge
    }

    /// How far the path has come. Sleeps.
    pub(crate) fn state(&self) -> &Mutex<PathState> {
        &self.state
    }

    /// How long ago the path's first connection was requested, in ms.
    pub(crate) fn age_ms(&self) -> i64 {
        self.begun.elapsed().as_millis()
    }

    /// Closes the path, in the background; false if it was being closed already. Any context.
    pub(crate) fn close(self: &Arc<Self>) -> bool {
        let first = self.core.change_state(ServerEvent::Close);
        if first {
            self.registered.complete_all();
            // Cannot fail: the work is queued once, and the queue outlives the listener, which
            // waits.
            let _ = self.context.closing.enqueue::<Self, CLOSE>(self.clone());
        }
        first
    }

    /// The length of the client's proof of its identity, in bytes.
    pub(crate) fn auth_len(&self) -> u32 {
        self.auth_len.load(ordering::Relaxed)
    }

    /// The client, if it has proved who it is.
    pub(crate) fn identity(&self) -> Option<&ClientId> {
        self.identity.as_ref()
    }

    /// Notes that the client has proved to be `client`.
    pub(crate) fn set_identity(&self, client: ClientId) {
        // A path gets one proof.
        self.identity.populate(client);
    }

    /// Refuses a client that has proved nothing; the path is closed when the client has been told.
    pub(crate) fn refuse_identity(&self) {
        self.context.admission.count_auth_failure();
        self.refuse();
    }

    /// Refuses the client: the next response tells it why, and the path is closed when that has
    /// been sent.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, ordering::Relaxed);
    }

    /// The length of the information request, in bytes.
    pub(crate) fn info_len(&self) -> u32 {
        self.info_len.load(ordering::Relaxed)
    }

    /// Waits until the last of the posted registrations is done. Sleeps. `ECONNABORTED` if the path
    /// is being closed, `ETIMEDOUT` if the device takes too long.
    pub(crate) fn wait_registered(&self) -> Result {
        self.registered.wait_timeout(CONNECT_TIMEOUT_MS)?;
        match self.core.state() {
            ServerState::Connecting => Ok(()),
            _ => Err(ECONNABORTED),
        }
    }

    /// Starts the timer for the next heartbeat.
    pub(crate) fn start_heartbeat(self: &Arc<Self>) {
        let _ = DelayedWork::modify(self.clone(), self.core.heartbeat().interval());
    }

    /// Stops the timer, so that the time to establish the path does not run out. Only
    /// [`Path::start_heartbeat`] starts the timer again. Sleeps.
    pub(crate) fn stop_timer(self: &Arc<Self>) {
        DelayedWork::cancel_sync(self);
    }

    /// Sends an immediate on the service connection, if the path carries requests and the send
    /// queue has room. Any context.
    pub(crate) fn send_immediate(&self, immediate: Imm) {
        let Some(io) = self.core.enter() else { return };
        if let Some(service) = io.queue_pair(SERVICE_CID) {
            service.handler().send_immediate(service, immediate);
        }
    }

    /// Rings with `number`, if the path is up and the client knows of doorbells. Sleeps, but not
    /// for long.
    pub(crate) fn ring(&self, number: u32) {
        // Before the response to its information request the client cannot receive a doorbell.
        if self.core.features() & FEATURE_DOORBELL != 0
            && matches!(*self.state.lock(), PathState::Answered)
        {
            self.send_immediate(Imm::Doorbell { number });
        }
    }

    /// An interval of the heartbeat has passed.
    fn heartbeat_tick(self: &Arc<Self>) {
        match self.core.heartbeat().tick() {
            Action::Send => self.send_immediate(Imm::HbMsg),
            Action::Wait => {}
            Action::Fail => {
                pr_err_ratelimited!(
                    "<{}>: no heartbeat from the client, closing the path\n",
                    self
                );
                self.close();
            }
        }
        if self.core.is_connected() {
            let _ = DelayedWork::queue(self.clone(), self.core.heartbeat().interval());
        }
    }
}

impl MakeRoom for Path {
    fn make_room(self: Arc<Self>) {
        self.close();
    }
}

impl PathEvents for Path {
    fn close_path(self: Arc<Self>) -> bool {
        self.close()
    }

    fn confirmed(&self) {
        self.ticket.confirm();
    }

    fn auth_received(self: Arc<Self>, len: u32) {
        self.auth_len.store(len, ordering::Relaxed);
        let context = self.context.clone();
        // Cannot be queued yet: there is only one receive for the proof.
        let _ = context.queue.enqueue::<Self, AUTHENTICATE>(self);
    }

    fn info_received(self: Arc<Self>, len: u32) {
        self.info_len.store(len, ordering::Relaxed);
        let context = self.context.clone();
        // Cannot be queued yet: there is only one receive for the information request.
        let _ = context.queue.enqueue::<Self, ESTABLISH>(self);
    }

    fn answered(self: Arc<Self>) {
        if self.refused.load(ordering::Relaxed) {
            self.close();
        }
    }

    fn registered(self: Arc<Self>) {
        self.registered.complete();
    }

    fn end_of_path(self: Arc<Self>, number: u32) {
        self.end.note(number);
        let context = self.context.clone();
        // If the work is queued already, it will see all numbers that were noted.
        let _ = context.queue.enqueue::<Self, END_OTHERS>(self);
    }
}

impl DelayedWorkItem for Path {
    fn run(this: Arc<Self>) {
        match this.core.state() {
            // The time is over, whatever the client has sent: requests for connections do not
            // extend it. Establishing a path waits for this function before the path is connected.
            ServerState::Connecting => {
                pr_err_ratelimited!(
                    "<{}>: closing a path that was not established within {} ms\n",
                    this,
                    CONNECT_TIMEOUT_MS
                );
                this.close();
            }
            ServerState::Connected => this.heartbeat_tick(),
            ServerState::Closing | ServerState::Closed => {}
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
