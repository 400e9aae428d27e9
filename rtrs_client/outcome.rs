// SPDX-License-Identifier: GPL-2.0

//! How a request ended, for a task that waits for it.

use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion, //
    }, //
};

/// How a request ended, for a task that waits for it: [`SessionEvents`](crate::SessionEvents) only
/// calls a function.
///
/// A user that has one for each tag calls [`Self::ended`] from
/// [`SessionEvents::complete`](crate::SessionEvents::complete) and
/// [`SessionEvents::unanswered`](crate::SessionEvents::unanswered), and [`Self::wait`] once for
/// each request that was sent, before the next one of the tag.
///
/// # Examples
///
/// ```ignore
/// impl SessionEvents for MyEvents {
///     fn complete(&self, tag: u32, result: Result) {
///         if let Some(outcome) = self.outcomes.get(tag as usize) {
///             outcome.ended(result);
///         }
///     }
/// }
///
/// session.send(permit, Kind::Write, queue, &header).map_err(SubmitError::to_error)?;
/// events.outcomes[tag].wait()?;
/// ```
///
/// # Invariants
///
/// `errno` is that of the last request that has ended: 0, or a negative one.
#[pin_data]
pub struct Outcome {
    #[pin]
    ended: Completion,
    errno: Atomic<i32>,
}

impl Outcome {
    /// No request has ended.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: 0 is allowed.
        pin_init!(Self {
            ended <- Completion::new(),
            errno: Atomic::new(0),
        })
    }

    /// A request has ended with `result`. Any context; never sleeps.
    pub fn ended(&self, result: Result) {
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        // INVARIANT: As a result has it. The completion makes it visible to the task that waits.
        self.errno.store(errno, ordering::Relaxed);
        self.ended.complete();
    }

    /// Waits for the end of a request that was sent, and returns its result. Sleeps.
    ///
    /// No signal ends the wait, since the request has the tag and the memory until it ends. It does
    /// end: with the server's response, or when its path is taken down, which heartbeats see to.
    pub fn wait(&self) -> Result {
        self.ended.wait();
        kernel::error::to_result(self.errno.load(ordering::Relaxed))
    }
}
