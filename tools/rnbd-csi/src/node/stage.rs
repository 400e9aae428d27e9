// SPDX-License-Identifier: GPL-2.0

//! Staging: a volume is brought to this node as a device, and its file system mounted for the
//! whole node.

use std::path::Path;

use rnbdctl::model::AccessMode as Access;

use super::Node;
use crate::capability::Form;
use crate::capability::Wanted;
use crate::device::Device;
use crate::fail;
use crate::filesystem;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Empty;
use crate::messages::NodeStageVolumeRequest;
use crate::messages::NodeUnstageVolumeRequest;
use crate::mounts;
use crate::mounts::DeviceNumber;
use crate::mounts::Mount;
use crate::volume::Context;
use crate::volume::VolumeId;

impl Node {
    /// Stages a volume. A volume that is staged already stays as it is. A call that fails leaves no
    /// disk mapped, unless something of the volume is mounted: the orchestrator need not undo a
    /// staging that failed.
    pub(crate) fn stage(&self, request: &NodeStageVolumeRequest) -> Result<Empty> {
        let id = VolumeId::of_request(&request.volume_id)?;
        let target = mounts::target("staging_target_path", &request.staging_target_path)?;
        let wanted = Wanted::of_request(request.volume_capability.as_ref())?;
        let context = Context::of(&id, &request.volume_context)?;
        let _turn = self.busy.turn(&id.to_string())?;
        let _place = self.busy.turn(&target.to_string_lossy())?;
        let device = self.devices.bring(&id, &context, wanted.access)?;
        fail::point("stage.mapped");
        let staged = self.stage_device(&device, &wanted, &target);
        if staged.is_err() {
            // Also a disk that an earlier call has mapped, which was cut off.
            let undone = self.check_unused(&id);
            if let Err(status) = undone.and_then(|()| self.devices.take_away(&id)) {
                eprintln!("rnbd-csi: {id} stays on this node: {}", status.message);
            }
        }
        staged.map(|()| Empty {})
    }

    /// Stages a volume whose device is here.
    fn stage_device(&self, device: &Device, wanted: &Wanted, target: &Path) -> Result {
        let node = self.devices.node(device);
        let number = mounts::device_number(&node)?;
        let mounts = mounts::all()?;
        let shown = mounts
            .iter()
            .find(|mount| mount.shows(number, &device.name));
        let Form::Mount { kind, options } = &wanted.form else {
            return match shown.filter(|mount| mount.device == number) {
                None => Ok(()),
                Some(mount) => Err(staged_otherwise(mount)),
            };
        };
        if is_mounted(target, number, kind)? {
            return Ok(());
        }
        if let Some(mount) = shown {
            return Err(staged_otherwise(mount));
        }
        let read_only = wanted.access == Access::Ro;
        filesystem::prepare(&node, kind, read_only)?;
        fail::point("stage.formatted");
        filesystem::mount(&node, kind, options, read_only, target)?;
        fail::point("stage.mounted");
        Ok(())
    }

    /// Undoes what staging did, as far as it was done.
    pub(crate) fn unstage(&self, request: &NodeUnstageVolumeRequest) -> Result<Empty> {
        crate::volume::needed("volume_id", &request.volume_id)?;
        let target = mounts::target("staging_target_path", &request.staging_target_path)?;
        let _turn = self.busy.turn(&VolumeId::key(&request.volume_id))?;
        let _place = self.busy.turn(&target.to_string_lossy())?;
        mounts::unmount_volumes(&target, &self.devices.mirrors()?)?;
        fail::point("unstage.unmounted");
        // What is no id of ours was never mapped.
        if let Ok(id) = VolumeId::parse(&request.volume_id) {
            self.check_unused(&id)?;
            self.devices.take_away(&id)?;
        }
        fail::point("unstage.unmapped");
        Ok(Empty {})
    }

    /// Returns an error if the file system or the node of the volume is mounted. The kernel would
    /// unmap a block device that is mounted for a container, as long as no program has opened it.
    fn check_unused(&self, id: &VolumeId) -> Result {
        let Some(device) = self.devices.find(id)? else {
            return Ok(());
        };
        // A node that is not there, or not yet, is not mounted either.
        let Ok(number) = mounts::device_number(&self.devices.node(&device)) else {
            return Ok(());
        };
        let mounts = mounts::all()?;
        match mounts
            .iter()
            .find(|mount| mount.shows(number, &device.name))
        {
            None => Ok(()),
            Some(mount) => Err(Status::precondition(format!(
                "the volume is still published at {}; unpublish it first",
                mount.target.display()
            ))),
        }
    }
}

/// Whether that file system of the device is mounted there; an error if another one is.
fn is_mounted(target: &Path, device: DeviceNumber, kind: &str) -> Result<bool> {
    match mounts::at(target)? {
        None => Ok(false),
        Some(mount) if mount.device != device => Err(mounts::something_else(target)),
        Some(mount) if mount.kind == kind => Ok(true),
        Some(mount) => Err(staged_otherwise(&mount)),
    }
}

/// The failure of a call for a volume that is staged at another place, or in another way.
fn staged_otherwise(mount: &Mount) -> Status {
    let why = format!(
        "the volume is in use at {}, {}; unpublish and unstage it first",
        mount.target.display(),
        match mount.kind.as_str() {
            "devtmpfs" | "tmpfs" => "as a block device",
            kind => kind,
        }
    );
    Status::new(Code::AlreadyExists, why)
}
