// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is held with interrupts off, for kernels whose crate has none.

use crate::bindings;
use kernel::{
    ffi::{
        c_char,
        c_ulong, //
    },
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

/// A spinlock that is held with the interrupts of the CPU off (C: `spin_lock_irqsave()`). Any
/// context.
///
/// A lock puts the interrupts back to what they were when it was taken. So of two locks that a task
/// holds, the last taken has to be released first. Otherwise interrupts are on while a lock is
/// held: an interrupt handler that wants it waits for ever, but no data has two owners.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// How a [`SpinLockIrq`] is taken and released.
pub struct SpinLockIrqBackend;

// SAFETY: A `spinlock_t` has one owner at a time. `relock()` is the default, which locks in the
// same way.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    // Whether interrupts were on, as the architecture says it.
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the contract of this function `ptr` is valid for writes, and `name` and `key`
        // stay valid for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline(always)]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller says that the lock is initialised.
        unsafe { bindings::rnbd_helper_spin_lock_irqsave(ptr) }
    }

    #[inline(always)]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock, and the flags are those of its `lock()` on this CPU: a
        // guard is not `Send`.
        unsafe { bindings::rnbd_helper_spin_unlock_irqrestore(ptr, *guard_state) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: The caller says that the lock is initialised; `flags` may be written to.
        let is_taken = unsafe { bindings::rnbd_helper_spin_trylock_irqsave(ptr, &raw mut flags) };
        is_taken.then_some(flags)
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller says that the lock is initialised.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
