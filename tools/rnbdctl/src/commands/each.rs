// SPDX-License-Identifier: GPL-2.0

//! Doing something to several things.

use crate::cli::Context;
use crate::output::Progress;
use crate::Error;
use crate::Result;

/// What came of it.
pub(crate) struct Done<T> {
    /// The things to which it was done.
    pub(crate) done: Vec<T>,
    wanted: usize,
    failed: Option<Error>,
}

/// Does `run` to each of `things`, with progress on a terminal (`name` says what is being done to
/// one). One that fails does not keep the others from it.
pub(crate) fn each<T>(
    things: Vec<T>,
    name: impl Fn(&T) -> String,
    mut run: impl FnMut(&T) -> Result,
) -> Done<T> {
    let mut result = Done {
        done: Vec::new(),
        wanted: things.len(),
        failed: None,
    };
    let progress = Progress::new(things.len());
    for thing in things {
        progress.begin(&name(&thing));
        match run(&thing) {
            Ok(()) => result.done.push(thing),
            Err(error) => {
                if result.wanted > 1 {
                    progress.suspend(|| error.print());
                }
                result.failed.get_or_insert(error);
            }
        }
        progress.end();
    }
    result
}

impl<T> Done<T> {
    /// Says what was done, a line for each thing, and ends.
    pub(crate) fn finish(self, context: &Context, said: impl Fn(&T) -> String) -> Result {
        for thing in &self.done {
            context.output.say(&said(thing))?;
        }
        self.end()
    }

    /// The end of the command: of several failures, which have been printed, the first decides
    /// about the exit code.
    pub(crate) fn end(self) -> Result {
        match self.failed {
            None => Ok(()),
            Some(error) if self.wanted == 1 => Err(error),
            Some(first) => {
                let what = format!("{} of {} done", self.done.len(), self.wanted);
                Err(Error::new(
                    first.kind(),
                    what,
                    format!("the first failure was: {first}"),
                ))
            }
        }
    }
}
