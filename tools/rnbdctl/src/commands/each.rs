// SPDX-License-Identifier: GPL-2.0

//! Doing something to several things.

use crate::cli::Context;
use crate::output::Progress;
use crate::Error;
use crate::Kind;
use crate::Result;

/// What came of it.
pub(crate) struct Done<R> {
    /// What each success gave.
    pub(crate) done: Vec<R>,
    wanted: usize,
    failed: Option<Kind>,
    only: Option<Error>,
}

/// Does `run` to each of `things`, with progress on a terminal (`name` says what is being done to
/// one). One that fails, or is not there, does not keep the others from it.
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
    /// Says what was done, a line for each thing, and ends.
    pub(crate) fn finish(self, context: &Context, said: impl Fn(&R) -> String) -> Result {
        for thing in &self.done {
            context.output.say(&said(thing))?;
        }
        self.end()
    }

    /// The end of the command: of several failures, which have been printed, the first decides
    /// about the exit code.
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
