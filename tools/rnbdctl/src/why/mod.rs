// SPDX-License-Identifier: GPL-2.0

//! The present troubles of mapped devices: their time, and what to do.
//!
//! - [`facts`]: the facts: the kernel's files, its log, and the configuration file.
//! - [`paths`], [`devices`]: the troubles that follow from the facts, as plain data.
//! - [`said`]: finds the lines of the log about a path, a device or a session.

mod devices;
mod facts;
mod kind;
mod paths;
mod said;

use schemars::JsonSchema;
use serde::Serialize;

pub use facts::Facts;
pub use kind::TroubleKind;

/// A trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Trouble {
    /// The kind of the trouble.
    pub trouble: TroubleKind,
    /// Whether devices do not work because of the trouble; otherwise they work, but not as they
    /// should.
    pub is_fatal: bool,
    /// The subject: a device, a session or a path.
    pub subject: String,
    /// The device, if the subject is a device.
    pub device: Option<String>,
    /// The session: the subject itself, or the session of the path or the device.
    pub session: Option<String>,
    /// The problem, in words.
    pub problem: String,
    /// The time that the trouble has lasted, in seconds, if the kernel's log tells.
    pub for_seconds: Option<u64>,
    /// The kernel's messages about the trouble.
    pub kernel: Vec<String>,
    /// What the administrator can do.
    pub remedy: String,
}

impl Trouble {
    fn new(
        trouble: TroubleKind,
        subject: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            trouble,
            is_fatal: true,
            subject: subject.into(),
            device: None,
            session: None,
            problem: problem.into(),
            for_seconds: None,
            kernel: Vec::new(),
            remedy: remedy.into(),
        }
    }

    fn of_session(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }

    fn of_device(mut self, device: &str) -> Self {
        self.device = Some(device.to_owned());
        self
    }

    fn mild(mut self) -> Self {
        self.is_fatal = false;
        self
    }
}

/// All troubles. Troubles that make devices fail come first.
pub fn troubles(facts: &Facts) -> Vec<Trouble> {
    let mut found = facts::missing(facts);
    for session in &facts.client.sessions {
        found.extend(paths::of(facts, session));
    }
    for device in &facts.client.devices {
        found.extend(devices::of(facts, device));
    }
    found.sort_by_key(|trouble| !trouble.is_fatal);
    found
}

#[cfg(test)]
mod tests;
