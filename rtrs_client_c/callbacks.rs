// SPDX-License-Identifier: GPL-2.0

//! The functions of a caller in C that its session calls.

use core::ffi::c_void;
use kernel_ext::prelude::*;
use rtrs_client::LinkEvent;

/// C: `conf_fn` of `struct rtrs_clt_req_ops`.
pub(crate) type ConfirmFunction = unsafe extern "C" fn(private: *mut c_void, errno: c_int);

/// C: `link_ev` of `struct rtrs_clt_ops`.
pub(crate) type LinkFunction = unsafe extern "C" fn(private: *mut c_void, event: c_uint);

/// What is called once when a request is done.
///
/// # Invariants
///
/// `function` may be called once with `private`, in any context.
pub(crate) struct Confirmation {
    function: ConfirmFunction,
    private: *mut c_void,
}

// SAFETY: By the type invariant the function may be called in any context, so by any thread.
unsafe impl Send for Confirmation {}

impl Confirmation {
    /// Makes one of what a caller has given.
    ///
    /// # Safety
    ///
    /// `function` may be called once with `private`, in any context.
    pub(crate) unsafe fn new(function: ConfirmFunction, private: *mut c_void) -> Self {
        // INVARIANT: By the function's requirement.
        Self { function, private }
    }

    /// Says how the request has ended. Any context; the caller's function does not sleep.
    pub(crate) fn call(self, result: Result) {
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        // SAFETY: By the type invariant; this uses the value up.
        unsafe { (self.function)(self.private, errno) };
    }
}

/// What is called when the last path of a session is lost, and when the first one is up again.
///
/// # Invariants
///
/// `function` may be called with `private` in process context for as long as the session is open.
pub(crate) struct LinkCallback {
    function: LinkFunction,
    private: *mut c_void,
}

// SAFETY: By the type invariant the function may be called by any thread.
unsafe impl Send for LinkCallback {}

// SAFETY: As above; the session calls it once at a time.
unsafe impl Sync for LinkCallback {}

impl LinkCallback {
    /// Makes one of what a caller has given.
    ///
    /// # Safety
    ///
    /// `function` may be called with `private` in process context, until a session that is opened
    /// with the value is closed.
    pub(crate) unsafe fn new(function: LinkFunction, private: *mut c_void) -> Self {
        // INVARIANT: By the function's requirement.
        Self { function, private }
    }

    /// Tells the caller of `event`. Only for the session, which calls it while it is open. Process
    /// context; the caller's function may sleep.
    pub(crate) fn call(&self, event: LinkEvent) {
        // The numbers of `enum rtrs_clt_link_ev`.
        let event = match event {
            LinkEvent::Reconnected => 0,
            LinkEvent::Disconnected => 1,
        };
        // SAFETY: By the type invariant, as the session is open.
        unsafe { (self.function)(self.private, event) };
    }
}
