// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl map`: remote disks become `/dev/rnbd<N>`.

use std::time::Duration;

use proto::rnbd::IoMode;
use proto::setting::HOLD_DISK_IO;
use proto::setting::HOLD_IO;
use schemars::JsonSchema;
use serde::Serialize;

use super::each;
use crate::cli::Context;
use crate::complete;
use crate::config::DEFAULT_HOLD_MS;
use crate::control;
use crate::control::join;
use crate::control::DiscoverRequest;
use crate::control::MapRequest;
use crate::control::Mapped;
use crate::model::AccessMode;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::server_name::DiskName;
use crate::server_name::ServerName;
use crate::ways::Ways;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The disks. SERVER is a host name or an address, an IPv6 address in brackets; DISK is the
    /// disk's path at the server. SERVER: may be left out with --path or --session. With --all:
    /// servers only
    #[arg(value_name = "SERVER:DISK", required_unless_present = "all")]
    pub disks: Vec<String>,

    /// Map all disks that the server offers to this client, except disks that the server's machine
    /// uses itself, that are mapped already, or that cannot be accessed in the access mode now
    #[arg(long)]
    pub all: bool,

    /// The name of the session with the server; no two clients may have the same name [default: the
    /// session with this server if there is one, else a name made of the names of this host and the
    /// server]
    #[arg(short, long, add = complete::sessions())]
    pub session: Option<String>,

    /// The server's address or host name, instead of SERVER: in front of the disk; optionally
    /// preceded by SOURCE@. Give the option up to six times for several paths
    #[arg(short, long = "path", value_name = "[SOURCE@]SERVER", value_parser = ServerName::parse)]
    pub paths: Vec<ServerName>,

    /// The server's port [default: 1234]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// The access mode [default: rw]
    #[arg(short, long, value_enum)]
    pub access: Option<AccessMode>,

    /// How long requests are held while no path is up, before they fail: 90s, 10m, 2h, up to 1d; 0:
    /// requests fail at once [default: 10m for a new session]
    #[arg(long, value_name = "DURATION", value_parser = parse_hold)]
    pub hold: Option<i32>,

    /// How the server reads and writes the disks: past its page cache (direct) or through its page
    /// cache (buffered) [default: the server's setting]
    #[arg(long, value_name = "MODE", value_parser = parse_io_mode)]
    pub io_mode: Option<IoMode>,

    /// Number of queues for polled IO, -1: one per CPU; needs a session of its own [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i32).range(-1..))]
    pub poll_queues: Option<i32>,

    /// How long to wait for the device node, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub timeout: u32,
}

fn parse_io_mode(text: &str) -> std::result::Result<IoMode, String> {
    IoMode::from_name(text.as_bytes()).ok_or_else(|| "give direct or buffered".to_owned())
}

/// A duration in ms, as `hold_io_ms` takes it.
fn parse_hold(text: &str) -> std::result::Result<i32, String> {
    let ms = u64::from(output::parse_duration(text)?).saturating_mul(1000);
    let ms = i32::try_from(ms).ok().filter(|ms| HOLD_IO.contains(*ms));
    ms.ok_or_else(|| "give a time between 0 and 1d".to_owned())
}

/// The disks that were mapped. Without any there is no output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done<'a> {
    version: Version,
    /// The disks.
    mapped: &'a [Mapped],
}

const COLUMNS: &[Column] = &[
    Column::text("name", ""),
    Column::text("path", "DEVICE"),
    Column::text("session", "SESSION").rank(1),
    Column::text("device_path", "DISK"),
];

impl Report for Done<'_> {
    fn tables(&self) -> Vec<Table> {
        let row = |mapped: &Mapped| {
            vec![
                Cell::new(&mapped.name),
                Cell::new(&mapped.path),
                Cell::new(&mapped.session),
                Cell::new(&mapped.device_path),
            ]
        };
        vec![Table {
            kind: "client-device",
            title: "Mapped devices".to_owned(),
            columns: COLUMNS,
            rows: self.mapped.iter().map(row).collect(),
            empty: "nothing was mapped".to_owned(),
        }]
    }
}

/// A disk that is to be mapped, and the way to its server if there is no session.
struct Wanted {
    request: MapRequest,
    ways: Ways,
}

