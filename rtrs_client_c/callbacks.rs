// SPDX-License-Identifier: GPL-2.0

//! The functions of a caller in C that its session calls.

use kernel_ext::{
    c_caller::NumberCallback,
    prelude::*, //
};
use rtrs_client::LinkEvent;

/// The function that is called once when a request has ended (C: `conf_fn` of `struct
/// rtrs_clt_req_ops`).
pub(crate) struct Confirmation(NumberCallback);

impl Confirmation {
    /// Makes a confirmation of a caller's function.
    pub(crate) fn new(callback: NumberCallback) -> Self {
        Self(callback)
    }

    /// Tells the caller how the request has ended. Any context; the caller's function does not
    /// sleep.
    pub(crate) fn call(self, result: Result) {
        self.0.call(result.map_or_else(Error::to_errno, |()| 0));
    }
}

/// The function that is called when the last path of a session is lost, and when the first path is
/// up again (C: `link_ev` of `struct rtrs_clt_ops`).
pub(crate) struct LinkCallback(NumberCallback);

impl LinkCallback {
    /// Makes a callback of a caller's function.
    pub(crate) fn new(callback: NumberCallback) -> Self {
        Self(callback)
    }

    /// Tells the caller of `event`. Only for the session, which calls it while it is open. Process
    /// context; the caller's function may sleep.
    pub(crate) fn call(&self, event: LinkEvent) {
        // The numbers of `enum rtrs_clt_link_ev`.
        self.0.call(match event {
            LinkEvent::Reconnected => 0,
            LinkEvent::Disconnected => 1,
        });
    }
}
