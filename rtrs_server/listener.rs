// SPDX-License-Identifier: GPL-2.0

//! Where clients come in.
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
    }, //
};

/// Connection requests that may wait to be looked at.
const BACKLOG: u32 = 64;

/// What listens.
#[derive(Default)]
struct Ids {
    /// The RDMA devices that there are.
    devices: usize,
    /// For IP addresses, and for InfiniBand ones; there while there are devices.
    ids: Option<(cm::Id<Acceptor>, cm::Id<Acceptor>)>,
}

/// What listens on a port, and the sessions of those who come.
#[pin_data]
struct Listening {
    sessions: Arc<Sessions>,
    port: u16,
    #[pin]
    ids: Mutex<Ids>,
}

impl Listening {
    fn listen(&self) -> Result<(cm::Id<Acceptor>, cm::Id<Acceptor>)> {
        let any_ip = SocketAddress::v6([0; 16], self.port);
        let any_gid = socket_address(&Address::Gid([0; 16]), self.port)?;
        let ip = self.listen_on(cm::PortSpace::Tcp, &any_ip)?;
        let ib = self.listen_on(cm::PortSpace::Ib, &any_gid)?;
        Ok((ip, ib))
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

/// Is told of RDMA devices.
struct Devices(Arc<Listening>);

kernel_ext::rdma_client!(Devices);

impl Client for Devices {
    const NAME: &'static CStr = c"rtrs_server";

    /// Listens as soon as there is a device; the ids are not bound to it.
    fn add(&self, _device: &Device) -> Result {
        let mut ids = self.0.ids.lock();
        ids.devices = ids.devices.checked_add(1).ok_or(EOVERFLOW)?;
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
        // Each was added before.
        ids.devices = ids.devices.wrapping_sub(1);
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
        let sessions = Sessions::new(Context::get()?, server)?;
        let listening = Arc::pin_init(
            pin_init!(Listening {
                sessions,
                port,
                ids <- new_mutex!(Ids::default(), "rtrs_server::Listening::ids"),
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
        self.listening.sessions.close();
    }
}
