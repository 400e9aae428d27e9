// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl discover`: the disks of a server that this machine could map.

use proto::addr::PathAddress;
use serde::Serialize;

use crate::address::parse_path;
use crate::cli::Context;
use crate::control;
use crate::control::DiscoverRequest;
use crate::control::RemoteDisk;
use crate::model::JSON_VERSION;
use crate::output::bytes;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server's address: an IP address, or gid:GID; optionally preceded by SOURCE@. Not needed
    /// for a session that exists
    #[arg(value_name = "[SOURCE@]ADDRESS", value_parser = parse_path)]
    #[arg(required_unless_present = "session")]
    pub servers: Vec<PathAddress>,

    /// The name of the session by which the server is asked: an export policy may go by it
    /// [default: one that is not in use]
    #[arg(short, long)]
    pub session: Option<String>,

    /// The server's port [default: 1234]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

/// The disks.
#[derive(Debug, Serialize)]
struct Found {
    version: u32,
    disks: Vec<RemoteDisk>,
}

const COLUMNS: &[Column] = &[
    Column::text("device_path", "REMOTE PATH"),
    Column::number("size_bytes", "SIZE"),
    Column::number("block_size", "BLOCK"),
    Column::text("modes", "MODES"),
    Column::number("sessions", "IN USE BY"),
    Column::text("device", "DEVICE"),
    Column::text("used_by_server", "SERVER"),
    Column::text("file", ""),
    Column::text("wwid", "WWID"),
];

impl Report for Found {
    fn tables(&self) -> Vec<Table> {
        let row = |disk: &RemoteDisk| {
            let used = match disk.used_by_server {
                true => "in use",
                false => "-",
            };
            vec![
                Cell::new(&disk.device_path),
                Cell::value(Some(disk.size_bytes), |&size| bytes(size)),
                Cell::new(disk.block_size),
                Cell::value(Some(disk.modes.join(",")), |modes| match modes.as_str() {
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
            empty: "the server has no disk for this client; if it has an export policy that goes \
                by the names of sessions, give --session"
                .to_owned(),
        }]
    }
}

/// A name for a session that no other client of the server has: of what the machine has called
/// itself when it was started, and the program's number.
fn own_session(context: &Context) -> String {
    let file = context.system.file("proc/sys/kernel/random/boot_id");
    let number = std::process::id();
    match std::fs::read_to_string(file).as_deref().map(str::trim) {
        Ok(id) if !id.is_empty() => format!("discover-{id}-{number}"),
        _ => format!("discover-{number}"),
    }
}

/// Lists the disks.
pub fn run(args: &Args, context: &Context) -> Result {
    let session = match &args.session {
        Some(session) => session.clone(),
        None => own_session(context),
    };
    let request = DiscoverRequest {
        session,
        paths: args.servers.clone(),
        port: args.port,
    };
    let mut disks = control::discover(&context.system, &request)?;
    for disk in &mut disks {
        disk.locate(&context.system, &request.session)?;
    }
    context.output.print(&Found {
        version: JSON_VERSION,
        disks,
    })
}