/// Maps the disks. A disk that cannot be mapped does not keep other disks from being mapped.
pub fn run(args: &Args, context: &Context) -> Result {
    let wanted = match args.all {
        true => all_disks(args, context)?,
        false => given_disks(args, context)?,
    };
    if wanted.is_empty() {
        return context.output.say("nothing to map: see rnbdctl discover");
    }
    // Names are checked before any disk is mapped. With `--all` the names come from the server, and
    // a bad name is not the user's mistake.
    for wanted in wanted.iter().filter(|_| !args.all) {
        wanted.request.line()?;
    }
    check_hold(args, context)?;
    let name = |wanted: &Wanted| format!("mapping {}", wanted.request.device_path);
    let done = each(&wanted, name, |wanted| map_one(args, wanted, context));
    if !done.done.is_empty() {
        context.output.print(&Done {
            version: JSON_VERSION,
            mapped: &done.done,
        })?;
    }
    done.end()
}

fn given_disks(args: &Args, context: &Context) -> Result<Vec<Wanted>> {
    let wrong = |disk: &str, why: String| {
        let what = format!("mapping {disk}");
        Err(Error::new(Kind::Usage, what, why))
    };
    let mut servers = Servers::new(args, context);
    let mut wanted = Vec::new();
    for disk in &args.disks {
        // With --path a colon belongs to the disk.
        let parsed = match args.paths.is_empty() {
            true => DiskName::parse(disk).or_else(|why| wrong(disk, why))?,
            false => DiskName {
                server: None,
                disk: disk.clone(),
            },
        };
        wanted.push(servers.wanted(parsed.server.as_ref(), parsed.disk)?);
    }
    Ok(wanted)
}

/// The disks that `--all` stands for.
fn all_disks(args: &Args, context: &Context) -> Result<Vec<Wanted>> {
    let mut servers = Servers::new(args, context);
    let mut names = Vec::new();
    for server in &args.disks {
        let name = server.strip_suffix(':').unwrap_or(server);
        let parsed = ServerName::parse(name);
        names.push(Some(parsed.map_err(|why| {
            Error::new(Kind::Usage, format!("mapping all disks of {server}"), why)
        })?));
    }
    if names.is_empty() {
        names.push(None);
    }
    let mode = args.access.unwrap_or(AccessMode::Rw);
    let mut wanted = Vec::new();
    for server in &names {
        let (session, ways) = servers.of(server.as_ref(), "")?;
        let disks = ways.first(|paths| {
            let request = DiscoverRequest {
                session: session.clone(),
                paths: paths.to_vec(),
                port: args.port,
            };
            control::discover(&context.system, &request)
        })?;
        for mut disk in disks {
            disk.locate(&context.system, &session)?;
            let is_possible = disk.modes.contains(&mode);
            if is_possible && !disk.used_by_server && disk.device.is_none() {
                wanted.push(servers.wanted(server.as_ref(), disk.device_path)?);
            }
        }
    }
    Ok(wanted)
}

/// The sessions with the servers of this command; each server is looked up once.
struct Servers<'a> {
    args: &'a Args,
    context: &'a Context,
    known: Vec<(Vec<ServerName>, Ways)>,
}

impl<'a> Servers<'a> {
    fn new(args: &'a Args, context: &'a Context) -> Self {
        Self {
            args,
            context,
            known: Vec::new(),
        }
    }

    fn wanted(&mut self, server: Option<&ServerName>, disk: String) -> Result<Wanted> {
        let args = self.args;
        let (session, ways) = self.of(server, &disk)?;
        Ok(Wanted {
            request: MapRequest {
                session,
                device_path: disk,
                paths: ways.given.clone(),
                port: args.port,
                access_mode: args.access,
                io_mode: args.io_mode,
                poll_queues: args.poll_queues,
            },
            ways,
        })
    }

    /// The name of the session for `disk`, and the ways to its server. The server is `server`, or
    /// the server of --path and --session.
    fn of(&mut self, server: Option<&ServerName>, disk: &str) -> Result<(String, Ways)> {
        let args = self.args;
        let servers = match server {
            Some(server) => std::slice::from_ref(server),
            None => args.paths.as_slice(),
        };
        let ways = self.ways(servers)?;
        let is_polled = args.poll_queues.is_some_and(|queues| queues != 0);
        let name = servers.first().map(|server| server.host.to_string());
        let server = name.as_ref().map(|name| join::Server {
            name,
            ways: &ways,
            port: args.port,
            polled: Some(disk).filter(|_| is_polled),
        });
        let system = &self.context.system;
        let session = match (&args.session, server) {
            (Some(session), None) => session.clone(),
            (Some(session), Some(server)) => {
                server.check(system, session)?;
                session.clone()
            }
            (None, Some(server)) => server.session(system)?,
            (None, None) => return Err(no_server(disk)),
        };
        Ok((session, ways))
    }

