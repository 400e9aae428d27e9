// SPDX-License-Identifier: GPL-2.0

//! Actions on a path, of this client or of this server.

use rustix::io::Errno;

use super::write;
use super::write::meaning;
use super::write::Meaning;
use crate::model::Path;
use crate::Kind;
use crate::Result;

const RECONNECT: &[Meaning] = &[
    meaning(
        Errno::NOTCONN,
        Kind::Unreachable,
        "the server does not respond, or refuses the path",
        "check the network with rnbdctl check SERVER; see the kernel log: dmesg | tail",
    ),
    meaning(
        Errno::BUSY,
        Kind::Busy,
        "the path is being connected or removed, or a limit of the server is reached",
        "try again in a moment; for a limit see the server's kernel log: dmesg | grep refused",
    ),
];

const CHANGE: &[Meaning] = &[meaning(
    Errno::NODEV,
    Kind::NotFound,
    "the path is already removed",
    "",
)];

/// Disconnects a path of this client, if it is up, and connects it again. Blocks until it is
/// connected, or has failed to connect.
pub fn reconnect(path: &Path) -> Result {
    write_one(
        path,
        "reconnecting",
        "reconnect",
        &[RECONNECT, write::CONNECT],
    )
}

/// Disconnects a path. A client's path stays disconnected until [`reconnect`]. The client of a
/// server's path connects the path again by itself.
pub fn disconnect(path: &Path) -> Result {
    write_one(path, "disconnecting", "disconnect", &[CHANGE])
}

/// Disconnects a path of this client and forgets it.
pub fn remove(path: &Path) -> Result {
    write_one(path, "removing", "remove_path", &[CHANGE])
}

fn write_one(path: &Path, doing: &str, file: &str, meanings: &[&[Meaning]]) -> Result {
    let what = format!("{doing} path {} of session {}", path.name, path.session);
    write::write(&what, &path.folder.join(file), "1", meanings)
}
