// SPDX-License-Identifier: GPL-2.0

//! The raw part: listens, and runs a task for each connection.

use kernel::{
    new_mutex,
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
    rdma::cm::{
        Event,
        EventHandler,
        Id,
        NewId,
        PortSpace, //
    },
    workqueue::{
        OwnedQueue,
        QueueFlags,
        QueueHandle, //
    }, //
};
use proto::{
    addr::Address,
    fabric::command::Offer, //
};
use rtrs_core::address::{
    socket_address,
    RESOURCE_OWNER, //
};
use rtrs_test::{
    Endpoint,
    Peer, //
};

use crate::commands;

/// The most connections at a time. Each takes about 200 KiB of memory.
const MAX_CONNECTIONS: usize = 8;

/// The most connection requests that wait to be looked at.
const BACKLOG: u32 = 16;

/// Accepts raw connections. Dropping it ends all of them, and sleeps.
pub(crate) struct Raw {
    // Declared in the order in which the fields have to be dropped: first no connection comes any
    // more, then none is left.
    _ids: (Id<Acceptor>, Option<Id<Acceptor>>),
    _connections: Ending,
    _queue: OwnedQueue,
}

/// The list of the connections.
#[pin_data]
struct Connections {
    #[pin]
    peers: Mutex<KVec<Arc<Peer>>>,
}

/// Ends all connections when it is dropped.
struct Ending(Arc<Connections>);

/// The handler of requests for connections.
struct Acceptor {
    connections: Arc<Connections>,
    queue: QueueHandle,
}

/// A connection in the list. Dropping this removes it from the list.
struct Listed {
    connections: Arc<Connections>,
    peer: Arc<Peer>,
}

impl Raw {
    /// Listens on `port`. Sleeps. Errors are those of the connection manager, such as `EADDRINUSE`.
    pub(crate) fn listen(port: u16) -> Result<Self> {
        let queue = OwnedQueue::new(c"rtrs_test_server", QueueFlags::UNBOUND)?;
        let connections = Arc::pin_init(
            pin_init!(Connections {
                peers <- new_mutex!(KVec::new(), "rtrs_test_server::Connections"),
            }),
            GFP_KERNEL,
        )?;
        let acceptor = Arc::new(
            Acceptor {
                connections: connections.clone(),
                queue: queue.handle(),
            },
            GFP_KERNEL,
        )?;
        let any_ip = SocketAddress::v6([0; 16], port);
        let ip = listen_on(&acceptor, PortSpace::Tcp, &any_ip)
            .inspect_err(|error| pr_err!("listening on port {} failed: {:?}\n", port, error))?;
        // InfiniBand addresses are not there on every kernel and machine.
        let any_gid = socket_address(&Address::Gid([0; 16]), port)?;
        let ib = listen_on(&acceptor, PortSpace::Ib, &any_gid).ok();
        Ok(Self {
            _ids: (ip, ib),
            _connections: Ending(connections),
            _queue: queue,
        })
    }
}

fn listen_on(
    acceptor: &Arc<Acceptor>,
    port_space: PortSpace,
    address: &SocketAddress,
) -> Result<Id<Acceptor>> {
    let mut id = Id::new(
        acceptor.clone(),
        Namespace::init(),
        port_space,
        RESOURCE_OWNER,
    )?;
    id.bind(address)?;
    id.listen(BACKLOG)?;
    Ok(id)
}

impl Drop for Ending {
    fn drop(&mut self) {
        for peer in self.0.peers.lock().iter() {
            peer.end();
        }
    }
}

impl Listed {
    /// Adds a connection to the list. `EBUSY` if the list is full. Sleeps.
    fn new(connections: &Arc<Connections>, peer: &Arc<Peer>) -> Result<Self> {
        let mut peers = connections.peers.lock();
        if peers.len() >= MAX_CONNECTIONS {
            return Err(EBUSY);
        }
        peers.push(peer.clone(), GFP_KERNEL)?;
        Ok(Self {
            connections: connections.clone(),
            peer: peer.clone(),
        })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut peers = self.connections.peers.lock();
        peers.retain(|peer| !Arc::ptr_eq(peer, &self.peer));
    }
}

impl Acceptor {
    /// Takes a request for a connection, and has a task serve the connection. Sleeps.
    fn take(&self, id: NewId<'_>, private_data: &[u8]) -> Result {
        Offer::parse(private_data).ok_or(EPROTO)?;
        let peer = Peer::new()?;
        let listed = Listed::new(&self.connections, &peer)?;
        let mut endpoint = Endpoint::new(id.take(peer)?)?;
        // The task accepts: a queue pair that is accepted must not be dropped in this handler.
        self.queue.spawn(move || {
            let _listed = listed;
            // The connection ends when this returns, whatever the client did.
            let _ = commands::serve(&mut endpoint);
            drop(endpoint);
        })
    }
}

impl EventHandler for Acceptor {
    fn event(&self, event: Event<'_>) {
        if let Event::ConnectRequest { id, private_data } = event {
            // A request that is not taken is refused.
            let _ = self.take(id, private_data);
        }
    }
}
