// SPDX-License-Identifier: GPL-2.0

//! The service request of a session, at most one at a time, and the task that waits for its end.

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

/// Values of [`Service::owner`]: the party that handles the end of the service request in flight.
mod owner {
    /// The sender, which waits for the end.
    pub(super) const SENDER: u32 = 0;
    /// No task waits, because the sender was killed.
    pub(super) const NOBODY: u32 = 1;
    /// The request has ended.
    pub(super) const ENDED: u32 = 2;
}

/// The service request of a session, of which at most one is in flight.
#[pin_data]
pub(crate) struct Service {
    /// Lets one sender in at a time. The request of the last sender has ended before. This is no
    /// `KillableMutex`, as another task than the one that took it may give it back.
    #[pin]
    turn: Completion,
    #[pin]
    done: Completion,
    result: Atomic<i32>,
    owner: Atomic<u32>,
}

impl Service {
    /// Makes an object with no request in flight.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            turn <- Completion::new(),
            done <- Completion::new(),
            result: Atomic::new(0),
            owner: Atomic::new(owner::SENDER),
        })
        .pin_chain(|service| {
            service.allow();
            Ok(())
        })
    }

    /// Waits for the end of the last sender's request, then lets this sender in. `EINTR` if the
    /// task is killed before. Sleeps.
    pub(crate) fn enter(&self) -> Result {
        self.turn.wait_killable().map_err(|_| EINTR)
    }

    /// Lets the next sender in. Any context.
    pub(crate) fn allow(&self) {
        self.turn.complete();
    }

    /// Notes that the request has ended with `result`, and that its permit was given back. Any
    /// context.
    pub(crate) fn finished(&self, result: Result) {
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        self.result.store(errno, ordering::Relaxed);
        if self.owner.xchg(owner::ENDED, ordering::Full) == owner::NOBODY {
            self.allow();
        } else {
            self.done.complete();
        }
    }

    /// Waits for the end of the request that was sent. `EINTR` if the task is killed before. Then
    /// [`Self::finished`] lets the next sender in. Sleeps.
    pub(crate) fn wait(&self) -> Result {
        if self.done.wait_killable().is_err() {
            if self.owner.xchg(owner::NOBODY, ordering::Full) == owner::SENDER {
                return Err(EINTR);
            }
            // The request ended at the same time: [`Self::finished`] is about to signal `done`.
            self.done.wait();
        }
        Ok(())
    }

    /// Prepares for a request that is about to be sent, and whose sender waits for its end. No
    /// request is in flight.
    pub(crate) fn begin(&self) {
        // A signal that is left belongs to a request whose task was killed.
        self.done.try_wait();
        self.owner.store(owner::SENDER, ordering::Release);
    }

    /// The result of the last request.
    pub(crate) fn result(&self) -> Result {
        kernel::error::to_result(self.result.load(ordering::Relaxed))
    }
}
