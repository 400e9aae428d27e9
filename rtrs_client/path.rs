// SPDX-License-Identifier: GPL-2.0

//! A path: one way from this machine to the server of a session.
//!
//! The state of a path changes by the rules of [`proto::path_state`]. Work that takes time
//! (connecting, tearing down) is done by work items of the module's workqueue, or by the process
//! that wrote to sysfs, one at a time under [`Path::control`]. Completions and events only change
//! the state and queue that work.

use kernel::{
    new_mutex,
    str::CString,
    sync::{
        rcu,
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
    impl_has_delayed_work,
    mm::without_io,
    net::socket_address::SocketAddress,
    new_delayed_work,
    pr_err_ratelimited,
    prelude::*,
    random,
    rdma::cm::PortSpace,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        rcu::RcuArc,
        set_once::SetOnce,
        state_cell::Owned, //
    },
    tracepoint,
    workqueue::{
        self,
        DelayedWork,
        QueueHandle, //
    }, //
};
use proto::{
    addr::{
        Address,
        PathAddress, //
    },
    path_state::{
        ClientEvent,
        ClientState, //
    }, //
};
use rtrs_core::{
    address::socket_address,
    heartbeat::Heartbeat, //
};

use crate::{
    availability::ConnectSnapshot,
    backoff::Backoff,
    connection_set::ConnectionSet,
    handler::ConnectionHandler,
    incarnation::PathEvents,
    requests::request::Request,
    session_core::SessionCore,
    stats::Stats, //
};

mod ending;
mod ends;
mod establish;
mod heartbeat;
mod proof;
mod reconnect;
mod teardown;
mod waiting;

use ending::Ending;

/// The RDMA device that a path uses, for sysfs and log lines.
pub(crate) struct DevicePort {
    pub(crate) name: CString,
    pub(crate) port: u32,
    source: Option<Address>,
}

/// The work item that takes down the connections of a path that failed.
const RECOVERY: u64 = 0;
/// The work item that connects a path again.
const RECONNECT: u64 = 1;
/// The work item that sends heartbeats.
const HEARTBEAT: u64 = 2;

/// The state of the task that connects the path or takes it down, one at a time.
struct Control {
    /// Whether the session has been told that the path is up.
    up: bool,
}

/// The session of a path, as the path uses it.
pub(crate) trait PathOwner: Send + Sync {
    /// The state that the paths of the session share.
    fn core(&self) -> &Arc<SessionCore>;
    /// The paths.
    fn paths(&self) -> &RcuArc<KVec<Arc<Path>>>;
    /// Held while a path gets its name.
    fn naming(&self) -> &Mutex<()>;
    /// Sends a request of a failed path by another path, or gives it up if no path can carry it.
    /// Sleeps.
    fn fail_over<'a>(&'a self, failed: &Path, request: Owned<'a, Request>);
    /// Tells the user of a request that was in flight on a lost path and is sent on no other path.
    /// Sleeps.
    fn give_up(&self, request: Owned<'_, Request>);
    /// Closes `path` and removes it from the session, unless another task does so. Sleeps.
    fn remove_path(&self, path: &Arc<Path>);
}

/// The handler of a path's connections.
pub(crate) type PathHandler = ConnectionHandler<Path>;

/// A path.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<SessionCore>,
    pub(crate) owner: Arc<dyn PathOwner>,
    pub(crate) uuid: [u8; 16],
    address: PathAddress,
    source: Option<SocketAddress>,
    destination: SocketAddress,
    name: CString,
    file_name: SetOnce<CString>,
    state: Atomic<u32>,
    /// The connections for requests. They are set just before the state is `connected`, and taken
    /// out after that, so a task that sends also looks at the state: [`Self::connected`].
    connections: RcuArc<ConnectionSet<Path>>,
    #[pin]
    control: Mutex<Control>,
    /// Woken when the state changes or a step of the establishment is done.
    #[pin]
    wake: Completion,
    #[pin]
    pub(crate) device: Mutex<Option<DevicePort>>,
    ending: Ending,
    /// The number of the incarnation that was up last, in which abandoned requests may have been
    /// left behind; 0 if there was none.
    left_behind_in: Atomic<u32>,
    reconnect_count: Atomic<u32>,
    pub(crate) backoff: Backoff,
    /// Whether the server may make a new session for this path; see [`Self::may_be_first`].
    first: Atomic<bool>,
    /// Whether an administrator has asked for the path to be connected now.
    is_asked_for: Atomic<bool>,
    /// Whether the log says already that the server refuses the path because it is draining.
    is_refused: Atomic<bool>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) stats: Arc<Stats>,
    #[pin]
    recovery: Work<Path, RECOVERY>,
    queue: QueueHandle,
    #[pin]
    reconnect: DelayedWork<Path, RECONNECT>,
    #[pin]
    heartbeat_work: DelayedWork<Path, HEARTBEAT>,
}

