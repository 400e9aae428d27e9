// SPDX-License-Identifier: GPL-2.0

//! A path: one way from this machine to the server of a session.
//!
//! Its state changes by the rules of [`proto::path_state`]. Whatever takes time (connecting,
//! tearing down) is done by work items of the module's workqueue or by the process that wrote to
//! sysfs, one at a time under [`Path::control`]; completions and events only change the state and
//! queue that work.

use kernel::{
    new_mutex,
    prelude::*,
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
    cpu,
    impl_has_delayed_work,
    mm::without_io,
    net::socket_address::SocketAddress,
    new_delayed_work,
    pr_err_ratelimited,
    random,
    rdma::{
        cm::PortSpace,
        QueuePair, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        rcu::RcuArc,
        set_once::SetOnce, //
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
        PathAddress,
        PATH_TEXT_LEN, //
    },
    path_state::{
        ClientEvent,
        ClientState, //
    },
    text::Text, //
};
use rtrs_core::{
    address::{
        address,
        socket_address, //
    },
    heartbeat::Heartbeat, //
};

use crate::{
    backoff::Backoff,
    connection::ConnectionHandler,
    establish::establish,
    incarnation::ConnectionSet,
    link::Asked,
    session::Session,
    stats::Stats, //
};

mod io;
mod reconnect;
mod teardown;

use teardown::Ending;

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
pub(crate) const BEAT: u64 = 2;

/// What only the one who connects or tears down uses.
struct Control {
    /// The session has been told that the path is up.
    up: bool,
}

/// A path.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: [u8; 16],
    address: PathAddress,
    source: Option<SocketAddress>,
    destination: SocketAddress,
    name: CString,
    file_name: SetOnce<CString>,
    state: Atomic<u32>,
    /// The connections that requests may be sent on; only set while the path is connected.
    connections: RcuArc<ConnectionSet>,
    #[pin]
    control: Mutex<Control>,
    /// Woken when the state changes or a step of the establishment is done.
    #[pin]
    wake: Completion,
    #[pin]
    pub(crate) device: Mutex<Option<DevicePort>>,
    ending: Ending,
    reconnect_count: Atomic<u32>,
    pub(crate) backoff: Backoff,
    /// Whether the server may make a new session for this path.
    first: Atomic<bool>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) stats: Stats,
    #[pin]
    recovery: Work<Path, RECOVERY>,
    queue: QueueHandle,
    #[pin]
    reconnect: DelayedWork<Path, RECONNECT>,
    #[pin]
    beat: DelayedWork<Path, BEAT>,
}

impl_has_work! { impl HasWork<Path, RECOVERY> for Path { self.recovery } }
impl_has_delayed_work! { impl HasDelayedWork<Path, RECONNECT> for Path { self.reconnect } }
impl_has_delayed_work! { impl HasDelayedWork<Path, BEAT> for Path { self.beat } }

