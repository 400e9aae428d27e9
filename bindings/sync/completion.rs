// SPDX-License-Identifier: GPL-2.0

//! Waiting for events, in process context.
//!
//! Would extend: `rust/kernel/sync/completion.rs`, which can only signal all waiters, and waits
//! without a time limit.
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

/// The time limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout;

impl From<Timeout> for Error {
    fn from(_: Timeout) -> Self {
        ETIMEDOUT
    }
}

/// An event for which tasks wait.
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
    /// Makes an event that has not happened yet.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Signals the event once: wakes one waiter, or lets the next waiter through. Any context.
    pub fn complete(&self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Wakes all waiters and lets all later ones through. Any context.
    pub fn complete_all(&self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Takes one signal if there is one, without waiting; returns whether it did. After
    /// `complete_all()` there is always a signal. Any context.
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

    /// Waits for the event for at most `timeout` milliseconds. Does not wait if `timeout` is 0.
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

    /// Waits for the event. `ERESTARTSYS` if a signal kills the task meanwhile.
    pub fn wait_killable(&self) -> Result {
        // SAFETY: The completion is initialised.
        kernel::error::to_result(unsafe {
            bindings::wait_for_completion_killable(self.inner.get())
        })
    }

    /// Waits for the event for at most `timeout` milliseconds. `ETIMEDOUT` after that time,
    /// `ERESTARTSYS` if the task gets a signal meanwhile.
    pub fn wait_interruptible_timeout(&self, timeout: Msecs) -> Result {
        let timeout: Jiffies = msecs_to_jiffies(timeout);
        // SAFETY: The completion is initialised.
        let left = unsafe {
            bindings::wait_for_completion_interruptible_timeout(self.inner.get(), timeout)
        };
        match left {
            0 => Err(ETIMEDOUT),
            // The function has no other error.
            error if error < 0 => Err(ERESTARTSYS),
            _ => Ok(()),
        }
    }
}

/// A mutex without data. Waiting for it can end when the task is killed or a time is over.
#[pin_data]
pub struct KillableMutex {
    /// Signalled while the mutex is free.
    #[pin]
    free: Completion,
}

impl KillableMutex {
    /// Makes a free mutex.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            free <- Completion::new(),
        })
        .pin_chain(|this| {
            this.free.complete();
            Ok(())
        })
    }

    /// Locks the mutex until the result is dropped. Sleeps.
    ///
    /// `EINTR` if the task is killed meanwhile.
    pub fn lock_killable(&self) -> Result<KillableGuard<'_>> {
        self.free.wait_killable().map_err(|_| EINTR)?;
        Ok(KillableGuard(self))
    }

    /// Locks the mutex until the result is dropped, if it becomes free within `timeout`
    /// milliseconds. Sleeps.
    pub fn lock_timeout(&self, timeout: Msecs) -> Result<KillableGuard<'_>, Timeout> {
        self.free.wait_timeout(timeout)?;
        Ok(KillableGuard(self))
    }

    /// Locks the mutex until the result is dropped. `ETIMEDOUT` if it does not become free within
    /// `timeout` milliseconds, `ERESTARTSYS` if the task gets a signal meanwhile. Sleeps.
    pub fn lock_interruptible_timeout(&self, timeout: Msecs) -> Result<KillableGuard<'_>> {
        self.free.wait_interruptible_timeout(timeout)?;
        Ok(KillableGuard(self))
    }
}

/// A locked [`KillableMutex`]. Dropping the guard unlocks the mutex, in any context.
#[must_use = "the mutex is unlocked otherwise"]
pub struct KillableGuard<'a>(&'a KillableMutex);

impl Drop for KillableGuard<'_> {
    fn drop(&mut self) {
        self.0.free.complete();
    }
}
