// SPDX-License-Identifier: GPL-2.0

//! The result of a request, for a task that waits for it.

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

/// The result of a request, for a task that waits for the end:
/// [`SessionEvents`](crate::SessionEvents) only calls functions.
///
/// A user has one of these objects for each tag. The user calls [`Self::ended`] from
/// [`SessionEvents::complete`](crate::SessionEvents::complete) and
/// [`SessionEvents::unanswered`](crate::SessionEvents::unanswered). The user calls [`Self::wait`]
/// once for each request that was sent, before the tag's next request is sent.
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
/// `errno` is that of the last request that has ended: 0 or negative.
#[pin_data]
pub struct Outcome {
    #[pin]
    ended: Completion,
    errno: Atomic<i32>,
}

impl Outcome {
    /// Makes an object for which no request has ended.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: 0 is allowed.
        pin_init!(Self {
            ended <- Completion::new(),
            errno: Atomic::new(0),
        })
    }

    /// Notes that a request has ended with `result`. Any context; never sleeps.
    pub fn ended(&self, result: Result) {
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        // INVARIANT: It is the errno of a result. The completion makes it visible to the waiting
        // task.
        self.errno.store(errno, ordering::Relaxed);
        self.ended.complete();
    }

    /// Waits for the end of a request that was sent, and returns its result. Sleeps.
    ///
    /// No signal ends the wait, since the request has the tag and the memory until it ends. Every
    /// request does end: with the server's response, or when its path is taken down. Heartbeats
    /// make sure of that.
    pub fn wait(&self) -> Result {
        self.ended.wait();
        kernel::error::to_result(self.errno.load(ordering::Relaxed))
    }
}
