// SPDX-License-Identifier: GPL-2.0

//! The sessions that a test would disturb: sessions with the same server, and sessions of the same
//! RDMA device.

use std::net::IpAddr;

use proto::addr::Address;
use proto::addr::PathAddress;

use crate::model::Path;
use crate::preflight;
use crate::Result;
use crate::System;

/// The sessions of both ends that a test along `path` would disturb, in words.
///
/// Disks that the server itself maps, or serves to other machines, are not known here.
pub fn conflicts(system: &System, path: &PathAddress) -> Result<Vec<String>> {
    let device = device(system, &path.dst)?;
    let server = path.dst.to_text();
    let server = server.as_str();
    let uses = |path: &Path| {
        let same_device = device.is_some() && path.hca_name == device;
        same_device || path.source == server || path.destination == server
    };
    let mut found = Vec::new();
    for session in system.client_sessions()? {
        if session.paths.iter().any(&uses) {
            found.push(format!("disks of session {}", session.name));
        }
    }
    for session in system.server_sessions()? {
        if session.paths.iter().any(&uses) {
            found.push(format!("disks of this machine, mapped by {}", session.name));
        }
    }
    Ok(found)
}

/// The RDMA device by which an address is reached, if it is known.
fn device(system: &System, address: &Address) -> Result<Option<String>> {
    let ip: IpAddr = match address {
        Address::V4(addr) => (*addr).into(),
        Address::V6 { addr, .. } => (*addr).into(),
        Address::Gid(_) => return Ok(None),
    };
    let devices = system.rdma_devices()?;
    Ok(preflight::source_of(ip).and_then(|source| {
        let has = |ports: &[crate::model::RdmaPort]| {
            let mut gids = ports.iter().flat_map(|port| &port.gids);
            gids.any(|gid| gid.ip == Some(source))
        };
        let mut devices = devices.iter();
        devices
            .find(|device| has(&device.ports))
            .map(|device| device.name.clone())
    }))
}
