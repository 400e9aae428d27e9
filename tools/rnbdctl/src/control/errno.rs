// SPDX-License-Identifier: GPL-2.0

//! The kernel's error numbers in words.

use std::io;

use rustix::io::Errno;

/// The reason why nothing can be written to /sys after [`Errno::ROFS`], and what to do about it.
pub const SYS_IS_READ_ONLY: (&str, &str) = (
    "/sys is read-only (EROFS)",
    "run rnbdctl on the host: containers have a read-only /sys",
);

/// The number, its name, and its meaning for a remote disk if nothing more is known.
const TEXTS: [(Errno, &str, &str); 38] = [
    (Errno::PERM, "EPERM", "not permitted"),
    (Errno::NOENT, "ENOENT", "no such file or device"),
    (Errno::INTR, "EINTR", "interrupted"),
    (Errno::IO, "EIO", "input/output error"),
    (Errno::NXIO, "ENXIO", "no such device or address"),
    (Errno::AGAIN, "EAGAIN", "try again later"),
    (Errno::NOMEM, "ENOMEM", "not enough memory"),
    (Errno::ACCESS, "EACCES", "permission denied"),
    (Errno::NOTBLK, "ENOTBLK", "not a block device"),
    (Errno::BUSY, "EBUSY", "in use"),
    (Errno::EXIST, "EEXIST", "exists already"),
    (Errno::NODEV, "ENODEV", "no such device"),
    (Errno::NOTDIR, "ENOTDIR", "not a folder"),
    (Errno::ISDIR, "EISDIR", "a folder, not a file"),
    (Errno::INVAL, "EINVAL", "the kernel refuses the value"),
    (Errno::NOSPC, "ENOSPC", "no room left"),
    (Errno::ROFS, "EROFS", "read-only"),
    (Errno::RANGE, "ERANGE", "the number is out of range"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG", "the name is too long"),
    (Errno::PROTO, "EPROTO", "the other end broke the protocol"),
    (
        Errno::PROTONOSUPPORT,
        "EPROTONOSUPPORT",
        "the other end speaks another protocol",
    ),
    (Errno::OPNOTSUPP, "EOPNOTSUPP", "not supported"),
    (Errno::ADDRINUSE, "EADDRINUSE", "the address is in use"),
    (
        Errno::ADDRNOTAVAIL,
        "EADDRNOTAVAIL",
        "no interface of this machine has that address",
    ),
    (Errno::NETDOWN, "ENETDOWN", "the network is down"),
    (Errno::NETUNREACH, "ENETUNREACH", "no route to that network"),
    (
        Errno::CONNABORTED,
        "ECONNABORTED",
        "the connection was aborted",
    ),
    (
        Errno::CONNRESET,
        "ECONNRESET",
        "the server ended the connection",
    ),
    (
        Errno::BADE,
        "EBADE",
        "another machine has reserved the disk",
    ),
    (Errno::NOTCONN, "ENOTCONN", "not connected"),
    (Errno::TIMEDOUT, "ETIMEDOUT", "no response in time"),
    (
        Errno::CONNREFUSED,
        "ECONNREFUSED",
        "the server refused the connection",
    ),
    (
        Errno::HOSTDOWN,
        "EHOSTDOWN",
        "the server is draining for maintenance",
    ),
    (Errno::HOSTUNREACH, "EHOSTUNREACH", "no way to that host"),
    (Errno::ALREADY, "EALREADY", "already in progress"),
    (Errno::CANCELED, "ECANCELED", "cancelled"),
    (
        Errno::NOKEY,
        "ENOKEY",
        "the server asks for a proof of identity, and this machine has no key for the server",
    ),
    (
        Errno::KEYREJECTED,
        "EKEYREJECTED",
        "the proof of identity, of this machine or of the server, is wrong",
    ),
];

/// The name, such as `EBUSY`, or the number if it has no name here.
pub fn name(errno: Errno) -> String {
    match TEXTS.iter().find(|(known, _, _)| *known == errno) {
        Some((_, name, _)) => (*name).to_owned(),
        None => format!("error {}", errno.raw_os_error()),
    }
}

/// The error in words, with its name.
pub fn text(error: &io::Error) -> String {
    let Some(errno) = Errno::from_io_error(error) else {
        return error.to_string();
    };
    match TEXTS.iter().find(|(known, _, _)| *known == errno) {
        Some((_, name, text)) => format!("{text} ({name})"),
        None => error.to_string(),
    }
}
