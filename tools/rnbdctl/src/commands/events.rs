// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl events`: changes on this client as they happen, for programs.

use std::io;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::events;
use crate::events::Event;
use crate::events::Wake;
use crate::mirror::view;
use crate::model::Client;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Format;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// First print all present objects as if they had just been added
    #[arg(long)]
    pub initial: bool,

    /// The time between two readings of the paths, in seconds; devices are read when the kernel
    /// announces a change
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,

    /// End after this time: 90s, 10m, 2h [default: never]
    #[arg(long = "for", value_name = "DURATION", value_parser = output::parse_duration)]
    pub time: Option<u32>,
}

/// A change on this client: a line of the output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Line<'e> {
    version: Version,
    /// When the change was seen, in seconds since 1970.
    time: f64,
    #[serde(flatten)]
    event: &'e Event,
}

/// Prints changes until the reader closes the pipe, or the time is over. The modules need not be
/// loaded: devices that are mapped later are reported then.
pub fn run(args: &Args, context: &Context) -> Result {
    if context.output.format() == Format::Csv {
        let why = "events are JSON, one object a line";
        return Err(Error::new(Kind::Usage, "printing events", why).hint("leave out --output"));
    }
    let system = &context.system;
    // Made before the first look, so that no change is missed.
    let mut wake = Wake::with_mirrors();
    let end = args.time.map(|seconds| Duration::from_secs(seconds.into()));
    let begin = Instant::now();
    let mut before = match args.initial {
        true => Client::default(),
        false => system.client()?,
    };
    let mut mirrors_before = match args.initial {
        true => Vec::new(),
        false => view::all(system)?,
    };
    loop {
        let after = system.client()?;
        let mirrors = view::all(system)?;
        let mut news = events::between(&before, &after);
        news.extend(events::between_mirrors(&mirrors_before, &mirrors));
        for event in news {
            if !tell(&event)? {
                return Ok(());
            }
        }
        (before, mirrors_before) = (after, mirrors);
        let mut wait = Duration::from_secs(args.interval);
        if let Some(end) = end {
            match end.checked_sub(begin.elapsed()) {
                None => return Ok(()),
                Some(left) => wait = wait.min(left),
            }
        }
        wake.wait(wait)
            .map_err(|error| Error::io("waiting for events", &error))?;
    }
}

/// Prints an event at once. Returns whether the reader still reads.
fn tell(event: &Event) -> Result<bool> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let line = Line {
        version: JSON_VERSION,
        time: time.map_or(0.0, |time| time.as_secs_f64()),
        event,
    };
    let fail = |error: String| Error::new(Kind::Failed, "printing an event", error);
    let text = output::one_line(&line).map_err(|error| fail(error.to_string()))?;
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(fail(error.to_string())),
    }
}
