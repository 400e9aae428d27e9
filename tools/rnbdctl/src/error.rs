// SPDX-License-Identifier: GPL-2.0

//! What goes wrong: what could not be done, why, and what to do about it.

use std::fmt::Display;
use std::io;
use std::io::IsTerminal;

/// The kinds of failures; each is an exit code of the program.
///
/// Success is 0. Scripts may rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// It is in use, exists already or is in a state that does not allow it.
    Busy = 5,
    /// The server cannot be reached, or does not answer.
    Unreachable = 6,
    /// A kernel module is not loaded, or does not have what was asked for.
    Unsupported = 7,
    /// A check found a problem.
    CheckFailed = 8,
    /// A file of the user's is wrong.
    BadConfig = 9,
}

impl Kind {
    /// All of them, in the order of their exit codes, with what each stands for.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Failed, "the kernel refused, or something else failed"),
        (Self::Usage, "wrong usage"),
        (
            Self::NotFound,
            "no such device, session, path or remote disk",
        ),
        (Self::NotPermitted, "not permitted, here or by the server"),
        (
            Self::Busy,
            "in use, exists already, or not in a state for that",
        ),
        (
            Self::Unreachable,
            "the server cannot be reached or does not answer",
        ),
        (
            Self::Unsupported,
            "a kernel module is not loaded or cannot do that",
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
}

impl Error {
    /// `what` could not be done, `why` not.
    ///
    /// Both are without a capital letter and a full stop, as they are joined by a colon.
    pub fn new(kind: Kind, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            why: why.into(),
            hint: None,
        }
    }

    /// Only that `what` is so; the reason was told before.
    pub fn summary(kind: Kind, what: impl Into<String>) -> Self {
        Self::new(kind, what, "")
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
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

    /// What could not be done.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Why.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What to do about it, if there is something.
    pub fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The program's exit code.
    pub fn exit_code(&self) -> u8 {
        self.kind as u8
    }

    /// Prints it to standard error, with the hint on a line of its own.
    pub fn print(&self) {
        let stderr = io::stderr();
        let (red, plain) = if stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            ("\x1b[1;31m", "\x1b[0m")
        } else {
            ("", "")
        };
        eprintln!("rnbdctl: {red}{self}{plain}");
        if let Some(hint) = &self.hint {
            eprintln!("  hint: {hint}");
        }
    }
}
