// SPDX-License-Identifier: GPL-2.0

//! The difference between file and machine.

use proto::addr::PathAddress;
use proto::setting::HOLD_IO;

use super::Change;
use super::State;
use crate::config::Config;
use crate::config::Device;
use crate::config::Session;
use crate::config::DEFAULT_HOLD_MS;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::DeviceState;
use crate::model::IoModeWish;
use crate::model::Path;
use crate::model::Settings;

/// The changes to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Only sessions with changes or remarks: first the sessions of the file in its order, then
    /// other sessions.
    pub sessions: Vec<SessionPlan>,
}

/// The changes to be made to a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPlan {
    /// The session's name.
    pub session: String,
    /// Whether the session has to be made first. Its values are not known before.
    pub is_new: bool,
    /// The changes, in the order in which they are to be made.
    pub changes: Vec<Change>,
    /// Remarks on changes that cannot be made, or that are left out.
    pub remarks: Vec<String>,
}

impl Plan {
    /// Compares the file with the machine. With `prune` devices and paths that are not in the file
    /// are removed.
    pub fn new(config: &Config, state: &State, prune: bool) -> Self {
        let mut sessions: Vec<_> = config
            .sessions
            .iter()
            .map(|session| SessionPlan::new(session, state, prune))
            .collect();
        for name in other_sessions(config, state) {
            sessions.push(SessionPlan::of_other(&name, state, prune));
        }
        sessions.retain(|plan| !plan.changes.is_empty() || !plan.remarks.is_empty());
        Self { sessions }
    }

    /// Whether the machine is as the file says.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.sessions.iter().map(|plan| plan.changes.len()).sum()
    }
}

/// The sessions that carry devices but are not in the file.
pub fn other_sessions(config: &Config, state: &State) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for device in &state.client.devices {
        let name = &device.session;
        if !names.contains(name) && !config.sessions.iter().any(|session| &session.name == name) {
            names.push(name.clone());
        }
    }
    names
}

impl SessionPlan {
    /// Compares a session of the file with the machine.
    pub fn new(session: &Session, state: &State, prune: bool) -> Self {
        let mut plan = Self {
            session: session.name.clone(),
            ..Self::default()
        };
        let mapped: Vec<_> = devices_of(&session.name, state).collect();
        let running = state
            .client
            .sessions
            .iter()
            .find(|have| have.name == session.name);
        // A session without devices is about to end; nothing can be added to it.
        let running = running.filter(|_| !mapped.is_empty());
        plan.is_new = running.is_none();
        plan.map_again(session, &mapped, state.cpus);
        plan.values(session, running);
        let extra_paths = plan.paths(session, running);
        let extra_devices = plan.devices(session, running, &mapped, state.cpus);
        plan.others(extra_devices, extra_paths, prune);
        plan.device_values(session, &mapped);
        plan
    }

    /// A session that is not in the file.
    pub fn of_other(name: &str, state: &State, prune: bool) -> Self {
        let mut plan = Self {
            session: name.to_owned(),
            ..Self::default()
        };
        let devices = devices_of(name, state).cloned().collect();
        plan.others(devices, Vec::new(), prune);
        plan
    }

    /// Devices that are mapped in another way than the file says. They come first, since the
    /// session may end with such a device and come back.
    fn map_again(&mut self, session: &Session, mapped: &[&ClientDevice], cpus: u32) {
        for device in &session.devices {
            let have = mapped.iter().find(|have| have.device_path == device.path);
            if let Some((have, why)) =
                have.and_then(|have| Some((*have, difference(session, device, have, cpus)?)))
            {
                self.changes.push(Change::MapAgain {
                    mapped: have.clone(),
                    device: device.clone(),
                    why,
                });
            }
        }
    }

    fn values(&mut self, session: &Session, running: Option<&ClientSession>) {
        for (name, &to) in &session.settings {
            let Some(setting) = Settings::find(name) else {
                continue;
            };
            let from = running.map(|running| running.settings.get(name));
            match from {
                Some(None) => self
                    .remarks
                    .push(format!("{name}: the loaded modules lack this tunable")),
                Some(Some(value)) if value == i64::from(to) => (),
                _ => self.changes.push(Change::Set {
                    setting,
                    from: from.flatten(),
                    to,
                }),
            }
        }
        self.hold(session, running);
        let from = running.and_then(|running| running.policy);
        if let Some(to) = session.policy.filter(|&to| from != Some(to)) {
            self.changes.push(Change::SetPolicy { from, to });
        }
    }

    /// The time that requests wait, if the file does not say. A module without such a time needs no
    /// change.
    fn hold(&mut self, session: &Session, running: Option<&ClientSession>) {
        if session.settings.contains_key(HOLD_IO.name) {
            return;
        }
        let from = running.map(|running| running.settings.get(HOLD_IO.name));
        if from.is_none_or(|from| from.is_some_and(|ms| ms != i64::from(DEFAULT_HOLD_MS))) {
            self.changes.push(Change::Set {
                setting: HOLD_IO,
                from: from.flatten(),
                to: DEFAULT_HOLD_MS,
            });
        }
    }

