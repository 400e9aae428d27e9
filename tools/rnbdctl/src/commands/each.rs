// SPDX-License-Identifier: GPL-2.0

//! Runs an action for several things.

use std::sync::mpsc;
use std::thread;

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
    let mut result = Done::new(things.len());
    let progress = Progress::new(things.len());
    for thing in things {
        progress.begin(&name(thing));
        result.note(run(thing), &progress);
    }
    result
}

/// As [`each`], with a thread for each thing: a call that hangs holds up no other call. The results
/// are in the order in which the calls have ended.
pub(crate) fn each_at_once<T: Sync, R: Send>(
    things: &[T],
    name: impl Fn(&T) -> String,
    run: impl Fn(&T) -> Result<R> + Sync,
) -> Done<R> {
    let mut result = Done::new(things.len());
    let progress = Progress::new(things.len());
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for thing in things {
            progress.begin(&name(thing));
            let (own, run) = (sender.clone(), &run);
            let work = move || {
                // Sending fails only if the other end is gone, which waits for all results.
                let _ = own.send(run(thing));
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                result.note(Err(Error::io(name(thing), &error)), &progress);
            }
        }
        drop(sender);
        for ended in ended {
            result.note(ended, &progress);
        }
    });
    result
}

impl<R> Done<R> {
    fn new(wanted: usize) -> Self {
        Self {
            done: Vec::new(),
            wanted,
            failed: None,
            only: None,
        }
    }

    /// Notes the result of a call. An error is printed, unless there is one thing only.
    fn note(&mut self, result: Result<R>, progress: &Progress) {
        match result {
            Ok(done) => self.done.push(done),
            Err(error) => {
                self.failed.get_or_insert(error.kind());
                match self.wanted {
                    1 => self.only = Some(error),
                    _ => progress.suspend(|| error.print()),
                }
            }
        }
        progress.end();
    }

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
