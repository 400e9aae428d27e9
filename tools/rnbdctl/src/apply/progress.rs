// SPDX-License-Identifier: GPL-2.0

//! Shows changes to the user as they are made: a line for each, and on a terminal also what each
//! session waits for. In a journal a failure is printed once, and again when it changes.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::MultiProgress;
use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

use super::report::paint;
use super::run::Event;
use crate::output::Format;
use crate::output::Output;
use crate::Error;

/// Shows the events of sessions.
#[derive(Debug)]
pub struct Progress {
    bars: MultiProgress,
    sessions: BTreeMap<String, ProgressBar>,
    output: Output,
    told: Told,
}

/// The failures and remarks that were printed: session and change, with the last text.
#[derive(Debug, Default)]
struct Told(BTreeMap<(String, String), String>);

impl Told {
    /// Whether `text` differs from the last text of this session and change.
    fn is_news(&mut self, session: &str, what: String, text: &str) -> bool {
        let before = self.0.insert((session.to_owned(), what), text.to_owned());
        before.is_none_or(|before| before != text)
    }

    fn forget(&mut self, session: &str, what: &str) {
        self.0.remove(&(session.to_owned(), what.to_owned()));
    }
}

impl Progress {
    /// The lines of changes that were made go to `output` if it is for people, everything else to
    /// standard error.
    pub fn new(output: Output) -> Self {
        Self {
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            sessions: BTreeMap::new(),
            output,
            told: Told::default(),
        }
    }

    /// Shows an event.
    pub fn show(&mut self, session: &str, event: &Event) {
        match event {
            Event::Doing(change) => self.status(session, &change.to_string()),
            Event::Done(change, node) => {
                self.told.forget(session, &change.to_string());
                let (begin, end) = paint(change.operation(), self.output.colour());
                let sign = change.operation().sign();
                let node = node
                    .as_ref()
                    .map_or(String::new(), |node| format!(" -> {node}"));
                self.say(&format!("{session}: {begin}{sign} {change}{node}{end}"));
            }
            Event::Failed(change, error) => self.failure(session, change.to_string(), error),
            Event::Unreadable(error) => self.failure(session, String::new(), error),
            Event::Remark(text) => {
                if self.told.is_news(session, text.clone(), "") {
                    self.bars
                        .suspend(|| eprintln!("rnbdctl: {session}: {text}"));
                }
            }
            Event::Waiting(left, delay) => self.waiting(session, *left, *delay),
            Event::Finished(_) => {
                if let Some(bar) = self.sessions.remove(session) {
                    bar.finish_and_clear();
                    self.bars.remove(&bar);
                }
            }
        }
    }

    fn failure(&mut self, session: &str, what: String, error: &Error) {
        if self.told.is_news(session, what, &error.to_string()) {
            self.bars.suspend(|| error.print());
        }
    }

    fn waiting(&mut self, session: &str, left: usize, delay: Duration) {
        let changes = match left {
            1 => "1 change".to_owned(),
            left => format!("{left} changes"),
        };
        self.status(
            session,
            &format!(
                "{changes} left, trying again in {} s",
                delay.as_secs_f32().ceil()
            ),
        );
        // Without a terminal one line is enough.
        let text = format!("rnbdctl: {session}: not complete yet, trying again");
        if self.bars.is_hidden() && self.told.is_news(session, "waiting".to_owned(), &text) {
            eprintln!("{text}");
        }
    }

    fn status(&mut self, session: &str, text: &str) {
        if self.bars.is_hidden() {
            return;
        }
        let bars = &self.bars;
        let bar = self.sessions.entry(session.to_owned()).or_insert_with(|| {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix}: {wide_msg} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(session.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_message(text.to_owned());
    }

    fn say(&self, line: &str) {
        if self.output.format() == Format::Table {
            // A reader that has closed the pipe does not stop the changes.
            let _ = self.bars.suspend(|| self.output.say(line));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        for bar in self.sessions.values() {
            bar.finish_and_clear();
        }
    }
}