    /// Compares the paths. Returns the paths that are not in the file.
    fn paths<'s>(
        &mut self,
        session: &Session,
        running: Option<&'s ClientSession>,
    ) -> Vec<&'s Path> {
        // Connected paths come first: if two paths fit a path of the file, the connected one is
        // kept.
        let mut left: Vec<_> = running.iter().flat_map(|running| &running.paths).collect();
        left.sort_by_key(|path| !path.is_up());
        for wanted in session.all_paths() {
            match left.iter().position(|have| is_path(wanted, have)) {
                None => self.changes.push(Change::AddPath(*wanted)),
                Some(at) => {
                    let have = left.remove(at);
                    if !have.is_up() {
                        self.changes.push(Change::Reconnect(have.name.clone()));
                    }
                }
            }
        }
        left
    }

    /// Compares the devices. Returns the devices that are not in the file.
    fn devices(
        &mut self,
        session: &Session,
        running: Option<&ClientSession>,
        mapped: &[&ClientDevice],
        cpus: u32,
    ) -> Vec<ClientDevice> {
        let is_up = running.is_some_and(|running| running.paths.iter().any(Path::is_up));
        for device in &session.devices {
            let Some(have) = mapped.iter().find(|have| have.device_path == device.path) else {
                self.changes.push(Change::Map(device.clone()));
                continue;
            };
            let is_same = difference(session, device, have, cpus).is_none();
            if is_same && have.state == DeviceState::Closed && is_up {
                self.reopen(have);
            }
        }
        let is_wanted = |path: &str| session.devices.iter().any(|device| device.path == path);
        let others = mapped.iter().filter(|have| !is_wanted(&have.device_path));
        others.map(|have| (*have).clone()).collect()
    }

    /// Numbers of devices. They come last, since a device has them only when it is mapped.
    fn device_values(&mut self, session: &Session, mapped: &[&ClientDevice]) {
        let wanted = session.devices.iter().flat_map(|device| {
            let tunables = device.tunables().into_iter();
            tunables.filter_map(move |(setting, to)| Some((&device.path, setting, to?)))
        });
        for (path, setting, to) in wanted {
            let have = mapped.iter().find(|have| have.device_path == *path);
            match have.map(|have| (have, have.tunable(setting.name))) {
                Some((have, None)) => self.remarks.push(format!(
                    "{} of device {path} ({}): the loaded modules lack this tunable",
                    setting.name, have.path
                )),
                Some((_, Some(value))) if value == to => (),
                found => self.changes.push(Change::SetDevice {
                    path: path.clone(),
                    mapped: found.map(|(have, _)| (*have).clone()),
                    setting,
                    to,
                }),
            }
        }
    }

    /// A device that is closed, though there is a connection.
    fn reopen(&mut self, device: &ClientDevice) {
        if device.closed_by_server {
            let (path, node) = (&device.device_path, &device.path);
            self.remarks.push(format!(
                "device {path} ({node}) was closed by the server's administrator: left alone \
                 (rnbdctl remap {node})"
            ));
        } else {
            self.changes.push(Change::Reopen(device.clone()));
        }
    }

    /// Devices and paths that are not in the file.
    fn others(&mut self, devices: Vec<ClientDevice>, paths: Vec<&Path>, prune: bool) {
        for device in devices {
            match prune {
                true => self.changes.push(Change::Unmap(device)),
                false => {
                    let (path, node) = (&device.device_path, &device.path);
                    self.remarks.push(format!(
                        "device {path} ({node}) is not in the file: left alone"
                    ));
                }
            }
        }
        for path in paths {
            match prune {
                true => self.changes.push(Change::RemovePath(path.name.clone())),
                false => self
                    .remarks
                    .push(format!("path {} is not in the file: left alone", path.name)),
            }
        }
    }
}

fn devices_of<'s>(
    session: &'s str,
    state: &'s State,
) -> impl Iterator<Item = &'s ClientDevice> + 's {
    // A device that is being unmapped does not count.
    let is_there = |device: &&ClientDevice| device.state != DeviceState::Unmapped;
    let devices = state.client.devices.iter().filter(is_there);
    devices.filter(move |device| device.session == session)
}

/// Whether the machine's path is the path of the file. A path of the file without a source has any
/// source.
fn is_path(wanted: &PathAddress, have: &Path) -> bool {
    let Ok(have) = PathAddress::parse(have.name.as_bytes()) else {
        return false;
    };
    let same_source = match (&wanted.src, &have.src) {
        (None, _) => true,
        (Some(wanted), Some(have)) => wanted.same_as(have),
        (Some(_), None) => false,
    };
    same_source && wanted.dst.same_as(&have.dst)
}

/// The difference that only mapping the device again can remove, in words.
fn difference(
    session: &Session,
    device: &Device,
    have: &ClientDevice,
    cpus: u32,
) -> Option<String> {
    if let Some(mode) = have.access_mode.filter(|&mode| mode != device.access_mode) {
        return Some(format!(
            "access_mode {} instead of {}",
            device.access_mode.as_str(),
            mode.as_str()
        ));
    }
    let wish = IoModeWish::from(device.io_mode);
    if let Some(have) = have.io_mode.filter(|&have| have != wish) {
        return Some(format!(
            "io_mode {} instead of {}",
            wish.as_str(),
            have.as_str()
        ));
    }
    let wanted = match session.nr_poll_queues? {
        -1 if cpus == 0 => return None,
        -1 => cpus,
        nr => u32::try_from(nr).ok()?,
    };
    let have = have.poll_queues.filter(|&have| have != wanted)?;
    Some(format!("nr_poll_queues {wanted} instead of {have}"))
}
