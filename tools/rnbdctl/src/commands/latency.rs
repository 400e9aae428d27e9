// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl latency`: where the time of requests goes.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::complete;
use crate::latency;
use crate::latency::Source;
use crate::model::DeviceLatency;
use crate::model::KindLatency;
use crate::model::Latency;
use crate::model::Side;
use crate::model::StageLatency;
use crate::model::JSON_VERSION;
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
    /// Devices, mapped or exported [default: all]
    #[arg(value_name = "DEVICE", add = complete::timed_devices())]
    pub names: Vec<String>,

    /// The duration of the measurement, in seconds
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3599))]
    pub seconds: u32,

    /// Show the histograms, with a line for each doubling of the time
    #[arg(long)]
    pub histogram: bool,

    /// The output of `rnbdctl latency -o json` on the server for the same time; - for standard
    /// input. Separates the times of the network and of the server
    #[arg(long, value_name = "FILE")]
    pub server_json: Option<PathBuf>,
}

/// Measures, and shows the results.
pub fn run(args: &Args, context: &Context) -> Result {
    let sources = sources(&args.names, context)?;
    // A missing file is found before the time is spent. The file is read after the measurement.
    if let Some(file) = args.server_json.as_deref().filter(|file| !is_stdin(file)) {
        fs::metadata(file).map_err(|error| Error::io(reading(file), &error))?;
    }
    let mut latency = latency::measure(&sources, args.seconds)?;
    let mut servers = latency.devices.clone();
    if let Some(file) = &args.server_json {
        servers.extend(read(file)?.devices);
    }
    latency::add_network(&mut latency.devices, &servers);
    let report = Measured {
        latency,
        servers,
        histogram: args.histogram,
    };
    context.output.print(&report)?;
    context.system.need_any("timing requests")
}

/// The devices with these names, of either end; without names all devices.
fn sources(names: &[String], context: &Context) -> Result<Vec<Source>> {
    let system = &context.system;
    if names.is_empty() {
        let devices = system.client_devices()?;
        let mut all: Vec<_> = devices.iter().map(Source::of_client).collect();
        for device in system.server_devices()? {
            let exports = device.exports.iter();
            all.extend(exports.map(|export| Source::of_export(&device, export)));
        }
        all.retain(Source::is_there);
        return Ok(all);
    }
    let mut chosen = Vec::new();
    for name in names {
        match system.find(name)? {
            Found::Device(device) => chosen.push(Source::of_client(&device)),
            Found::ServerDevice(device) => {
                let exports = device.exports.iter();
                chosen.extend(exports.map(|export| Source::of_export(&device, export)));
            }
            _ => {
                let why = "the name is not of a device, and only requests of devices are timed";
                return Err(Error::new(Kind::Usage, format!("timing {name}"), why));
            }
        }
    }
    if let Some(source) = chosen.iter().find(|source| !source.is_there()) {
        let what = format!("timing the requests of {}", source.name);
        let why = "the loaded module does not time requests";
        return Err(Error::new(Kind::Unsupported, what, why));
    }
    Ok(chosen)
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn reading(file: &Path) -> String {
    format!("reading {}", file.display())
}

/// Reads the output of this program on another machine.
fn read(file: &Path) -> Result<Latency> {
    let what = reading(file);
    let text = match is_stdin(file) {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(file),
    };
    let text = text.map_err(|error| Error::io(&what, &error))?;
    let latency: Latency = serde_json::from_str(&text).map_err(|error| {
        Error::new(Kind::Usage, &what, error.to_string())
            .hint("make the file on the server with: rnbdctl latency -o json")
    })?;
    if latency.version != JSON_VERSION {
        let why = format!("the version is {}, not {JSON_VERSION}", latency.version);
        return Err(Error::new(Kind::Usage, &what, why));
    }
    Ok(latency)
}

/// The results. JSON has only what was measured here.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Measured {
    #[serde(flatten)]
    latency: Latency,
    #[serde(skip)]
    servers: Vec<DeviceLatency>,
    #[serde(skip)]
    histogram: bool,
}

const COLUMNS: &[Column] = &[
    Column::text("device", "DEVICE"),
    Column::text("session", "SESSION").rank(9),
    Column::text("kind", "KIND"),
    Column::text("stage", "STAGE"),
    Column::number("requests", "REQUESTS").rank(1),
    Column::number("mean_ns", "MEAN"),
    Column::number("p50_ns", "P50"),
    Column::number("p90_ns", "P90").rank(3),
    Column::number("p99_ns", "P99"),
    Column::number("p999_ns", "P99.9").rank(2),
    Column::number("max_ns", "LONGEST"),
];