impl_has_work! { impl HasWork<Path, RECOVERY> for Path { self.recovery } }
impl_has_delayed_work! { impl HasDelayedWork<Path, RECONNECT> for Path { self.reconnect } }
impl_has_delayed_work! { impl HasDelayedWork<Path, HEARTBEAT> for Path { self.heartbeat_work } }

impl Path {
    /// Makes a path in the state `connecting`. `first` if the server may make a session for it.
    /// Sleeps.
    // Not inlined: the stack that this takes is free again when a path is connected, which needs
    // most of the stack.
    #[inline(never)]
    pub(crate) fn new(
        owner: Arc<dyn PathOwner>,
        address: &PathAddress,
        first: bool,
    ) -> Result<Arc<Self>> {
        let session = owner.core().clone();
        let queue = session.queue.clone();
        let source = match &address.src {
            Some(source) => Some(socket_address(source, 0)?),
            None => None,
        };
        let destination = socket_address(&address.dst, session.port)?;
        let name = CString::try_from_fmt(fmt!("{}", address.to_text().as_str()))?;
        Arc::pin_init(
            try_pin_init!(Self {
                session,
                owner,
                uuid: random::uuid(),
                address: *address,
                source,
                destination,
                name,
                file_name: SetOnce::new(),
                state: Atomic::new(ClientState::Connecting.to_u32()),
                connections: RcuArc::new(None),
                control <- new_mutex!(Control { up: false }),
                wake <- Completion::new(),
                device <- new_mutex!(None),
                ending: Ending::new(),
                left_behind_in: Atomic::new(0),
                reconnect_count: Atomic::new(0),
                backoff: Backoff::new(),
                first: Atomic::new(first),
                is_asked_for: Atomic::new(true),
                is_refused: Atomic::new(false),
                heartbeat: Heartbeat::new(session.settings.heartbeat()),
                stats: Stats::new(usize::from(session.num_connections()))?,
                recovery <- new_work!("Path::recovery"),
                reconnect <- new_delayed_work!(&queue, "Path::reconnect"),
                heartbeat_work <- new_delayed_work!(&queue, "Path::heartbeat_work"),
                queue,
            }),
            GFP_KERNEL,
        )
    }

    /// The requests in flight. Any context.
    pub(crate) fn in_flight(&self) -> usize {
        let guard = rcu::read_lock();
        let requests = self
            .connections(&guard)
            .and_then(|set| set.incarnation.requests());
        requests.map_or(0, |requests| requests.in_flight())
    }

    /// The addresses that the path was made with, for log lines.
    pub(crate) fn name_text(&self) -> &str {
        self.name.to_str().unwrap_or("?")
    }

