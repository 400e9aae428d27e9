// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl fabric test`: tests whether the way to a server is fit for data.

use clap::Subcommand;
use proto::addr::PathAddress;
use proto::fabric::options::MAX_MIB;
use proto::fabric::options::MAX_REQUESTS;
use proto::fabric::verdict::Fault;
use proto::fabric::verdict::SLOW_NS;
use schemars::JsonSchema;
use serde::Serialize;

use crate::address::path_text;
use crate::cli::Context;
use crate::fabric;
use crate::fabric::Bandwidth;
use crate::fabric::Case;
use crate::fabric::Counters;
use crate::fabric::Found;
use crate::fabric::Latency;
use crate::fabric::Outcome;
use crate::fabric::Request;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::bytes;
use crate::output::nanoseconds;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::preflight;
use crate::server_name::ServerName;
use crate::ways::Ways;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Test the network to a server that has rtrs_test_server loaded, and name the fault. The test
    /// has all kinds of requests in all critical sizes, errors, queues, latency and bandwidth
    Test(TestArgs),
}

/// The arguments of `test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// The server: an IP address, a host name (one of its addresses is tested), or gid:GID;
    /// optionally preceded by SOURCE@
    #[arg(value_name = "[SOURCE@]SERVER", value_parser = ServerName::parse)]
    pub server: ServerName,

    /// The port of rtrs_test_server
    #[arg(long, default_value_t = proto::fabric::PORT)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Number of requests for the latency of each size and direction
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REQUESTS)))]
    pub requests: u32,

    /// MiB to transfer in each direction for the bandwidth; more data shows rarer losses of packets
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MIB)))]
    pub mib: u32,

    /// The median latency of requests of one byte that counts as a fault, in ms
    #[arg(long, value_name = "MS", default_value_t = SLOW_NS / NS_PER_MS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub max_latency: u64,

    /// Test even if disks are mapped from that server or over that RDMA device; they become slow
    #[arg(long)]
    pub with_mapped_disks: bool,
}

/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;

/// The end of a test that was stopped (`EINTR`).
const STOPPED: i32 = -4;

/// A fault that was found.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FabricFault")]
pub(crate) struct FaultFound {
    /// A name that does not change, of Documentation/fabric.md.
    fault: &'static str,
    /// The fault in words.
    meaning: &'static str,
    /// What to do.
    advice: &'static str,
}

/// A counter of a device, as it rose during the test.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FabricCounter")]
pub(crate) struct Counter {
    /// The counter's name in sysfs.
    name: String,
    /// The increase.
    value: u64,
}

/// The result of the test.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tested {
    version: Version,
    /// The path to the server.
    server: String,
    /// Whether the test was completed and found no fault.
    ok: bool,
    /// The faults; likely causes of other faults come first.
    faults: Vec<FaultFound>,
    /// The RDMA device of this machine.
    device: Option<String>,
    /// The RDMA MTU of this end's port, in bytes.
    mtu: Option<u32>,
    /// The RDMA MTU of the server's port, in bytes.
    server_mtu: Option<u32>,
    /// CPUs of the server.
    server_cpus: Option<u32>,
    /// The most bytes of a request.
    max_io_size: Option<u32>,
    /// The number of queues.
    queues: Option<u32>,
    /// The negative error number if the test was not completed; `None` if it was.
    errno: Option<i32>,
    /// Lost packets, as far as the device counts them.
    lost_packets: u64,
    /// Damaged packets, as far as the device counts them.
    damaged_packets: u64,
    /// Packets of the device in both directions; 0 if the device does not count them.
    packets: u64,
    /// The counters of the device that have changed.
    counters: Vec<Counter>,
    /// The cases of the test.
    cases: Vec<Case>,
    /// The latencies, for each size and direction.
    latencies: Vec<Latency>,
    /// The bandwidths, for each size and direction.
    bandwidths: Vec<Bandwidth>,
}

/// Runs the test; fails if there is a fault.
pub fn run(args: &Args, context: &Context) -> Result {
    let Command::Test(args) = &args.command;
    let path = path_to(&args.server, context)?;
    if !args.with_mapped_disks {
        refuse_if_disturbing(&path, context)?;
    }
    let request = Request {
        path,
        port: args.port,
        requests: args.requests,
        mib: args.mib,
    };
    let before = Counters::read(&context.system)?;
    let found = fabric::run(&context.system, &request)?;
    let counted = Counters::read(&context.system)?.since(&before);
    let ip_answers = match found.no_connection {
        Some(_) => preflight::answers(&path.dst, args.port),
        None => None,
    };
    // The argument's range keeps the product small.
    let slow_ns = args.max_latency.saturating_mul(NS_PER_MS);
    let facts = fabric::facts(&found, &counted, ip_answers, slow_ns);
    let stopped = found.end == Some(STOPPED);
    let faults = facts
        .faults()
        .filter(|fault| !(stopped && *fault == Fault::Broken));
    let faults: Vec<_> = faults.collect();
    let tested = tested(&path, found, &counted, &faults);
    context.output.print(&tested)?;
    end(&tested, &faults)
}

