// SPDX-License-Identifier: GPL-2.0

//! Taking turns at what may have to wait for a server.

use kernel::prelude::*;
use kernel_ext::wait::Completion;

/// One at a time, like a mutex; but whoever waits for it can be killed.
#[pin_data]
pub(crate) struct Turn {
    /// Signalled while nobody has the turn.
    #[pin]
    free: Completion,
}

impl Turn {
    /// Makes one that nobody has.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            free <- Completion::new(),
        })
        .pin_chain(|turn| {
            turn.free.complete();
            Ok(())
        })
    }

    /// Waits until nobody has the turn, and takes it until the result is dropped. Sleeps.
    ///
    /// `EINTR` if the task is killed meanwhile.
    pub(crate) fn take(&self) -> Result<Taken<'_>> {
        self.free.wait_killable().map_err(|_| EINTR)?;
        Ok(Taken(self))
    }
}

/// The turn of whoever has this.
pub(crate) struct Taken<'a>(&'a Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.free.complete();
    }
}
