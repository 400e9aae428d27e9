// SPDX-License-Identifier: GPL-2.0

//! RDMA devices, as the kernel shows them.

use std::net::IpAddr;
use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::Serialize;

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RdmaDevice {
    /// The kernel's name: `mlx5_0`, `rxe0`.
    pub name: String,
    /// The kernel driver, if the device has a parent that tells.
    pub driver: Option<String>,
    /// Its firmware's version.
    pub firmware: Option<String>,
    /// Its ports, by number.
    pub ports: Vec<RdmaPort>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u32,
    /// Its state: `ACTIVE`, `DOWN`.
    pub state: String,
    /// The state of the link: `LinkUp`.
    pub physical_state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// Whether the port speaks RoCE. An Ethernet port can also speak iWARP.
    #[serde(skip)]
    pub is_roce: bool,
    /// The rate, in words.
    pub rate: String,
    /// The network interface of an Ethernet port.
    pub netdev: Option<String>,
    /// The MTU of that interface in bytes.
    pub netdev_mtu: Option<u32>,
    /// The RDMA MTU in bytes that follows from the interface's MTU, with RoCE.
    pub rdma_mtu: Option<u32>,
    /// Its addresses.
    pub gids: Vec<Gid>,
}

impl RdmaPort {
    /// Whether the port can be used.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Gid {
    /// The index in the port's table.
    pub index: u32,
    /// The address.
    pub gid: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The network interface that it belongs to.
    pub netdev: Option<String>,
    /// The IP address that it stands for, with RoCE.
    pub ip: Option<IpAddr>,
}

impl Gid {
    /// The IP address that a GID of RoCE stands for.
    pub fn ip_of(gid: &str) -> Option<IpAddr> {
        let address: Ipv6Addr = gid.parse().ok()?;
        Some(match address.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(address),
        })
    }
}

/// The largest RDMA MTU that fits the MTU of an Ethernet interface, as the kernel chooses it.
pub fn rdma_mtu(netdev_mtu: u32) -> Option<u32> {
    // The largest headers of RoCE.
    const HEADERS: u32 = 96;
    let room = netdev_mtu.saturating_sub(HEADERS);
    [4096, 2048, 1024, 512, 256]
        .into_iter()
        .find(|mtu| *mtu <= room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_follows_from_the_interface() {
        for (netdev, rdma) in [
            (1500, Some(1024)),
            (4200, Some(4096)),
            (9000, Some(4096)),
            (300, None),
        ] {
            assert_eq!(rdma_mtu(netdev), rdma, "{netdev}");
        }
    }

    #[test]
    fn gids_stand_for_addresses() {
        let ip = |gid| Gid::ip_of(gid).map(|ip| ip.to_string());
        assert_eq!(
            ip("0000:0000:0000:0000:0000:ffff:0a4d:0001").as_deref(),
            Some("10.77.0.1")
        );
        assert_eq!(
            ip("fe80:0000:0000:0000:0000:0000:0000:0001").as_deref(),
            Some("fe80::1")
        );
        assert_eq!(ip("rubbish"), None);
    }
}
