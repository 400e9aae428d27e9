// SPDX-License-Identifier: GPL-2.0

//! Where clients come in.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};
use kernel_ext::{
    net::socket_address::SocketAddress,
    rdma::{
        client::{
            Client,
            Registration, //
        },
        cm,
        Device, //
    }, //
};
use proto::{
    addr::Address,
    rtrs::Uuid, //
};

use crate::{
    connect::Acceptor,
    context::Context,
    operation::Operation,
    session::Session, //
};

/// Connection requests that may wait to be looked at.
const BACKLOG: u32 = 64;

/// The user of the transport: what a listener's sessions are for.
pub trait Server: Send + Sync + 'static {
    /// The first path of a client is up.
    ///
    /// Process context; may sleep. An error refuses the client and closes its path.
    fn session_up(&self, session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>>;
}

/// What the user keeps for a session.
pub trait SessionHandler: Send + Sync + 'static {
    /// A path of the client is up: requests may come by it. The first one, too.
    ///
    /// `client` is the address that it comes from; `None` if there is nothing but the client's
    /// word for it. Process context; may sleep. An error closes the path.
    fn path_up(&self, client: Option<Address>) -> Result {
        let _ = client;
        Ok(())
    }

    /// A path for which [`SessionHandler::path_up`] was called is gone; all operations of it have
    /// been answered or dropped.
    ///
    /// Process context; may sleep.
    fn path_down(&self, client: Option<Address>) {
        let _ = client;
    }

    /// A request of the client.
    ///
    /// Process context, on the workqueue of the completion queues: it may submit IO, but what
    /// takes long (opening a device) belongs on a workqueue of the implementer. `header` was
    /// copied out of the chunk once; `op` is answered whenever the answer is known.
    fn request(&self, op: Operation, header: &[u8]);

    /// The last path of the session is gone; all operations have been answered or dropped.
    ///
    /// Process context; may sleep. Called once.
    fn session_down(&self);
}

/// What listens.
#[derive(Default)]
struct Ids {
    /// The RDMA devices that there are.
    devices: usize,
    /// For IP addresses, and for InfiniBand ones; there while there are devices.
    ids: Option<(cm::Id<Acceptor>, cm::Id<Acceptor>)>,
}

/// What a listener's sessions and connection requests refer to.
#[pin_data]
pub(crate) struct Listening {
    pub(crate) context: Arc<Context>,
    port: u16,
    /// `None` once the listener is closed: nothing of its user is kept then.
    #[pin]
    server: Mutex<Option<Arc<dyn Server>>>,
    #[pin]
    ids: Mutex<Ids>,
    #[pin]
    pub(crate) sessions: Mutex<KVec<Arc<Session>>>,
    /// Told of each session that is no longer in the list.
    #[pin]
    pub(crate) session_gone: CondVar,
}

impl Listening {
    /// The user of the transport; `ESHUTDOWN` once the listener is closed. Sleeps.
    pub(crate) fn server(&self) -> Result<Arc<dyn Server>> {
        self.server.lock().clone().ok_or(ESHUTDOWN)
    }

    /// The session of the client `uuid`. Sleeps.
    pub(crate) fn find_session(&self, uuid: &Uuid) -> Option<Arc<Session>> {
        find(&self.sessions.lock(), uuid)
    }

    /// Adds `session`, unless the client got one in the meantime; returns the one that counts.
    /// Sleeps.
    pub(crate) fn add_session(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock();
        if let Some(other) = find(&sessions, session.uuid()) {
            return Ok(other);
        }
        sessions.push(session.clone(), GFP_KERNEL)?;
        Ok(session)
    }

    fn listen(self: &Arc<Self>) -> Result<(cm::Id<Acceptor>, cm::Id<Acceptor>)> {
        let ip = self.listen_on(cm::PortSpace::Tcp, &SocketAddress::any_ip(self.port)?)?;
        let ib = self.listen_on(cm::PortSpace::Ib, &SocketAddress::any_ib(self.port)?)?;
        Ok((ip, ib))
    }

