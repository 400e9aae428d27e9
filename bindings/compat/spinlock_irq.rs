// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is held with interrupts off, for kernels in which the kernel crate has none.

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
/// Releasing a lock restores the interrupt state from when the lock was taken. So a task that holds
/// two locks must release the last taken first. Otherwise interrupts are on while a lock is held,
/// and an interrupt handler that takes the lock waits for ever; but data never has two owners.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// The operations of a [`SpinLockIrq`].
pub struct SpinLockIrqBackend;

// SAFETY: A `spinlock_t` has one owner at a time. `relock()` is the default, which locks in the
// same way.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    // The interrupt state before the lock was taken, in the format of the architecture.
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the contract of this function `ptr` is valid for writes, and `name` and `key`
        // stay valid for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline(always)]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller promises that the lock is initialised.
        unsafe { bindings::rnbd_helper_spin_lock_irqsave(ptr) }
    }

    #[inline(always)]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock. The flags are those of `lock()` on this CPU, as a guard
        // is not `Send`.
        unsafe { bindings::rnbd_helper_spin_unlock_irqrestore(ptr, *guard_state) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: The caller promises that the lock is initialised; `flags` may be written to.
        let is_taken = unsafe { bindings::rnbd_helper_spin_trylock_irqsave(ptr, &raw mut flags) };
        is_taken.then_some(flags)
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller promises that the lock is initialised.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
