// SPDX-License-Identifier: GPL-2.0

//! Writing to a file of the kernel, and explaining its errors.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::Path;

use rustix::io::Errno;

use super::errno;
use crate::kernel_log::KernelLog;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The meaning of an error number in the response to a request.
pub(super) struct Meaning {
    pub(super) errno: Errno,
    pub(super) kind: Kind,
    pub(super) why: &'static str,
    /// What to do about it; may be empty.
    pub(super) hint: &'static str,
}

/// Makes a [`Meaning`] without the names of the fields.
pub(super) const fn meaning(
    errno: Errno,
    kind: Kind,
    why: &'static str,
    hint: &'static str,
) -> Meaning {
    Meaning {
        errno,
        kind,
        why,
        hint,
    }
}

/// Writes `text` to `file` in one write; `what` describes the action, for the error.
///
/// `meanings` explains the kernel's errors for that text. A missing file, or a file that this user
/// may not write, is explained here.
pub(super) fn write(what: &str, file: &Path, text: &str, meanings: &[&[Meaning]]) -> Result {
    // The file is neither created nor truncated, as it is the kernel's.
    let mut handle = match OpenOptions::new().write(true).open(file) {
        Ok(handle) => handle,
        Err(error) => return Err(cannot_open(what, file, &error)),
    };
    let log = KernelLog::begin();
    let answer = loop {
        match handle.write(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            answer => break answer,
        }
    };
    match answer {
        Ok(written) if written == text.len() => Ok(()),
        Ok(_) => Err(Error::new(
            Kind::Failed,
            what,
            "the kernel took only a part of the text",
        )),
        Err(error) => Err(explain(what, &error, meanings).kernel(log.lines())),
    }
}

pub(super) fn cannot_open(what: &str, file: &Path, error: &io::Error) -> Error {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => Error::new(
            Kind::NotPermitted,
            what,
            format!(
                "{} may not be written by this user (EACCES)",
                file.display()
            ),
        )
        .hint("run rnbdctl as root"),
        Some(Errno::NOENT) => Error::new(
            Kind::NotFound,
            what,
            format!("the kernel has no file {}", file.display()),
        ),
        Some(Errno::ROFS) => {
            let (why, hint) = errno::SYS_IS_READ_ONLY;
            Error::new(Kind::NotPermitted, what, why).hint(hint)
        }
        _ => Error::io(format!("{what}: {}", file.display()), error),
    }
}

/// Explains the kernel's error.
pub(super) fn explain(what: &str, error: &io::Error, meanings: &[&[Meaning]]) -> Error {
    let Some(errno) = Errno::from_io_error(error) else {
        return Error::new(Kind::Failed, what, error.to_string());
    };
    let Some(found) = meanings
        .iter()
        .copied()
        .flatten()
        .find(|meaning| meaning.errno == errno)
    else {
        return Error::new(Kind::Failed, what, errno::text(error))
            .hint("see the kernel log: dmesg | tail");
    };
    let error = Error::new(
        found.kind,
        what,
        format!("{} ({})", found.why, errno::name(errno)),
    );
    match found.hint {
        "" => error,
        hint => error.hint(hint),
    }
}

const REFUSED: &str = "no server listens at the address and port, or the session was refused";
const REFUSED_HINT: &str = "load rnbd_server on the server, and give --port if its port_nr is not \
    1234; see the kernel logs of both ends: dmesg | tail";

const RESET_HINT: &str = "load rnbd_server on the server, and give --port if its port_nr is not \
    1234; give another --session if another client uses the session's name; try again after 35 s \
    if this client has restarted, as the server may still have the old session; see the kernel \
    logs of both ends: dmesg | tail";