    fn listen_on(
        self: &Arc<Self>,
        port_space: cm::PortSpace,
        address: &SocketAddress,
    ) -> Result<cm::Id<Acceptor>> {
        let mut id = cm::Id::new(Acceptor::new(self.clone())?, port_space)?;
        id.bind(address)
            .inspect_err(|error| pr_err!("binding port {} failed: {:?}\n", self.port, error))?;
        id.listen(BACKLOG).inspect_err(|error| {
            pr_err!("listening on port {} failed: {:?}\n", self.port, error)
        })?;
        Ok(id)
    }
}

/// The session of the client `uuid`, unless it is gone and only not yet taken out of the list.
fn find(sessions: &[Arc<Session>], uuid: &Uuid) -> Option<Arc<Session>> {
    sessions
        .iter()
        .find(|session| session.uuid() == uuid && !session.is_gone())
        .cloned()
}

/// Is told of RDMA devices.
struct Devices(Arc<Listening>);

kernel_ext::rdma_client!(Devices);

impl Client for Devices {
    const NAME: &'static CStr = c"rtrs_server";

    /// Listens as soon as there is a device; the ids are not bound to it.
    fn add(&self, _device: &Device) -> Result {
        let mut ids = self.0.ids.lock();
        ids.devices = ids.devices.saturating_add(1);
        if ids.ids.is_none() {
            match self.0.listen() {
                Ok(listening) => ids.ids = Some(listening),
                Err(error) => pr_err!("not accepting clients: {:?}\n", error),
            }
        }
        Ok(())
    }

    /// Stops with the last device.
    fn remove(&self, _device: &Device) {
        let mut ids = self.0.ids.lock();
        ids.devices = ids.devices.saturating_sub(1);
        if ids.devices == 0 {
            ids.ids = None;
        }
    }
}

/// Listens for clients; dropping it closes all of their sessions, and sleeps until they are gone.
///
/// # Examples
///
/// ```ignore
/// let listener = Listener::open(server, proto::RTRS_PORT)?;
/// ```
pub struct Listener {
    client: Option<Registration<Devices>>,
    listening: Arc<Listening>,
}

impl Listener {
    /// Listens on `port`, as soon as there is an RDMA device, for `server` (C: `rtrs_srv_open`).
    ///
    /// Process context; may sleep.
    pub fn open(server: Arc<dyn Server>, port: u16) -> Result<Self> {
        let context = Context::get()?;
        let listening = Arc::pin_init(
            pin_init!(Listening {
                context,
                port,
                server <- new_mutex!(Some(server), "rtrs_server::Listening::server"),
                ids <- new_mutex!(Ids::default(), "rtrs_server::Listening::ids"),
                sessions <- new_mutex!(KVec::new(), "rtrs_server::Listening::sessions"),
                session_gone <- new_condvar!("rtrs_server::Listening::session_gone"),
            }),
            GFP_KERNEL,
        )?;
        let devices = Arc::new(Devices(listening.clone()), GFP_KERNEL)?;
        // Clients may have come by the first device when the next one fails; dropping it closes
        // their sessions.
        let mut listener = Self {
            client: None,
            listening,
        };
        listener.client = Some(Registration::new(devices)?);
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // No connection request comes after this.
        drop(self.client.take());
        let mut sessions = self.listening.sessions.lock();
        for session in sessions.iter() {
            session.close();
        }
        // A path that somebody else began to close may not be on the queue yet.
        while !sessions.is_empty() {
            self.listening.session_gone.wait(&mut sessions);
        }
        drop(sessions);
        // What is left of closing them runs on this queue; nothing refers to the user of the
        // transport afterwards.
        self.listening.context.queue.flush();
        drop(self.listening.server.lock().take());
    }
}