fn time(ns: Option<u64>) -> Cell {
    Cell::value(ns, |ns| nanoseconds(*ns))
}

fn row(device: &DeviceLatency, kind: &str, stage: &str, rest: [Cell; 7]) -> Vec<Cell> {
    let names = [&device.name, &device.session].map(Cell::new);
    let mut row = names.to_vec();
    row.extend([Cell::new(kind), Cell::new(stage)]);
    row.extend(rest);
    row
}

fn stage_row(
    device: &DeviceLatency,
    kind: &KindLatency,
    name: &str,
    stage: &StageLatency,
) -> Vec<Cell> {
    let rest = [
        Cell::new(stage.requests),
        time(stage.mean_ns),
        time(stage.p50_ns),
        time(stage.p90_ns),
        time(stage.p99_ns),
        time(stage.p999_ns),
        time(stage.max_ns),
    ];
    row(device, &kind.kind, name, rest)
}

/// A part of the stage before it, in a table: the parts of `remote` are indented.
fn part(stage: &str) -> String {
    format!("  {stage}")
}

/// The network's part. Only its mean is known.
fn network_row(device: &DeviceLatency, kind: &KindLatency) -> Option<Vec<Cell>> {
    let mean = kind.network_mean_ns?;
    let none = || Cell::option(None::<u64>);
    let rest = [
        none(),
        time(Some(mean)),
        none(),
        none(),
        none(),
        none(),
        none(),
    ];
    Some(row(device, &kind.kind, &part("network"), rest))
}

impl Measured {
    /// Each device with the kinds of which it had requests.
    fn kinds(&self) -> impl Iterator<Item = (&DeviceLatency, &KindLatency)> {
        let devices = self.latency.devices.iter();
        devices
            .flat_map(|device| device.kinds.iter().map(move |kind| (device, kind)))
            .filter(|(_, kind)| kind.requests() != 0)
    }

    /// The rows of a kind: its stages, and behind `remote` its parts, as far as they are known.
    fn rows(&self, device: &DeviceLatency, kind: &KindLatency) -> Vec<Vec<Cell>> {
        let there = latency::other_end(device, &self.servers).filter(|_| {
            // If both ends are on this machine, the server's device has rows of its own.
            let here = latency::other_end(device, &self.latency.devices);
            device.side == Side::Client && here.is_none()
        });
        let there = there.and_then(|there| there.kinds.iter().find(|of| of.kind == kind.kind));
        let mut rows = Vec::new();
        for stage in &kind.stages {
            rows.push(stage_row(device, kind, &stage.stage, stage));
            if stage.stage == "remote" {
                rows.extend(network_row(device, kind));
                let parts = there.into_iter().flat_map(|there| &there.stages);
                let parts = parts.filter(|part| part.stage != "whole");
                let parts = parts.map(|of| stage_row(device, kind, &part(&of.stage), of));
                rows.extend(parts);
            }
        }
        rows
    }

    fn histograms(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (device, kind) in self.kinds() {
            for stage in &kind.stages {
                let (name, session) = (&device.name, &device.session);
                let what = format!("{} {}", kind.kind, stage.stage);
                lines.push(format!("\n{name} of {session}, {what}:"));
                lines.extend(latency::bars(stage));
            }
        }
        lines
    }

    /// A hint how to tell the network from the server, if that is not known.
    fn hint(&self) -> Option<String> {
        let (device, _) = self
            .kinds()
            .find(|(device, kind)| device.side == Side::Client && kind.network_mean_ns.is_none())?;
        let (name, seconds) = (&device.name, self.latency.seconds);
        Some(format!(
            "\nremote is the network and the server; to measure each:\n  ssh SERVER rnbdctl \
             latency --seconds {seconds} -o json |\n    rnbdctl latency {name} --seconds \
             {seconds} --server-json -"
        ))
    }
}

impl Report for Measured {
    fn tables(&self) -> Vec<Table> {
        vec![Table {
            kind: "latency",
            title: "Latency".to_owned(),
            columns: COLUMNS,
            rows: self
                .kinds()
                .flat_map(|(device, kind)| self.rows(device, kind))
                .collect(),
            empty: "no request ended in that time".to_owned(),
        }]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = match self.histogram {
            true => self.histograms(),
            false => Vec::new(),
        };
        notes.extend(self.hint());
        notes
    }
}