/// The meanings of error numbers if a server cannot be connected to.
pub(super) const CONNECT: &[Meaning] = &[
    meaning(
        Errno::TIMEDOUT,
        Kind::Unreachable,
        "the server does not respond",
        "check whether the server is up and has rnbd_server loaded; check this machine with: \
         rnbdctl check SERVER",
    ),
    meaning(Errno::CONNREFUSED, Kind::Unreachable, REFUSED, REFUSED_HINT),
    // Both modules return this errno if no server listens there, and for other refusals of the
    // server.
    meaning(Errno::CONNRESET, Kind::Unreachable, REFUSED, RESET_HINT),
    meaning(
        Errno::CONNABORTED,
        Kind::Unreachable,
        "the connection failed while it was established",
        "see the kernel logs of both ends: dmesg | tail",
    ),
    meaning(
        Errno::HOSTUNREACH,
        Kind::Unreachable,
        "no machine responds at the address, or no RDMA device of this machine leads to it",
        "check whether the server is up; check this machine with: rnbdctl check SERVER",
    ),
    meaning(
        Errno::HOSTDOWN,
        Kind::Unreachable,
        "the server is draining for maintenance, and takes no new session and no new device",
        "try again when the maintenance is over",
    ),
    meaning(
        Errno::NOKEY,
        Kind::NotPermitted,
        "the server asks for a proof of identity, and this machine has no key for the server",
        "get a key from the server's administrator, and load the key with: rnbdctl key load",
    ),
    meaning(
        Errno::KEYREJECTED,
        Kind::NotPermitted,
        "a proof of identity is wrong, or the session was established with another identity",
        "load the same key at both ends with: rnbdctl key load; if the session was established \
         without the key, disconnect all its paths with rnbdctl path disconnect, then reconnect \
         them with rnbdctl path reconnect",
    ),
    meaning(
        Errno::NETUNREACH,
        Kind::Unreachable,
        "this machine has no route to the address",
        "check with: ip route get SERVER",
    ),
    meaning(
        Errno::NODEV,
        Kind::Unreachable,
        "no RDMA device of this machine leads to the address",
        "list the RDMA devices with: rnbdctl rdma",
    ),
    meaning(
        Errno::ADDRNOTAVAIL,
        Kind::Unreachable,
        "the source is not an address of an RDMA device of this machine",
        "list the addresses with: rnbdctl rdma",
    ),
    meaning(
        Errno::NOTCONN,
        Kind::Unreachable,
        "the session is not connected",
        "list its paths with: rnbdctl list paths",
    ),
    meaning(
        Errno::PROTONOSUPPORT,
        Kind::Unsupported,
        "the server speaks another version of the protocol, or the kind of address is not \
         supported",
        "",
    ),
    meaning(
        Errno::OPNOTSUPP,
        Kind::Unsupported,
        "the RDMA device lacks the registration of memory that RNBD needs",
        "",
    ),
    meaning(
        Errno::NOMEM,
        Kind::Failed,
        "this machine or the server has not enough memory",
        "the server needs 64 MiB for each session by default (its parameters sess_queue_depth, \
         max_chunk_size)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_are_explained() {
        let error = io::Error::from_raw_os_error(Errno::TIMEDOUT.raw_os_error());
        let error = explain("mapping x", &error, &[&[], CONNECT]);
        assert_eq!(error.kind(), Kind::Unreachable);
        assert_eq!(
            error.to_string(),
            "mapping x: the server does not respond (ETIMEDOUT)"
        );
        assert!(error.remedy().is_some());
    }

    #[test]
    fn a_refused_session_has_several_reasons() {
        let error = io::Error::from_raw_os_error(Errno::CONNRESET.raw_os_error());
        let error = explain("mapping x", &error, &[CONNECT]);
        let hint = error.remedy().unwrap_or_default();
        for part in ["--port", "another client", "restarted"] {
            assert!(hint.contains(part), "{hint}");
        }
    }

    #[test]
    fn the_first_meaning_counts() {
        const MINE: &[Meaning] = &[meaning(Errno::NODEV, Kind::Busy, "mine", "")];
        let error = io::Error::from_raw_os_error(Errno::NODEV.raw_os_error());
        assert_eq!(
            explain("x", &error, &[MINE, CONNECT]).to_string(),
            "x: mine (ENODEV)"
        );
    }

    #[test]
    fn unknown_answers_are_named() {
        let error = explain(
            "x",
            &io::Error::from_raw_os_error(Errno::XDEV.raw_os_error()),
            &[],
        );
        assert_eq!(error.kind(), Kind::Failed);
        assert!(error.why().contains("os error 18"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = write("x", Path::new("/nonexistent/file"), "1", &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(error.why().contains("/nonexistent/file"), "{error}");
    }

    #[test]
    fn what_the_kernel_refuses_is_not_what_cannot_be_opened() {
        // Takes nothing, with an error of its own.
        let full = [meaning(Errno::NOSPC, Kind::Busy, "full", "empty it")];
        let error = write("x", Path::new("/dev/full"), "1", &[&full]).unwrap_err();
        assert_eq!(
            (error.kind(), error.remedy()),
            (Kind::Busy, Some("empty it"))
        );
    }
}
