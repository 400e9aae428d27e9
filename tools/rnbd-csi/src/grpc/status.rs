// SPDX-License-Identifier: GPL-2.0

//! How a call ends that does not succeed.

use rnbdctl::Error;
use rnbdctl::Kind;

/// What a call gives.
pub(crate) type Result<T = ()> = std::result::Result<T, Status>;

/// The kinds of failures, with gRPC's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// Those that this program gives, and with gRPC's name those that it only gets.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl Code {
    /// The kinds of failures that this program gives.
    const ALL: [Self; 10] = [
        Self::InvalidArgument,
        Self::NotFound,
        Self::AlreadyExists,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
    ];

    /// The code of that name; INTERNAL of one that this program does not give.
    pub(crate) fn of_name(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|code| Self::name_of(code.number().into()) == name)
            .unwrap_or(Self::Internal)
    }

    /// Its number.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The name of the code of that number; UNKNOWN if there is none.
    pub(crate) fn name_of(number: usize) -> &'static str {
        NAMES.get(number).copied().unwrap_or("UNKNOWN")
    }
}

/// A failure: its kind, and in words what was wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Status {
    /// A failure of that kind.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The request makes no sense, whatever there is.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// There is no such volume.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// Something does not allow it, and it does not go away by itself.
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// Something failed that should not.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// An error of the operating system's, of what was being done.
    pub(crate) fn io(what: impl std::fmt::Display, error: impl Into<std::io::Error>) -> Self {
        Self::internal(format!("{what}: {}", error.into()))
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            Kind::Usage => Code::InvalidArgument,
            Kind::NotFound => Code::NotFound,
            // Another client has the disk, or the server's policy does not allow it.
            Kind::NotPermitted | Kind::Busy | Kind::Unsupported => Code::FailedPrecondition,
            // A file of this machine is wrong, and not the request.
            Kind::BadConfig => Code::FailedPrecondition,
            Kind::Unreachable => Code::Unavailable,
            Kind::Failed | Kind::CheckFailed => Code::Internal,
        };
        let mut message = error.to_string();
        if let Some(hint) = error.remedy() {
            message.push_str(&format!("; {hint}"));
        }
        for line in error.kernel_lines() {
            message.push_str(&format!("; kernel: {line}"));
        }
        Self::new(code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_of_their_names() {
        for (code, name) in [
            (Code::InvalidArgument, "INVALID_ARGUMENT"),
            (Code::NotFound, "NOT_FOUND"),
            (Code::AlreadyExists, "ALREADY_EXISTS"),
            (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
            (Code::FailedPrecondition, "FAILED_PRECONDITION"),
            (Code::Aborted, "ABORTED"),
            (Code::OutOfRange, "OUT_OF_RANGE"),
            (Code::Unimplemented, "UNIMPLEMENTED"),
            (Code::Internal, "INTERNAL"),
            (Code::Unavailable, "UNAVAILABLE"),
        ] {
            assert_eq!(Code::name_of(code.number().into()), name);
            assert_eq!(Code::of_name(name), code);
        }
        assert_eq!(Code::name_of(99), "UNKNOWN");
        assert_eq!(Code::of_name("DATA_LOSS"), Code::Internal);
    }

    #[test]
    fn errors_of_the_library_say_what_to_do() {
        let error = Error::new(Kind::Busy, "unmapping x", "it is in use").hint("unmount it");
        assert_eq!(
            Status::from(error),
            Status::precondition("unmapping x: it is in use; unmount it")
        );
    }
}
