// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices.

use super::Finding;
use crate::model::RdmaDevice;
use crate::model::RdmaPort;

/// The largest MTU of RDMA.
const BEST_MTU: u32 = 4096;

pub(super) fn check(devices: &[RdmaDevice]) -> Vec<Finding> {
    let ports: Vec<_> = devices
        .iter()
        .flat_map(|device| {
            device
                .ports
                .iter()
                .map(move |port| (device.name.as_str(), port))
        })
        .collect();
    if ports.is_empty() {
        return vec![Finding::failed(
            "RDMA device",
            "this machine has no RDMA device",
            "load the driver of the network card, or use soft-RoCE on an Ethernet interface: \
             modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE",
        )];
    }
    let any_active = ports.iter().any(|(_, port)| port.is_active());
    let mut findings = Vec::new();
    for (device, port) in ports {
        findings.push(state(device, port, any_active));
        if port.is_active() && port.is_roce {
            findings.extend(addresses(device, port));
            findings.extend(mtu(device, port));
        }
    }
    findings
}

fn state(device: &str, port: &RdmaPort, any_active: bool) -> Finding {
    let message = format!(
        "{device} port {} is {} ({}, {})",
        port.number, port.state, port.physical_state, port.link_layer
    );
    if port.is_active() {
        return Finding::ok("RDMA port", message);
    }
    let remedy = match &port.netdev {
        Some(netdev) => format!("check the cable, and set the link up: ip link set {netdev} up"),
        None => "check the cable; on InfiniBand, a subnet manager must be running".to_owned(),
    };
    match any_active {
        // Another port may be the one in use.
        true => Finding::warning("RDMA port", message, remedy),
        false => Finding::failed("RDMA port", message, remedy),
    }
}

fn addresses(device: &str, port: &RdmaPort) -> Option<Finding> {
    let usable = |gid: &&crate::model::Gid| gid.kind.as_deref() == Some("RoCE v2");
    let addresses: Vec<_> = port
        .gids
        .iter()
        .filter(usable)
        .filter_map(|gid| gid.ip)
        .collect();
    // A link-local IPv6 address is not enough: paths would need a scope.
    let link_local = |ip: &std::net::IpAddr| match ip {
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    };
    if addresses.iter().any(|ip| !link_local(ip)) {
        return None;
    }
    let netdev = port.netdev.as_deref().unwrap_or("INTERFACE");
    Some(Finding::warning(
        "RDMA address",
        format!(
            "{device} port {} has no RoCE v2 address, except link-local addresses",
            port.number
        ),
        format!(
            "give the interface an address: ip address add ADDRESS/BITS dev {netdev}; if it has \
             one, the RDMA device may lack RoCE v2, which all ends must use (hardware.md)"
        ),
    ))
}

fn mtu(device: &str, port: &RdmaPort) -> Option<Finding> {
    let (netdev, mtu) = (port.netdev.as_deref()?, port.netdev_mtu?);
    let rdma = port.rdma_mtu.unwrap_or(0);
    let message = format!(
        "{device} port {} has an RDMA MTU of {rdma} bytes ({netdev}: {mtu})",
        port.number
    );
    Some(match rdma >= BEST_MTU {
        true => Finding::ok("MTU", message),
        false => Finding::warning(
            "MTU",
            message,
            format!(
                "an RDMA MTU of {BEST_MTU} is faster: ip link set {netdev} mtu 4200 (or 9000) on \
                 both machines, and the same on all switches between them"
            ),
        ),
    })
}
