// SPDX-License-Identifier: GPL-2.0

//! Carries out the plan of one session.

use proto::addr::PathAddress;

use super::plan::SessionPlan;
use super::Change;
use super::Machine;
use super::State;
use crate::address::path_text;
use crate::config::Device;
use crate::config::Session;
use crate::Error;
use crate::Kind;
use crate::Result;

/// Gets the events of a session, and decides whether to go on.
pub trait Observer {
    /// A change is about to be made.
    fn doing(&mut self, change: &Change);
    /// A change was made; with the device node, if there is one.
    fn done(&mut self, change: &Change, node: Option<&str>);
    /// A change could not be made.
    fn failed(&mut self, change: &Change, error: &Error);
    /// A change cannot be made, or is left out.
    fn remark(&mut self, text: &str);
    /// Whether to make no more changes.
    fn stop(&self) -> bool;
}

/// The goal for a session.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'c> {
    /// The session becomes as the file says.
    Is(&'c Session),
    /// The session is not in the file, and is removed.
    Gone(&'c str),
}

impl Goal<'_> {
    /// The session's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Is(session) => &session.name,
            Self::Gone(name) => name,
        }
    }

    fn plan(&self, state: &State, prune: bool) -> SessionPlan {
        match self {
            Self::Is(session) => SessionPlan::new(session, state, prune),
            Self::Gone(name) => SessionPlan::of_other(name, state, prune),
        }
    }
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The number of changes that were made.
    pub done: usize,
    /// The number of changes that could not be made.
    pub failed: usize,
}

/// Makes all changes that a session needs, as far as they can be made.
///
/// An error means that the machine's state could not be read.
pub fn attempt(
    machine: &dyn Machine,
    goal: Goal<'_>,
    prune: bool,
    observer: &mut dyn Observer,
) -> Result<Attempt> {
    match goal {
        Goal::Is(session) => {
            let looked_up = machine.look_up(session)?;
            attempt_known(machine, Goal::Is(&looked_up), prune, observer)
        }
        Goal::Gone(_) => attempt_known(machine, goal, prune, observer),
    }
}

/// As [`attempt()`], of a session whose paths are known.
fn attempt_known(
    machine: &dyn Machine,
    goal: Goal<'_>,
    prune: bool,
    observer: &mut dyn Observer,
) -> Result<Attempt> {
    let mut work = Work {
        machine,
        observer,
        attempt: Attempt::default(),
        failed: Vec::new(),
    };
    let mut plan = goal.plan(&machine.state()?, prune);
    if let (Goal::Is(session), true) = (goal, plan.is_new) {
        work.make(session);
        // Now the session has values to compare with, or everything has failed.
        plan = goal.plan(&machine.state()?, prune);
        if plan.is_new {
            return Ok(work.attempt);
        }
    }
    let is_again = |change: &&Change| matches!(change, Change::MapAgain { .. });
    if plan.changes.iter().any(|change| is_again(&change)) {
        // A session can end with its last device, and come back with default values.
        work.perform_all(goal, plan.changes.iter().filter(is_again));
        plan = goal.plan(&machine.state()?, prune);
    }
    for remark in &plan.remarks {
        work.observer.remark(remark);
    }
    let (later, now): (Vec<_>, Vec<_>) = plan
        .changes
        .iter()
        .partition(|change| change.waits_for_map());
    work.perform_all(goal, now);
    if !later.is_empty() {
        // The devices of these changes are mapped now, or mapping has failed.
        let after = goal.plan(&machine.state()?, prune);
        for remark in &after.remarks {
            if !plan.remarks.contains(remark) {
                work.observer.remark(remark);
            }
        }
        let waited = |name: Option<String>| later.iter().any(|change| change.name() == name);
        let is_next = |change: &&Change| {
            matches!(
                change,
                Change::SetDevice {
                    mapped: Some(_),
                    ..
                }
            ) && waited(change.name())
        };
        work.perform_all(goal, after.changes.iter().filter(is_next));
    }
    Ok(work.attempt)
}

struct Work<'w> {
    machine: &'w dyn Machine,
    observer: &'w mut dyn Observer,
    attempt: Attempt,
    failed: Vec<Change>,
}

