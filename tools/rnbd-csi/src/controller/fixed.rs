// SPDX-License-Identifier: GPL-2.0

//! Static volumes: disks that an administrator has made and given to the orchestrator.

use rnbdctl::control;
use rnbdctl::control::DiscoverRequest;
use rnbdctl::ways::Ways;
use rnbdctl::Kind;
use rnbdctl::System;

use crate::capability::Check;
use crate::capability::Wanted;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Confirmed;
use crate::messages::ValidateVolumeCapabilitiesRequest;
use crate::messages::ValidateVolumeCapabilitiesResponse;
use crate::volume::Context;
use crate::volume::DiskId;
use crate::volume::VolumeId;

/// The controller of static volumes. It asks their servers, so it runs on a node.
#[derive(Debug)]
pub(crate) struct Fixed {
    system: System,
    node_id: String,
}

impl Fixed {
    /// The controller on the node of that id.
    pub(crate) fn new(system: System, node_id: &str) -> Self {
        Self {
            system,
            node_id: node_id.to_owned(),
        }
    }

    /// Whether a volume can be used in some ways.
    pub(crate) fn validate(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        let id = VolumeId::of_request(&request.volume_id)?;
        needed_capabilities(request)?;
        let context = Context::of(&id, &request.volume_context)?;
        for disk in id.disks() {
            self.check_there(disk, &context)?;
        }
        Ok(answer(request, Wanted::check_for(&id)))
    }

    /// `NOT_FOUND` if the server says that it has no such disk for this node. A server that does
    /// not tell is believed to have it.
    fn check_there(&self, id: &DiskId, context: &Context) -> Result {
        let ways = Ways::to(&self.system, &context.servers(id))?;
        let disks = ways.first(|paths| {
            let request = DiscoverRequest {
                session: id.session(&self.node_id),
                paths: paths.to_vec(),
                port: context.port(id),
            };
            control::discover(&self.system, &request)
        });
        match disks {
            Ok(disks) if disks.iter().any(|disk| same(&disk.device_path, id.path())) => Ok(()),
            Ok(_) => Err(Status::not_found(format!(
                "the server does not offer the disk {id} to this node"
            ))),
            Err(error) if error.kind() == Kind::Unsupported => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether two paths below the folder that a server exports are the same.
fn same(a: &str, b: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        parts.map(str::to_owned).collect()
    };
    parts(a) == parts(b)
}

/// An error if no capability is asked for.
pub(super) fn needed_capabilities(request: &ValidateVolumeCapabilitiesRequest) -> Result {
    match request.volume_capabilities.is_empty() {
        true => Err(Status::invalid("volume_capabilities are missing")),
        false => Ok(()),
    }
}

/// Confirms all capabilities of the request if `check` allows all of them, and none otherwise.
pub(super) fn answer(
    request: &ValidateVolumeCapabilitiesRequest,
    check: Check,
) -> ValidateVolumeCapabilitiesResponse {
    match check(&request.volume_capabilities) {
        Ok(()) => ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context.clone(),
                volume_capabilities: request.volume_capabilities.clone(),
                parameters: request.parameters.clone(),
            }),
            message: String::new(),
        },
        Err(message) => ValidateVolumeCapabilitiesResponse {
            confirmed: None,
            message,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_disks_are_compared_by_their_parts() {
        assert!(same("vg0/www", "/vg0//www"));
        assert!(same("./vg0/www", "vg0/www/"));
        assert!(!same("vg0/www", "vg0/www2"));
        assert!(!same("vg0", "vg0/www"));
    }
}
