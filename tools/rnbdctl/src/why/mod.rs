// SPDX-License-Identifier: GPL-2.0

//! What is wrong with the mapped devices now, since when, and what to do.
//!
//! - [`facts`]: what is looked at: the kernel's files, its log, and the configuration file.
//! - [`paths`], [`devices`]: the troubles that follow, as plain data.
//! - [`said`]: which lines of the log are about something.

mod devices;
mod facts;
mod paths;
mod said;

use serde::Serialize;

pub use facts::Facts;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// What kind of trouble it is, in a word for programs.
    pub trouble: &'static str,
    /// Whether devices do not work because of it; else they do, but not as they should.
    pub is_fatal: bool,
    /// What is concerned: a device, a session or a path.
    pub subject: String,
    /// The device, if it is one.
    pub device: Option<String>,
    /// The session, if it is one, or if it is one of its paths or devices.
    pub session: Option<String>,
    /// What is wrong, in words.
    pub problem: String,
    /// For how many seconds, as far as the kernel's log says.
    pub for_seconds: Option<u64>,
    /// What the kernel has said of it.
    pub kernel: Vec<String>,
    /// What to do.
    pub remedy: String,
}

impl Trouble {
    fn new(
        trouble: &'static str,
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

/// All that is wrong; what makes devices fail comes first.
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
