// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl map`: remote disks become `/dev/rnbd<N>`.

use std::time::Duration;

use proto::addr::PathAddress;
use proto::rnbd::IoMode;
use serde::Serialize;

use super::each;
use crate::address::parse_path;
use crate::cli::Context;
use crate::control;
use crate::control::DiscoverRequest;
use crate::control::MapRequest;
use crate::control::Mapped;
use crate::model::AccessMode;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths of the disks at the server, relative to its dev_search_path
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "DISK"
    )]
    pub disks: Vec<String>,

    /// Map all disks that the server tells this client of, but for those that its own machine uses,
    /// that are mapped already, and that cannot be accessed so now
    #[arg(long)]
    pub all: bool,

    /// The name of the session, unique per server
    #[arg(short, long)]
    pub session: String,

    /// The server's address, if the session does not exist yet: an IP address, or gid:GID;
    /// optionally preceded by SOURCE@. Up to six times for several paths
    #[arg(short, long = "path", value_name = "[SOURCE@]ADDRESS", value_parser = parse_path)]
    pub paths: Vec<PathAddress>,

    /// The server's port [default: 1234]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// How the disks shall be accessed [default: rw]
    #[arg(short, long, value_enum)]
    pub access: Option<AccessMode>,

    /// How the server shall read and write the disks: past its page cache (direct) or through it
    /// (buffered) [default: as the server is set]
    #[arg(long, value_name = "MODE", value_parser = parse_io_mode)]
    pub io_mode: Option<IoMode>,

    /// Queues for polled IO, -1 for one of each CPU; needs a session of its own [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i32).range(-1..))]
    pub poll_queues: Option<i32>,

    /// How long to wait for a device node
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub timeout: u32,
}

fn parse_io_mode(text: &str) -> std::result::Result<IoMode, String> {
    IoMode::from_name(text.as_bytes()).ok_or_else(|| "neither direct nor buffered".to_owned())
}

/// What was mapped.
#[derive(Debug, Serialize)]
struct Done<'a> {
    version: u32,
    mapped: &'a [Mapped],
}

const COLUMNS: &[Column] = &[
    Column::text("name", ""),
    Column::text("path", "DEVICE"),
    Column::text("session", "SESSION"),
    Column::text("device_path", "REMOTE PATH"),
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

/// Maps. A disk that cannot be mapped does not keep the others from it.
pub fn run(args: &Args, context: &Context) -> Result {
    let disks = match args.all {
        true => all_disks(args, context)?,
        false => args.disks.clone(),
    };
    if disks.is_empty() {
        return context.output.say("nothing to map: see rnbdctl discover");
    }
    let requests: Vec<_> = disks.iter().map(|disk| request(args, disk)).collect();
    // Before anything is done; but the names that a server has are nobody's mistake here.
    for request in requests.iter().filter(|_| !args.all) {
        request.line()?;
    }
    let patience = Duration::from_secs(args.timeout.into());
    let name = |request: &MapRequest| format!("mapping {}", request.device_path);
    let done = each(&requests, name, |request| {
        control::map(&context.system, request, patience)
    });
    if !done.done.is_empty() {
        context.output.print(&Done {
            version: JSON_VERSION,
            mapped: &done.done,
        })?;
    }
    done.end()
}

/// The disks that `--all` stands for.
fn all_disks(args: &Args, context: &Context) -> Result<Vec<String>> {
    let asked = DiscoverRequest {
        session: args.session.clone(),
        paths: args.paths.clone(),
        port: args.port,
    };
    let wanted = args.access.unwrap_or(AccessMode::Rw).as_str();
    let mut disks = Vec::new();
    for mut disk in control::discover(&context.system, &asked)? {
        disk.locate(&context.system, &args.session)?;
        let is_possible = disk.modes.iter().any(|mode| mode == wanted);
        if is_possible && !disk.used_by_server && disk.device.is_none() {
            disks.push(disk.device_path);
        }
    }
    Ok(disks)
}

fn request(args: &Args, disk: &str) -> MapRequest {
    MapRequest {
        session: args.session.clone(),
        device_path: disk.to_owned(),
        paths: args.paths.clone(),
        port: args.port,
        access_mode: args.access,
        io_mode: args.io_mode,
        poll_queues: args.poll_queues,
    }
}
