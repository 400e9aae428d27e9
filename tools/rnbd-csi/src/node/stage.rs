// SPDX-License-Identifier: GPL-2.0

//! Staging: the disk of a volume is mapped, and its file system mounted for the whole node.

use std::path::Path;

use rnbdctl::model::AccessMode as Access;

use super::Node;
use crate::capability::Form;
use crate::capability::Wanted;
use crate::fail;
use crate::filesystem;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Empty;
use crate::messages::NodeStageVolumeRequest;
use crate::messages::NodeUnstageVolumeRequest;
use crate::mounts;
use crate::mounts::DeviceNumber;
use crate::volume::Context;
use crate::volume::VolumeId;

impl Node {
    /// Stages a volume. What is staged already is left as it is.
    pub(crate) fn stage(&self, request: &NodeStageVolumeRequest) -> Result<Empty> {
        let id = VolumeId::of_request(&request.volume_id)?;
        let target = mounts::resolved("staging_target_path", &request.staging_target_path)?;
        let wanted = Wanted::of_request(request.volume_capability.as_ref())?;
        let context = Context::parse(&request.volume_context)?;
        let _turn = self.busy.turn(&request.volume_id)?;
        let device = self.disks.map(&id, &context, wanted.access)?;
        fail::point("stage.mapped");
        let Form::Mount { kind, options } = wanted.form else {
            return Ok(Empty {});
        };
        let node = self.disks.node(&device);
        if is_mounted(&target, mounts::device_number(&node)?)? {
            return Ok(Empty {});
        }
        let read_only = wanted.access == Access::Ro;
        filesystem::prepare(&node, &kind, read_only)?;
        fail::point("stage.formatted");
        filesystem::mount(&node, &kind, &options, read_only, &target)?;
        fail::point("stage.mounted");
        Ok(Empty {})
    }

    /// Undoes what staging did, as far as it was done.
    pub(crate) fn unstage(&self, request: &NodeUnstageVolumeRequest) -> Result<Empty> {
        crate::volume::needed("volume_id", &request.volume_id)?;
        let target = mounts::resolved("staging_target_path", &request.staging_target_path)?;
        let _turn = self.busy.turn(&request.volume_id)?;
        mounts::unmount_all(&target)?;
        fail::point("unstage.unmounted");
        // What is no id of ours was never mapped.
        if let Ok(id) = VolumeId::parse(&request.volume_id) {
            self.disks.unmap(&id)?;
        }
        fail::point("unstage.unmapped");
        Ok(Empty {})
    }
}

/// Whether the device is mounted there; an error if another one is.
fn is_mounted(target: &Path, device: DeviceNumber) -> Result<bool> {
    match mounts::at(target)? {
        None => Ok(false),
        Some(mount) if mount.device == device => Ok(true),
        Some(_) => Err(Status::precondition(format!(
            "another file system is mounted at {}; unmount it",
            target.display()
        ))),
    }
}