/// The path that is tested. For a host name it leads to the first address that an RDMA device
/// reaches.
fn path_to(server: &ServerName, context: &Context) -> Result<PathAddress> {
    let ways = Ways::to(&context.system, std::slice::from_ref(server))?;
    let first = ways.all().next().copied();
    first.ok_or_else(|| {
        let what = format!("looking up {server}");
        Error::new(Kind::Unreachable, what, "the server has no address")
    })
}

fn refuse_if_disturbing(path: &PathAddress, context: &Context) -> Result {
    let conflicts = fabric::conflicts(&context.system, path)?;
    if conflicts.is_empty() {
        return Ok(());
    }
    let why = format!("the test would disturb {}", conflicts.join(", "));
    Err(Error::new(Kind::Busy, "testing the fabric", why)
        .hint("unmap these disks first, or give --with-mapped-disks"))
}

fn end(tested: &Tested, faults: &[Fault]) -> Result {
    if tested.ok {
        return Ok(());
    }
    if tested.errno == Some(STOPPED) {
        return Err(Error::new(
            Kind::Failed,
            "testing the fabric",
            "the test was stopped",
        ));
    }
    let names: Vec<_> = faults.iter().map(|fault| fault.name()).collect();
    let unreachable = [
        Fault::NoDevice,
        Fault::Blocked,
        Fault::Away,
        Fault::NoAnswer,
        Fault::NoListener,
        Fault::Refused,
    ];
    let kind = match faults.iter().any(|fault| unreachable.contains(fault)) {
        true => Kind::Unreachable,
        false => Kind::CheckFailed,
    };
    Err(Error::new(kind, "testing the fabric", names.join(", ")))
}

fn tested(path: &PathAddress, found: Found, counted: &Counters, faults: &[Fault]) -> Tested {
    let device = found.device.clone().unwrap_or_default();
    Tested {
        version: JSON_VERSION,
        server: path_text(path),
        ok: faults.is_empty() && found.end == Some(0),
        faults: faults
            .iter()
            .map(|fault| FaultFound {
                fault: fault.name(),
                meaning: fault.meaning(),
                advice: fault.advice(),
            })
            .collect(),
        device: found.device,
        mtu: found.mtus.map(|(here, _)| here),
        server_mtu: found.mtus.map(|(_, there)| there),
        server_cpus: found.server_cpus,
        max_io_size: found.session.map(|(size, _, _)| size),
        queues: found.session.map(|(_, queues, _)| queues),
        errno: found.end.filter(|errno| *errno != 0),
        lost_packets: counted.lost(&device),
        damaged_packets: counted.damaged(&device),
        packets: counted.packets(&device),
        counters: counted
            .of(&device)
            .into_iter()
            .map(|(name, value)| Counter { name, value })
            .collect(),
        cases: found.cases,
        latencies: found.latencies,
        bandwidths: found.bandwidths,
    }
}

const CASES: &[Column] = &[
    Column::text("case", "CASE"),
    Column::number("count", "SIZES"),
    Column::number("smallest", "FROM"),
    Column::number("largest", "TO"),
    Column::number("longest_us", "LONGEST"),
    Column::text("result", "RESULT"),
];

const LATENCIES: &[Column] = &[
    Column::text("direction", "DIRECTION"),
    Column::number("size", "SIZE"),
    Column::number("requests", "REQUESTS"),
    Column::number("median_ns", "P50"),
    Column::number("p99_ns", "P99"),
    Column::number("p999_ns", "P99.9"),
    Column::number("max_ns", "LONGEST"),
];

const BANDWIDTHS: &[Column] = &[
    Column::text("direction", "DIRECTION"),
    Column::number("size", "SIZE"),
    Column::number("bytes", "TRANSFERRED"),
    Column::number("bytes_per_second", "PER SECOND"),
];

const FAULTS: &[Column] = &[
    Column::text("fault", "FAULT"),
    Column::text("meaning", "MEANING").wraps(),
    Column::text("advice", ""),
];

