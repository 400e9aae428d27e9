// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl discover`: the disks of a server that this machine could map.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::control::join;
use crate::control::DiscoverRequest;
use crate::control::RemoteDisk;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::bytes;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::server_name::ServerName;
use crate::ways::Ways;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server: an IP address, a host name, or gid:GID; optionally preceded by SOURCE@. May be
    /// left out with --session of a session that exists
    #[arg(value_name = "[SOURCE@]SERVER", value_parser = ServerName::parse)]
    #[arg(required_unless_present = "session")]
    pub servers: Vec<ServerName>,

    /// The name of the session that asks the server; the server's export policy may depend on the
    /// name [default: the session by which rnbdctl map would map the server's disks]
    #[arg(short, long, add = complete::sessions())]
    pub session: Option<String>,

    /// The server's port [default: 1234]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

/// The disks of a server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Found {
    version: Version,
    /// The disks that this machine can map.
    disks: Vec<RemoteDisk>,
}

const COLUMNS: &[Column] = &[
    Column::text("device_path", "DISK"),
    Column::number("size_bytes", "SIZE"),
    Column::number("block_size", "BLOCK").rank(4),
    Column::text("modes", "MODES").rank(1),
    Column::number("sessions", "IN USE BY").rank(2),
    Column::text("device", "DEVICE").rank(1),
    Column::text("used_by_server", "SERVER").rank(3),
    Column::text("file", ""),
    Column::text("wwid", "WWID").rank(5),
];

impl Report for Found {
    fn tables(&self) -> Vec<Table> {
        let row = |disk: &RemoteDisk| {
            let used = match disk.used_by_server {
                true => "in use",
                false => "-",
            };
            let modes: Vec<_> = disk.modes.iter().map(|mode| mode.as_str()).collect();
            vec![
                Cell::new(&disk.device_path),
                Cell::value(Some(disk.size_bytes), |&size| bytes(size)),
                Cell::new(disk.block_size),
                Cell::value(Some(modes.join(",")), |modes| match modes.as_str() {
                    "" => "-".to_owned(),
                    modes => modes.to_owned(),
                }),
                Cell::new(disk.sessions),
                Cell::option(disk.device.as_ref()),
                Cell::value(Some(disk.used_by_server), |_| used.to_owned()),
                Cell::new(disk.file),
                Cell::option(disk.wwid.as_ref()),
            ]
        };
        vec![Table {
            kind: "remote-disk",
            title: "Disks of the server".to_owned(),
            columns: COLUMNS,
            rows: self.disks.iter().map(row).collect(),
            empty: "the server has no disk for this client; give --session if the server's export \
                policy depends on session names"
                .to_owned(),
        }]
    }
}

/// Lists the disks.
pub fn run(args: &Args, context: &Context) -> Result {
    let ways = Ways::to(&context.system, &args.servers)?;
    let session = match (&args.session, args.servers.first()) {
        (Some(session), _) => session.clone(),
        (None, Some(server)) => {
            let server = join::Server {
                name: &server.host.to_string(),
                ways: &ways,
                port: args.port,
                polled: None,
            };
            server.session(&context.system)?
        }
        // Not reached: a server or a session is given.
        (None, None) => String::new(),
    };
    let mut disks = ways.first(|paths| {
        let request = DiscoverRequest {
            session: session.clone(),
            paths: paths.to_vec(),
            port: args.port,
        };
        control::discover(&context.system, &request)
    })?;
    for disk in &mut disks {
        disk.locate(&context.system, &session)?;
    }
    context.output.print(&Found {
        version: JSON_VERSION,
        disks,
    })
}
