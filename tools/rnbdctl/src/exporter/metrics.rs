// SPDX-License-Identifier: GPL-2.0

//! All values as Prometheus metrics.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::MetricEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::mirrors;
use super::served::Served;
use crate::mirror::view;
use crate::mirror::View;
use crate::model::BlockStat;
use crate::model::Client;
use crate::model::ClientDevice;
use crate::model::DeviceState;
use crate::model::Path;
use crate::model::PathStats;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// All values, read at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    client: Client,
    stats: Vec<(ClientDevice, BlockStat)>,
    /// The seconds for which requests of a session wait for its server.
    drains: Vec<(String, u64)>,
    served: Served,
    mirrors: Vec<View>,
    took: Duration,
}

impl Snapshot {
    /// Reads the values. Objects that vanish meanwhile are left out.
    pub fn take(system: &System) -> Result<Self> {
        let start = std::time::Instant::now();
        let client = system.client()?;
        let mut stats = Vec::new();
        for device in &client.devices {
            if let Some(stat) = system.block_stat(&device.name)? {
                stats.push((device.clone(), stat));
            }
        }
        let mut drains = Vec::new();
        for session in &client.sessions {
            let seconds = system.session_drain(session)?;
            drains.extend(seconds.map(|seconds| (session.name.clone(), seconds)));
        }
        Ok(Self {
            client,
            stats,
            drains,
            served: Served::take(system)?,
            mirrors: view::all(system)?,
            took: start.elapsed(),
        })
    }
}

/// All metrics as OpenMetrics text.
pub fn render(snapshot: Snapshot) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => Ok(text),
        Err(fmt::Error) => Err(Error::new(
            Kind::Failed,
            "writing metrics",
            "the text could not be made",
        )),
    }
}

/// The labels of a value: names, and values that are escaped already.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Escapes a label's value, which the library does not do.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Writes metrics.
pub(super) struct Writer<'e>(DescriptorEncoder<'e>);

impl Writer<'_> {
    fn family<T>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (Labels, T)>,
        write: impl Fn(&mut MetricEncoder<'_>, T) -> fmt::Result,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        // A metric without values is left out.
        if values.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            match labels.is_empty() {
                // With no labels the library writes empty braces.
                true => write(&mut metric, value)?,
                false => write(&mut metric.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }

    /// A number that only grows. The library puts `_total` behind the name.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, values, |metric, value| {
            metric.encode_counter::<Labels, u64, f64>(&value, None)
        })
    }

    /// A time that only grows: `values` are in milliseconds, the metric in seconds.
    fn seconds(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, values, |metric, value| {
            let seconds = Duration::from_millis(value).as_secs_f64();
            metric.encode_counter::<Labels, f64, f64>(&seconds, None)
        })
    }

    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, values, |metric, value| {
            metric.encode_gauge(&value)
        })
    }

    fn gauge_f64(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, values, |metric, value| {
            metric.encode_gauge(&value)
        })
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer(encoder);
        self.general(&mut out)?;
        self.devices(&mut out)?;
        self.sessions(&mut out)?;
        let client = self
            .client
            .sessions
            .iter()
            .flat_map(|session| &session.paths)
            .collect::<Vec<_>>();
        paths(&mut out, "rnbd_path", &client)?;
        client_paths(&mut out, &client)?;
        mirrors::write(&mut out, &self.mirrors)?;
        self.served.write(&mut out)?;
        let server = self
            .served
            .server
            .sessions
            .iter()
            .flat_map(|session| &session.paths)
            .collect::<Vec<_>>();
        paths(&mut out, "rnbd_server_path", &server)
    }
}

pub(super) fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels
        .into_iter()
        .map(|(name, value)| (name, escaped(value)))
        .collect()
}

pub(super) fn count<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

impl Snapshot {
    fn general(&self, out: &mut Writer<'_>) -> fmt::Result {
        let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
        out.gauge(
            "rnbd_exporter_build_info",
            "The version of the exporter; always 1",
            [(version, 1)],
        )?;
        let took = self.took.as_secs_f64();
        out.gauge_f64(
            "rnbd_exporter_read_seconds",
            "The time to read all values from sysfs",
            [(Labels::new(), took)],
        )?;
        let modules = [
            ("rnbd_client", self.client.loaded),
            ("rnbd_server", self.served.server.loaded),
        ];
        let modules = modules.map(|(name, loaded)| (labels([("module", name)]), u64::from(loaded)));
        out.gauge(
            "rnbd_module_loaded",
            "Whether the kernel module is loaded",
            modules,
        )
    }

