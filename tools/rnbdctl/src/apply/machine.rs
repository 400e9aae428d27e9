// SPDX-License-Identifier: GPL-2.0

//! The machine that is changed.

use proto::addr::PathAddress;
use proto::setting::Setting;

use crate::config::Device;
use crate::config::Session;
use crate::model::Client;
use crate::model::ClientDevice;
use crate::model::Policy;
use crate::Result;

/// The state of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Devices and sessions.
    pub client: Client,
    /// The number that `nr_poll_queues = -1` stands for; 0 if it is not known.
    pub cpus: u32,
}

/// A machine that has sessions, paths and devices. Each function except the first may block as long
/// as a connection takes to fail.
pub trait Machine: Send + Sync {
    /// The present state.
    fn state(&self) -> Result<State>;
    /// The session with the paths to the addresses that the names of its hosts have now.
    fn look_up(&self, session: &Session) -> Result<Session>;
    /// Maps a device; if there is no session, it is made with `paths`. Returns the device node.
    fn map(&self, session: &Session, paths: &[PathAddress], device: &Device) -> Result<String>;
    /// Unmaps a device that is not in use.
    fn unmap(&self, device: &ClientDevice) -> Result;
    /// Has the server open a device again.
    fn reopen(&self, device: &ClientDevice) -> Result;
    /// Adds a path to a session.
    fn add_path(&self, session: &str, path: &PathAddress) -> Result;
    /// Connects a path again, by the name of its folder.
    fn reconnect(&self, session: &str, path: &str) -> Result;
    /// Disconnects a path and removes it.
    fn remove_path(&self, session: &str, path: &str) -> Result;
    /// Sets how the path of a request is chosen.
    fn set_policy(&self, session: &str, policy: Policy) -> Result;
    /// Sets a number of a session.
    fn set(&self, session: &str, setting: &Setting, value: i32) -> Result;
    /// Sets a number of a device.
    fn set_device(&self, device: &ClientDevice, setting: &Setting, value: i32) -> Result;
}
