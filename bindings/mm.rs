// SPDX-License-Identifier: GPL-2.0

//! Allocation of memory on behalf of IO.
//!
//! Would extend: `rust/kernel/mm.rs`.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use crate::bindings;

/// Runs `f`. No allocation in `f` waits for IO, also not in kernel functions that `f` calls (C:
/// `memalloc_noio_save`).
///
/// For work for which requests of a disk wait: an allocation that waits for a write to the same
/// disk would never end. Process context.
pub fn without_io<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: The function can be called in any task.
    let flags = unsafe { bindings::rnbd_helper_memalloc_noio_save() };
    let result = f();
    // SAFETY: The flags were saved in this task, and calls of this function nest.
    unsafe { bindings::rnbd_helper_memalloc_noio_restore(flags) };
    result
}
