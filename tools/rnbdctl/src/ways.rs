// SPDX-License-Identifier: GPL-2.0

//! The paths that lead to a server.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;

use proto::addr::Address;
use proto::addr::PathAddress;

use crate::model::RdmaDevice;
use crate::preflight;
use crate::server_name::Host;
use crate::server_name::ServerName;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The paths to a server.
///
/// All addresses of a host name are tried, but they need not belong to one machine. Each path after
/// the first is added to the session that the first path has made, and a server refuses a path of a
/// session that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Paths that are given by addresses. All of them have to work.
    pub given: Vec<PathAddress>,
    /// Paths that were found by looking a name up. One of them has to work.
    pub found: Vec<PathAddress>,
}

impl Ways {
    /// The ways to `servers`, which the user takes for the same machine. Looks names up, which may
    /// take as long as the resolver waits for its servers.
    pub fn to(system: &System, servers: &[ServerName]) -> Result<Self> {
        let mut ways = Self::default();
        for server in servers {
            match (server.path(), &server.host) {
                (Some(path), _) => ways.given.push(path),
                (None, Host::Name(name)) => {
                    let addresses = look_up(name)?;
                    let paths = choose(system, name, server.src, &addresses)?;
                    ways.found.extend(paths);
                }
                (None, Host::Address(_)) => (),
            }
        }
        Ok(ways)
    }

    /// Every path.
    pub fn all(&self) -> impl Iterator<Item = &PathAddress> {
        self.given.iter().chain(&self.found)
    }

    /// Calls `run`, which makes a session, with all given paths. Without given paths, calls `run`
    /// with each found path in turn until a call succeeds. The next path is only tried if the
    /// server could not be reached.
    pub fn first<T>(&self, mut run: impl FnMut(&[PathAddress]) -> Result<T>) -> Result<T> {
        if !self.given.is_empty() || self.found.is_empty() {
            return run(&self.given);
        }
        let mut unreachable = None;
        for path in &self.found {
            match run(std::slice::from_ref(path)) {
                Err(error) if error.kind() == Kind::Unreachable => {
                    unreachable.get_or_insert(error);
                }
                result => return result,
            }
        }
        match unreachable {
            Some(error) => Err(error),
            None => run(&[]),
        }
    }
}

/// The addresses of a host name, each once, in the resolver's order.
fn look_up(name: &str) -> Result<Vec<IpAddr>> {
    let what = format!("looking up {name}");
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        // The standard library's text begins with a part that says that the lookup failed.
        let text = error.to_string();
        let why = text.rsplit(": ").next().unwrap_or(&text);
        Error::new(Kind::Unreachable, &what, why)
            .hint("give the server's IP address, or put the name into DNS or /etc/hosts")
    })?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.filter(|address| !is_link_local(address)) {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    match addresses.is_empty() {
        true => Err(Error::new(
            Kind::Unreachable,
            what,
            "the name has no address that can be connected",
        )),
        false => Ok(addresses),
    }
}

/// Whether the address is link-local. A name service does not say by which interface such an
/// address is reached.
fn is_link_local(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.ip().is_unicast_link_local())
}

/// The addresses of a host that an RDMA device of this machine leads to, or all addresses if there
/// are none. Addresses of different families behind the same port of a device count as the same
/// way; there only the family of the first address is used.
fn choose(
    system: &System,
    name: &str,
    src: Option<Address>,
    addresses: &[IpAddr],
) -> Result<Vec<PathAddress>> {
    let is_of_family = |ip: &IpAddr| match src {
        None => true,
        Some(Address::V4(_)) => ip.is_ipv4(),
        Some(Address::V6 { .. }) => ip.is_ipv6(),
        Some(Address::Gid(_)) => false,
    };
    let wanted: Vec<IpAddr> = addresses.iter().copied().filter(is_of_family).collect();
    if wanted.is_empty() {
        let why = "the name has no address of the same kind as the source";
        return Err(Error::new(
            Kind::Unreachable,
            format!("looking up {name}"),
            why,
        ));
    }
    let by_rdma = by_rdma(system, &system.rdma_devices()?, &wanted);
    let chosen = match by_rdma.is_empty() {
        true => wanted,
        false => by_rdma,
    };
    let path = |ip: IpAddr| PathAddress {
        src,
        dst: address_of(ip),
    };
    Ok(chosen.into_iter().map(path).collect())
}

