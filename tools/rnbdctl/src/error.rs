// SPDX-License-Identifier: GPL-2.0

//! Errors: what could not be done, why, and what to do about it.

use std::fmt::Display;
use std::io;
use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Version;
use crate::model::JSON_VERSION;

/// The kinds of failures; each is an exit code of the program.
///
/// Success is 0. Scripts may rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ErrorKind")]
#[repr(u8)]
pub enum Kind {
    /// The kernel or the machine refused in a way that no other kind describes.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// There is no device, session or path of that name, or the server has no such disk.
    NotFound = 3,
    /// The user, or the server for this client, may not do that.
    NotPermitted = 4,
    /// The object is in use, exists already, or is in a state that does not allow the action.
    Busy = 5,
    /// The server cannot be reached, or does not respond.
    Unreachable = 6,
    /// A kernel module is not loaded, or lacks the function.
    Unsupported = 7,
    /// A check found a problem.
    CheckFailed = 8,
    /// A configuration file is wrong.
    BadConfig = 9,
}

impl Kind {
    /// All kinds with their meanings, in the order of their exit codes.
    pub const ALL: [(Self, &'static str); 9] = [
        (
            Self::Failed,
            "the kernel refused the command, or another failure",
        ),
        (Self::Usage, "wrong usage"),
        (
            Self::NotFound,
            "no such device, session, path or remote disk",
        ),
        (
            Self::NotPermitted,
            "not permitted, by this machine or by the server",
        ),
        (
            Self::Busy,
            "the object is in use, exists already, or has the wrong state",
        ),
        (
            Self::Unreachable,
            "the server cannot be reached or does not respond",
        ),
        (
            Self::Unsupported,
            "a kernel module is not loaded, or lacks the function",
        ),
        (Self::CheckFailed, "a check found a problem"),
        (Self::BadConfig, "a configuration file is wrong"),
    ];
}

/// A failure, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}{why}", if why.is_empty() { "" } else { ": " })]
pub struct Error {
    kind: Kind,
    what: String,
    why: String,
    hint: Option<String>,
    kernel: Vec<String>,
}

/// Whether errors are printed as JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes errors print as JSON from now on, one object a line, for programs.
pub fn print_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// An error for programs: a line of standard error with `-o json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Told<'e> {
    version: Version,
    /// The error.
    error: Parts<'e>,
}

/// The parts of an error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct Parts<'e> {
    /// The kind.
    kind: Kind,
    /// The program's exit code.
    #[schemars(range(min = 1))]
    exit_code: u8,
    /// The step that failed.
    what: &'e str,
    /// The reason.
    why: &'e str,
    /// What to do.
    hint: Option<&'e str>,
    /// The lines of the modules in the kernel's log during the command.
    kernel: &'e [String],
}

impl Error {
    /// `what` could not be done, for the reason `why`.
    ///
    /// Both begin with a small letter and have no full stop, as a colon joins them.
    pub fn new(kind: Kind, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            why: why.into(),
            hint: None,
            kernel: Vec::new(),
        }
    }

    /// An error with `what` only; the reason was printed before.
    pub fn summary(kind: Kind, what: impl Into<String>) -> Self {
        Self::new(kind, what, "")
    }

    /// The error of an action that `what` names better.
    #[must_use]
    pub fn of(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The error with a hint what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error with the kernel's messages about it. They replace a hint to look into the kernel's
    /// log.
    #[must_use]
    pub fn kernel(mut self, lines: Vec<String>) -> Self {
        if !lines.is_empty() {
            self.hint = self.hint.as_deref().and_then(without_log);
            self.kernel = lines;
        }
        self
    }

    /// An error of reading or writing `name`.
    pub fn io(name: impl Display, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::PermissionDenied => Kind::NotPermitted,
            _ => Kind::Failed,
        };
        Self::new(kind, name.to_string(), crate::control::errno::text(error))
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The action that could not be done.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The reason.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The hint what to do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The kernel's messages about it.
    pub fn kernel_lines(&self) -> &[String] {
        &self.kernel
    }

    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        self.kind as u8
    }

    /// Prints the error to standard error: the kernel's messages and the hint on lines of their
    /// own, or as JSON if [`print_as_json`] was called.
    pub fn print(&self) {
        if AS_JSON.load(Ordering::Relaxed) {
            eprintln!("{}", self.json());
            return;
        }
        let stderr = io::stderr();
        let (red, plain) = if stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            ("\x1b[1;31m", "\x1b[0m")
        } else {
            ("", "")
        };
        eprintln!("rnbdctl: {red}{self}{plain}");
        for line in &self.kernel {
            eprintln!("  kernel: {line}");
        }
        if let Some(hint) = &self.hint {
            eprintln!("  hint: {hint}");
        }
    }

    fn json(&self) -> String {
        let told = Told {
            version: JSON_VERSION,
            error: Parts {
                kind: self.kind,
                exit_code: self.exit_code(),
                what: &self.what,
                why: &self.why,
                hint: self.remedy(),
                kernel: &self.kernel,
            },
        };
        // Strings and numbers can always be written as JSON.
        crate::output::one_line(&told).unwrap_or_default()
    }
}

/// A hint without its last part, if that says to look into the kernel's log of this machine.
fn without_log(hint: &str) -> Option<String> {
    let Some(start) = hint.strip_suffix("dmesg | tail") else {
        return Some(hint.to_owned());
    };
    start.rsplit_once("; ").map(|(rest, _)| rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_replaces_the_hint_to_look_there() {
        let lines = vec!["rnbd_client: no".to_owned()];
        for (hint, left) in [
            ("see the kernel log: dmesg | tail", None),
            ("load it; see the kernel log: dmesg | tail", Some("load it")),
            ("load it", Some("load it")),
        ] {
            let error = Error::new(Kind::Failed, "x", "y").hint(hint);
            let told = error.clone().kernel(lines.clone());
            assert_eq!(told.remedy(), left);
            assert_eq!(told.kernel_lines(), lines);
            assert_eq!(error.kernel(Vec::new()).remedy(), Some(hint));
        }
    }

    #[test]
    fn json_has_everything() {
        let error = Error::new(Kind::Busy, "unmapping \"x\"", "in use").hint("stop it");
        let value: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(
            value["error"],
            serde_json::json!({
                "kind": "busy", "exit_code": 5, "what": "unmapping \"x\"", "why": "in use",
                "hint": "stop it", "kernel": [],
            })
        );
    }
}
