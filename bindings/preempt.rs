// SPDX-License-Identifier: GPL-2.0

//! Checks whether the caller may sleep, and leaves objects behind that are dropped where it may
//! not.
//!
//! Would extend: `rust/kernel/task.rs`, which has `might_sleep()`, a check of debug kernels only.
//!
//! C header: [`include/linux/preempt.h`](srctree/include/linux/preempt.h)
//!
//! An object that is dropped where sleeping is not allowed, but whose drop would wait, is *left
//! behind*: the drop does not wait and does not free the object, the log has a line about it, and
//! the module whose code the object may still call stays loaded for ever. Such a drop is a bug of
//! the caller, but corrupts no memory. The reason: some drops wait for readers, users or a device,
//! and safe code can drop an object anywhere.

use crate::bindings;

/// Whether the current context may sleep: it is no interrupt or softirq, holds no spinlock, and is
/// no RCU reader.
///
/// Correct on every kernel for which this crate compiles: it requires `CONFIG_PREEMPT_COUNT`,
/// without which a kernel cannot tell. Any context.
pub fn may_sleep() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::rnbd_helper_may_sleep() }
}

/// Logs that the object `what` is left behind, and keeps `module` loaded for ever, whose code the
/// object may still call.
///
/// `module` is the address of a `__this_module`: null for built-in code, otherwise a module whose
/// code is running now. Any context.
#[cold]
pub(crate) fn leave_behind(module: *mut bindings::module, what: &str) {
    crate::pr_err_ratelimited!(
        "{} was dropped in a context that cannot wait for it: it is left behind, and its module \
         stays loaded\n",
        what
    );
    // SAFETY: The pointer is null, or that of a loaded module.
    if !unsafe { bindings::try_module_get(module) } {
        // The code is being unloaded, and nothing can keep it any more.
        panic!("{what} was left behind by a module that is being unloaded");
    }
}
