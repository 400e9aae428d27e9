// SPDX-License-Identifier: GPL-2.0

//! The report of changes that were made, or that would be made.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::change::Operation;
use super::run::Outcome;
use super::run::Summary;
use super::Change;
use super::Plan;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;

/// The changes of a run, or of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Changes {
    version: Version,
    /// Whether the changes were only planned.
    dry_run: bool,
    /// The changes, session by session.
    changes: Vec<Item>,
    /// Remarks on the configuration file and the machine.
    remarks: Vec<Remark>,
}

/// A change.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Change")]
struct Item {
    /// The session.
    session: String,
    /// The kind of the change; `None` if a whole session failed.
    operation: Option<Operation>,
    /// `device`, `path`, `session`, or the key of the file.
    kind: String,
    /// The name of the device or path.
    name: Option<String>,
    /// The old value, as far as it is known and useful.
    from: Option<String>,
    /// The new value.
    to: Option<String>,
    /// The result.
    result: Ending,
    /// The device node of a device that was mapped: `/dev/rnbd0`.
    node: Option<String>,
    /// The error of a change that failed.
    error: Option<String>,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ChangeResult")]
enum Ending {
    /// The change would be made without --dry-run.
    Planned,
    /// The change was made.
    Done,
    /// The change failed.
    Failed,
}

/// A remark.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Remark {
    /// The session.
    session: String,
    /// The remark.
    text: String,
}

impl Item {
    fn new(session: &str, change: Option<&Change>, result: Ending) -> Self {
        Self {
            session: session.to_owned(),
            operation: change.map(Change::operation),
            kind: change.map_or("session", Change::kind).to_owned(),
            name: change.and_then(Change::name),
            from: change.and_then(Change::from),
            to: change.and_then(Change::to),
            result,
            node: None,
            error: None,
        }
    }

    fn of(outcome: &Outcome) -> Self {
        let new = |result| Self::new(&outcome.session, outcome.change.as_ref(), result);
        match &outcome.result {
            Ok(node) => Self {
                node: node.clone(),
                ..new(Ending::Done)
            },
            Err(error) => Self {
                error: Some(error.to_string()),
                ..new(Ending::Failed)
            },
        }
    }
}

impl Changes {
    /// The changes of a plan.
    pub fn planned(plan: &Plan) -> Self {
        let remarks = |(session, text): (&String, &String)| Remark {
            session: session.clone(),
            text: text.clone(),
        };
        let sessions = &plan.sessions;
        Self {
            version: JSON_VERSION,
            dry_run: true,
            changes: sessions
                .iter()
                .flat_map(|plan| plan.changes.iter().map(|change| (&plan.session, change)))
                .map(|(session, change)| Item::new(session, Some(change), Ending::Planned))
                .collect(),
            remarks: sessions
                .iter()
                .flat_map(|plan| plan.remarks.iter().map(|text| (&plan.session, text)))
                .map(remarks)
                .collect(),
        }
    }

    /// The changes of a run.
    pub fn made(summary: &Summary) -> Self {
        let remark = |(session, text): &(String, String)| Remark {
            session: session.clone(),
            text: text.clone(),
        };
        Self {
            version: JSON_VERSION,
            dry_run: false,
            changes: summary.outcomes.iter().map(Item::of).collect(),
            remarks: summary.remarks.iter().map(remark).collect(),
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::text("session", "SESSION"),
    Column::text("operation", "CHANGE"),
    Column::text("kind", "WHAT"),
    Column::text("name", "NAME"),
    Column::text("from", "FROM"),
    Column::text("to", "TO"),
    Column::text("result", "RESULT"),
    Column::text("node", "DEVICE"),
    Column::text("error", "ERROR").wraps(),
];

impl Report for Changes {
    fn tables(&self) -> Vec<Table> {
        let row = |item: &Item| {
            let operation = item.operation.map(|operation| match operation {
                Operation::Add => "add",
                Operation::Change => "change",
                Operation::Remove => "remove",
            });
            let result = match item.result {
                Ending::Planned => "planned",
                Ending::Done => "done",
                Ending::Failed => "failed",
            };
            vec![
                Cell::new(&item.session),
                Cell::option(operation),
                Cell::new(&item.kind),
                Cell::option(item.name.as_ref()),
                Cell::option(item.from.as_ref()),
                Cell::option(item.to.as_ref()),
                Cell::new(result),
                Cell::option(item.node.as_ref()),
                Cell::option(item.error.as_ref()),
            ]
        };
        vec![Table {
            kind: "change",
            title: "Changes".to_owned(),
            columns: COLUMNS,
            rows: self.changes.iter().map(row).collect(),
            empty: "nothing to do".to_owned(),
        }]
    }
}

/// A plan for people: a line for each change, with `+`, `~` or `-` in front.
pub fn list(plan: &Plan, colour: bool) -> String {
    let mut out = String::new();
    for session in &plan.sessions {
        let new = match session.is_new {
            true => " (a new session)",
            false => "",
        };
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}:{new}", session.session);
        for change in &session.changes {
            let (begin, end) = paint(change.operation(), colour);
            let _ = writeln!(out, "  {begin}{} {change}{end}", change.operation().sign());
        }
        for remark in &session.remarks {
            let _ = writeln!(out, "  ! {remark}");
        }
    }
    let _ = match plan.len() {
        0 => writeln!(out, "nothing to do"),
        1 => writeln!(out, "1 change to make"),
        count => writeln!(out, "{count} changes to make"),
    };
    out
}

/// The colour codes around the line of a change.
pub(super) fn paint(operation: Operation, colour: bool) -> (&'static str, &'static str) {
    match operation {
        _ if !colour => ("", ""),
        Operation::Add => ("\x1b[32m", "\x1b[0m"),
        Operation::Change => ("\x1b[33m", "\x1b[0m"),
        Operation::Remove => ("\x1b[31m", "\x1b[0m"),
    }
}
