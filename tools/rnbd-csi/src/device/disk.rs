// SPDX-License-Identifier: GPL-2.0

//! The disks of servers on this node: mapping, finding and unmapping them.
//!
//! Nothing is written down. The kernel knows which disks are mapped, and the session's name says
//! which of them are volumes: so a driver that was killed, or was replaced by a newer one, goes on
//! with what it finds.

use std::time::Duration;

use rnbdctl::control;
use rnbdctl::control::join;
use rnbdctl::control::MapRequest;
use rnbdctl::model::AccessMode as Access;
use rnbdctl::model::ClientDevice;
use rnbdctl::model::DeviceState;
use rnbdctl::ways::Ways;
use rnbdctl::System;

use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::lock::Lock;
use crate::volume::Context;
use crate::volume::DiskId;

/// How long a device node may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);
/// The tunable that says how long requests of a device wait while its server is away.
const HOLD: &str = "hold_io_ms";

/// Maps the disks of volumes.
#[derive(Debug)]
pub(super) struct Disks {
    system: System,
    node_id: String,
}

impl Disks {
    /// Those of the node of that id.
    pub(super) fn new(system: System, node_id: &str) -> Self {
        Self {
            system,
            node_id: node_id.to_owned(),
        }
    }

    /// The node's id.
    pub(super) fn node_id(&self) -> &str {
        &self.node_id
    }

    /// The device that a disk is here, if it is mapped.
    pub(super) fn find(&self, id: &DiskId) -> Result<Option<ClientDevice>> {
        let session = id.session(&self.node_id);
        let Some(name) = self.system.client_device_name(&session, id.path())? else {
            return Ok(None);
        };
        Ok(self.system.client_device(&name)?)
    }

    /// Maps a disk, unless it is mapped, and has its requests wait for `hold_ms` while no path is
    /// up. Returns its device. After an error a disk that was not mapped before is unmapped again;
    /// if that fails, too, a line in the log says so. Blocks while a session is being connected.
    pub(super) fn map(
        &self,
        id: &DiskId,
        context: &Context,
        access: Access,
        hold_ms: i32,
    ) -> Result<ClientDevice> {
        let _turn = self.turn(id)?;
        if let Some(device) = self.find(id)? {
            if device.access_mode != Some(access) {
                let have = device.access_mode.map_or("?", Access::as_str);
                let why = format!(
                    "the volume is staged with access mode {have}, not {}; unstage it first",
                    access.as_str()
                );
                return Err(Status::new(Code::AlreadyExists, why));
            }
            return hold(&device, hold_ms).map(|()| device);
        }
        let mapped = self
            .map_new(id, context, access)
            .and_then(|device| hold(&device, hold_ms).map(|()| device));
        if mapped.is_err() {
            // The kernel may have mapped the disk before the error.
            if let Err(more) = self.unmap_in_turn(id) {
                eprintln!("rnbd-csi: {id} stays mapped: {}", more.message);
            }
        }
        mapped
    }

    /// The turn to map and unmap disks of the server of `id`, among all threads and drivers of the
    /// node: so one call makes the session, and other calls find it. A server that does not respond
    /// holds up its own disks only.
    fn turn(&self, id: &DiskId) -> Result<Lock> {
        let session = id.session(&self.node_id);
        Lock::wait(&self.system, &format!("session-{session}"))
    }

    fn map_new(&self, id: &DiskId, context: &Context, access: Access) -> Result<ClientDevice> {
        let system = &self.system;
        let session = id.session(&self.node_id);
        let ways = Ways::to(system, &context.servers(id))?;
        let is_new = system.client_session(&session)?.is_none();
        let server = id.server();
        join::Server {
            name: &server,
            ways: &ways,
            port: context.port(id),
            polled: None,
        }
        .check(system, &session)?;
        let request = MapRequest {
            session,
            device_path: id.path().to_owned(),
            paths: Vec::new(),
            port: context.port(id),
            access_mode: Some(access),
            io_mode: None,
            poll_queues: None,
        };
        let mapped = match is_new {
            false => control::map(system, &request, PATIENCE)?,
            true => ways.first(|paths| {
                let request = MapRequest {
                    paths: paths.to_vec(),
                    ..request.clone()
                };
                control::map(system, &request, PATIENCE)
            })?,
        };
        if is_new {
            // The volume goes on with the paths that were added. Nothing tries again to add the
            // other paths, and the condition of the volume does not show them.
            for (path, error) in join::add_found(system, &request.session, &ways)? {
                eprintln!(
                    "rnbd-csi: path {path} to {server} was not added: {}",
                    error.why()
                );
            }
        }
        system
            .client_device(&mapped.name)?
            .ok_or_else(|| Status::new(Code::Unavailable, format!("{} is gone again", mapped.name)))
    }

