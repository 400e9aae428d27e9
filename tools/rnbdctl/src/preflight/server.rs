// SPDX-License-Identifier: GPL-2.0

//! The way to a server.
//!
//! Only RDMA gets answers from RDMA, so the checks look at the layers below: whether there is a
//! route, whether it goes through an RDMA device, and whether the machine at its end answers at
//! all.

use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::net::UdpSocket;
use std::time::Duration;

use proto::addr::Address;
use rustix::io::Errno;

use super::Finding;
use super::Status;
use crate::model::RdmaDevice;
use crate::model::RdmaPort;
use crate::System;

/// The time to wait for an answer: longer than it takes to find out that no machine in the local
/// network has the address.
const PATIENCE: Duration = Duration::from_secs(4);

/// A server to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The server's name or address; also `ip:` and an address, and a source with `@` in front of
    /// it.
    pub name: String,
    /// The port that the server listens on.
    pub port: u16,
}

pub(super) fn check(system: &System, server: &Server, devices: &[RdmaDevice]) -> Vec<Finding> {
    let name = server.name.rsplit(['@', ',']).next().unwrap_or_default();
    if name.starts_with("gid:") {
        return vec![Finding::warning(
            "server",
            "rnbdctl cannot check whether a GID can be reached",
            "use ibping or ibtracert of the package infiniband-diags",
        )];
    }
    let name = name.strip_prefix("ip:").unwrap_or(name);
    let addresses: Vec<SocketAddr> = match (name, server.port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let message = format!("{name} is neither an address nor a known name ({error})");
            return vec![Finding::failed(
                "server",
                message,
                "give the server's IP address",
            )];
        }
    };
    let mut findings = Vec::new();
    for address in addresses {
        findings.extend(one(system, address, devices));
    }
    findings
}

fn one(system: &System, address: SocketAddr, devices: &[RdmaDevice]) -> Vec<Finding> {
    let ip = address.ip();
    let socket = match connected(address) {
        Ok(socket) => socket,
        Err(error) => {
            let message = format!("this machine has no route to {ip} ({error})");
            let remedy = format!("check the interface and the route: ip route get {ip}");
            return vec![Finding::failed("route", message, remedy)];
        }
    };
    let source = socket
        .local_addr()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |local| local.ip());
    vec![route(system, ip, source, devices), answer(ip, &socket)]
}

/// A socket that sends to `address`, from the source address of the route. Nothing is sent yet.
fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket)
}

/// This machine's address on the way to `ip`; `None` if there is no way.
pub fn source_of(ip: IpAddr) -> Option<IpAddr> {
    let socket = connected((ip, 1).into()).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Whether the machine answers by IP; `None` if that cannot be found out, as for a GID.
pub fn answers(address: &Address, port: u16) -> Option<bool> {
    let ip: IpAddr = match address {
        Address::V4(addr) => (*addr).into(),
        Address::V6 { addr, scope } if scope.is_none() => (*addr).into(),
        Address::V6 { .. } | Address::Gid(_) => return None,
    };
    let socket = connected((ip, port).into()).ok()?;
    Some(answer(ip, &socket).status == Status::Ok)
}

/// How packets go to an address.
enum Way<'d> {
    /// By this port of an RDMA device.
    Rdma(&'d RdmaDevice, &'d RdmaPort),
    /// By an interface without an RDMA device.
    Other,
    /// By an unknown interface, so that the RDMA device is not known either.
    Unknown,
}

/// The RDMA device and port by which packets go from `source` to `ip`; `None` if there is none, or
/// if it cannot be found out.
pub fn rdma_port_to<'d>(
    system: &System,
    ip: IpAddr,
    source: IpAddr,
    devices: &'d [RdmaDevice],
) -> Option<(&'d RdmaDevice, &'d RdmaPort)> {
    match way(system, ip, source, devices) {
        Way::Rdma(device, port) => Some((device, port)),
        Way::Other | Way::Unknown => None,
    }
}

fn way<'d>(system: &System, ip: IpAddr, source: IpAddr, devices: &'d [RdmaDevice]) -> Way<'d> {
    let ports = || {
        devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    };
    // RoCE has a GID for each address of its interface, including VLANs and bonds.
    let by_address = ports().find(|(_, port)| port.gids.iter().any(|gid| gid.ip == Some(source)));
    // InfiniBand and iWARP are found by the interface. soft-iWARP has only the name of the
    // interface.
    let others: Vec<_> = ports().filter(|(_, port)| !port.is_roce).collect();
    let interface = match others.is_empty() {
        true => None,
        false => system.interface_to(ip, source),
    };
    let by_interface = || {
        let interface = interface.as_deref()?;
        let (name, number) = match system.rdma_of_interface(interface) {
            Some((name, number)) => (name, Some(number)),
            None => (String::new(), None),
        };
        let is_of_it = |(device, port): &&(&RdmaDevice, &RdmaPort)| {
            device.name == name || port.netdev.as_deref() == Some(interface)
        };
        let of_it = others.iter().filter(is_of_it);
        of_it
            .copied()
            .min_by_key(|(_, port)| Some(port.number) != number)
    };
    match by_address.or_else(by_interface) {
        Some((device, port)) => Way::Rdma(device, port),
        None if !others.is_empty() && interface.is_none() => Way::Unknown,
        None => Way::Other,
    }
}

fn route(system: &System, ip: IpAddr, source: IpAddr, devices: &[RdmaDevice]) -> Finding {
    let way = way(system, ip, source, devices);
    if let Way::Rdma(device, port) = way {
        let message = format!(
            "to {ip} from {source}, by {} port {}",
            device.name, port.number
        );
        return match port.is_active() {
            true => Finding::ok("route", message),
            false => Finding::failed(
                "route",
                format!("{message}, which is {}", port.state),
                "see RDMA port above",
            ),
        };
    }
    if matches!(way, Way::Unknown) {
        return Finding::warning(
            "route",
            format!("to {ip} from {source}; the interface of this address is not known"),
            "check with ip address and rdma link whether the interface has an RDMA device",
        );
    }
    Finding::failed(
        "route",
        format!("to {ip} from {source}, which is not an address of an RDMA device"),
        "use an address of the server in the network of an RDMA device (rnbdctl rdma), \
         or make an RDMA device for that interface",
    )
}

/// Whether the machine at `ip` answers: a closed UDP port answers that it is closed.
fn answer(ip: IpAddr, socket: &UdpSocket) -> Finding {
    let answer = socket
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| socket.send(&[0]))
        .and_then(|_| socket.recv(&mut [0]));
    let remedy = "check whether the server is up, the address is right, and a firewall is between";
    let error = match answer {
        Ok(_) => return Finding::ok("server", format!("{ip} responds")),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => Finding::ok("server", format!("{ip} responds")),
        Some(Errno::AGAIN) => Finding::warning(
            "server",
            format!(
                "{ip} does not respond; the machine may be down, or a firewall may drop packets"
            ),
            remedy,
        ),
        _ => {
            let why = crate::control::errno::text(&error);
            Finding::failed("server", format!("{ip} cannot be reached: {why}"), remedy)
        }
    }
}