    fn ways(&mut self, servers: &[ServerName]) -> Result<Ways> {
        if let Some((_, ways)) = self.known.iter().find(|(known, _)| known == servers) {
            return Ok(ways.clone());
        }
        let ways = Ways::to(&self.context.system, servers)?;
        self.known.push((servers.to_vec(), ways.clone()));
        Ok(ways)
    }
}

/// The error if no server is given for `disk`, or for all disks if `disk` is empty.
fn no_server(disk: &str) -> Error {
    let (what, hint) = match disk {
        "" => (
            "mapping all disks".to_owned(),
            "write rnbdctl map --all SERVER".to_owned(),
        ),
        _ => (
            format!("mapping {disk}"),
            format!("write rnbdctl map SERVER:{disk}"),
        ),
    };
    Error::new(Kind::Usage, what, "the server is not given").hint(hint)
}

/// Maps a disk. If that makes the session, the session also gets the other paths that were found,
/// and the time that requests wait.
fn map_one(args: &Args, wanted: &Wanted, context: &Context) -> Result<Mapped> {
    let system = &context.system;
    let patience = Duration::from_secs(args.timeout.into());
    let session = &wanted.request.session;
    let is_new = system.client_session(session)?.is_none();
    let mapped = match is_new {
        false => control::map(system, &wanted.request, patience)?,
        true => wanted.ways.first(|paths| {
            let request = MapRequest {
                paths: paths.to_vec(),
                ..wanted.request.clone()
            };
            control::map(system, &request, patience)
        })?,
    };
    if let Some(ms) = hold_to_set(args.hold, is_new) {
        hold(context, &mapped, ms, args.hold.is_some())?;
    }
    if is_new && !wanted.ways.found.is_empty() {
        for (path, error) in join::add_found(system, session, &wanted.ways)? {
            eprintln!(
                "rnbdctl: path {path} was not added to session {session}: {}",
                error.why()
            );
        }
    }
    Ok(mapped)
}

/// The time to set, in ms: the user's, or the default for a new session. The time of an existing
/// session stays as the administrator has set it.
fn hold_to_set(asked: Option<i32>, is_new: bool) -> Option<i32> {
    asked.or_else(|| is_new.then_some(DEFAULT_HOLD_MS))
}

/// Sets how long requests wait. A time from the user is set for the device, if the module has a
/// time for devices; otherwise the session's time is set. Requests of a module without such times
/// never wait; that is an error only if the user wants them to wait.
fn hold(context: &Context, mapped: &Mapped, ms: i32, is_asked: bool) -> Result {
    if is_asked {
        let device = context.system.find_device(&mapped.name)?;
        if device.tunable(HOLD_DISK_IO.name).is_some() {
            return control::device::set_tunable(&device, HOLD_DISK_IO.name, ms);
        }
    }
    let session = context.system.find_session(&mapped.session)?;
    let is_needless = !is_asked || ms == 0;
    if is_needless && session.settings.get(HOLD_IO.name).is_none() {
        return Ok(());
    }
    control::session::set(&session, HOLD_IO.name, &ms.to_string())
}

/// Fails if requests cannot wait as the user wants, before any disk is mapped.
fn check_hold(args: &Args, context: &Context) -> Result {
    let file = context
        .system
        .sys("module/rtrs_client/parameters/hold_io_ms");
    if args.hold.is_none_or(|ms| ms == 0) || !context.system.client_loaded() || file.exists() {
        return Ok(());
    }
    let why = "the loaded rtrs_client cannot hold requests";
    Err(Error::new(Kind::Unsupported, "mapping with --hold", why)
        .hint("rtrs_client is the C module, whose requests fail at once; leave out --hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wait() {
        assert_eq!(parse_hold("0"), Ok(0));
        assert_eq!(parse_hold("90"), Ok(90_000));
        assert_eq!(parse_hold("10m"), Ok(DEFAULT_HOLD_MS));
        assert_eq!(parse_hold("1d"), Ok(86_400_000));
        for text in ["", "2d", "-1", "4294967295", "forever"] {
            assert!(parse_hold(text).is_err(), "{text:?}");
        }
        assert_eq!(hold_to_set(None, true), Some(DEFAULT_HOLD_MS));
        assert_eq!(hold_to_set(None, false), None);
        assert_eq!(hold_to_set(Some(0), true), Some(0));
        assert_eq!(hold_to_set(Some(5), false), Some(5));
    }
}
