// SPDX-License-Identifier: GPL-2.0

//! The rates of an interval as tables, JSON or CSV.

use schemars::JsonSchema;
use serde::Serialize;

use super::rates::Flow;
use super::DeviceRates;
use super::PathRates;
use super::Rates;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::bytes;
use crate::output::nanoseconds;
use crate::output::short;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;

/// Rates, with the version of the format.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RatesReport<'r> {
    version: Version,
    #[serde(flatten)]
    rates: &'r Rates,
}

impl<'r> RatesReport<'r> {
    /// The report of these rates.
    pub fn new(rates: &'r Rates) -> Self {
        Self {
            version: JSON_VERSION,
            rates,
        }
    }
}

const DEVICES: &[Column] = &[
    Column::text("name", "DEVICE"),
    Column::text("session", "SESSION").rank(6),
    Column::text("device_path", "DISK").rank(5),
    Column::text("state", "STATE").rank(4),
    Column::number("read_iops", "R/s"),
    Column::number("write_iops", "W/s"),
    Column::number("read_bytes_per_s", "READ/s").rank(1),
    Column::number("write_bytes_per_s", "WRITE/s").rank(1),
    Column::number("read_ms", "R-LAT").rank(2),
    Column::number("write_ms", "W-LAT").rank(2),
    Column::number("inflight", "IN FLIGHT").rank(3),
    Column::number("busy", "BUSY").rank(3),
];

const PATHS: &[Column] = &[
    Column::text("session", "SESSION").rank(6),
    Column::text("name", "PATH"),
    Column::text("side", "SIDE").rank(5),
    Column::text("state", "STATE").rank(1),
    Column::number("read_iops", "R/s"),
    Column::number("write_iops", "W/s"),
    Column::number("read_bytes_per_s", "READ/s").rank(2),
    Column::number("write_bytes_per_s", "WRITE/s").rank(2),
    Column::number("latency_ns", "LATENCY").rank(3),
    Column::number("inflight", "IN FLIGHT").rank(4),
    Column::number("reconnects", "RECONNECTS").rank(7),
    Column::number("failed_reconnects", "FAILED").rank(8),
    Column::number("failovers", "FAILOVERS").rank(9),
];

/// Requests per second: `12.3k`.
pub fn per_second(value: f64) -> String {
    match value {
        value if value >= 999_950.0 => format!("{:.1}M", value / 1e6),
        value if value >= 9_999.5 => format!("{:.1}k", value / 1e3),
        value if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Bytes per second, without the `/s`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and rates are not negative"
)]
pub fn bytes_per_second(value: f64) -> String {
    short(&bytes(value.round() as u64))
}

/// A time given in ms.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and times are not negative"
)]
pub fn milliseconds(value: f64) -> String {
    short(&nanoseconds((value * 1e6).round() as u64))
}

/// A part of 1 in percent.
pub fn percent(value: f64) -> String {
    format!("{:.0}%", value * 100.0)
}

fn number(value: Option<f64>, text: fn(f64) -> String) -> Cell {
    // Programs get milliseconds and parts of 1 with three digits behind the point.
    let rounded = value.map(|value| (value * 1000.0).round() / 1000.0);
    Cell::value(rounded, |_| value.map_or_else(String::new, text))
}

fn flow(flow: &Flow) -> [Cell; 4] {
    [
        number(flow.read_iops, per_second),
        number(flow.write_iops, per_second),
        number(flow.read_bytes_per_s, bytes_per_second),
        number(flow.write_bytes_per_s, bytes_per_second),
    ]
}

fn device(rates: &DeviceRates) -> Vec<Cell> {
    let names = [
        Cell::new(&rates.name),
        Cell::new(&rates.session),
        Cell::new(&rates.device_path),
        Cell::new(rates.state.as_str()),
    ];
    let rest = [
        number(rates.read_ms, milliseconds),
        number(rates.write_ms, milliseconds),
        Cell::new(rates.inflight),
        number(rates.busy, percent),
    ];
    names
        .into_iter()
        .chain(flow(&rates.flow))
        .chain(rest)
        .collect()
}

fn path(rates: &PathRates) -> Vec<Cell> {
    let names = [
        Cell::new(&rates.session),
        Cell::new(&rates.name),
        Cell::new(rates.side.as_str()),
        Cell::new(rates.state.as_str()),
    ];
    let rest = [
        Cell::value(rates.latency_ns, |ns| short(&nanoseconds(*ns))),
        Cell::option(rates.inflight),
        Cell::option(rates.reconnects),
        Cell::option(rates.failed_reconnects),
        Cell::option(rates.failovers),
    ];
    names
        .into_iter()
        .chain(flow(&rates.flow))
        .chain(rest)
        .collect()
}

impl Report for RatesReport<'_> {
    fn tables(&self) -> Vec<Table> {
        vec![
            Table {
                kind: "client-device",
                title: "Devices".to_owned(),
                columns: DEVICES,
                rows: self.rates.devices.iter().map(device).collect(),
                empty: "no devices".to_owned(),
            },
            Table {
                kind: "path",
                title: "Paths".to_owned(),
                columns: PATHS,
                rows: self.rates.paths.iter().map(path).collect(),
                empty: "no paths".to_owned(),
            },
        ]
    }
}