    /// Unmaps a disk, if it is mapped. Waits for calls that map disks of the same server: a disk
    /// that such a call has mapped meanwhile is unmapped, too.
    pub(super) fn unmap(&self, id: &DiskId) -> Result {
        let _turn = self.turn(id)?;
        self.unmap_in_turn(id)
    }

    fn unmap_in_turn(&self, id: &DiskId) -> Result {
        match self.find(id)? {
            Some(device) => Ok(control::device::unmap(&device, false)?),
            None => Ok(()),
        }
    }

    /// What is wrong with a mapped disk, in words; empty if nothing is.
    pub(super) fn condition(&self, device: &ClientDevice) -> Result<String> {
        let session = self.system.client_session(&device.session)?;
        let paths = session.map_or((0, 0), |session| (session.paths_up(), session.paths.len()));
        Ok(match (device.state, paths) {
            (DeviceState::Open, (up, all)) if up == all && up > 0 => String::new(),
            (DeviceState::Open, (up, all)) => format!("{up} of {all} paths to the server are up"),
            (DeviceState::Closed, _) if device.closed_by_server => {
                "the server's administrator has closed the device".to_owned()
            }
            (DeviceState::Closed, _) => "the server cannot be reached".to_owned(),
            (state, _) => format!("the device is in state {}", state.as_str()),
        })
    }
}

/// Sets how long requests wait. A module that cannot have requests wait is as it is.
fn hold(device: &ClientDevice, ms: i32) -> Result {
    match device.tunable(HOLD) {
        Some(have) if have != ms => Ok(control::device::set_tunable(device, HOLD, ms)?),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(session: &str) -> (tempfile::TempDir, Disks) {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join("sys").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("block/rnbd3/rnbd/state", "open\n");
        write("block/rnbd3/rnbd/session", &format!("{session}\n"));
        write("block/rnbd3/rnbd/mapping_path", "vg0/www\n");
        write("block/rnbd3/rnbd/access_mode", "rw\n");
        write("block/rnbd3/size", "2048\n");
        for (path, state) in [("a@b", "connected"), ("a@c", "reconnecting")] {
            write(
                &format!("class/rtrs-client/{session}/paths/{path}/state"),
                state,
            );
        }
        write(
            &format!("class/rtrs-client/{session}/mpath_policy"),
            "min-inflight (MI: 1)\n",
        );
        let devices = root.path().join("sys/class/rnbd-client/ctl/devices");
        fs::create_dir_all(&devices).unwrap();
        let link = devices.join(format!("vg0!www@{session}"));
        std::os::unix::fs::symlink("../../../../block/rnbd3", link).unwrap();
        let system = System::new(Some(root.path()), None);
        (root, Disks::new(system, "node1"))
    }

    #[test]
    fn disks_are_found_by_their_ids() {
        let id = DiskId::parse("storage1:vg0/www").unwrap();
        let (_root, disks) = machine(&id.session("node1"));
        let device = disks.find(&id).unwrap().unwrap();
        assert_eq!(
            (device.name.as_str(), device.size_bytes),
            ("rnbd3", Some(1 << 20))
        );
        // It is mapped: nothing has to be done.
        let map = |access| disks.map(&id, &Context::default(), access, 0);
        assert_eq!(map(Access::Rw).unwrap().name, "rnbd3");
        let error = map(Access::Ro).unwrap_err();
        assert_eq!(error.code, Code::AlreadyExists);
        let condition = disks.condition(&device).unwrap();
        assert_eq!(condition, "1 of 2 paths to the server are up");
    }

    #[test]
    fn a_disk_of_the_administrators_is_no_volume() {
        let id = DiskId::parse("storage1:vg0/www").unwrap();
        let (_root, disks) = machine("node1-storage1");
        assert_eq!(disks.find(&id).unwrap(), None);
        assert_eq!(disks.unmap(&id), Ok(()));
    }
}
