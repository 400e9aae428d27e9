// SPDX-License-Identifier: GPL-2.0

//! A whole test: its parts, one after the other.

use kernel_ext::{
    module::ModuleReference,
    prelude::*, //
};
use proto::fabric::options::Options;

use crate::{
    connect::Server,
    error_paths,
    kinds,
    measure,
    report::Report,
    requests,
    session::Connected, //
};

/// The parts of a test.
const PARTS: u32 = 7;

/// Runs a test. The last line of the report is `end` with the result: 0, or a negative error
/// number. Sleeps.
pub(crate) fn run(report: &Report, options: &Options, module: fn() -> Result<ModuleReference>) {
    let result = parts(report, options, module);
    let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
    // Without memory for a line there is no `end`, but the file `run` takes the next test all the
    // same.
    let _ = report.line(fmt!("end {errno}\n"));
}

fn parts(report: &Report, options: &Options, module: fn() -> Result<ModuleReference>) -> Result {
    report.step(1, PARTS, "connect")?;
    let server = Server::new(options)?;
    let (endpoint, offer) = server.connect_reporting(report)?;
    let mtu = endpoint.mtu().min(offer.mtu);
    report.step(2, PARTS, "work-requests")?;
    kinds::run(report, endpoint, &offer)?;
    report.step(3, PARTS, "error-paths")?;
    error_paths::run(report, &server)?;
    report.step(4, PARTS, "requests")?;
    let connected = Connected::open(report, options, module)?;
    requests::sizes(report, &connected, mtu)?;
    report.step(5, PARTS, "queues")?;
    requests::queues(report, &connected)?;
    report.step(6, PARTS, "latency")?;
    measure::latencies(report, &connected, options.requests)?;
    report.step(7, PARTS, "bandwidth")?;
    measure::bandwidths(report, &connected, options.mib)
}