    fn devices(&self, out: &mut Writer<'_>) -> fmt::Result {
        let devices = &self.client.devices;
        let infos = devices.iter().map(|device| {
            let mode = device.access_mode.map_or("unknown", |mode| mode.as_str());
            let all = [
                ("device", device.name.as_str()),
                ("session", &device.session),
                ("device_path", &device.device_path),
                ("access_mode", mode),
            ];
            (labels(all), 1)
        });
        out.gauge(
            "rnbd_device_info",
            "A mapped device, with its path at the server; always 1",
            infos,
        )?;
        let open = devices.iter().map(|device| {
            let is_open = device.state == DeviceState::Open;
            (device_labels(device), u64::from(is_open))
        });
        out.gauge(
            "rnbd_device_open",
            "Whether the device takes requests",
            open,
        )?;
        let sizes = devices
            .iter()
            .filter_map(|device| Some((device_labels(device), device.size_bytes?)));
        out.gauge("rnbd_device_size_bytes", "The size of the device", sizes)?;
        troubles(out, devices)?;
        for (name, help, value) in DEVICE {
            let name = format!("rnbd_device_{name}");
            let values = self.stats.iter();
            let each = |value: fn(&BlockStat) -> u64| {
                values.map(move |(device, stat)| (device_labels(device), value(stat)))
            };
            match value {
                Stat::Count(value) => out.counter(&name, help, each(value))?,
                Stat::Time(value) => out.seconds(&name, help, each(value))?,
                Stat::Now(value) => out.gauge(&name, help, each(value))?,
            }
        }
        Ok(())
    }

    fn sessions(&self, out: &mut Writer<'_>) -> fmt::Result {
        let sessions = &self.client.sessions;
        let infos = sessions.iter().map(|session| {
            let policy = session.policy.map_or("unknown", |policy| policy.as_str());
            (labels([("session", &session.name), ("policy", policy)]), 1)
        });
        out.gauge(
            "rnbd_session_info",
            "A session with a server, with its policy; always 1",
            infos,
        )?;
        let paths = sessions
            .iter()
            .map(|session| (labels([("session", &session.name)]), count(&session.paths)));
        out.gauge("rnbd_session_paths", "Paths of the session", paths)?;
        let up = sessions.iter().map(|session| {
            let up = u64::try_from(session.paths_up()).unwrap_or(u64::MAX);
            (labels([("session", &session.name)]), up)
        });
        out.gauge(
            "rnbd_session_paths_connected",
            "Paths of the session that are connected",
            up,
        )?;
        let drains = self.drains.iter();
        out.gauge(
            "rnbd_session_drain_seconds",
            "The time for which requests are still held as the server drains; 0 without a drain",
            drains.map(|(session, seconds)| (labels([("session", session)]), *seconds)),
        )
    }
}

/// A number of the block layer for a device.
enum Stat {
    /// A count that only grows.
    Count(fn(&BlockStat) -> u64),
    /// A time in milliseconds that only grows.
    Time(fn(&BlockStat) -> u64),
    /// The present value.
    Now(fn(&BlockStat) -> u64),
}

/// The numbers of the block layer for each device: the name of the metric, its meaning, and its
/// value.
const DEVICE: [(&str, &str, Stat); 10] = [
    (
        "reads",
        "Reads that are completed",
        Stat::Count(|stat| stat.reads),
    ),
    (
        "read_bytes",
        "Bytes read",
        Stat::Count(|stat| stat.read_bytes),
    ),
    (
        "read_seconds",
        "The total time of reads",
        Stat::Time(|stat| stat.read_ms),
    ),
    (
        "writes",
        "Writes that are completed",
        Stat::Count(|stat| stat.writes),
    ),
    (
        "written_bytes",
        "Bytes written",
        Stat::Count(|stat| stat.write_bytes),
    ),
    (
        "write_seconds",
        "The total time of writes",
        Stat::Time(|stat| stat.write_ms),
    ),
    (
        "discards",
        "Discards that are completed",
        Stat::Count(|stat| stat.discards),
    ),
    (
        "flushes",
        "Flushes that are completed",
        Stat::Count(|stat| stat.flushes),
    ),
    (
        "busy_seconds",
        "The time with requests in flight",
        Stat::Time(|stat| stat.busy_ms),
    ),
    (
        "inflight",
        "Requests in flight",
        Stat::Now(|stat| stat.inflight),
    ),
];

