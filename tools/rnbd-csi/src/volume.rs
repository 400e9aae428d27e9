// SPDX-License-Identifier: GPL-2.0

//! What volumes are called, and what orchestrators keep about them.

use std::fmt;

use rnbdctl::output;
use rnbdctl::server_name::DiskName;
use rnbdctl::server_name::ServerName;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Map;

/// The most bytes of an id. The specification has 128 for ids that a plugin makes; those of static
/// volumes are written by an administrator.
const MAX_ID: usize = 254;
/// The most bytes of the node's and of the server's name that go into a session's name.
const MAX_PART: usize = 40;

/// The key of the server's addresses in a volume's context.
pub(crate) const ADDRESSES: &str = "addresses";
/// The key of the server's port there.
pub(crate) const PORT: &str = "port";
/// The key of the time for which requests wait while the server is away.
pub(crate) const HOLD: &str = "hold";
/// The key of several servers, of which a mirror would be made.
pub(crate) const SERVERS: &str = "servers";

/// A volume: a disk of a server. It is written `SERVER:DISK`, as `rnbdctl map` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeId {
    server: ServerName,
    /// The path of the disk at the server.
    pub(crate) disk: String,
}

impl VolumeId {
    /// The volume of that id. The error is in words.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.len() > MAX_ID {
            return Err(format!("the id has {} bytes, at most {MAX_ID}", text.len()));
        }
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
            Some(server) => Ok(Self {
                server,
                // So a disk has one path, however it is written.
                disk: parts.join("/"),
            }),
            None => Err("the server is missing: write SERVER:DISK".to_owned()),
        }
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

    /// What the server is called.
    pub(crate) fn server(&self) -> String {
        self.server.host.to_string()
    }

    /// Where the server is: what the context says, or else its name.
    pub(crate) fn servers(&self, context: &Context) -> Vec<ServerName> {
        match context.addresses.as_slice() {
            [] => vec![self.server.clone()],
            addresses => addresses.to_vec(),
        }
    }

    /// The name of the session that carries this node's volumes of the server.
    ///
    /// It is made of the id of the volume and of nothing that could change, so that a volume can be
    /// found again when only its id is known. It is not one that `rnbdctl` gives: so a disk that
    /// the administrator has mapped is never taken for a volume.
    pub(crate) fn session(&self, node_id: &str) -> String {
        let server = self.server();
        let number = number(&format!("{node_id}\n{server}"));
        format!("csi-{}-{}-{number:08x}", part(node_id), part(&server))
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server.host, self.disk)
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

/// What an orchestrator keeps about a volume and tells each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Where the server is.
    pub(crate) addresses: Vec<ServerName>,
    /// The server's port, if it is not 1234.
    pub(crate) port: Option<u16>,
    /// How long requests wait while the server is away, in ms.
    pub(crate) hold_ms: Option<i32>,
}

impl Context {
    /// The context of a volume, or what of the parameters of a storage class goes there.
    ///
    /// Keys with a slash belong to the orchestrator (`csi.storage.k8s.io/pod.name`).
    pub(crate) fn parse(map: &Map) -> Result<Self> {
        let mut context = Self::default();
        for (key, value) in map {
            let wrong = |why: String| Status::invalid(format!("{key}={value:?}: {why}"));
            match key.as_str() {
                ADDRESSES => context.addresses = addresses(value).map_err(wrong)?,
                PORT => context.port = Some(port(value).map_err(wrong)?),
                HOLD => context.hold_ms = Some(hold(value).map_err(wrong)?),
                SERVERS => return Err(no_mirrors(value)),
                _ if key.contains('/') => (),
                _ => {
                    return Err(wrong(format!(
                        "unknown; known keys are {ADDRESSES}, {PORT} and {HOLD}"
                    )))
                }
            }
        }
        Ok(context)
    }
}

/// Mirrors over several servers are not there yet: this is the place where they begin.
fn no_mirrors(servers: &str) -> Status {
    Status::invalid(format!(
        "{SERVERS}={servers:?}: volumes that are mirrored over several servers are not supported \
         yet; leave out {SERVERS} to make the volume on the server of this driver"
    ))
}

/// Addresses or host names of one server, with commas between them.
pub(crate) fn addresses(text: &str) -> std::result::Result<Vec<ServerName>, String> {
    text.split(',')
        .map(|one| ServerName::parse(one.trim()))
        .collect()
}

fn port(text: &str) -> std::result::Result<u16, String> {
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("a port is a number between 1 and 65535".to_owned()),
    }
}

/// A duration in ms, as `hold_io_ms` takes it: up to a day.
pub(crate) fn hold(text: &str) -> std::result::Result<i32, String> {
    let ms = u64::from(output::parse_duration(text)?).checked_mul(1000);
    ms.and_then(|ms| i32::try_from(ms).ok())
        .filter(|ms| *ms <= 86_400_000)
        .ok_or_else(|| "give a time between 0 and 1d".to_owned())
}

/// An error if a field of a request is empty that has to be there.
pub(crate) fn needed(name: &str, value: &str) -> Result {
    match value.is_empty() {
        true => Err(Status::invalid(format!("{name} is missing"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::Code;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn ids_name_a_server_and_a_disk() {
        let id = VolumeId::parse("storage1:csi/csi-pvc-1").unwrap();
        assert_eq!(
            (id.server().as_str(), id.disk.as_str()),
            ("storage1", "csi/csi-pvc-1")
        );
        let id = VolumeId::parse("[2001:db8::1]:vg0/www").unwrap();
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
    fn sessions_are_of_a_node_and_a_server() {
        let session = |node: &str, id: &str| VolumeId::parse(id).unwrap().session(node);
        let name = session("node1.example", "storage1:a");
        assert!(name.starts_with("csi-node1-example-storage1-"), "{name}");
        assert_eq!(name, session("node1.example", "storage1:b"));
        assert_ne!(name, session("node1-example", "storage1:a"));
        assert_ne!(name, session("node1.example", "storage2:a"));
        let long = session(&"n".repeat(200), &format!("{}.example:a", "s".repeat(60)));
        assert!(long.len() < 100, "{long}");
    }

    #[test]
    fn contexts_say_where_and_how_long() {
        let context = Context::parse(&map(&[
            ("addresses", "192.0.2.1, storage1b"),
            ("port", "4321"),
            ("hold", "90s"),
            ("storage.kubernetes.io/csiProvisionerIdentity", "x"),
        ]));
        let context = context.unwrap();
        assert_eq!(context.addresses.len(), 2);
        assert_eq!((context.port, context.hold_ms), (Some(4321), Some(90_000)));
        let id = VolumeId::parse("storage1:a").unwrap();
        assert_eq!(id.servers(&context), context.addresses);
        let names = id.servers(&Context::default());
        assert_eq!(names, [ServerName::parse("storage1").unwrap()]);
        for bad in [
            ("addresses", "1.2.3"),
            ("addresses", ""),
            ("port", "0"),
            ("hold", "2d"),
            ("other", "x"),
            ("servers", "a,b"),
        ] {
            let error = Context::parse(&map(&[bad])).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{bad:?}");
            assert!(error.message.starts_with(bad.0), "{error:?}");
        }
    }
}