impl Path {
    /// Makes a path in the state `connecting`. `first`: the server may make a session for it.
    /// Sleeps.
    pub(crate) fn new(
        session: Arc<Session>,
        address: &PathAddress,
        first: bool,
    ) -> Result<Arc<Self>> {
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
                reconnect_count: Atomic::new(0),
                backoff: Backoff::new(),
                first: Atomic::new(first),
                heartbeat: Heartbeat::new(session.settings.heartbeat()),
                stats: Stats::new(session.num_connections(), cpu::nr_cpu_ids())?,
                recovery <- new_work!("Path::recovery"),
                reconnect <- new_delayed_work!(&queue, "Path::reconnect"),
                beat <- new_delayed_work!(&queue, "Path::beat"),
                queue,
            }),
            GFP_KERNEL,
        )
    }

    /// The name of the directory in sysfs: `source@destination`, as they were when the path was
    /// connected for the first time. `EINVAL` before that. Any context.
    pub(crate) fn file_name(&self) -> Result<&CStr> {
        Ok(self.file_name.as_ref().ok_or(EINVAL)?)
    }

    /// Whether `address` is what the path was made with, or the ends that it had last. Sleeps.
    pub(crate) fn is_known_as(&self, address: &PathAddress) -> bool {
        self.address.same_as(address) || self.used_ends().same_as(address)
    }

    /// The ends: those that are in use, once there was a connection. Sleeps.
    fn used_ends(&self) -> PathAddress {
        PathAddress {
            src: self.used_source(),
            dst: self.address.dst,
        }
    }

    /// Gives this path its name, now that its ends are known, if it has none yet. `EEXIST` if it
    /// has turned out to be one that the session has already. Sleeps.
    pub(crate) fn settle_name(&self) -> Result {
        // Of paths with the same ends that are connected at the same time one has to stay.
        let _naming = self.session.naming.lock();
        if self.file_name.as_ref().is_some() {
            return Ok(());
        }
        let ends = self.used_ends();
        let is_same =
            |other: &&Arc<Self>| other.file_name.as_ref().is_some() && other.is_known_as(&ends);
        let paths = self.session.paths.get();
        if let Some(other) = paths.iter().find_map(|paths| paths.iter().find(is_same)) {
            pr_err!(
                "{}: it is the path {}\n",
                self.name_text(),
                other.name_text()
            );
            return Err(EEXIST);
        }
        let name = CString::try_from_fmt(fmt!(
            "{}@{}",
            self.source_text().as_str(),
            self.address.dst.to_text().as_str()
        ))?;
        self.file_name.populate(name);
        Ok(())
    }

    /// The source address: the one that is in use, once there was a connection. Sleeps.
    fn used_source(&self) -> Option<Address> {
        let used = self.device.lock().as_ref().and_then(|device| device.source);
        used.or(self.address.src)
    }

    /// The text of the source address, empty if there is none yet. Sleeps.
    pub(crate) fn source_text(&self) -> Text<PATH_TEXT_LEN> {
        match self.used_source() {
            Some(source) => source.to_text(),
            None => Text::new(),
        }
    }

    /// The requests in flight. Any context.
    pub(crate) fn in_flight(&self) -> i32 {
        let guard = rcu::read_lock();
        self.connections(&guard)
            .and_then(|set| Some(set.incarnation.transfer()?.in_flight()))
            .unwrap_or(0)
    }

    /// The addresses that the path was made with, for log lines.
    pub(crate) fn name_text(&self) -> &str {
        self.name.to_str().unwrap_or("?")
    }

    /// What events say of it. Any context.
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

    /// Where ports are counted for the destination.
    pub(crate) fn port_space(&self) -> PortSpace {
        match self.address.dst {
            Address::Gid(_) => PortSpace::Ib,
            _ => PortSpace::Tcp,
        }
    }

    pub(crate) fn destination(&self) -> &SocketAddress {
        &self.destination
    }

    /// The number of connections: one for service, one for each CPU, and the polled ones.
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

    /// Whether the server may make a new session for this path if the other ones are down: it is
    /// known to lead to the session's server.
    pub(crate) fn may_be_first(&self) -> bool {
        self.first.load(ordering::Relaxed)
    }

    /// Notes the device that the first connection is on. Sleeps.
    pub(crate) fn set_device(&self, queue_pair: &QueuePair<ConnectionHandler>) -> Result {
        let name = queue_pair.domain().device().name();
        *self.device.lock() = Some(DevicePort {
            name: CString::try_from_fmt(fmt!("{}", name))?,
            port: queue_pair.id().port_num(),
            source: address(&queue_pair.id().local_address()),
        });
        // A server that has lost the session may make a new one on any later connect.
        self.first.store(true, ordering::Relaxed);
        Ok(())
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

    /// Wakes who waits for the state or for a step of the establishment. Any context.
    pub(crate) fn wake(&self) {
        self.wake.complete();
    }

    /// Waits until [`Path::wake`] is called; `ETIMEDOUT` after `timeout` milliseconds,
    /// `ERESTARTSYS` on a signal. Sleeps.
    pub(crate) fn wait_for_wake(&self, timeout: u32) -> Result {
        self.wake.wait_interruptible_timeout(timeout)
    }

    /// Whether requests can be sent.
    pub(crate) fn is_connected(&self) -> bool {
        self.state() == ClientState::Connected
    }

    /// The connections, for as long as `guard` lives.
    #[inline]
    pub(crate) fn connections<'g>(&self, guard: &'g rcu::Guard) -> Option<&'g ConnectionSet> {
        self.connections.load_ref(guard)
    }

    /// A connection, a request or the heartbeat failed: whoever connects gives up, and a path that
    /// was connected is torn down and connected again. Says whether it was used until
    /// now. Any context.
    pub(crate) fn connection_failed(self: &Arc<Self>) -> bool {
        tracepoint::rdma_error_recovery(|| self.trace());
        let old = self.change_state(ClientEvent::Error);
        if old == Some(ClientState::Connected) {
            self.queue_recovery();
        }
        old.is_some()
    }

    /// The path is not connected again, unless somebody asks for it. Any context.
    fn give_up(self: &Arc<Self>) {
        tracepoint::clt_close_conns(|| self.trace());
        if self.change_state(ClientEvent::Close).is_some() {
            self.queue_recovery();
        }
    }

    /// Has the connections taken down by work. Any context.
    fn queue_recovery(self: &Arc<Self>) {
        // An error means that it is queued already, or that the module goes.
        let _ = self.queue.enqueue::<_, RECOVERY>(self.clone());
    }

    /// Connects a path whose state is `connecting`, for the first time. Sleeps.
    pub(crate) fn connect(self: &Arc<Self>) -> Result {
        without_io(|| self.connect_locked(&mut self.control.lock()))
    }

    /// As [`Path::connect`]; there are no connections.
    fn connect_locked(self: &Arc<Self>, control: &mut Control) -> Result {
        let result = establish(self).and_then(|(set, asked)| self.set_up(control, set, &asked));
        if let Err(error) = result {
            pr_err_ratelimited!(
                "{}: connecting to the server failed: {:?}\n",
                self.name_text(),
                error
            );
            self.change_state(ClientEvent::Error);
        }
        result
    }

    /// Lets requests at the connections, if what the server was `asked` still holds.
    fn set_up(
        self: &Arc<Self>,
        control: &mut Control,
        set: Arc<ConnectionSet>,
        asked: &Asked,
    ) -> Result {
        self.heartbeat.reset();
        drop(self.connections.replace(Some(set)));
        let establish = || self.change_state(ClientEvent::Established).is_some();
        if let Err(error) = self.session.path_up(asked, establish) {
            self.take_down(control);
            return Err(error);
        }
        self.backoff.connected();
        control.up = true;
        self.stats.connected();
        self.restart_beat();
        Ok(())
    }

    /// Closes the path; it can be connected again by [`Path::reconnect_now`] only. Sleeps.
    pub(crate) fn close(self: &Arc<Self>) {
        tracepoint::clt_close_conns(|| self.trace());
        loop {
            self.change_state(ClientEvent::Close);
            self.cancel_works();
            let mut control = self.control.lock();
            // Unless somebody has asked for it again meanwhile, whoever connected has given up by
            // now, since the state told it to.
            if self.is_closed() {
                without_io(|| self.take_down(&mut control));
                self.change_state(ClientEvent::Closed);
                return;
            }
        }
    }

    /// Whether it is closed, or about to be.
    fn is_closed(&self) -> bool {
        matches!(
            self.state(),
            ClientState::Closing | ClientState::Closed | ClientState::Dead
        )
    }

    /// Closes the path for good; whether it was this call that did. Sleeps.
    pub(crate) fn kill(self: &Arc<Self>) -> bool {
        loop {
            self.close();
            if self.change_state(ClientEvent::Remove).is_some() {
                // Whoever saw the path fail, or tried to connect it, when it was closed may have
                // queued these since. They hold the session, whose user may be unloaded soon.
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

    /// Cancels what waits for its time. Sleeps.
    fn cancel_delayed_works(self: &Arc<Self>) {
        DelayedWork::<Path, BEAT>::cancel_sync(self);
        DelayedWork::<Path, RECONNECT>::cancel_sync(self);
    }
}

/// Tears down a path that failed, or that lost its device.
impl WorkItem<RECOVERY> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        {
            let mut control = this.control.lock();
            if this.is_connected() {
                // Somebody has taken it down and connected it again since this was queued.
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
