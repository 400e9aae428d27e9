// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl stats`: the counters of devices and paths.

use schemars::JsonSchema;
use serde::Serialize;

use super::each;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::BlockStat;
use crate::model::ClientDevice;
use crate::model::Path;
use crate::model::Side;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::bytes;
use crate::output::nanoseconds;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::sysfs::Found;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Devices, sessions or paths [default: all]
    #[arg(value_name = "DEVICE|SESSION|PATH", add = complete::everything())]
    pub names: Vec<String>,

    /// Reset the counters of paths to 0; the counters of devices cannot be reset
    #[arg(long)]
    pub reset: bool,
}

/// The counters.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stats {
    version: Version,
    /// The devices, since they were mapped.
    devices: Vec<DeviceStats>,
    /// The paths, since they were made or their counters were reset.
    paths: Vec<PathCounters>,
}

/// The counters of a device.
#[derive(Debug, Serialize, JsonSchema)]
struct DeviceStats {
    /// The kernel's name: `rnbd0`.
    name: String,
    /// The session that carries the device.
    session: String,
    /// The disk's path at the server, as it was mapped.
    device_path: String,
    #[serde(flatten)]
    stat: BlockStat,
}

/// The counters of a path.
#[derive(Debug, Serialize, JsonSchema)]
struct PathCounters {
    /// The path's name: `source@destination`.
    name: String,
    /// The session.
    session: String,
    /// This machine's end.
    side: Side,
    /// The round trip of the last heartbeats, in ns; only the client knows it.
    latency_ns: Option<u64>,
    #[serde(flatten)]
    stats: crate::model::PathStats,
}

const DEVICES: &[Column] = &[
    Column::text("name", "DEVICE"),
    Column::text("session", "SESSION").rank(7),
    Column::text("device_path", "DISK").rank(6),
    Column::number("reads", "READS"),
    Column::number("read_bytes", "READ").rank(2),
    Column::number("read_ms", "READ TIME").rank(3),
    Column::number("writes", "WRITES"),
    Column::number("write_bytes", "WRITTEN").rank(2),
    Column::number("write_ms", "WRITE TIME").rank(3),
    Column::number("discards", "DISCARDS").rank(9),
    Column::number("flushes", "FLUSHES").rank(8),
    Column::number("inflight", "IN FLIGHT").rank(1),
    Column::number("busy_ms", "BUSY").rank(5),
];

const PATHS: &[Column] = &[
    Column::text("session", "SESSION").rank(6),
    Column::text("name", "PATH"),
    Column::text("side", "SIDE").rank(5),
    Column::number("reads", "READS").rank(1),
    Column::number("read_bytes", "READ").rank(4),
    Column::number("writes", "WRITES").rank(1),
    Column::number("write_bytes", "WRITTEN").rank(4),
    Column::number("inflight", "IN FLIGHT").rank(2),
    Column::number("latency_ns", "LATENCY").rank(3),
    Column::number("reconnects", "RECONNECTS").rank(7),
    Column::number("failed_reconnects", "FAILED").rank(8),
    Column::number("failovers", "FAILOVERS").rank(9),
];

fn size(number: u64) -> Cell {
    Cell::value(Some(number), |number| bytes(*number))
}

fn milliseconds(number: u64) -> Cell {
    Cell::value(Some(number), |ms| nanoseconds(ms.saturating_mul(1_000_000)))
}

impl DeviceStats {
    fn row(&self) -> Vec<Cell> {
        let stat = &self.stat;
        vec![
            Cell::new(&self.name),
            Cell::new(&self.session),
            Cell::new(&self.device_path),
            Cell::new(stat.reads),
            size(stat.read_bytes),
            milliseconds(stat.read_ms),
            Cell::new(stat.writes),
            size(stat.write_bytes),
            milliseconds(stat.write_ms),
            Cell::new(stat.discards),
            Cell::new(stat.flushes),
            Cell::new(stat.inflight),
            milliseconds(stat.busy_ms),
        ]
    }
}

