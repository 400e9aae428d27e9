// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl top`: the present rates of devices and paths, on the whole screen.

use std::io;
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crossterm::event;
use crossterm::event::Event;
use ratatui::DefaultTerminal;

use crate::cli::Context;
use crate::live::Rates;
use crate::live::RatesReport;
use crate::live::Sample;
use crate::top::app::Reaction;
use crate::top::app::INTERVALS;
use crate::top::view;
use crate::top::App;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The time between samples, in seconds: 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// Print the rates of one interval and end; --output chooses a table, JSON or CSV
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let (shortest, longest) = INTERVALS;
    let time = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| (shortest..=longest).contains(time));
    time.ok_or_else(|| {
        format!(
            "give a number of seconds from {} to {}",
            shortest.as_secs_f64(),
            longest.as_secs_f64()
        )
    })
}

/// Shows the rates until the user ends the view.
pub fn run(args: &Args, context: &Context) -> Result {
    let sampler = Sampler::new(context.system.clone());
    context.system.need_any("showing rates")?;
    if args.once {
        let before = sampler.take()?;
        thread::sleep(args.interval);
        let rates = Rates::between(&before, &sampler.take()?);
        return context.output.print(&RatesReport::new(&rates));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let error = Error::new(Kind::Usage, "showing rates", "the output is not a terminal");
        return Err(error.hint("rnbdctl top --once prints the rates of one interval"));
    }
    let first = sampler.take()?;
    // This restores the screen also if the program panics.
    let mut terminal =
        ratatui::try_init().map_err(|error| Error::io("taking the terminal", &error))?;
    let result = show(App::new(args.interval), &sampler, first, &mut terminal);
    ratatui::restore();
    result.map_err(|error| Error::io("showing rates", &error))
}

struct Sampler {
    system: System,
    start: Instant,
}

impl Sampler {
    fn new(system: System) -> Self {
        Self {
            system,
            start: Instant::now(),
        }
    }

    fn take(&self) -> Result<Sample> {
        Sample::take(&self.system, self.start.elapsed())
    }
}

fn show(
    mut app: App,
    sampler: &Sampler,
    first: Sample,
    terminal: &mut DefaultTerminal,
) -> io::Result<()> {
    let mut last = first;
    let mut next = Instant::now();
    loop {
        terminal.draw(|frame| view::draw(&app, frame))?;
        let wait = next.saturating_duration_since(Instant::now());
        if !event::poll(wait)? {
            match sampler.take() {
                Ok(sample) => {
                    app.update(Rates::between(&last, &sample));
                    last = sample;
                }
                Err(error) => app.error = Some(error.to_string()),
            }
            next = Instant::now().checked_add(app.interval).unwrap_or(next);
            continue;
        }
        let before = app.interval;
        match event::read()? {
            Event::Key(key) if app.key(key) == Reaction::Quit => return Ok(()),
            // Any other event, such as a new size of the window, is drawn at once.
            _ => (),
        }
        if app.interval != before {
            next = next.min(Instant::now().checked_add(app.interval).unwrap_or(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("3600"), Ok(Duration::from_secs(3600)));
        for text in ["0", "0.09", "-1", "3601", "nan", "inf", "1s", ""] {
            assert!(interval(text).is_err(), "{text:?}");
        }
    }
}