impl Work<'_> {
    /// Makes a session by the first path that can be connected and the first device that can be
    /// mapped. A link that is down or a bad disk does not keep other paths or disks away.
    fn make(&mut self, session: &Session) {
        let mut unreachable = Vec::new();
        'devices: for device in &session.devices {
            let mut unclear = None;
            for path in session.all_paths() {
                if self.observer.stop() {
                    return;
                }
                if unreachable.contains(path) {
                    continue;
                }
                match self.map_first(session, path, device) {
                    Ok(()) => return,
                    Err(error) => match Subject::of(&error) {
                        Subject::Device => {
                            self.failed(Change::Map(device.clone()), &error);
                            continue 'devices;
                        }
                        Subject::Path => {
                            unreachable.push(*path);
                            let error = path_error(session, path, &error);
                            self.tell(Goal::Is(session), &Change::AddPath(*path), &error);
                        }
                        Subject::Unclear => unclear = unclear.or(Some(error)),
                    },
                }
            }
            let error = unclear.unwrap_or_else(|| {
                let what = format!("mapping {} on session {}", device.path, session.name);
                let why = "no path of the session can be connected";
                Error::new(Kind::Unreachable, what, why)
            });
            self.failed(Change::Map(device.clone()), &error);
        }
    }

    fn map_first(&mut self, session: &Session, path: &PathAddress, device: &Device) -> Result {
        let (add, map) = (Change::AddPath(*path), Change::Map(device.clone()));
        self.observer.doing(&add);
        let node = self.machine.map(session, &[*path], device)?;
        self.done(&add, None);
        self.done(&map, Some(&node));
        Ok(())
    }

    fn perform_all<'c>(&mut self, goal: Goal<'_>, changes: impl IntoIterator<Item = &'c Change>) {
        for change in changes {
            if self.observer.stop() {
                break;
            }
            // A change that has just failed is not tried again.
            if self.failed.contains(change) {
                continue;
            }
            self.observer.doing(change);
            match self.try_to(goal, change) {
                Ok(node) => self.done(change, node.as_deref()),
                Err(error) if is_found(goal, change) => {
                    self.observer
                        .remark(&format!("{change}: left out, {}", error.why()));
                    self.failed.push(change.clone());
                }
                Err(error) => self.failed(change.clone(), &error),
            }
        }
    }

    fn try_to(&mut self, goal: Goal<'_>, change: &Change) -> Result<Option<String>> {
        let (machine, name) = (self.machine, goal.name());
        match (change, goal) {
            (Change::Set { setting, to, .. }, _) => machine.set(name, setting, *to)?,
            (Change::SetPolicy { to, .. }, _) => machine.set_policy(name, *to)?,
            (Change::AddPath(path), _) => machine.add_path(name, path)?,
            (Change::Reconnect(path), _) => machine.reconnect(name, path)?,
            (Change::RemovePath(path), _) => self.remove_path(name, path)?,
            (Change::Reopen(device), _) => machine.reopen(device)?,
            (
                Change::SetDevice {
                    mapped,
                    setting,
                    to,
                    ..
                },
                _,
            ) => {
                // Without a device the change is left for later.
                if let Some(device) = mapped {
                    machine.set_device(device, setting, *to)?;
                }
            }
            (Change::Unmap(device), _) => machine.unmap(device)?,
            (Change::Map(device), Goal::Is(session)) => {
                return machine.map(session, &[], device).map(Some)
            }
            (Change::MapAgain { mapped, device, .. }, Goal::Is(session)) => {
                machine.unmap(mapped)?;
                return self.map_by_any(session, device).map(Some);
            }
            // Only devices of the file are mapped.
            (Change::Map(_) | Change::MapAgain { .. }, Goal::Gone(_)) => (),
        }
        Ok(None)
    }

    /// Maps a device; its session may have to be made again.
    fn map_by_any(&self, session: &Session, device: &Device) -> Result<String> {
        let (mut unclear, mut last) = (None, None);
        for path in session.all_paths() {
            match self.machine.map(session, &[*path], device) {
                Ok(node) => return Ok(node),
                Err(error) => match Subject::of(&error) {
                    Subject::Device => return Err(error),
                    Subject::Path => last = Some(error),
                    Subject::Unclear => unclear = unclear.or(Some(error)),
                },
            }
        }
        match unclear.or(last) {
            Some(error) => Err(error),
            // Not reached: a session of a file has a path.
            None => self.machine.map(session, &[], device),
        }
    }

    /// Removes a path, unless the session has no other connected path.
    fn remove_path(&self, session: &str, path: &str) -> Result {
        let state = self.machine.state()?;
        let running = state
            .client
            .sessions
            .iter()
            .find(|have| have.name == session);
        let mut others = running
            .iter()
            .flat_map(|running| &running.paths)
            .filter(|have| have.name != path);
        if !others.any(crate::model::Path::is_up) {
            let what = format!("removing path {path} of session {session}");
            return Err(Error::new(
                Kind::Busy,
                what,
                "no other path of the session is connected",
            ));
        }
        self.machine.remove_path(session, path)
    }

    fn done(&mut self, change: &Change, node: Option<&str>) {
        self.attempt.done = self.attempt.done.saturating_add(1);
        self.observer.done(change, node);
    }

    /// Reports a change that could not be made. It is a failure unless the change is optional.
    fn tell(&mut self, goal: Goal<'_>, change: &Change, error: &Error) {
        if is_found(goal, change) {
            let text = format!("{change}: left out, {}", error.why());
            self.observer.remark(&text);
            self.failed.push(change.clone());
        } else {
            self.failed(change.clone(), error);
        }
    }

    fn failed(&mut self, change: Change, error: &Error) {
        self.attempt.failed = self.attempt.failed.saturating_add(1);
        self.observer.failed(&change, error);
        self.failed.push(change);
    }
}

/// Whether the change adds a path that was found by looking a name up. Such a path is optional: its
/// address may be another machine's, or out of reach for now, and the session needs only one of the
/// paths.
fn is_found(goal: Goal<'_>, change: &Change) -> bool {
    match (goal, change) {
        (Goal::Is(session), Change::AddPath(path)) => session.found.contains(path),
        _ => false,
    }
}

/// The object that failed when a device was to be mapped by a path.
enum Subject {
    /// The server responded, and refused the device.
    Device,
    /// The server was not reached.
    Path,
    /// Either the device or the path. The kernel returns the errno of the server's disk as it is
    /// (EIO, EINVAL, ENOMEDIUM), and some of these can come from connecting, too. So the other
    /// paths are tried for this device, and this path for other devices.
    Unclear,
}

impl Subject {
    fn of(error: &Error) -> Self {
        match error.kind() {
            Kind::NotFound | Kind::NotPermitted | Kind::Busy => Self::Device,
            Kind::Unreachable | Kind::Unsupported => Self::Path,
            Kind::Failed | Kind::Usage | Kind::CheckFailed | Kind::BadConfig => Self::Unclear,
        }
    }
}

/// The error of mapping a device, as an error of the path.
fn path_error(session: &Session, path: &PathAddress, error: &Error) -> Error {
    let what = format!(
        "connecting path {} of session {}",
        path_text(path),
        session.name
    );
    let about = Error::new(error.kind(), what, error.why());
    match error.remedy() {
        Some(hint) => about.hint(hint),
        None => about,
    }
}
