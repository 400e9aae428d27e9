// SPDX-License-Identifier: GPL-2.0

//! Network interfaces, as far as they lead to RDMA devices.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::path::Path;

use super::read;
use super::System;

/// Flags of a route (RTF_UP, RTF_REJECT).
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// The depth to which virtual interfaces on virtual interfaces are followed.
const MAX_DEPTH: u32 = 4;

impl System {
    /// The interface by which packets go from `source` to `destination`; `None` if it is not known.
    pub fn interface_to(&self, destination: IpAddr, source: IpAddr) -> Option<String> {
        let read = |name: &str| fs::read_to_string(self.file(name)).ok();
        match (destination, source) {
            (IpAddr::V4(to), _) => best_route(&read("proc/net/route")?, to),
            (_, IpAddr::V6(from)) => holder(&read("proc/net/if_inet6")?, from),
            (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// The RDMA device and the port of an interface, or of an interface below it: a VLAN has a
    /// lower interface, a bond has several. The lowest interface is IPoIB's, or that of an Ethernet
    /// card.
    pub fn rdma_of_interface(&self, name: &str) -> Option<(String, u32)> {
        rdma_below(&self.sys("class/net").join(name), MAX_DEPTH)
    }
}

fn rdma_below(interface: &Path, depth: u32) -> Option<(String, u32)> {
    let devices = read::entries(&interface.join("device/infiniband")).ok()?;
    if let Some((device, _)) = devices.into_iter().next() {
        let port: Option<u32> = read::number(&interface.join("dev_port")).ok().flatten();
        return Some((device, port.unwrap_or(0).saturating_add(1)));
    }
    let depth = depth.checked_sub(1)?;
    let mut entries = read::entries(interface).ok()?.into_iter();
    entries.find_map(|(name, lower)| {
        name.starts_with("lower_")
            .then(|| rdma_below(&lower, depth))
            .flatten()
    })
}

/// The interface of the most specific route in `/proc/net/route`.
fn best_route(table: &str, to: Ipv4Addr) -> Option<String> {
    // The text is the bytes in memory, read as a number of this machine.
    let address = |hex: &str| {
        let number = u32::from_str_radix(hex, 16).ok()?;
        Some(u32::from_be_bytes(number.to_ne_bytes()))
    };
    let route = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [name, net, _, flags, _, _, metric, mask, ..] = columns[..] else {
            return None;
        };
        let (net, mask) = (address(net)?, address(mask)?);
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let metric: u32 = metric.parse().ok()?;
        let fits = u32::from(to) & mask == net && flags & (UP | REJECT) == UP;
        fits.then(|| {
            (
                mask.count_ones(),
                std::cmp::Reverse(metric),
                name.to_owned(),
            )
        })
    };
    let routes = table.lines().skip(1).filter_map(route);
    let best = routes.max_by(|(bits, metric, _), (other_bits, other_metric, _)| {
        (bits, metric).cmp(&(other_bits, other_metric))
    });
    best.map(|(_, _, name)| name)
}

/// The interface that has the address, from `/proc/net/if_inet6`.
fn holder(table: &str, address: Ipv6Addr) -> Option<String> {
    let address = format!("{:032x}", u128::from(address));
    table.lines().find_map(|line| {
        let mut columns = line.split_whitespace();
        (columns.next()? == address).then_some(columns.last()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_most_specific_route_counts() {
        let table = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
ib1\t0000000A\t00000000\t0001\t0\t0\t200\t000000FF\t0\t0\t0
ib0\t0000000A\t00000000\t0001\t0\t0\t100\t000000FF\t0\t0\t0
*\t0005000A\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0
ib2\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
rubbish
";
        for (to, interface) in [
            ("10.0.0.1", "ib0"),
            ("10.0.2.9", "ib2"),
            ("10.0.5.1", "ib0"),
            ("192.0.2.1", "eth0"),
        ] {
            let found = best_route(table, to.parse().unwrap());
            assert_eq!(found.as_deref(), Some(interface), "{to}");
        }
        assert_eq!(best_route("", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn an_address_belongs_to_an_interface() {
        let table = "\
00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000505400fffe123456 02 40 20 80      ib0
";
        let found = |text: &str| holder(table, text.parse().unwrap());
        assert_eq!(found("fe80::5054:ff:fe12:3456").as_deref(), Some("ib0"));
        assert_eq!(found("fe80::1"), None);
    }
}