impl PathCounters {
    fn row(&self) -> Vec<Cell> {
        let stats = &self.stats;
        vec![
            Cell::new(&self.session),
            Cell::new(&self.name),
            Cell::new(self.side.as_str()),
            Cell::new(stats.reads),
            size(stats.read_bytes),
            Cell::new(stats.writes),
            size(stats.write_bytes),
            Cell::option(stats.inflight),
            Cell::value(self.latency_ns, |ns| nanoseconds(*ns)),
            Cell::option(stats.reconnects),
            Cell::option(stats.failed_reconnects),
            Cell::option(stats.failovers),
        ]
    }
}

impl Report for Stats {
    fn tables(&self) -> Vec<Table> {
        vec![
            Table {
                kind: "client-device",
                title: "Devices, since they were mapped".to_owned(),
                columns: DEVICES,
                rows: self.devices.iter().map(DeviceStats::row).collect(),
                empty: "no devices".to_owned(),
            },
            Table {
                kind: "path",
                title: "Paths, since they were made or reset".to_owned(),
                columns: PATHS,
                rows: self.paths.iter().map(PathCounters::row).collect(),
                empty: "no paths".to_owned(),
            },
        ]
    }
}

/// Shows the counters, or sets them back.
pub fn run(args: &Args, context: &Context) -> Result {
    if args.reset {
        return reset(&args.names, context);
    }
    let (devices, paths) = chosen(&args.names, context)?;
    let mut stats = Stats {
        version: JSON_VERSION,
        devices: Vec::new(),
        paths: paths.into_iter().map(counters).collect(),
    };
    for device in devices {
        // A device that has just gone is left out.
        if let Some(stat) = context.system.block_stat(&device.name)? {
            stats.devices.push(DeviceStats {
                name: device.name,
                session: device.session,
                device_path: device.device_path,
                stat,
            });
        }
    }
    context.output.print(&stats)?;
    context.system.need_any("showing counters")
}

fn counters(path: Path) -> PathCounters {
    PathCounters {
        name: path.name,
        session: path.session,
        side: path.side,
        latency_ns: path.latency_ns,
        stats: path.stats,
    }
}

fn chosen(names: &[String], context: &Context) -> Result<(Vec<ClientDevice>, Vec<Path>)> {
    let system = &context.system;
    if names.is_empty() {
        return Ok((system.client_devices()?, system.all_paths()?));
    }
    let (mut devices, mut paths) = (Vec::new(), Vec::new());
    for name in names {
        match system.find(name)? {
            Found::Device(device) => devices.push(device),
            Found::Session(session) => {
                let of_it = |device: &ClientDevice| device.session == session.name;
                devices.extend(system.client_devices()?.into_iter().filter(of_it));
                paths.extend(session.paths);
            }
            Found::ServerSession(session) => paths.extend(session.paths),
            Found::Path(path) => paths.push(path),
            Found::ServerDevice(device) => {
                let why = "a server's disk counts the requests of all its users: see iostat";
                return Err(Error::new(
                    Kind::Usage,
                    format!("device {}", device.name),
                    why,
                ));
            }
        }
    }
    Ok((devices, paths))
}

fn reset(names: &[String], context: &Context) -> Result {
    context.system.need_any("resetting counters")?;
    // A name that is not found is a failure like other failures.
    let mut paths: Vec<Result<Path>> = Vec::new();
    let mut find = |names: &[String]| match chosen(names, context) {
        Ok((_, found)) => paths.extend(found.into_iter().map(Ok)),
        Err(error) => paths.push(Err(error)),
    };
    match names.is_empty() {
        true => find(names),
        false => names.chunks(1).for_each(find),
    }
    if paths.is_empty() && !names.is_empty() {
        let why = "the counters of a device belong to the block layer and cannot be reset";
        return Err(
            Error::new(Kind::Usage, "resetting counters", why).hint("give a session or a path")
        );
    }
    let done = each(
        &paths,
        |_| "resetting counters".to_owned(),
        |path| control::stats::reset(path.as_ref().map_err(Clone::clone)?),
    );
    let count = done.done.len();
    done.end()?;
    context
        .output
        .say(&format!("paths with reset counters: {count}"))
}
