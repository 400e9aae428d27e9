// SPDX-License-Identifier: GPL-2.0

//! The one service request that a session may have in flight, and the task that waits for its end.

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

/// Who sees to the end of the service request that is in flight: [`Service::owner`].
mod owner {
    /// Its sender, who waits.
    pub(super) const SENDER: u32 = 0;
    /// Nobody: its sender was killed.
    pub(super) const NOBODY: u32 = 1;
    /// It has ended.
    pub(super) const ENDED: u32 = 2;
}

/// The one service request that a session may have in flight.
#[pin_data]
pub(crate) struct Service {
    /// Lets one sender in at a time, not before the last one's request has ended. No
    /// `KillableMutex`, as another task than the one that took it may give it back.
    #[pin]
    turn: Completion,
    #[pin]
    done: Completion,
    result: Atomic<i32>,
    owner: Atomic<u32>,
}

impl Service {
    /// No request is in flight.
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

    /// Waits for the end of the last sender's request; only then lets this sender in. `EINTR` if
    /// the task is killed before. Sleeps.
    pub(crate) fn enter(&self) -> Result {
        self.turn.wait_killable().map_err(|_| EINTR)
    }

    /// Lets the next sender in. Any context.
    pub(crate) fn allow(&self) {
        self.turn.complete();
    }

    /// The request has ended, and its permit was given back. Any context.
    pub(crate) fn finished(&self, result: Result) {
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        self.result.store(errno, ordering::Relaxed);
        if self.owner.xchg(owner::ENDED, ordering::Full) == owner::NOBODY {
            self.allow();
        } else {
            self.done.complete();
        }
    }

    /// Waits for the end of the request that was sent. `EINTR` if the task is killed before:
    /// whoever finishes the request lets the next sender in then.
    pub(crate) fn wait(&self) -> Result {
        if self.done.wait_killable().is_err() {
            if self.owner.xchg(owner::NOBODY, ordering::Full) == owner::SENDER {
                return Err(EINTR);
            }
            // It ended at the same time, and says so any moment.
            self.done.wait();
        }
        Ok(())
    }

    /// A request is about to be sent, and its sender waits for the end of it. No request is in
    /// flight.
    pub(crate) fn begin(&self) {
        // A signal that is there is of a request whose task was killed.
        self.done.try_wait();
        self.owner.store(owner::SENDER, ordering::Release);
    }

    /// The result of the last request.
    pub(crate) fn result(&self) -> Result {
        kernel::error::to_result(self.result.load(ordering::Relaxed))
    }
}
