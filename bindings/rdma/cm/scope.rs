// SPDX-License-Identifier: GPL-2.0

//! Tells whether an id of the connection manager is used inside of its own event handler.
//!
//! Would be: part of `rust/kernel/rdma/cm.rs`.

use crate::{
    bindings,
    prelude::*, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    sync::atomic::{
        ordering,
        Atomic, //
    },
    task::Task,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// How often a request for a connection looks whether the listening id can handle it.
const REQUEST_INTERVAL: Delta = Delta::from_millis(1);

/// The most tasks that are in a listening id's event handler at a time. Further tasks wait.
const MAX_REQUESTS: usize = 4;

/// The part of an id's state that does not depend on its handler's type.
pub(super) struct Scope {
    /// The task that is in the id's event handler now, or null; a task that handles a request for a
    /// connection is in `requests` instead.
    task: Atomic<*mut bindings::task_struct>,
    /// The tasks that handle a request for a connection now; null for a free place.
    requests: [Atomic<*mut bindings::task_struct>; MAX_REQUESTS],
    /// The owner has dropped the id in the id's event handler, which therefore destroys the id.
    pub(super) destroy: Atomic<bool>,
    /// The id has a device, and keeps it until the id is destroyed.
    pub(super) has_device: Atomic<bool>,
    /// Frees the `Inner` that starts with the scope.
    free: unsafe fn(NonNull<Scope>),
}

impl Scope {
    /// Makes the scope of an id that is in no event handler. `free` frees the `Inner` that will
    /// start with the scope.
    pub(super) fn new(free: unsafe fn(NonNull<Scope>)) -> Self {
        Self {
            task: Atomic::new(ptr::null_mut()),
            requests: [const { Atomic::new(ptr::null_mut()) }; MAX_REQUESTS],
            destroy: Atomic::new(false),
            has_device: Atomic::new(false),
            free,
        }
    }

    /// Notes that the current task is in the id's event handler from now on.
    pub(super) fn enter(&self) {
        self.task.store(Task::current_raw(), ordering::Relaxed);
    }

    /// Whether the current task is in the id's event handler. A relaxed load is enough, as only the
    /// current task writes its own address.
    pub(super) fn is_inside(&self) -> bool {
        ptr::eq(self.task.load(ordering::Relaxed), Task::current_raw())
    }

    /// Whether the current task handles a request for a connection to this listening id.
    pub(super) fn is_in_request(&self) -> bool {
        let mut tasks = self
            .requests
            .iter()
            .map(|task| task.load(ordering::Relaxed));
        tasks.any(|task| ptr::eq(task, Task::current_raw()))
    }

    /// Runs `handle` for a request for a connection. Sleeps while too many are handled already.
    pub(super) fn in_request<R>(&self, handle: impl FnOnce() -> R) -> R {
        let claim = |task: &&Atomic<_>| {
            let old = task.cmpxchg(ptr::null_mut(), Task::current_raw(), ordering::Relaxed);
            old.is_ok()
        };
        let task = loop {
            if let Some(task) = self.requests.iter().find(claim) {
                break task;
            }
            fsleep(REQUEST_INTERVAL);
        };
        let result = handle();
        task.store(ptr::null_mut(), ordering::Relaxed);
        result
    }

    /// Ends the event handler, and returns the value that the handler must return to the CM:
    /// non-zero destroys the id.
    ///
    /// # Safety
    ///
    /// The caller must be in the id's event handler and not use the scope afterwards.
    pub(super) unsafe fn leave(this: NonNull<Self>) -> c_int {
        // SAFETY: The scope is valid until `free()` below. While this event handler runs, a drop of
        // the id in another task waits for the handler, and a drop in this task leaves the freeing
        // to this function.
        let scope = unsafe { this.as_ref() };
        scope.task.store(ptr::null_mut(), ordering::Relaxed);
        if !scope.destroy.load(ordering::Relaxed) {
            return 0;
        }
        // SAFETY: The owner has dropped the id, and no event handler runs after this one has
        // returned non-zero.
        unsafe { (scope.free)(this) };
        ECONNABORTED.to_errno()
    }
}
