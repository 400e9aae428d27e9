// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl why`: present troubles, since when, the kernel's messages about them, and what to do.

use schemars::JsonSchema;
use serde::Serialize;

use super::config;
use crate::cli::Context;
use crate::config::Config;
use crate::identity;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Output;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::why;
use crate::why::Facts;
use crate::why::Trouble;
use crate::why::TroubleKind;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only troubles of this device: rnbd0, /dev/rnbd0, a link to that, or the disk's path at the
    /// server, as DISK or DISK@SESSION
    #[arg(add = crate::complete::devices())]
    pub device: Option<String>,
}

/// The troubles.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Found {
    version: Version,
    /// The troubles; those that stop devices come first.
    troubles: Vec<Trouble>,
}

const COLUMNS: &[Column] = &[
    Column::text("trouble", "TROUBLE"),
    Column::text("subject", "OF"),
    Column::text("session", ""),
    Column::text("problem", "PROBLEM").wraps(),
    Column::number("for_seconds", ""),
    Column::text("remedy", ""),
];

impl Report for Found {
    fn tables(&self) -> Vec<Table> {
        let row = |trouble: &Trouble| {
            vec![
                Cell::new(trouble.trouble.as_str()),
                Cell::new(&trouble.subject),
                Cell::option(trouble.session.as_ref()),
                Cell::new(&trouble.problem),
                Cell::option(trouble.for_seconds),
                Cell::new(&trouble.remedy),
            ]
        };
        vec![Table {
            kind: "trouble",
            title: "Troubles".to_owned(),
            columns: COLUMNS,
            rows: self.troubles.iter().map(row).collect(),
            empty: String::new(),
        }]
    }
}

/// Prints the troubles; fails if there are any.
pub fn run(args: &Args, context: &Context) -> Result {
    let system = &context.system;
    let device = match &args.device {
        Some(name) => Some(system.find_device(name)?),
        None => None,
    };
    let facts = Facts::gather(system, wanted(context))?;
    if facts
        .config
        .as_ref()
        .is_none_or(|config| config.sessions.is_empty())
    {
        system.need_any("looking for troubles")?;
    }
    let mut troubles = why::troubles(&facts);
    if let Some(device) = &device {
        // The troubles of the device, its session and the paths stay, but not those of other
        // devices of the session.
        troubles.retain(|trouble| {
            trouble.session.as_ref() == Some(&device.session)
                && trouble
                    .device
                    .as_ref()
                    .is_none_or(|name| *name == device.name)
                && trouble.trouble != TroubleKind::NotMapped
        });
    }
    let count = troubles.len();
    match context.output.format() {
        Format::Table => {
            let text = for_people(&troubles, &context.output);
            context.output.print_text(&text)?;
        }
        _ => context.output.print(&Found {
            version: JSON_VERSION,
            troubles,
        })?,
    }
    match count {
        0 => Ok(()),
        1 => Err(Error::summary(Kind::CheckFailed, "1 trouble")),
        count => Err(Error::summary(
            Kind::CheckFailed,
            format!("{count} troubles"),
        )),
    }
}

/// The configuration file; `None` if it is missing or wrong.
fn wanted(context: &Context) -> Option<Config> {
    let namer =
        |server: &str, purpose: &str| identity::session_name(&context.system, server, purpose);
    Config::load(&config::file_or_default(None, context), &namer).ok()
}

/// The troubles as text, a paragraph for each.
fn for_people(troubles: &[Trouble], output: &Output) -> String {
    if troubles.is_empty() {
        return "nothing is wrong\n".to_owned();
    }
    let mut text = String::new();
    for trouble in troubles {
        if !text.is_empty() {
            text.push('\n');
        }
        let tone = match trouble.is_fatal {
            true => Tone::Bad,
            false => Tone::Warning,
        };
        let (begin, end) = tone.paint(output.colour());
        text.push_str(&format!("{begin}{}{end}\n", trouble.subject));
        text.push_str(&output.indented(2, &trouble.problem));
        if let Some(seconds) = trouble.for_seconds {
            text.push_str(&format!("  since: {} ago\n", duration(seconds)));
        }
        for line in &trouble.kernel {
            text.push_str(&output.indented(2, &format!("kernel: {line}")));
        }
        text.push_str(&output.indented(2, &format!("to do: {}", trouble.remedy)));
    }
    text
}

/// A time for people, in the largest unit of which there are two.
fn duration(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let of = |unit: u64| seconds.checked_div(unit).unwrap_or(0);
    let large = units.into_iter().find(|(unit, _)| of(*unit) >= 2);
    match large {
        Some((unit, name)) => format!("{} {name}", of(unit)),
        None => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7199, "119 min"),
            (7200, "2 h"),
            (200_000, "2 d"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
