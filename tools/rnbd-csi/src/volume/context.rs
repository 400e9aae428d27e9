// SPDX-License-Identifier: GPL-2.0

//! What an orchestrator keeps about a volume, and tells each time.

use std::collections::BTreeMap;

use rnbdctl::output;
use rnbdctl::server_name::ServerName;

use super::DiskId;
use super::VolumeId;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Map;

/// The key of the server's addresses.
pub(crate) const ADDRESSES: &str = "addresses";
/// The key of the server's port.
pub(crate) const PORT: &str = "port";
/// The key of the time for which requests wait while the server is away.
pub(crate) const HOLD: &str = "hold";
/// The key that says that the disks of a mirrored volume were made of zeroes.
pub(crate) const ZEROES: &str = "zeroes";
/// The value of a key that says yes.
pub(crate) const YES: &str = "true";

/// How a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    addresses: Vec<ServerName>,
    port: Option<u16>,
}

/// What an orchestrator keeps about a volume and tells each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// How the server of a disk is reached.
    only: Place,
    /// How the servers of a mirrored volume are reached, by their names.
    servers: BTreeMap<String, Place>,
    /// How long requests wait while the server is away, in ms.
    pub(crate) hold_ms: Option<i32>,
    /// Whether the disks of a mirrored volume were made of zeroes, and so are the same.
    pub(crate) zeroes: bool,
}

impl Context {
    /// The context of a volume.
    ///
    /// Keys with a slash belong to the orchestrator (`csi.storage.k8s.io/pod.name`).
    pub(crate) fn of(id: &VolumeId, map: &Map) -> Result<Self> {
        let context = Self::parse(map)?;
        context.check(id).map(|()| context)
    }

    /// What a context says, of whichever volume it is.
    pub(crate) fn parse(map: &Map) -> Result<Self> {
        let mut context = Self::default();
        for (key, value) in map {
            let wrong = |why: String| Status::invalid(format!("{key}={value:?}: {why}"));
            match (key.as_str(), key.split_once('.')) {
                (HOLD, _) => context.hold_ms = Some(hold(value).map_err(wrong)?),
                (ZEROES, _) => context.zeroes = yes(value).map_err(wrong)?,
                (ADDRESSES | PORT, _) => context.only.set(key, value).map_err(wrong)?,
                _ if key.contains('/') => (),
                (_, Some((kind @ (ADDRESSES | PORT), server))) => {
                    let server = ServerName::parse(server).map_err(wrong)?.host.to_string();
                    let place = context.servers.entry(server).or_default();
                    place.set(kind, value).map_err(wrong)?;
                }
                _ => {
                    return Err(wrong(format!(
                        "unknown; known keys are {ADDRESSES}, {PORT} and {HOLD}; of a mirrored \
                         volume {ADDRESSES}.SERVER, {PORT}.SERVER and {ZEROES}"
                    )))
                }
            }
        }
        Ok(context)
    }

    /// An error if something is said that the volume does not have.
    fn check(&self, id: &VolumeId) -> Result {
        let why = match id {
            VolumeId::Disk(_) if !self.servers.is_empty() || self.zeroes => format!(
                "{ADDRESSES}.SERVER, {PORT}.SERVER and {ZEROES} are for mirrored volumes only"
            ),
            VolumeId::Mirror(_) if self.only != Place::default() => format!(
                "a mirrored volume has several servers: give {ADDRESSES}.SERVER and {PORT}.SERVER \
                 of each server"
            ),
            VolumeId::Mirror(_) if self.hold_ms.is_some() => format!(
                "{HOLD} is not for mirrored volumes: a mirror goes on without a server that is away"
            ),
            VolumeId::Mirror(mirror) => {
                let is_named =
                    |name: &String| mirror.legs().iter().any(|leg| leg.server() == *name);
                match self.servers.keys().find(|name| !is_named(name)) {
                    Some(name) => format!(
                        "{ADDRESSES}.{name}, {PORT}.{name}: volume {id} has no disk on that server"
                    ),
                    None => return Ok(()),
                }
            }
            VolumeId::Disk(_) => return Ok(()),
        };
        Err(Status::invalid(why))
    }

    /// The context as an orchestrator keeps it.
    pub(crate) fn to_map(&self) -> Map {
        let mut map = Map::new();
        self.only.tell("", &mut map);
        for (server, place) in &self.servers {
            place.tell(&format!(".{server}"), &mut map);
        }
        if let Some(ms) = self.hold_ms {
            // Times are given in whole seconds.
            let seconds = ms.checked_div(1000).unwrap_or_default();
            map.insert(HOLD.to_owned(), format!("{seconds}s"));
        }
        if self.zeroes {
            map.insert(ZEROES.to_owned(), YES.to_owned());
        }
        map
    }

