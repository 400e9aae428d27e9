// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl apply`: brings the machine to the state in the configuration file.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use super::config::load;
use crate::apply::kernel::Kernel;
use crate::apply::progress::Progress;
use crate::apply::report;
use crate::apply::report::Changes;
use crate::apply::run;
use crate::apply::run::Interrupt;
use crate::apply::run::Options;
use crate::apply::run::Patience;
use crate::apply::run::Summary;
use crate::apply::Machine;
use crate::apply::Plan;
use crate::cli::Context;
use crate::config::Config;
use crate::output::Format;
use crate::Error;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file [default: /etc/rnbd/rnbd.toml]
    pub file: Option<PathBuf>,

    /// Only show the changes: + to add, ~ to change, - to remove
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Also unmap devices and remove paths that the file lacks
    #[arg(long)]
    pub prune: bool,

    /// Try again until all changes are made, without a limit of time
    #[arg(short, long, conflicts_with_all = ["retry_for", "dry_run"])]
    pub wait: bool,

    /// Try again until all changes are made, but no longer than this time
    #[arg(long, value_name = "SECONDS|forever", value_parser = patience)]
    #[arg(conflicts_with = "dry_run")]
    pub retry_for: Option<Patience>,
}

fn patience(text: &str) -> std::result::Result<Patience, String> {
    match text.parse::<u32>() {
        _ if text == "forever" => Ok(Patience::Forever),
        Ok(0) => Ok(Patience::Once),
        Ok(seconds) => Ok(Patience::For(Duration::from_secs(seconds.into()))),
        Err(_) => Err("give a number of seconds, or \"forever\"".to_owned()),
    }
}

/// Applies the file. The program ends with the first failure.
pub fn run(args: &Args, context: &Context) -> Result {
    let config = load(args.file.as_deref(), context)?;
    let kernel = Kernel::new(context.system.clone());
    if args.dry_run {
        let config = Config {
            sessions: (config.sessions.iter())
                .map(|session| kernel.look_up(session))
                .collect::<Result<_>>()?,
            mirrors: Vec::new(),
        };
        let plan = Plan::new(&config, &kernel.state()?, args.prune);
        return match context.output.format() {
            Format::Table => context
                .output
                .print_text(&report::list(&plan, context.output.colour())),
            _ => context.output.print(&Changes::planned(&plan)),
        };
    }
    let patience = match args.wait {
        true => Patience::Forever,
        false => args.retry_for.unwrap_or(Patience::Once),
    };
    let options = Options::new(patience, args.prune);
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| Error::io("waiting for signals", &error))?;
    let forward = |interrupt: Interrupt| {
        thread::spawn(move || {
            for signal in signals.forever() {
                interrupt.send(signal);
            }
        });
    };
    let mut progress = Progress::new(context.output);
    let summary = run::run(
        Arc::new(kernel),
        &config,
        options,
        forward,
        |session, event| {
            progress.show(session, event);
        },
    )?;
    drop(progress);
    finish(&summary, context)
}

fn finish(summary: &Summary, context: &Context) -> Result {
    match context.output.format() {
        Format::Table if summary.outcomes.is_empty() && summary.signal.is_none() => {
            context.output.say("nothing to do")?
        }
        Format::Table => (),
        _ => context.output.print(&Changes::made(summary))?,
    }
    if let Some(signal) = summary.signal {
        let name = low_level::signal_name(signal).unwrap_or("a signal");
        eprintln!("rnbdctl: ended by {name} before all changes were made");
        // As if there had been no handler, so that the parent process sees the signal.
        low_level::emulate_default_handler(signal).map_err(|error| Error::io("ending", &error))?;
    }
    let failed = summary
        .outcomes
        .iter()
        .filter(|outcome| outcome.result.is_err())
        .count();
    match summary.first_failure() {
        None => Ok(()),
        Some(first) => {
            let what = match failed {
                1 => "1 change could not be made".to_owned(),
                failed => format!("{failed} changes could not be made"),
            };
            Err(Error::new(
                first.kind(),
                what,
                format!("the first failure was: {first}"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_seconds_or_forever() {
        assert_eq!(patience("forever"), Ok(Patience::Forever));
        assert_eq!(patience("0"), Ok(Patience::Once));
        assert_eq!(patience("90"), Ok(Patience::For(Duration::from_secs(90))));
        for text in ["", "-1", "1.5", "never", "99999999999"] {
            assert!(patience(text).is_err(), "{text:?}");
        }
    }
}
