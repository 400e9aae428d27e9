// SPDX-License-Identifier: GPL-2.0

//! Memory that is allocated on behalf of IO.
//!
//! Would extend: `rust/kernel/mm.rs`.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use crate::bindings;

/// Runs `f`; what it allocates does not wait for IO, also not where somebody else allocates.
///
/// For what requests wait for: memory that is got by writing to the very disk whose requests wait
/// would never come. Process context.
pub fn without_io<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: Can be called in any task.
    let flags = unsafe { bindings::rnbd_helper_memalloc_noio_save() };
    let result = f();
    // SAFETY: What was saved in this task, and calls of this function nest.
    unsafe { bindings::rnbd_helper_memalloc_noio_restore(flags) };
    result
}