    /// The path, as tracepoints show it. Any context.
    fn trace(&self) -> tracepoint::ClientPath<'_> {
        let (succeeded, failed) = self.stats.reconnects();
        let attempts = self.backoff.failed_attempts();
        tracepoint::ClientPath {
            session: self.session.name(),
            path: self.file_name.as_ref().unwrap_or(&self.name),
            state: self.state().to_u32(),
            reconnect_attempts: i32::try_from(attempts).unwrap_or(i32::MAX),
            max_reconnect_attempts: self.session.settings.max_reconnect_attempts.get(),
            failed,
            succeeded,
        }
    }

    /// The addresses that the path was made with.
    pub(crate) fn address(&self) -> &PathAddress {
        &self.address
    }

    pub(crate) fn source(&self) -> Option<&SocketAddress> {
        self.source.as_ref()
    }

    /// The space of port numbers that the destination's port belongs to.
    pub(crate) fn port_space(&self) -> PortSpace {
        match self.address.dst {
            Address::Gid(_) => PortSpace::Ib,
            _ => PortSpace::Tcp,
        }
    }

    pub(crate) fn destination(&self) -> &SocketAddress {
        &self.destination
    }

    /// The number of connections: the service connection, those of the queues that raise
    /// interrupts, and those of the polled queues.
    pub(crate) fn num_connections(&self) -> u16 {
        self.session.num_connections()
    }

    /// Whether connection `cid` is polled.
    pub(crate) fn is_polled(&self, cid: u16) -> bool {
        cid > self.session.num_irq_queues()
    }

    /// Counts an attempt to connect, so that the server can tell it from older ones.
    pub(crate) fn next_reconnect_count(&self) -> u16 {
        (self
            .reconnect_count
            .fetch_add(1, ordering::Relaxed)
            .wrapping_add(1)
            & 0xffff) as u16
    }

    /// Whether the server may make a new session for this path if the other paths are down: the
    /// path is known to lead to the session's server.
    pub(crate) fn may_be_first(&self) -> bool {
        self.first.load(ordering::Relaxed)
    }

    /// The state.
    pub(crate) fn state(&self) -> ClientState {
        // Only states are stored.
        ClientState::try_from(self.state.load(ordering::Acquire)).unwrap_or(ClientState::Dead)
    }

    /// Lets `event` change the state; returns the old state if it did. Any context.
    fn change_state(&self, event: ClientEvent) -> Option<ClientState> {
        loop {
            let old = self.state();
            let new = old.next(event)?;
            if self
                .state
                .cmpxchg(old.to_u32(), new.to_u32(), ordering::Full)
                .is_ok()
            {
                self.wake();
                return Some(old);
            }
        }
    }

    /// Wakes the task that waits for the state or for a step of the establishment. Any context.
    pub(crate) fn wake(&self) {
        self.wake.complete();
    }

    /// Waits until [`Path::wake`] is called; `ETIMEDOUT` after `timeout` milliseconds,
    /// `ERESTARTSYS` on a signal. Sleeps.
    pub(crate) fn wait_for_wake(&self, timeout: u32) -> Result {
        self.wake.wait_interruptible_timeout(timeout)
    }

    /// Whether the path is connected, so that requests can be sent.
    #[inline(always)]
    pub(crate) fn is_connected(&self) -> bool {
        self.state.load(ordering::Acquire) == ClientState::Connected.to_u32()
    }

    /// The connections, for as long as `guard` lives. Any context.
    #[inline]
    pub(crate) fn connections<'g>(&self, guard: &'g rcu::Guard) -> Option<&'g ConnectionSet<Path>> {
        self.connections.load_ref(guard)
    }

    /// The connections of a path that is connected, for as long as `guard` lives. Any context.
    #[inline(always)]
    pub(crate) fn connected<'g>(&self, guard: &'g rcu::Guard) -> Option<&'g ConnectionSet<Path>> {
        self.is_connected()
            .then(|| self.connections(guard))
            .flatten()
    }

    /// Handles the failure of a connection, of a request or of the heartbeat: a task that connects
    /// the path gives up, and a path that was connected is torn down and connected again. Returns
    /// whether the path was in use until now. Any context.
    pub(crate) fn connection_failed(self: &Arc<Self>) -> bool {
        tracepoint::rdma_error_recovery(|| self.trace());
        let old = self.change_state(ClientEvent::Error);
        if old == Some(ClientState::Connected) {
            self.queue_recovery();
        }
        old.is_some()
    }

    /// Handles a request that may have been posted in part. Only while the connections are borrowed
    /// that the request was posted on: until then the teardown has not looked for requests to take
    /// back.
    #[cold]
    pub(crate) fn submission_failed(self: &Arc<Self>) {
        if self.connection_failed() {
            kernel_ext::pr_info_ratelimited!(
                "{}: the path is lost: its RDMA device did not take a request\n",
                self.name_text()
            );
        }
    }

    /// Closes the path. It is connected again only if an administrator asks for it. Any context.
    fn stop_reconnecting(self: &Arc<Self>) {
        tracepoint::clt_close_conns(|| self.trace());
        if self.change_state(ClientEvent::Close).is_some() {
            self.queue_recovery();
        }
    }

    /// Queues the work that takes the connections down. Any context.
    fn queue_recovery(self: &Arc<Self>) {
        // An error means that the work is queued already, or that the module goes.
        let _ = self.queue.enqueue::<_, RECOVERY>(self.clone());
    }

    /// Connects a path whose state is `connecting`, for the first time. Sleeps.
    pub(crate) fn connect(self: &Arc<Self>) -> Result {
        self.as_asked_for(|| without_io(|| self.connect_locked(&mut self.control.lock())))
    }

    /// Runs `connect`, which an administrator has asked for. Refusals and absences of the server
    /// are logged meanwhile.
    fn as_asked_for<R>(&self, connect: impl FnOnce() -> R) -> R {
        self.is_asked_for.store(true, ordering::Relaxed);
        self.is_refused.store(false, ordering::Relaxed);
        let result = connect();
        self.is_asked_for.store(false, ordering::Relaxed);
        result
    }

    /// As [`Path::connect`], without connections, and with `control` locked.
    fn connect_locked(self: &Arc<Self>, control: &mut Control) -> Result {
        let established = self.establish();
        let result = established.and_then(|(set, snapshot)| self.set_up(control, set, &snapshot));
        if let Err(error) = result {
            let is_absence = [EHOSTUNREACH, ETIMEDOUT, ECONNABORTED].contains(&error);
            // The handler of the connection has logged that the server is draining.
            if error != EHOSTDOWN && !(is_absence && self.expects_absence()) {
                pr_err_ratelimited!(
                    "{}: connecting to the server failed: {:?}\n",
                    self.name_text(),
                    error
                );
            }
            self.change_state(ClientEvent::Error);
        }
        result
    }

    /// Lets requests use the connections `set`, if what the server was told by `snapshot` still
    /// holds.
    fn set_up(
        self: &Arc<Self>,
        control: &mut Control,
        set: Arc<ConnectionSet<Path>>,
        snapshot: &ConnectSnapshot,
    ) -> Result {
        // The server has accepted the path again, so it is done with requests of before. No
        // incarnation has number 0.
        let left_behind_in = self.left_behind_in.xchg(0, ordering::Full);
        self.session.tags.path_is_back(left_behind_in);
        self.heartbeat.reset();
        {
            // Pages that the session gets after this lock is dropped find the connections.
            let shared = self.session.shared_pages.lock();
            if let (Some(pages), Some(requests)) = (shared.as_ref(), set.incarnation.requests()) {
                requests.share(pages);
            }
            drop(self.connections.replace(Some(set)));
        }
        let establish = || self.change_state(ClientEvent::Established).is_some();
        let availability = &self.session.availability;
        if let Err(error) = availability.path_up(self.session.name_text(), snapshot, establish) {
            self.take_down(control);
            return Err(error);
        }
        self.backoff.connected();
        self.is_refused.store(false, ordering::Relaxed);
        control.up = true;
        self.stats.connected();
        self.restart_heartbeat();
        Ok(())
    }

    /// Closes the path. Only [`Path::reconnect_now`] can connect it again. Sleeps.
    pub(crate) fn close(self: &Arc<Self>) {
        tracepoint::clt_close_conns(|| self.trace());
        loop {
            self.change_state(ClientEvent::Close);
            self.cancel_works();
            let mut control = self.control.lock();
            // The task that was connecting has given up by now, since the state told it to. The
            // path is not closed if another task has asked for a reconnection meanwhile.
            if self.is_closed() {
                without_io(|| self.take_down(&mut control));
                self.change_state(ClientEvent::Closed);
                return;
            }
        }
    }

    /// Whether the path is closed or about to be closed.
    fn is_closed(&self) -> bool {
        matches!(
            self.state(),
            ClientState::Closing | ClientState::Closed | ClientState::Dead
        )
    }

    /// Closes the path for good. Returns whether this call did it. Sleeps.
    pub(crate) fn kill(self: &Arc<Self>) -> bool {
        loop {
            self.close();
            if self.change_state(ClientEvent::Remove).is_some() {
                // A task that saw the path fail, or tried to connect it, before it was closed may
                // have queued works since. They hold the session, whose user may be unloaded soon.
                self.cancel_works();
                return true;
            }
            if self.state() == ClientState::Dead {
                return false;
            }
        }
    }

    /// Cancels all work of the path. Sleeps.
    fn cancel_works(self: &Arc<Self>) {
        workqueue::cancel_sync::<_, RECOVERY>(self);
        self.cancel_delayed_works();
    }

    /// Cancels the works that wait for their time. Sleeps.
    fn cancel_delayed_works(self: &Arc<Self>) {
        DelayedWork::<Path, HEARTBEAT>::cancel_sync(self);
        DelayedWork::<Path, RECONNECT>::cancel_sync(self);
    }
}

