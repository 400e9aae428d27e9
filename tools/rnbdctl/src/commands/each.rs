// SPDX-License-Identifier: GPL-2.0

//! Runs an action for several things.

use crate::cli::Context;
use crate::output::Progress;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The results.
pub(crate) struct Done<R> {
    /// The results of the successful calls.
    pub(crate) done: Vec<R>,
    wanted: usize,
    failed: Option<Kind>,
    only: Option<Error>,
}

/// Calls `run` for each of `things`, with progress on a terminal; `name` describes the action for a
/// thing. A failure does not keep `run` from the other things.
pub(crate) fn each<T, R>(
    things: &[T],
    name: impl Fn(&T) -> String,
    mut run: impl FnMut(&T) -> Result<R>,
) -> Done<R> {
    let mut result = Done {
        done: Vec::new(),
        wanted: things.len(),
        failed: None,
        only: None,
    };
    let progress = Progress::new(things.len());
    for thing in things {
        progress.begin(&name(thing));
        match run(thing) {
            Ok(done) => result.done.push(done),
            Err(error) => {
                result.failed.get_or_insert(error.kind());
                match things.len() {
                    1 => result.only = Some(error),
                    _ => progress.suspend(|| error.print()),
                }
            }
        }
        progress.end();
    }
    result
}

impl<R> Done<R> {
    /// Prints a line for each success, and ends.
    pub(crate) fn finish(self, context: &Context, said: impl Fn(&R) -> String) -> Result {
        for thing in &self.done {
            context.output.say(&said(thing))?;
        }
        self.end()
    }

    /// Ends the command. If several calls failed, their errors have been printed, and the first
    /// decides about the exit code.
    pub(crate) fn end(self) -> Result {
        match (self.failed, self.only) {
            (None, _) => Ok(()),
            (_, Some(error)) => Err(error),
            (Some(kind), None) => {
                let failed = self.wanted.saturating_sub(self.done.len());
                let what = format!("{failed} of {} failed", self.wanted);
                Err(Error::summary(kind, what))
            }
        }
    }
}
