// SPDX-License-Identifier: GPL-2.0

//! A volume that has grown at its server grows here.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::bytes;
use super::Node;
use crate::controller::legs;
use crate::controller::range;
use crate::device::Device;
use crate::fail;
use crate::filesystem;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::NodeExpandVolumeRequest;
use crate::messages::NodeExpandVolumeResponse;
use crate::mounts;
use crate::volume::needed;
use crate::volume::VolumeId;

/// How long the server may take to tell of the new size; it looks once a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// The wait between two looks at the size. The kernel has no file that could be waited for.
const WAIT: Duration = Duration::from_millis(100);

impl Node {
    /// Has the file system of a volume use all of the disk. Of a block device nothing has to be
    /// done: the server tells of the new size.
    pub(crate) fn expand(
        &self,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse> {
        needed("volume_path", &request.volume_path)?;
        let id = VolumeId::of_request(&request.volume_id)?;
        let range = range::parse(request.capacity_range.as_ref())?;
        let path = mounts::resolved("volume_path", &request.volume_path)?;
        let _turn = self.busy.turn(&id.to_string())?;
        let device = self.devices.need(&id)?;
        if !path.exists() {
            return Err(Status::not_found(format!("{path:?} does not exist")));
        }
        let device = self.when_grown(&id, device, range.required)?;
        range.need(device.bytes.unwrap_or(0))?;
        let node = self.devices.node(&device);
        let number = mounts::device_number(&node)?;
        let mut mounts = mounts::all()?;
        mounts.retain(|mount| mount.device == number);
        if !mounts.is_empty() {
            if !mounts.iter().any(|mount| mount.target == path) {
                let why = format!("volume {} is not at {path:?}", request.volume_id);
                return Err(Status::not_found(why));
            }
            // The volume may be published read-only there.
            let mount = mounts.iter().find(|mount| !mount.is_read_only());
            let mount = mount.ok_or_else(|| {
                Status::precondition("the file system is mounted read-only, and cannot grow")
            })?;
            filesystem::grow(&node, &mount.kind, &mount.target)?;
            fail::point("expand.grown");
        }
        Ok(NodeExpandVolumeResponse {
            capacity_bytes: bytes(&device),
        })
    }

    /// The device when it has at least so many bytes: when all disks of the volume are large
    /// enough, a mirror is grown.
    fn when_grown(&self, id: &VolumeId, device: Device, required: u64) -> Result<Device> {
        if required != 0 && device.bytes.is_some_and(|have| have >= required) {
            return Ok(device);
        }
        let wanted = match id {
            VolumeId::Disk(_) => required,
            VolumeId::Mirror(_) => legs::needed(required),
        };
        let begun = Instant::now();
        loop {
            let sizes = self.devices.disk_sizes(id)?;
            let Some(have) = sizes.into_iter().min().filter(|have| *have < wanted) else {
                break;
            };
            if begun.elapsed() > PATIENCE {
                let why = format!(
                    "a disk of volume {id} has {have} bytes, not {wanted}: its server has not \
                     announced a new size; with a C server, use rnbdctl resize"
                );
                return Err(Status::new(Code::Unavailable, why));
            }
            thread::sleep(WAIT);
        }
        self.devices.grow(id, required)?;
        self.devices.need(id)
    }
}
