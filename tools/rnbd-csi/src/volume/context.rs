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

/// A key of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Addresses,
    Port,
    Hold,
    Zeroes,
}

impl Key {
    /// All keys that a context may have: they are read by this table, and errors list them from it.
    const ALL: [Self; 4] = [Self::Addresses, Self::Port, Self::Hold, Self::Zeroes];

    fn name(self) -> &'static str {
        match self {
            Self::Addresses => ADDRESSES,
            Self::Port => PORT,
            Self::Hold => HOLD,
            Self::Zeroes => ZEROES,
        }
    }

    /// Whether a mirrored volume has the key for each of its servers, as `NAME.SERVER`.
    fn is_of_a_server(self) -> bool {
        matches!(self, Self::Addresses | Self::Port)
    }

    /// The key as the context of a disk has it; `None` if a disk does not have it.
    fn of_disk(self) -> Option<String> {
        (self != Self::Zeroes).then(|| self.name().to_owned())
    }

    /// The key as the context of a mirrored volume has it; `None` if a mirrored volume does not
    /// have it.
    fn of_mirror(self) -> Option<String> {
        match self.is_of_a_server() {
            true => Some(format!("{}.SERVER", self.name())),
            false => (self != Self::Hold).then(|| self.name().to_owned()),
        }
    }

    /// The keys for which `name` gives a name, as a list in words: `addresses, port and hold`.
    fn listed(name: fn(Self) -> Option<String>) -> String {
        let mut names: Vec<_> = Self::ALL.into_iter().filter_map(name).collect();
        match names.pop() {
            Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
            last => last.unwrap_or_default(),
        }
    }
}

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
        for (text, value) in map.iter().filter(|(text, _)| !text.contains('/')) {
            context
                .set(text, value)
                .map_err(|why| Status::invalid(format!("{text}={value:?}: {why}")))?;
        }
        Ok(context)
    }

    fn set(&mut self, text: &str, value: &str) -> std::result::Result<(), String> {
        let (name, server) = match text.split_once('.') {
            Some((name, server)) => (name, Some(server)),
            None => (text, None),
        };
        match (Key::ALL.into_iter().find(|key| key.name() == name), server) {
            (Some(Key::Addresses), server) => self.at(server)?.addresses = addresses(value)?,
            (Some(Key::Port), server) => self.at(server)?.port = Some(port(value)?),
            (Some(Key::Hold), None) => self.hold_ms = Some(hold(value)?),
            (Some(Key::Zeroes), None) => self.zeroes = yes(value)?,
            (Some(Key::Hold | Key::Zeroes), Some(_)) | (None, _) => {
                return Err(format!(
                    "unknown; known keys are {}; of a mirrored volume {}",
                    Key::listed(Key::of_disk),
                    Key::listed(Key::of_mirror)
                ))
            }
        }
        Ok(())
    }

    /// How the server is reached of which a key names the server; without a name the only server.
    fn at(&mut self, server: Option<&str>) -> std::result::Result<&mut Place, String> {
        Ok(match server {
            None => &mut self.only,
            Some(server) => {
                let server = ServerName::parse(server)?.host.to_string();
                self.servers.entry(server).or_default()
            }
        })
    }

    /// An error if something is said that the volume does not have.
    fn check(&self, id: &VolumeId) -> Result {
        let why = match id {
            VolumeId::Disk(_) if !self.servers.is_empty() || self.zeroes => {
                let keys = Key::listed(Key::of_mirror);
                format!("{keys} are for mirrored volumes only")
            }
            VolumeId::Mirror(_) if self.only != Place::default() => {
                let of_a_server = |key: Key| key.of_mirror().filter(|_| key.is_of_a_server());
                let keys = Key::listed(of_a_server);
                format!("a mirrored volume has several servers: give {keys} of each server")
            }
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

    /// A list of the keys of a context, from an error.
    fn keys(list: &str) -> Vec<String> {
        let words = list.replace(" and ", ", ").replace("SERVER", "storage1");
        words.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn errors_list_the_keys_that_are_read() {
        let value = |key: &str| match key.split('.').next().unwrap() {
            "addresses" => "192.0.2.1",
            "port" => "4321",
            "hold" => "1m",
            "zeroes" => "true",
            other => panic!("{other} is no key"),
        };
        let message =
            |id: &str, key: &str, value: &str| of(id, &[(key, value)]).unwrap_err().message;
        let (disk, mirror) = ("storage1:a", "storage1+storage2:a");
        let unknown = message(disk, "servers", "a,b");
        let lists = unknown.split_once("known keys are ").unwrap().1;
        let (of_disk, of_mirror) = lists.split_once("; of a mirrored volume ").unwrap();
        for (id, list) in [(disk, of_disk), (mirror, of_mirror)] {
            assert_eq!(keys(list).len(), 3, "{unknown}");
            for key in keys(list) {
                let read = of(id, &[(key.as_str(), value(&key))]);
                assert!(read.is_ok(), "{id}: {key}");
            }
        }
        let refused = message(disk, "zeroes", "true");
        assert_eq!(
            refused,
            format!("{of_mirror} are for mirrored volumes only")
        );
        let missing = message(mirror, "port", "1");
        assert!(
            missing.ends_with("addresses.SERVER and port.SERVER of each server"),
            "{missing}"
        );
        for key in ["hold.storage1", "zeroes.storage1", "other.storage1"] {
            assert!(message(disk, key, "1m").contains("unknown"), "{key}");
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