/// The row of the cases with the same name.
fn case_row(name: &str, cases: &[&Case]) -> Vec<Cell> {
    let sizes = || cases.iter().map(|case| case.size);
    let longest = cases.iter().map(|case| case.us).max().unwrap_or(0);
    let bad = cases.iter().find(|case| case.outcome != Outcome::Ok);
    let result = match bad {
        None => Cell::new("ok").tone(Tone::Good),
        Some(case) => {
            let what = match (case.outcome, case.detail) {
                (Outcome::Wrong, Some(at)) => format!("wrong byte at {at} of {}", case.size),
                (Outcome::Wrong, None) => format!("wrong bytes in {}", case.size),
                (Outcome::Failed, Some(errno)) => {
                    let errno = i32::try_from(errno.unsigned_abs()).unwrap_or(0);
                    let error = std::io::Error::from_raw_os_error(errno);
                    format!(
                        "{} failed: {}",
                        case.size,
                        crate::control::errno::text(&error)
                    )
                }
                (Outcome::NoError, _) => "succeeded, but must fail".to_owned(),
                _ => "failed".to_owned(),
            };
            Cell::new(what).tone(Tone::Bad)
        }
    };
    vec![
        Cell::new(name),
        Cell::new(cases.len()),
        Cell::option(sizes().min()),
        Cell::option(sizes().max()),
        Cell::value(Some(longest), |us| nanoseconds(us.saturating_mul(1000))),
        result,
    ]
}

impl Tested {
    fn case_rows(&self) -> Vec<Vec<Cell>> {
        // Names are in the order of their first cases.
        let mut groups: Vec<(&str, Vec<&Case>)> = Vec::new();
        for case in &self.cases {
            match groups.iter_mut().find(|(name, _)| *name == case.name) {
                Some((_, cases)) => cases.push(case),
                None => groups.push((&case.name, vec![case])),
            }
        }
        groups
            .iter()
            .map(|(name, cases)| case_row(name, cases))
            .collect()
    }

    fn latency_rows(&self) -> Vec<Vec<Cell>> {
        let time = |ns: u64| Cell::value(Some(ns), |ns| nanoseconds(*ns));
        let row = |latency: &Latency| {
            vec![
                Cell::new(&latency.direction),
                Cell::value(Some(u64::from(latency.size)), |size| bytes(*size)),
                Cell::new(latency.requests),
                time(latency.median_ns),
                time(latency.p99_ns),
                time(latency.p999_ns),
                time(latency.max_ns),
            ]
        };
        self.latencies.iter().map(row).collect()
    }

    fn bandwidth_rows(&self) -> Vec<Vec<Cell>> {
        let size = |number: u64| Cell::value(Some(number), |number| bytes(*number));
        let row = |bandwidth: &Bandwidth| {
            vec![
                Cell::new(&bandwidth.direction),
                size(bandwidth.size.into()),
                size(bandwidth.bytes),
                size(bandwidth.bytes_per_second()),
            ]
        };
        self.bandwidths.iter().map(row).collect()
    }
}

impl Report for Tested {
    fn tables(&self) -> Vec<Table> {
        let fault = |found: &FaultFound| {
            vec![
                Cell::new(found.fault).tone(Tone::Bad),
                Cell::new(found.meaning),
                Cell::new(found.advice),
            ]
        };
        let table = |kind, title: &str, columns, rows, empty: &str| Table {
            kind,
            title: title.to_owned(),
            columns,
            rows,
            empty: empty.to_owned(),
        };
        let none = "not measured";
        let faults = self.faults.iter().map(fault).collect();
        let no_fault = match self.ok {
            true => "none",
            false => "the test has not finished",
        };
        vec![
            table(
                "case",
                "Cases",
                CASES,
                self.case_rows(),
                "no case was tested",
            ),
            table("latency", "Latency", LATENCIES, self.latency_rows(), none),
            table(
                "bandwidth",
                "Bandwidth",
                BANDWIDTHS,
                self.bandwidth_rows(),
                none,
            ),
            table("fault", "Faults", FAULTS, faults, no_fault),
        ]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let (Some(device), Some(mtu), Some(server)) = (&self.device, self.mtu, self.server_mtu) {
            notes.push(format!(
                "\n{device} to {}: MTU {mtu} here, {server} at the server; {} packets, of which \
                 {} were lost and {} damaged",
                self.server, self.packets, self.lost_packets, self.damaged_packets
            ));
        }
        if !self.faults.is_empty() {
            notes.push("\nWhat to do:".to_owned());
        }
        let advice = self.faults.iter();
        notes.extend(advice.map(|found| format!("{}: {}", found.fault, found.advice)));
        notes
    }
}