fn by_rdma(system: &System, devices: &[RdmaDevice], addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut ports: Vec<(String, u32, bool)> = Vec::new();
    let mut chosen = Vec::new();
    for &ip in addresses {
        let Some(source) = preflight::source_of(ip) else {
            continue;
        };
        let Some((device, port)) = preflight::rdma_port_to(system, ip, source, devices) else {
            continue;
        };
        let is_same = |(name, number, is_v4): &(String, u32, bool)| {
            *name == device.name && *number == port.number && *is_v4 != ip.is_ipv4()
        };
        if !ports.iter().any(is_same) {
            ports.push((device.name.clone(), port.number, ip.is_ipv4()));
            chosen.push(ip);
        }
    }
    chosen
}

fn address_of(ip: IpAddr) -> Address {
    match ip {
        IpAddr::V4(ip) => Address::V4(ip.octets()),
        IpAddr::V6(ip) => Address::V6 {
            addr: ip.octets(),
            scope: proto::addr::Scope::NONE,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathAddress {
        crate::address::parse_path(text).unwrap()
    }

    fn fail(kind: Kind) -> Error {
        Error::new(kind, "connecting", "no")
    }

    #[test]
    fn addresses_have_to_work_and_names_have_to_lead_somewhere() {
        let ways = Ways {
            given: Vec::new(),
            found: vec![path("10.0.0.1"), path("10.0.0.2"), path("10.0.0.3")],
        };
        let mut tried = Vec::new();
        let result = ways.first(|paths| {
            tried.push(paths.to_vec());
            match tried.len() {
                1 => Err(fail(Kind::Unreachable)),
                _ => Ok(paths.len()),
            }
        });
        assert_eq!(result, Ok(1));
        assert_eq!(tried, [[path("10.0.0.1")], [path("10.0.0.2")]]);
        let refused = ways.first(|_| Err::<(), _>(fail(Kind::NotPermitted)));
        assert_eq!(refused, Err(fail(Kind::NotPermitted)));
        let given = Ways {
            given: ways.found.clone(),
            found: vec![path("10.0.0.4")],
        };
        assert_eq!(given.first(|paths| Ok(paths.len())), Ok(3));
        assert_eq!(Ways::default().first(|paths| Ok(paths.len())), Ok(0));
    }

    #[test]
    fn a_name_has_addresses() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let server = ServerName::parse("localhost").unwrap();
        let ways = Ways::to(&system, &[server]).unwrap();
        assert!(ways.given.is_empty());
        assert!(ways.found.contains(&path("127.0.0.1")), "{ways:?}");
        let server = ServerName::parse("127.0.0.1@localhost").unwrap();
        let ways = Ways::to(&system, &[server]).unwrap();
        assert_eq!(ways.found, [path("127.0.0.1@127.0.0.1")]);
        let server = ServerName::parse("no-such-host.invalid").unwrap();
        let error = Ways::to(&system, &[server]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unreachable);
        assert_eq!(error.what(), "looking up no-such-host.invalid");
    }

    #[test]
    fn one_port_is_one_way() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let gid = |index, ip: &str| crate::model::Gid {
            index,
            gid: String::new(),
            kind: None,
            netdev: None,
            ip: ip.parse().ok(),
        };
        let port = crate::model::RdmaPort {
            number: 1,
            state: "ACTIVE".into(),
            physical_state: "LinkUp".into(),
            link_layer: "Ethernet".into(),
            is_roce: true,
            rate: String::new(),
            netdev: None,
            netdev_mtu: None,
            rdma_mtu: None,
            gids: vec![gid(0, "127.0.0.1"), gid(1, "::1")],
        };
        let device = RdmaDevice {
            name: "rxe0".into(),
            driver: None,
            firmware: None,
            ports: vec![port],
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let given = [ip("127.0.0.1"), ip("127.0.0.2"), ip("::1")];
        let chosen = by_rdma(&system, &[device], &given);
        assert_eq!(chosen, [ip("127.0.0.1"), ip("127.0.0.2")]);
        assert!(by_rdma(&system, &[], &given).is_empty());
    }
}
