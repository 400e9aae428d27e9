// SPDX-License-Identifier: GPL-2.0

//! Paths: the connections between one address of the client and one of the server.
//!
//! A path is made when its first connection is requested, established when the client has all of
//! its connections and has named its session, and taken down once, by its own work item. What
//! requests need is behind a gate: they enter it, and taking the path down waits until they have
//! left.

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
        GiveUp,
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

/// What a path that is up gets of its session.
pub(crate) struct Given {
    /// What its requests are handed to.
    pub(crate) handler: Arc<dyn SessionHandler>,
    /// What they need of the session.
    pub(crate) session: Arc<SessionIo<PathIo>>,
}

/// What a path tells the session that it belongs to. Sleeps.
pub(crate) trait PathOwner: Send + Sync + 'static {
    /// The client gives the session this name on `path`. `EPERM` if another session has the name,
    /// `EINVAL` if this session has another.
    fn set_name(&self, name: &SessName, path: &Path) -> Result;

    /// The client of `path` has proved to be this one, or nothing. `EKEYREJECTED` if the session is
    /// another one's.
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

    /// The path is closed.
    fn path_closed(self: Arc<Self>, path: &Arc<Path>);

    /// The client knows that the path is up.
    fn path_answered(&self, path: &Path);

    /// Whether the session has no path but `path`, not even one that is being closed.
    fn has_only(&self, path: &Arc<Path>) -> bool;

    /// Calls `f` with each path of the session.
    fn for_each_path(&self, f: &mut dyn FnMut(&Arc<Path>));
}

/// What there is of a path that is being connected: none of it grows with what the client claims.
pub(crate) struct Setup {
    /// By number; a client makes the connections in that order.
    pub(crate) queue_pairs: KVec<QueuePair<Connection<PathIo>>>,
    pub(crate) domain: Arc<ProtectionDomain>,
    /// Where the client's information request goes.
    pub(crate) info: Option<MessageBuffer<Incoming>>,
    /// How far the client has proved who it is, if it has offered that.
    pub(crate) handshake: Option<ServerHandshake>,
    /// Where the client's proof goes.
    pub(crate) auth: Option<MessageBuffer<Incoming>>,
}

impl Setup {
    /// What a path without connections has. Sleeps.
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

/// How far a path has come, for process context.
pub(crate) enum PathState {
    /// Its connections are being made.
    Connecting(Setup),
    /// Establishing it has begun, and has not told the session yet.
    Establishing,
    /// The session was told that the path is up; the client was not yet.
    Up,
    /// The client was told, too.
    Answered,
    /// It is being taken down.
    Closing,
}

/// A path of a session.
///
/// # Invariants
///
/// - `close_work` is queued by the change of `core`'s state to closing, which happens once.
/// - `state` is only locked for moments: its lock is taken by handlers that make connections, and
///   ending a
///   connection waits for handlers.
#[pin_data]
pub(crate) struct Path {
    core: Arc<PathCore<PathIo>>,
    owner: Arc<dyn PathOwner>,
    context: Arc<Context>,
    /// Its place among those of all clients.
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
    /// When its first connection was requested.
    begun: Instant<Monotonic>,
    /// The length of the client's information request, in bytes.
    info_len: Atomic<u32>,
    /// The length of the client's proof of its identity, in bytes.
    auth_len: Atomic<u32>,
    /// The client is refused, and is being told why.
    refused: Atomic<bool>,
    /// The client, if it has proved who it is.
    identity: SetOnce<ClientId>,
    /// Told when the last of some registrations is done, and when the path is being closed.
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
    /// Makes a path for the connections of `request`, without any yet; the first one has been
    /// counted. Sleeps. `EBUSY` if all clients together or this one have too many.
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
        // Not queued yet, so it is now.
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

    /// Its place among those of all clients.
    pub(crate) fn ticket(&self) -> &PathTicket {
        &self.ticket
    }

