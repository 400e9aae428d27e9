// SPDX-License-Identifier: GPL-2.0

//! Whether the caller may sleep, and what becomes of an object that is dropped where it may not.
//!
//! Would extend: `rust/kernel/task.rs`, which has `might_sleep()`, a check of debug kernels only.
//!
//! C header: [`include/linux/preempt.h`](srctree/include/linux/preempt.h)
//!
//! Some objects wait when they are dropped: for readers, for users, for a device. Safe code can
//! drop them anywhere. Where sleeping is not allowed they are therefore *left behind*: nothing is
//! waited for, nothing is freed, the log says so, and the module whose code they may still call
//! stays loaded for ever. That is a bug of the caller, but it corrupts nothing.

use crate::bindings;

/// Whether the current context may sleep: no interrupt or softirq, no spinlock held, no RCU reader.
///
/// Holds of every kernel that this crate compiles for: it needs `CONFIG_PREEMPT_COUNT`, without
/// which a kernel does not know. Any context.
pub fn may_sleep() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::rnbd_helper_may_sleep() }
}

/// Says that `what` is left behind, and keeps `module` loaded, whose code it may still call.
///
/// `module` is the pointer of a `__this_module`: null for code that is built in, else a module
/// whose code is running now. Any context.
#[cold]
pub(crate) fn leave_behind(module: *mut bindings::module, what: &str) {
    crate::pr_err_ratelimited!(
        "{} was dropped where it cannot be waited for: left behind\n",
        what
    );
    // SAFETY: The pointer is null, or that of a module that is loaded.
    if !unsafe { bindings::try_module_get(module) } {
        // Nothing can keep the code that is being unloaded.
        panic!("{what} was left behind by a module that is being unloaded");
    }
}
