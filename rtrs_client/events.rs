// SPDX-License-Identifier: GPL-2.0

//! The events of a session, which its user handles.

use kernel_ext::{
    module::ModuleReference,
    prelude::*, //
};

/// The events of a session, which its user handles.
pub trait SessionEvents: Send + Sync + 'static {
    /// A request that was submitted has ended with the server's response. Called exactly once for
    /// each such request, in the context of the completion queue (softirq, or the poller) or of a
    /// teardown (process). Must not sleep. The tag's permit can be taken again from here on.
    fn complete(&self, tag: u32, result: Result);

    /// A request that was submitted has ended without a response, and could not be sent on another
    /// path. `error` is the reason, as for [`Submission::add`](crate::Submission::add). The server
    /// may have carried the request out, may be about to, or never will.
    /// Called exactly once for each such request, in place of [`SessionEvents::complete`]. The
    /// tag's permit can be taken again from here on. Any context. Must not sleep.
    fn unanswered(&self, tag: u32, error: SubmitError);

    /// The server is not at work any more on a request that was abandoned
    /// ([`Session::abandon`](crate::Session::abandon)). Called once for each such request, before
    /// its tag's permit can be taken again. Not called for requests that are left when the session
    /// is closed. Any context. Must not sleep.
    fn abandoned_ended(&self, tag: u32) {
        let _ = tag;
    }

    /// Returns the user's tag of the request of this number, which was sent by
    /// [`Session::send_moved`](crate::Session::send_moved). Called once for each such request that
    /// ends, before the number's permit can be taken again. [`SessionEvents::complete`] or
    /// [`SessionEvents::unanswered`] follows, with the tag. Any context. Must not sleep.
    fn tag_of_moved(&self, number: u32) -> u32 {
        number
    }

    /// The session has lost its last path, or has a path again. Process context. May sleep, but
    /// must not close the session.
    fn link_event(&self, event: LinkEvent) {
        let _ = event;
    }

    /// The server's user has sent a doorbell, with `number`, which is below 2^28
    /// (`rtrs_server::Session::ring`). The doorbell comes by each path of the session that is up.
    /// It may come late, or not at all when a path is lost. Any context. Must not sleep.
    fn doorbell(&self, number: u32) {
        let _ = number;
    }

    /// Returns a reference that keeps the user's module loaded. A task that removes a path by sysfs
    /// may drop the last reference to the session, some time after the session was closed. Any
    /// context. `ENODEV` if the module is being unloaded.
    fn module(&self) -> Result<ModuleReference>;
}

/// See [`SessionEvents::link_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The first path is up again.
    Reconnected,
    /// The last path is gone.
    Disconnected,
}

/// Why a request could not be submitted. Its permit is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No path is up (`ECONNABORTED` in C).
    NoPath,
    /// Some resource is short for the moment. Try again later.
    Busy,
    /// The request cannot be sent as it is.
    Failed(Error),
}

impl SubmitError {
    pub(crate) fn new(error: Error) -> Self {
        if error == ECONNABORTED {
            Self::NoPath
        } else if error == EAGAIN || error == ENOMEM || error == EBUSY {
            Self::Busy
        } else {
            Self::Failed(error)
        }
    }

    /// The error, as C returns it.
    pub fn to_error(self) -> Error {
        match self {
            Self::NoPath => ECONNABORTED,
            Self::Busy => EAGAIN,
            Self::Failed(error) => error,
        }
    }
}