fn device_labels(device: &ClientDevice) -> Labels {
    labels([("device", &device.name), ("session", &device.session)])
}

fn path_labels(path: &Path) -> Labels {
    labels([("session", &path.session), ("path", &path.name)])
}

/// Troubles of mapped devices.
fn troubles(out: &mut Writer<'_>, devices: &[ClientDevice]) -> fmt::Result {
    let withdrawn = devices.iter().map(|device| {
        let is_withdrawn = u64::from(device.closed_by_server);
        (device_labels(device), is_withdrawn)
    });
    out.gauge(
        "rnbd_device_closed_by_server",
        "Whether the server's administrator has closed the device",
        withdrawn,
    )?;
    let ended = devices
        .iter()
        .filter_map(|device| Some((device_labels(device), device.io_timeouts?.into())));
    out.counter(
        "rnbd_device_io_timeouts",
        "Requests that were ended after io_timeout_ms",
        ended,
    )?;
    let unanswered = devices
        .iter()
        .filter_map(|device| Some((device_labels(device), device.io_unanswered?.into())));
    out.gauge(
        "rnbd_device_io_unanswered",
        "Requests that were ended after io_timeout_ms and have no response yet",
        unanswered,
    )
}

/// The metrics of paths that both ends know.
fn paths(out: &mut Writer<'_>, prefix: &str, paths: &[&Path]) -> fmt::Result {
    let infos = paths.iter().map(|path| {
        let port = path.hca_port.map_or(String::new(), |port| port.to_string());
        let all = [
            ("session", path.session.as_str()),
            ("path", &path.name),
            ("source", &path.source),
            ("destination", &path.destination),
            ("hca", path.hca_name.as_deref().unwrap_or("")),
            ("port", &port),
        ];
        (labels(all), 1)
    });
    out.gauge(
        &format!("{prefix}_info"),
        "A path, with its addresses and RDMA device; always 1",
        infos,
    )?;
    let each = |value: fn(&PathStats) -> u64| {
        let values = paths
            .iter()
            .map(move |path| (path_labels(path), value(&path.stats)));
        values.collect::<Vec<_>>()
    };
    out.counter(
        &format!("{prefix}_reads"),
        "Reads over the path",
        each(|stats| stats.reads),
    )?;
    out.counter(
        &format!("{prefix}_read_bytes"),
        "Bytes read over the path",
        each(|stats| stats.read_bytes),
    )?;
    out.counter(
        &format!("{prefix}_writes"),
        "Writes and other requests over the path",
        each(|stats| stats.writes),
    )?;
    out.counter(
        &format!("{prefix}_written_bytes"),
        "Bytes written over the path",
        each(|stats| stats.write_bytes),
    )
}

/// The metrics of paths that only the client knows.
fn client_paths(out: &mut Writer<'_>, paths: &[&Path]) -> fmt::Result {
    let connected = paths
        .iter()
        .map(|path| (path_labels(path), u64::from(path.is_up())));
    out.gauge(
        "rnbd_path_connected",
        "Whether the path is connected",
        connected,
    )?;
    let latency = paths.iter().filter_map(|path| {
        let latency = Duration::from_nanos(path.latency_ns?);
        Some((path_labels(path), latency.as_secs_f64()))
    });
    out.gauge_f64(
        "rnbd_path_latency_seconds",
        "The round trip of the path's last heartbeats",
        latency,
    )?;
    let each = |value: fn(&PathStats) -> Option<u64>| {
        let values = paths
            .iter()
            .filter_map(move |path| Some((path_labels(path), value(&path.stats)?)));
        values.collect::<Vec<_>>()
    };
    out.gauge(
        "rnbd_path_inflight",
        "Requests in flight on the path",
        each(|stats| stats.inflight),
    )?;
    out.counter(
        "rnbd_path_failovers",
        "Requests that were taken over from a lost path",
        each(|stats| stats.failovers),
    )?;
    out.counter(
        "rnbd_path_reconnects",
        "Reconnects of the path",
        each(|stats| stats.reconnects),
    )?;
    out.counter(
        "rnbd_path_reconnect_failures",
        "Failed reconnects of the path",
        each(|stats| stats.failed_reconnects),
    )
}
