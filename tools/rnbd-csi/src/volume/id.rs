// SPDX-License-Identifier: GPL-2.0

//! The ids of volumes. An id says what a volume is.

use std::fmt;

use rnbdctl::mirror::MirrorName;
use rnbdctl::server_name::ServerName;
use sha2::Digest;
use sha2::Sha256;

use super::needed;
use super::DiskId;
use crate::grpc::Result;
use crate::grpc::Status;

/// The most bytes of an id. The ids of static volumes are written by an administrator.
const MAX_ID: usize = 254;
/// The most bytes of an id that this driver makes: an orchestrator need not take a longer one.
pub(crate) const MAX_MADE: usize = 128;
/// Between the servers of a mirrored volume. No server has it in its name.
pub(crate) const AND: char = '+';
/// The most legs of a mirrored volume.
const MAX_LEGS: usize = 4;
/// The beginning of the names of the mirrors that are volumes.
const MIRROR: &str = "csi-";
/// How many digits of the SHA-256 follow: with them the name is as long as a mirror's may be.
const MIRROR_DIGITS: usize = 15;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumeId {
    /// A disk of a server, written `SERVER:DISK`.
    Disk(DiskId),
    /// A mirror of disks of several servers, written `SERVER+SERVER:DISK`.
    Mirror(MirrorId),
}

/// The legs of a mirrored volume: disks that have the same path at their servers.
///
/// # Invariants
///
/// There are 2 to [`MAX_LEGS`] legs, with one path, of servers that differ, in the order of the
/// servers' names. So the same legs are the same volume, in whichever order an id names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirrorId {
    legs: Vec<DiskId>,
}

impl VolumeId {
    /// The volume of that id. The error is in words.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.len() > MAX_ID {
            return Err(format!("the id has {} bytes, at most {MAX_ID}", text.len()));
        }
        let mut servers = Vec::new();
        let mut rest = text;
        while let Some((server, tail)) = rest.split_once(AND) {
            // In the path of a disk it is a character like any other.
            let Some(server) = server_alone(server) else {
                break;
            };
            servers.push(server);
            rest = tail;
        }
        let disk = DiskId::parse(rest)?;
        if servers.is_empty() {
            return Ok(Self::Disk(disk));
        }
        let mut legs: Vec<_> = servers.into_iter().map(|server| disk.at(server)).collect();
        legs.push(disk);
        MirrorId::new(legs).map(Self::Mirror)
    }

    /// What calls for the volume of that id have in common; the text itself if it is no id.
    pub(crate) fn key(text: &str) -> String {
        Self::parse(text).map_or_else(|_| text.to_owned(), |id| id.to_string())
    }

    /// The volume of a request, whose id must make sense.
    pub(crate) fn of_request(text: &str) -> Result<Self> {
        needed("volume_id", text)?;
        // What is no id is the id of no volume.
        Self::parse(text)
            .map_err(|why| Status::not_found(format!("there is no volume {text:?}: {why}")))
    }

    /// The disks of the volume.
    pub(crate) fn disks(&self) -> &[DiskId] {
        match self {
            Self::Disk(disk) => std::slice::from_ref(disk),
            Self::Mirror(mirror) => mirror.legs(),
        }
    }
}

impl MirrorId {
    /// The volume of these legs. The error is in words.
    pub(crate) fn new(mut legs: Vec<DiskId>) -> std::result::Result<Self, String> {
        if !(2..=MAX_LEGS).contains(&legs.len()) {
            let number = legs.len();
            return Err(format!(
                "a mirrored volume has 2 to {MAX_LEGS} servers, not {number}"
            ));
        }
        legs.sort_by_key(DiskId::server);
        let pairs = || legs.iter().zip(legs.iter().skip(1));
        if let Some((leg, _)) = pairs().find(|(a, b)| a.server() == b.server()) {
            return Err(format!("server {} is named twice", leg.server()));
        }
        if let Some((a, b)) = pairs().find(|(a, b)| a.path() != b.path()) {
            return Err(format!(
                "{a} and {b}: the disks of a mirrored volume have the same path at all servers"
            ));
        }
        // INVARIANT: they were sorted and checked.
        Ok(Self { legs })
    }

    /// The legs, in the order of their servers' names.
    pub(crate) fn legs(&self) -> &[DiskId] {
        &self.legs
    }

    /// The servers as the id has them.
    pub(crate) fn servers(&self) -> String {
        let hosts: Vec<_> = self.legs.iter().map(host).collect();
        hosts.join(&AND.to_string())
    }

    /// The name of the mirror, which is made of the id: so all nodes give it the same name.
    pub(crate) fn mirror_name(&self) -> std::result::Result<MirrorName, String> {
        let digest = Sha256::digest(self.to_string().as_bytes());
        let digits = digest.iter().map(|byte| format!("{byte:02x}"));
        let digits: String = digits.collect::<String>();
        let digits = digits.chars().take(MIRROR_DIGITS).collect::<String>();
        MirrorName::new(&format!("{MIRROR}{digits}"))
    }
}

