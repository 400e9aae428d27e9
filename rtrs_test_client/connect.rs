// SPDX-License-Identifier: GPL-2.0

//! Connecting to the raw part of the server.

use kernel::{
    sync::Arc, //
};
use kernel_ext::{
    net::{
        socket_address::SocketAddress,
        Namespace, //
    },
    prelude::*,
    rdma::cm::{
        Id,
        PortSpace, //
    }, //
};
use proto::{
    addr::Address,
    fabric::{
        command::Offer,
        options::Options,
        raw_port,
        verdict::NoConnection, //
    }, //
};
use rtrs_core::address::{
    socket_address,
    RESOURCE_OWNER, //
};
use rtrs_test::{
    Endpoint,
    Peer, //
};

use crate::report::Report;

/// How long a step of the handshake may take, in ms. The connection manager repeats its request
/// twice in that time.
const TIMEOUT_MS: u32 = 12_000;

/// How long the address and the route may take to be resolved, in ms.
const RESOLVE_MS: u32 = 5_000;

/// The address of the server.
pub(crate) struct Server {
    source: Option<SocketAddress>,
    destination: SocketAddress,
    port_space: PortSpace,
}

impl Server {
    /// The raw part of the server that `options` name. `EINVAL` if an address needs an interface
    /// that does not exist. Sleeps.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let port = raw_port(options.port);
        let source = options.path.src.as_ref();
        Ok(Self {
            source: source.map(|source| socket_address(source, 0)).transpose()?,
            destination: socket_address(&options.path.dst, port)?,
            port_space: match options.path.dst {
                Address::Gid(_) => PortSpace::Ib,
                _ => PortSpace::Tcp,
            },
        })
    }

    /// Connects. `ECONNRESET` if a step is refused; then `peer` has the reason. Sleeps.
    fn connect_as(&self, peer: &Arc<Peer>) -> Result<(Endpoint, Offer)> {
        let mut id = Id::new(
            peer.clone(),
            Namespace::init(),
            self.port_space,
            RESOURCE_OWNER,
        )?;
        id.resolve_address(self.source.as_ref(), &self.destination, RESOLVE_MS)?;
        peer.wait_step(TIMEOUT_MS)?;
        id.resolve_route(RESOLVE_MS)?;
        peer.wait_step(TIMEOUT_MS)?;
        let mut endpoint = Endpoint::new(id)?;
        let offer = endpoint.connect(TIMEOUT_MS)?;
        endpoint.register()?;
        Ok((endpoint, offer))
    }

    /// Connects. Sleeps.
    pub(crate) fn connect(&self) -> Result<(Endpoint, Offer)> {
        self.connect_as(&Peer::new()?)
    }

    /// Connects, and reports the result: `device`, `mtu` and `server-cpus`, or `no-connection`.
    /// Sleeps.
    pub(crate) fn connect_reporting(&self, report: &Report) -> Result<(Endpoint, Offer)> {
        let peer = Peer::new()?;
        let (endpoint, offer) = match self.connect_as(&peer) {
            Ok(connected) => connected,
            Err(error) => {
                let errno = error.to_errno();
                let (cause, status) = peer.cause().unwrap_or((cause_of(error), 0));
                let cause = name(cause);
                report.line(fmt!("no-connection {cause} {errno} {status}\n"))?;
                return Err(error);
            }
        };
        let (device, cpus) = (endpoint.device_name(), offer.cpus);
        let (here, there) = (endpoint.mtu(), offer.mtu);
        report.line(fmt!("device {device}\n"))?;
        report.line(fmt!("mtu {here} {there}\n"))?;
        report.line(fmt!("server-cpus {cpus}\n"))?;
        Ok((endpoint, offer))
    }
}

/// The cause of an error for which there was no event.
fn cause_of(error: Error) -> NoConnection {
    if error == EPROTO {
        NoConnection::Refused
    } else if error == ETIMEDOUT {
        NoConnection::NoAnswer
    } else {
        NoConnection::NoDevice
    }
}

/// The name of a cause in the report.
fn name(cause: NoConnection) -> &'static str {
    match cause {
        NoConnection::NoDevice => "no-device",
        NoConnection::NoAnswer => "no-answer",
        NoConnection::NoListener => "no-listener",
        NoConnection::Refused => "refused",
    }
}