    /// The context of a mirrored volume whose legs have these contexts, each made of zeroes. Legs
    /// do not hold requests.
    pub(crate) fn of_legs(legs: impl Iterator<Item = (String, Self)>) -> Self {
        let servers = legs.map(|(server, context)| (server, context.only));
        Self {
            servers: servers
                .filter(|(_, place)| *place != Place::default())
                .collect(),
            zeroes: true,
            ..Self::default()
        }
    }

    /// Where the server of a disk is: what the context says, or else the server's name.
    pub(crate) fn servers(&self, disk: &DiskId) -> Vec<ServerName> {
        match self.place(disk).addresses.as_slice() {
            [] => vec![disk.server_name().clone()],
            addresses => addresses.to_vec(),
        }
    }

    /// The port of the server of a disk, if it is not 1234.
    pub(crate) fn port(&self, disk: &DiskId) -> Option<u16> {
        self.place(disk).port
    }

    fn place(&self, disk: &DiskId) -> &Place {
        self.servers.get(&disk.server()).unwrap_or(&self.only)
    }
}

impl Place {
    fn tell(&self, end: &str, map: &mut Map) {
        if !self.addresses.is_empty() {
            let texts: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
            map.insert(format!("{ADDRESSES}{end}"), texts.join(","));
        }
        if let Some(port) = self.port {
            map.insert(format!("{PORT}{end}"), port.to_string());
        }
    }

    fn set(&mut self, kind: &str, value: &str) -> std::result::Result<(), String> {
        match kind {
            ADDRESSES => self.addresses = addresses(value)?,
            _ => self.port = Some(port(value)?),
        }
        Ok(())
    }
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

/// Whether a value says yes.
pub(crate) fn yes(text: &str) -> std::result::Result<bool, String> {
    match text {
        YES => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false".to_owned()),
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

    fn of(id: &str, pairs: &[(&str, &str)]) -> Result<Context> {
        Context::of(&VolumeId::parse(id).unwrap(), &map(pairs))
    }

    #[test]
    fn contexts_say_where_and_how_long() {
        let context = of(
            "storage1:a",
            &[
                ("addresses", "192.0.2.1, storage1b"),
                ("port", "4321"),
                ("hold", "90s"),
                ("storage.kubernetes.io/csiProvisionerIdentity", "x"),
            ],
        );
        let context = context.unwrap();
        let disk = DiskId::parse("storage1:a").unwrap();
        assert_eq!(context.servers(&disk).len(), 2);
        assert_eq!(
            (context.port(&disk), context.hold_ms),
            (Some(4321), Some(90_000))
        );
        let names = Context::default().servers(&disk);
        assert_eq!(names, [ServerName::parse("storage1").unwrap()]);
        for bad in [
            ("addresses", "1.2.3"),
            ("addresses", ""),
            ("port", "0"),
            ("hold", "2d"),
            ("other", "x"),
            ("servers", "a,b"),
            ("addresses.storage1", "1.2.3"),
            ("port.-", "1"),
            ("zeroes", "yes"),
        ] {
            let error = Context::parse(&map(&[bad])).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{bad:?}");
            assert!(error.message.starts_with(bad.0), "{error:?}");
        }
    }

    #[test]
    fn each_server_of_a_mirrored_volume_has_a_place() {
        let context = of(
            "storage1+storage2:a",
            &[
                ("addresses.Storage2", "198.51.100.10"),
                ("port.storage2", "4321"),
                ("zeroes", "true"),
            ],
        );
        let context = context.unwrap();
        let disk = |text: &str| DiskId::parse(text).unwrap();
        let second = disk("storage2:a");
        assert_eq!(context.servers(&second)[0].to_string(), "198.51.100.10");
        assert_eq!(context.port(&second), Some(4321));
        assert_eq!(
            context.servers(&disk("storage1:a"))[0].to_string(),
            "storage1"
        );
        assert_eq!(context.port(&disk("storage1:a")), None);
        assert!(context.zeroes);
        for (id, key, value) in [
            ("storage1:a", "addresses.storage1", "192.0.2.1"),
            ("storage1:a", "zeroes", "true"),
            ("storage1+storage2:a", "addresses", "192.0.2.1"),
            ("storage1+storage2:a", "port", "1"),
            ("storage1+storage2:a", "hold", "1m"),
            ("storage1+storage2:a", "addresses.storage3", "192.0.2.1"),
        ] {
            let error = of(id, &[(key, value)]).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{id} {key}");
        }
    }
}