    /// What there is once per module.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether the client takes the path for the first one of a session in this epoch.
    pub(crate) fn may_begin_anew(&self, epoch: u32) -> bool {
        self.first && self.epoch == epoch
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

    /// Its end, and the ends that the client asks for on it.
    pub(crate) fn end(&self) -> &PathEnd<Self> {
        &self.end
    }

    /// How many connections the client makes.
    pub(crate) fn num_connections(&self) -> u16 {
        self.num_connections
    }

    /// The client's address; `None` if it is nothing but the client's word. See [`NewId::client`].
    pub(crate) fn client(&self) -> Option<Address> {
        self.client
    }

    /// The most scatter entries of an RDMA write.
    pub(crate) fn max_send_sge(&self) -> usize {
        self.max_send_sge
    }

    /// How far it has come. Sleeps.
    pub(crate) fn state(&self) -> &Mutex<PathState> {
        &self.state
    }

    /// How long ago its first connection was requested, in ms.
    pub(crate) fn age_ms(&self) -> i64 {
        self.begun.elapsed().as_millis()
    }

    /// Closes the path, in the background; false if it was being closed already. Any context.
    pub(crate) fn close(self: &Arc<Self>) -> bool {
        let first = self.core.change_state(ServerEvent::Close);
        if first {
            self.registered.complete_all();
            // Cannot fail: it is queued once, and the queue outlives the listener, which waits.
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

    /// The client has proved to be this one.
    pub(crate) fn set_identity(&self, client: ClientId) {
        // A path gets one proof.
        self.identity.populate(client);
    }

    /// The client has proved nothing: the path is closed when it has been told.
    pub(crate) fn refuse_identity(&self) {
        self.context.admission.count_auth_failure();
        self.refuse();
    }

    /// The path is closed when the client has been told why, by the response that is posted next.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, ordering::Relaxed);
    }

    /// The length of the information request, in bytes.
    pub(crate) fn info_len(&self) -> u32 {
        self.info_len.load(ordering::Relaxed)
    }

    /// Waits until the last of some registrations is done, which was posted. Sleeps. `ECONNABORTED`
    /// if the path is being closed, `ETIMEDOUT` if the device does not do it.
    pub(crate) fn wait_registered(&self) -> Result {
        self.registered.wait_timeout(CONNECT_TIMEOUT_MS)?;
        match self.core.state() {
            ServerState::Connecting => Ok(()),
            _ => Err(ECONNABORTED),
        }
    }

    /// Begins with heartbeats, or comes back for the next one.
    pub(crate) fn start_heartbeat(self: &Arc<Self>) {
        let _ = DelayedWork::modify(self.clone(), self.core.heartbeat().interval());
    }

    /// Ends the time within which the path has to be established; nothing but
    /// [`Path::start_heartbeat`] runs the timer again. Sleeps.
    pub(crate) fn stop_timer(self: &Arc<Self>) {
        DelayedWork::cancel_sync(self);
    }

    /// Sends an immediate on the service connection, if the path carries requests and there is
    /// room. Any context.
    pub(crate) fn send_immediate(&self, immediate: Imm) {
        let Some(io) = self.core.enter() else { return };
        if let Some(service) = io.queue_pair(SERVICE_CID) {
            service.handler().send_immediate(service, immediate);
        }
    }

    /// Rings with `number`, if the path is up and the client knows of doorbells. Sleeps, but not
    /// for long.
    pub(crate) fn ring(&self, number: u32) {
        // Before the answer to its information request the client has nowhere to receive it.
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

impl GiveUp for Path {
    fn give_up(self: Arc<Self>) {
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
        // Cannot be queued yet: there is only one receive for it.
        let _ = context.queue.enqueue::<Self, AUTHENTICATE>(self);
    }

    fn info_received(self: Arc<Self>, len: u32) {
        self.info_len.store(len, ordering::Relaxed);
        let context = self.context.clone();
        // Cannot be queued yet: there is only one receive for it.
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
        // If it is queued already, it will see all that was noted.
        let _ = context.queue.enqueue::<Self, END_OTHERS>(self);
    }
}

impl DelayedWorkItem for Path {
    fn run(this: Arc<Self>) {
        match this.core.state() {
            // The time is over, whatever the client has sent meanwhile: requests for connections
            // give it no more. A path that is being established waits for this function before it
            // is connected.
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
