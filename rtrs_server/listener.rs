// SPDX-License-Identifier: GPL-2.0

//! Listeners, to which clients connect.
use proto::addr::Address;
use rtrs_core::address::{
    socket_address,
    RESOURCE_OWNER, //
};

use crate::{
    connect::Acceptor,
    context::Context,
    session::Server,
    sessions::Sessions, //
};
use kernel::{
    new_mutex,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    net::{
        socket_address::SocketAddress,
        Namespace, //
    },
    prelude::*,
    rdma::{
        client::{
            Client,
            Registration, //
        },
        cm,
        Device, //
    },
    sync::rcu::RcuArc, //
};

/// Connection requests that may wait to be looked at.
const BACKLOG: u32 = 64;

/// The connection manager's ids that listen: for IP addresses, and for InfiniBand ones.
type Ids = (cm::Id<Acceptor>, cm::Id<Acceptor>);

/// A port, and the sessions of the clients that connect to it.
struct Listening {
    sessions: Arc<Sessions>,
    port: u16,
}

impl Listening {
    fn listen(&self) -> Result<Ids> {
        let any_ip = SocketAddress::v6([0; 16], self.port);
        let any_gid = socket_address(&Address::Gid([0; 16]), self.port)?;
        let ip = self.listen_on(cm::PortSpace::Tcp, &any_ip)?;
        let ib = self.listen_on(cm::PortSpace::Ib, &any_gid)?;
        Ok((ip, ib))
    }

    /// Does what [`Self::listen`] does. `None` if that fails, which is logged.
    fn try_to_listen(&self) -> Option<Ids> {
        self.listen()
            .inspect_err(|error| {
                pr_err!("not accepting clients on port {}: {:?}\n", self.port, error)
            })
            .ok()
    }

    fn listen_on(
        &self,
        port_space: cm::PortSpace,
        address: &SocketAddress,
    ) -> Result<cm::Id<Acceptor>> {
        let mut id = cm::Id::new(
            Acceptor::new(self.sessions.clone())?,
            Namespace::init(),
            port_space,
            RESOURCE_OWNER,
        )?;
        id.bind(address)
            .inspect_err(|error| pr_err!("binding port {} failed: {:?}\n", self.port, error))?;
        id.listen(BACKLOG).inspect_err(|error| {
            pr_err!("listening on port {} failed: {:?}\n", self.port, error)
        })?;
        Ok(id)
    }
}

/// The number of RDMA devices, and the listeners.
struct State {
    devices: usize,
    /// Each listener with its ids, if there is a device and listening did not fail.
    listeners: KVec<(Arc<Listening>, Option<Ids>)>,
}

/// Counts the RDMA devices. All listeners listen while there is a device; the ids are not bound to
/// it.
#[pin_data]
struct Devices {
    #[pin]
    state: Mutex<State>,
}

kernel_ext::rdma_client!(Devices);

/// Set while the module is loaded.
static DEVICES: RcuArc<Devices> = RcuArc::empty();

impl Devices {
    /// Lets clients connect to a listener, as soon as there is a device. Sleeps.
    fn add_listener(&self, listening: &Arc<Listening>) -> Result {
        let mut state = self.state.lock();
        state.listeners.reserve(1, GFP_KERNEL)?;
        let ids = (state.devices != 0).then(|| listening.try_to_listen());
        let entry = (listening.clone(), ids.flatten());
        Ok(state.listeners.push(entry, GFP_KERNEL)?)
    }

    /// Removes a listener. No client connects to it after this has returned. Sleeps.
    fn remove_listener(&self, listening: &Arc<Listening>) {
        let mut state = self.state.lock();
        let mut known = state.listeners.iter();
        let index = known.position(|(other, _)| Arc::ptr_eq(other, listening));
        let removed = index.and_then(|index| state.listeners.remove(index).ok());
        drop(state);
        // Waits for connection requests that are being handled.
        drop(removed);
    }
}

impl Client for Devices {
    const NAME: &'static CStr = c"rtrs_server";

    /// Listens with the first device.
    fn add(&self, _device: &Device) -> Result {
        let mut state = self.state.lock();
        state.devices = state.devices.checked_add(1).ok_or(EOVERFLOW)?;
        for (listening, ids) in state.listeners.iter_mut() {
            if ids.is_none() {
                *ids = listening.try_to_listen();
            }
        }
        Ok(())
    }

    /// Stops with the last device.
    fn remove(&self, _device: &Device) {
        let mut state = self.state.lock();
        // Each device was added before.
        state.devices = state.devices.wrapping_sub(1);
        if state.devices == 0 {
            for (_, ids) in state.listeners.iter_mut() {
                *ids = None;
            }
        }
    }
}

/// Keeps listeners informed of RDMA devices, while the module is loaded.
pub(crate) struct DevicesOwner {
    _client: Registration<Devices>,
}

impl DevicesOwner {
    /// Registers for RDMA devices. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        let devices = Arc::pin_init(
            pin_init!(Devices {
                state <- new_mutex!(
                    State { devices: 0, listeners: KVec::new() },
                    "rtrs_server::Devices::state"
                ),
            }),
            GFP_KERNEL,
        )?;
        let client = Registration::new(devices.clone())?;
        drop(DEVICES.replace(Some(devices)));
        Ok(Self { _client: client })
    }
}

impl Drop for DevicesOwner {
    fn drop(&mut self) {
        drop(DEVICES.replace(None));
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
    devices: Arc<Devices>,
    listening: Arc<Listening>,
}

impl Listener {
    /// Listens on `port` for `server`, as soon as there is an RDMA device (C: `rtrs_srv_open`,
    /// which allows one listener at a time).
    ///
    /// Process context; may sleep. `ENODEV` while the module is being loaded. It is no error if
    /// another program has the port: the log says so, and no client can connect.
    pub fn open(server: Arc<dyn Server>, port: u16) -> Result<Self> {
        let sessions = Sessions::new(Context::get()?, server)?;
        let listening = Arc::new(Listening { sessions, port }, GFP_KERNEL)?;
        let devices = DEVICES.get().ok_or(ENODEV)?;
        devices.add_listener(&listening)?;
        Ok(Self { devices, listening })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.devices.remove_listener(&self.listening);
        self.listening.sessions.close();
    }
}
