// SPDX-License-Identifier: GPL-2.0

//! Waiting for events, in process context.
//!
//! Would extend: `rust/kernel/sync/completion.rs`, which signals all waiters only, and waits
//! without a limit.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use kernel::{
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    prelude::*, //
};

/// The time given was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout;

impl From<Timeout> for Error {
    fn from(_: Timeout) -> Self {
        ETIMEDOUT
    }
}

/// An event that tasks wait for.
///
/// Signalling works in any context; waiting sleeps.
#[pin_data]
pub struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion may be used from any task.
unsafe impl Send for Completion {}

// SAFETY: The C functions synchronise among themselves.
unsafe impl Sync for Completion {}

impl Completion {
    /// Makes an event that has not happened.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Wakes one waiter, or lets the next one through. Any context.
    pub fn complete(&self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Wakes all waiters and lets all later ones through. Any context.
    pub fn complete_all(&self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Takes one signal if there is one, without waiting; of those of `complete_all()` there is
    /// always one more. Any context.
    pub fn try_wait(&self) -> bool {
        // SAFETY: The completion is initialised.
        unsafe { bindings::try_wait_for_completion(self.inner.get()) }
    }

    /// Whether a waiter would be let through now. Any context.
    pub fn is_done(&self) -> bool {
        // SAFETY: The completion is initialised.
        unsafe { bindings::completion_done(self.inner.get()) }
    }

    /// Waits for the event.
    pub fn wait(&self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Waits for the event, at most `timeout` milliseconds; 0: does not wait.
    pub fn wait_timeout(&self, timeout: Msecs) -> Result<(), Timeout> {
        if timeout == 0 {
            // The C function would sleep for a tick.
            return if self.try_wait() {
                Ok(())
            } else {
                Err(Timeout)
            };
        }
        // SAFETY: The completion is initialised.
        match unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(timeout))
        } {
            0 => Err(Timeout),
            _ => Ok(()),
        }
    }

    /// Waits for the event, or for a signal that kills the task (`ERESTARTSYS`).
    pub fn wait_killable(&self) -> Result {
        // SAFETY: The completion is initialised.
        kernel::error::to_result(unsafe {
            bindings::wait_for_completion_killable(self.inner.get())
        })
    }

    /// Waits for the event, at most `timeout` milliseconds (`ETIMEDOUT`), or for a signal to the
    /// task (`ERESTARTSYS`).
    pub fn wait_interruptible_timeout(&self, timeout: Msecs) -> Result {
        let timeout: Jiffies = msecs_to_jiffies(timeout);
        // SAFETY: The completion is initialised.
        let left = unsafe {
            bindings::wait_for_completion_interruptible_timeout(self.inner.get(), timeout)
        };
        match left {
            0 => Err(ETIMEDOUT),
            // The only error there is.
            error if error < 0 => Err(ERESTARTSYS),
            _ => Ok(()),
        }
    }
}

/// A mutex without data, whose waiting ends when the task is killed or a time is over.
#[pin_data]
pub struct KillableMutex {
    /// Signalled while the mutex is free.
    #[pin]
    free: Completion,
}

impl KillableMutex {
    /// Makes one that is free.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            free <- Completion::new(),
        })
        .pin_chain(|this| {
            this.free.complete();
            Ok(())
        })
    }

    /// Locks it until the result is dropped. Sleeps.
    ///
    /// `EINTR` if the task is killed meanwhile.
    pub fn lock_killable(&self) -> Result<KillableGuard<'_>> {
        self.free.wait_killable().map_err(|_| EINTR)?;
        Ok(KillableGuard(self))
    }

    /// Locks it until the result is dropped, if it gets free within `timeout` milliseconds. Sleeps.
    pub fn lock_timeout(&self, timeout: Msecs) -> Result<KillableGuard<'_>, Timeout> {
        self.free.wait_timeout(timeout)?;
        Ok(KillableGuard(self))
    }

    /// As [`Self::lock_killable`], for at most `timeout` milliseconds (`ETIMEDOUT`), or until a
    /// signal comes (`ERESTARTSYS`).
    pub fn lock_interruptible_timeout(&self, timeout: Msecs) -> Result<KillableGuard<'_>> {
        self.free.wait_interruptible_timeout(timeout)?;
        Ok(KillableGuard(self))
    }
}

/// A [`KillableMutex`] that is locked. Dropping it unlocks, in any context.
#[must_use = "the mutex is unlocked otherwise"]
pub struct KillableGuard<'a>(&'a KillableMutex);

impl Drop for KillableGuard<'_> {
    fn drop(&mut self) {
        self.0.free.complete();
    }
}
