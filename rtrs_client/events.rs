// SPDX-License-Identifier: GPL-2.0

//! What a session tells its user.

use kernel_ext::{
    module::ModuleReference,
    prelude::*, //
};

/// What a session tells its user.
pub trait SessionEvents: Send + Sync + 'static {
    /// A request that was submitted is finished. Called exactly once for each, in the context of
    /// the completion queue (softirq, or the poller) or of a teardown (process); never sleeps.
    /// The tag's permit can be taken again from here on.
    fn complete(&self, tag: u32, result: Result);

    /// A request that was submitted was not answered, and could not be sent on another path, for
    /// the reason given as by [`Submission::add`](crate::Submission::add). The server may have
    /// carried it out or not, and may be about to. Otherwise as [`SessionEvents::complete`], which
    /// is not called for it; any context, never sleeps.
    fn unanswered(&self, tag: u32, error: SubmitError);

    /// The server is not at work any more on a request that was abandoned
    /// ([`Session::abandon`](crate::Session::abandon)). Called once for each, before its tag's
    /// permit can be taken again, but not for those that are left when the session is closed. Any
    /// context; never sleeps.
    fn abandoned_ended(&self, tag: u32) {
        let _ = tag;
    }

    /// The tag by which the user knows the request of this number, which was sent by
    /// [`Session::send_moved`](crate::Session::send_moved). Called once for each that ends, before
    /// [`SessionEvents::complete`] or [`SessionEvents::unanswered`], with that tag, and before the
    /// number's permit can be taken again. Any context; never sleeps.
    fn tag_of_moved(&self, number: u32) -> u32 {
        number
    }

    /// The session lost its last path, or has one again. Process context; may sleep, but not
    /// close the session.
    fn link_event(&self, event: LinkEvent) {
        let _ = event;
    }

    /// The user of the server has rung, with `number`, which is below 2^28
    /// (`rtrs_server::Session::ring`). It comes by each path of the session that is up, and may
    /// come late, or not at all when a path is lost. Any context, never sleeps.
    fn doorbell(&self, number: u32) {
        let _ = number;
    }

    /// Keeps the user's module loaded: whoever removes a path by sysfs may be the last one to let
    /// go of the session, some time after it was closed. Any context. `ENODEV` if it is being
    /// unloaded.
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

/// Why a request could not be submitted; its permit is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No path is up (`ECONNABORTED` in C).
    NoPath,
    /// Something is short for the moment; try again later.
    Busy,
    /// It cannot be sent as it is.
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
