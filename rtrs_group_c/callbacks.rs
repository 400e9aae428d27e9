// SPDX-License-Identifier: GPL-2.0

//! The functions of a caller in C that its group calls.

use kernel_ext::c_caller::ValueCallback;
use rtrs_group::Ended;

/// C: `struct rtrs_group_result`. Only C reads it.
#[allow(dead_code)]
#[repr(C)]
pub(crate) struct RawResult {
    number: u64,
    confirmed: u32,
    failed: u32,
    unanswered: u32,
    error: i32,
}

/// C: `struct rtrs_group_failure`. Only C reads it.
#[allow(dead_code)]
#[repr(C)]
pub(crate) struct RawFailure {
    number: u64,
    member: u32,
}

/// The function that is called once when a request has ended (C: `conf_fn` of `struct
/// rtrs_group_req_ops`).
pub(crate) struct Confirmation(ValueCallback<RawResult>);

impl Confirmation {
    /// Makes a confirmation of a caller's function.
    pub(crate) fn new(callback: ValueCallback<RawResult>) -> Self {
        Self(callback)
    }

    /// Tells the caller how the request has ended. Any context; the caller's function does not
    /// sleep.
    pub(crate) fn call(self, ended: &Ended) {
        self.0.call(&RawResult {
            number: ended.number,
            confirmed: ended.confirmed.to_bits(),
            failed: ended.failed.to_bits(),
            unanswered: ended.unanswered.to_bits(),
            error: ended.result.map_or_else(|error| error.to_errno(), |()| 0),
        });
    }
}

/// The function that is called when a member falls behind (C: `fell_behind` of `struct
/// rtrs_group_ops`).
pub(crate) struct FailureCallback(ValueCallback<RawFailure>);

impl FailureCallback {
    /// Makes a callback of a caller's function.
    pub(crate) fn new(callback: ValueCallback<RawFailure>) -> Self {
        Self(callback)
    }

    /// Tells the caller that `member` has not confirmed write `number`. Only for the group, which
    /// calls it while it is open. Any context; the caller's function does not sleep.
    pub(crate) fn call(&self, member: usize, number: u64) {
        // There are 16 members at most.
        let member = member as u32;
        self.0.call(&RawFailure { number, member });
    }
}
