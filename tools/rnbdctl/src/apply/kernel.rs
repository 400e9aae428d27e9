// SPDX-License-Identifier: GPL-2.0

//! The machine itself, by the kernel's files.

use std::fs;
use std::time::Duration;

use proto::addr::PathAddress;
use proto::setting::Setting;

use super::Machine;
use super::State;
use crate::config::Device;
use crate::config::Session;
use crate::control;
use crate::control::MapRequest;
use crate::model::ClientDevice;
use crate::model::Path;
use crate::model::Policy;
use crate::ways::Ways;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// How long a device node may take to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// The machine.
#[derive(Clone, Debug)]
pub struct Kernel {
    system: System,
}

impl Kernel {
    /// The machine with the files of `system`.
    pub fn new(system: System) -> Self {
        Self { system }
    }

    /// Finds a path by its whole name, as sysfs has it.
    fn path(&self, session: &str, path: &str) -> Result<Path> {
        let session = self.system.find_session(session)?;
        let found = session.paths.into_iter().find(|have| have.name == path);
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("path {path}"), "not found"))
    }

    /// The number of possible CPUs (the kernel's `nr_cpu_ids`); 0 if it is not known.
    fn cpus(&self) -> u32 {
        let text = fs::read_to_string(self.system.sys("devices/system/cpu/possible"));
        text.ok()
            .and_then(|text| last_cpu(&text))
            .map_or(0, |last| last.saturating_add(1))
    }
}

/// The last CPU of a list like `0-3,8-11`.
fn last_cpu(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

impl Machine for Kernel {
    fn state(&self) -> Result<State> {
        let mut client = self.system.client()?;
        for device in &mut client.devices {
            // The same change must be recognised in two attempts, so counters that may have changed
            // are left out.
            (device.io_timeouts, device.io_unanswered) = (None, None);
        }
        Ok(State {
            client,
            cpus: self.cpus(),
        })
    }

    fn look_up(&self, session: &Session) -> Result<Session> {
        let mut session = session.clone();
        for path in Ways::to(&self.system, &session.hosts)?.found {
            if !session.all_paths().any(|have| have.dst.same_as(&path.dst)) {
                session.found.push(path);
            }
        }
        Ok(session)
    }

    fn map(&self, session: &Session, paths: &[PathAddress], device: &Device) -> Result<String> {
        let request = MapRequest {
            session: session.name.clone(),
            device_path: device.path.clone(),
            paths: paths.to_vec(),
            port: session.dest_port,
            access_mode: Some(device.access_mode),
            io_mode: device.io_mode,
            poll_queues: session.nr_poll_queues,
        };
        control::map(&self.system, &request, NODE_PATIENCE).map(|mapped| mapped.path)
    }

    fn unmap(&self, device: &ClientDevice) -> Result {
        control::device::unmap(device, false)
    }

    fn reopen(&self, device: &ClientDevice) -> Result {
        control::device::remap(device)
    }

    fn add_path(&self, session: &str, path: &PathAddress) -> Result {
        let session = self.system.find_session(session)?;
        control::session::add_path(&session, path)
    }

    fn reconnect(&self, session: &str, path: &str) -> Result {
        control::path::reconnect(&self.path(session, path)?)
    }

    fn remove_path(&self, session: &str, path: &str) -> Result {
        control::path::remove(&self.path(session, path)?)
    }

    fn set_policy(&self, session: &str, policy: Policy) -> Result {
        control::session::set_policy(&self.system.find_session(session)?, policy)
    }

    fn set(&self, session: &str, setting: &Setting, value: i32) -> Result {
        let session = self.system.find_session(session)?;
        control::session::set(&session, setting.name, &value.to_string())
    }

    fn set_device(&self, device: &ClientDevice, setting: &Setting, value: i32) -> Result {
        control::device::set_tunable(device, setting.name, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_no_counters() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/block/rnbd0/rnbd");
        fs::create_dir_all(&folder).unwrap();
        for file in ["io_timeout_ms", "io_timeouts", "io_unanswered"] {
            fs::write(folder.join(file), "5000\n").unwrap();
        }
        fs::write(folder.join("state"), "open\n").unwrap();
        let system = System::new(Some(root.path()), None);
        let read = system.client_devices().unwrap().remove(0);
        let counters = |device: &ClientDevice| (device.io_timeouts, device.io_unanswered);
        assert_eq!(counters(&read), (Some(5000), Some(5000)));
        let device = Kernel::new(system)
            .state()
            .unwrap()
            .client
            .devices
            .remove(0);
        assert_eq!(device.io_timeout_ms, Some(5000));
        assert_eq!(counters(&device), (None, None));
    }

    #[test]
    fn the_last_cpu() {
        for (list, last) in [
            ("0\n", Some(0)),
            ("0-3\n", Some(3)),
            ("0-3,8-11", Some(11)),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(last_cpu(list), last, "{list:?}");
        }
    }
}