/// Whether a mirror is a volume, by its name.
pub(crate) fn is_volume(mirror: &MirrorName) -> bool {
    let digits = mirror.as_str().strip_prefix(MIRROR);
    digits.is_some_and(|digits| {
        digits.len() == MIRROR_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The server, if the text is one and nothing else.
fn server_alone(text: &str) -> Option<ServerName> {
    let disk = DiskId::parse(&format!("{text}:x")).ok()?;
    (disk.path() == "x").then(|| disk.server_name().clone())
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(disk) => disk.fmt(f),
            Self::Mirror(mirror) => mirror.fmt(f),
        }
    }
}

impl fmt::Display for MirrorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.legs.first().map(DiskId::path);
        write!(f, "{}:{}", self.servers(), path.unwrap_or_default())
    }
}

/// The server as an id has it: an address with colons stands in brackets.
fn host(leg: &DiskId) -> String {
    let server = leg.server();
    match server.contains(':') {
        true => format!("[{server}]"),
        false => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::Code;

    fn disk(text: &str) -> DiskId {
        match VolumeId::parse(text) {
            Ok(VolumeId::Disk(disk)) => disk,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn mirror(text: &str) -> MirrorId {
        match VolumeId::parse(text) {
            Ok(VolumeId::Mirror(mirror)) => mirror,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn ids_name_a_server_and_a_disk() {
        let id = disk("storage1:csi/csi-pvc-1");
        assert_eq!(
            (id.server().as_str(), id.path()),
            ("storage1", "csi/csi-pvc-1")
        );
        let id = disk("[2001:db8::1]:vg0/www");
        assert_eq!(id.server(), "2001:db8::1");
        for bad in [
            "www",
            "storage1:",
            ":www",
            "s:a b",
            "s:a\n",
            "s:../a",
            "s:a/../b",
            "s:/",
            "s:.//",
        ] {
            assert!(VolumeId::parse(bad).is_err(), "{bad:?}");
            assert_eq!(VolumeId::of_request(bad).unwrap_err().code, Code::NotFound);
        }
        assert!(VolumeId::parse(&format!("s:{}", "x".repeat(300))).is_err());
        // Two calls for a disk are calls for one volume, however they write its id.
        for same in ["S:vg0/www", "s:/vg0//www", "s:./vg0/www/"] {
            assert_eq!(VolumeId::key(same), "s:vg0/www");
            assert_eq!(VolumeId::parse(same), VolumeId::parse("s:vg0/www"));
        }
        assert_eq!(VolumeId::key("no id"), "no id");
        assert_eq!(
            VolumeId::of_request("").unwrap_err().code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn a_mirrored_volume_names_several_servers() {
        let id = mirror("storage2+storage1:csi/a");
        assert_eq!(id.to_string(), "storage1+storage2:csi/a");
        let legs: Vec<_> = id.legs().iter().map(ToString::to_string).collect();
        assert_eq!(legs, ["storage1:csi/a", "storage2:csi/a"]);
        for same in ["storage1+Storage2:/csi//a", "storage2+storage1:csi/a"] {
            assert_eq!(VolumeId::key(same), id.to_string());
        }
        let addresses = mirror("[2001:db8::2]+192.0.2.1:a");
        assert_eq!(
            VolumeId::parse(&addresses.to_string()),
            Ok(VolumeId::Mirror(addresses))
        );
        assert_eq!(mirror("a+b+c:x").legs().len(), 3);
        for bad in [
            "a+a:x",
            "a+A:x",
            "a+b",
            "a+b:",
            "+a:x",
            "a++b:x",
            "a+b+c+d+e:x",
        ] {
            assert!(VolumeId::parse(bad).is_err(), "{bad:?}");
        }
        // In a path it is a character like any other.
        for (text, path) in [("s:vg0/c++", "vg0/c++"), ("s:a+b:c", "a+b:c")] {
            assert_eq!(disk(text).path(), path);
        }
        assert_eq!(mirror("a+b:c++").legs()[1].path(), "c++");
    }

    #[test]
    fn a_mirror_has_one_name_on_all_nodes() {
        let name = |text: &str| mirror(text).mirror_name().unwrap();
        assert_eq!(name("a+b:x"), name("b+a:/x"));
        assert_ne!(name("a+b:x"), name("a+b:y"));
        assert_ne!(name("a+b:x"), name("a+c:x"));
        assert_eq!(name("a+b:x").as_str().len(), 19);
        assert!(is_volume(&name("a+b:x")));
        for other in ["db", "csi-", "csi-db", "csi-0123456789abcdx"] {
            assert!(!is_volume(&MirrorName::new(other).unwrap()), "{other}");
        }
    }
}