impl PathEvents for Path {
    fn name_text(&self) -> &str {
        self.name_text()
    }

    fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn wake(&self) {
        self.wake();
    }

    fn connection_failed(this: &Arc<Self>) -> bool {
        this.connection_failed()
    }

    fn expects_absence(&self) -> bool {
        !self.is_asked_for.load(ordering::Relaxed) && self.session.is_server_away()
    }

    fn is_first_refusal(&self) -> bool {
        !self.is_refused.xchg(true, ordering::Relaxed)
    }

    fn path_ended(&self, number: u32) {
        let guard = rcu::read_lock();
        let Some(paths) = self.owner.paths().load(&guard) else {
            return;
        };
        for path in paths.iter().filter(|path| path.ending.confirm(number)) {
            path.wake();
        }
    }

    fn doorbell(&self, number: u32) {
        self.session.events.doorbell(number);
    }
}

/// Tears down a path that failed, or that lost its device.
impl WorkItem<RECOVERY> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        {
            let mut control = this.control.lock();
            if this.is_connected() {
                // Another task has taken the path down and connected it again since this was
                // queued.
                return;
            }
            without_io(|| this.take_down(&mut control));
        }
        match this.state() {
            ClientState::Reconnecting => this.schedule_reconnect(),
            ClientState::Closing => {
                this.change_state(ClientEvent::Closed);
            }
            _ => {}
        }
    }
}
