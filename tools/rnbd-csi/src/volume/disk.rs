// SPDX-License-Identifier: GPL-2.0

//! A disk of a server: a volume, or a leg of a mirrored volume.

use std::fmt;

use rnbdctl::server_name::DiskName;
use rnbdctl::server_name::ServerName;

/// The most bytes of the node's and of the server's name that go into a session's name.
const MAX_PART: usize = 40;

/// A disk of a server. It is written `SERVER:DISK`, as `rnbdctl map` takes it.
///
/// # Invariants
///
/// `path` has no empty part, no `.` and no `..`: so a disk has one path, however it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskId {
    server: ServerName,
    path: String,
}

impl DiskId {
    /// Parses `SERVER:DISK`. The error is in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("the id has white space or control characters".to_owned());
        }
        let name = DiskName::parse(text)?;
        let parts = name.disk.split('/');
        let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err("the path has \"..\", which no server allows".to_owned());
        }
        match name.server {
            _ if parts.is_empty() => Err("the disk is missing: write SERVER:DISK".to_owned()),
            // INVARIANT: the parts that the path must not have were left out, or are an error.
            Some(server) => Ok(Self {
                server,
                path: parts.join("/"),
            }),
            None => Err("the server is missing: write SERVER:DISK".to_owned()),
        }
    }

    /// The disk of the same path at another server.
    pub(super) fn at(&self, server: ServerName) -> Self {
        // INVARIANT: the path is that of a disk.
        Self {
            server,
            path: self.path.clone(),
        }
    }

    /// The path of the disk at the server.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What the server is called.
    pub(crate) fn server(&self) -> String {
        self.server.host.to_string()
    }

    /// The server, as the id has it.
    pub(crate) fn server_name(&self) -> &ServerName {
        &self.server
    }

    /// The name of the session that carries this node's disks of the server.
    ///
    /// It is made of the id of the disk and of nothing that could change, so that a disk can be
    /// found again when only its id is known. It is not one that `rnbdctl` gives: so a disk that
    /// the administrator has mapped is never taken for a volume.
    pub(crate) fn session(&self, node_id: &str) -> String {
        let server = self.server();
        let number = number(&format!("{node_id}\n{server}"));
        format!("csi-{}-{}-{number:08x}", part(node_id), part(&server))
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server.host, self.path)
    }
}

/// What of a name goes into a session's name: small letters, digits, and `-` for the rest.
fn part(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '-',
    };
    name.chars().take(MAX_PART).map(plain).collect()
}

/// A number that tells names apart of which the same goes into a session's name (FNV-1a).
fn number(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_of_a_node_and_a_server() {
        let session = |node: &str, id: &str| DiskId::parse(id).unwrap().session(node);
        let name = session("node1.example", "storage1:a");
        assert!(name.starts_with("csi-node1-example-storage1-"), "{name}");
        assert_eq!(name, session("node1.example", "storage1:b"));
        assert_ne!(name, session("node1-example", "storage1:a"));
        assert_ne!(name, session("node1.example", "storage2:a"));
        let long = session(&"n".repeat(200), &format!("{}.example:a", "s".repeat(60)));
        assert!(long.len() < 100, "{long}");
    }
}
