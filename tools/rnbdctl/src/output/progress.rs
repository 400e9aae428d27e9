// SPDX-License-Identifier: GPL-2.0

//! Progress for people who wait; nothing if standard error is not a terminal.

use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;

/// A line with the present step.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// The progress of this many steps.
    pub fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
        bar.set_draw_target(ProgressDrawTarget::stderr());
        let template = match steps {
            0 | 1 => "{spinner} {msg} {elapsed}",
            _ => "{spinner} {pos}/{len} {wide_bar} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// A step begins.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A step is over.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// Runs something that prints lines.
    pub fn suspend<T>(&self, run: impl FnOnce() -> T) -> T {
        self.bar.suspend(run)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
