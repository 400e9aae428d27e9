// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl check`: checks whether this machine has everything to map or to export disks.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::preflight;
use crate::preflight::Finding;
use crate::preflight::Server;
use crate::preflight::Status;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also check the network to this server: a host name or an address
    pub server: Option<String>,

    /// The server's port
    #[arg(long, default_value_t = proto::RTRS_PORT)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

/// The results of all checks.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checked {
    version: Version,
    /// The worst result.
    status: Status,
    /// The results.
    findings: Vec<Finding>,
}

/// Runs the checks; fails if something does not work.
pub fn run(args: &Args, context: &Context) -> Result {
    let server = args.server.as_ref().map(|name| Server {
        name: name.clone(),
        port: args.port,
    });
    let findings = preflight::check(&context.system, server.as_ref())?;
    let is = |status| findings.iter().any(|finding| finding.status == status);
    let status = match (is(Status::Failed), is(Status::Warning)) {
        (true, _) => Status::Failed,
        (false, true) => Status::Warning,
        (false, false) => Status::Ok,
    };
    let failed = findings
        .iter()
        .filter(|finding| finding.status == Status::Failed)
        .count();
    context.output.print(&Checked {
        version: JSON_VERSION,
        status,
        findings,
    })?;
    match failed {
        0 => Ok(()),
        _ => Err(Error::new(
            Kind::CheckFailed,
            "check",
            format!("failed checks: {failed}"),
        )),
    }
}

const COLUMNS: &[Column] = &[
    Column::text("status", "STATUS"),
    Column::text("check", "CHECK"),
    Column::text("message", "FOUND").wraps(),
    Column::text("remedy", ""),
];

impl Report for Checked {
    fn tables(&self) -> Vec<Table> {
        let row = |finding: &Finding| {
            let tone = match finding.status {
                Status::Ok => Tone::Good,
                Status::Warning => Tone::Warning,
                Status::Failed => Tone::Bad,
            };
            vec![
                Cell::new(finding.status.as_str()).tone(tone),
                Cell::new(&finding.check),
                Cell::new(&finding.message),
                Cell::new(finding.remedy.as_deref().unwrap_or_default()),
            ]
        };
        vec![Table {
            kind: "finding",
            title: "Findings".to_owned(),
            columns: COLUMNS,
            rows: self.findings.iter().map(row).collect(),
            empty: String::new(),
        }]
    }

    fn notes(&self) -> Vec<String> {
        let remedies = self.findings.iter().filter_map(|finding| {
            let remedy = finding.remedy.as_ref()?;
            Some(format!("{}: {remedy}", finding.check))
        });
        let mut notes: Vec<_> = remedies.collect();
        if !notes.is_empty() {
            notes.insert(0, "\nWhat to do:".to_owned());
        }
        notes
    }
}
