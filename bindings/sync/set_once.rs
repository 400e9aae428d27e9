// SPDX-License-Identifier: GPL-2.0

//! A value that is set once and read from then on.
//!
//! Would be: nothing, and would not be sent. Where `CONFIG_RUST_INLINE_HELPERS` is on, this module
//! is `rust/kernel/sync/set_once.rs`. Elsewhere it has the same type, built on the variables of
//! [`atomic`](super::atomic).

#[cfg(CONFIG_RUST_INLINE_HELPERS)]
pub use kernel::sync::SetOnce;

#[cfg(not(CONFIG_RUST_INLINE_HELPERS))]
pub use instructions::SetOnce;

#[cfg(not(CONFIG_RUST_INLINE_HELPERS))]
mod instructions {
    use crate::sync::atomic::{
        ordering,
        Atomic, //
    };
    use core::{
        cell::UnsafeCell,
        mem::MaybeUninit, //
    };

    const EMPTY: u32 = 0;
    const BEING_SET: u32 = 1;
    const SET: u32 = 2;

    /// A value that is set at most once. Reading it takes a load instead of a call.
    ///
    /// # Invariants
    ///
    /// - `state` only goes from `EMPTY` to `BEING_SET` to `SET`.
    /// - `value` is written only by the caller that changed `state` to `BEING_SET`, before `state`
    ///   is `SET`.
    /// - While `state` is `SET` there is a value, and it is not changed.
    pub struct SetOnce<T> {
        state: Atomic<u32>,
        value: UnsafeCell<MaybeUninit<T>>,
    }

    // SAFETY: A `SetOnce` owns the `T` in it.
    unsafe impl<T: Send> Send for SetOnce<T> {}

    // SAFETY: Any task may set the value (`Send`), and all tasks get shared references to it
    // (`Sync`).
    unsafe impl<T: Send + Sync> Sync for SetOnce<T> {}

    impl<T> SetOnce<T> {
        /// Makes a `SetOnce` without a value.
        pub const fn new() -> Self {
            // INVARIANT: There is no value.
            Self {
                state: Atomic::new(EMPTY),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        }

        /// The value, if it was set. Any context.
        #[inline(always)]
        pub fn as_ref(&self) -> Option<&T> {
            if self.state.load(ordering::Acquire) != SET {
                return None;
            }
            // SAFETY: `state` is `SET`, so there is a value, which is not changed. The acquire
            // pairs with the release in `populate()`.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        }

        /// Sets the value. False, and `value` is dropped, if there is a value already.
        pub fn populate(&self, value: T) -> bool {
            if self
                .state
                .cmpxchg(EMPTY, BEING_SET, ordering::Relaxed)
                .is_err()
            {
                return false;
            }
            // SAFETY: This call has changed `state` to `BEING_SET`, so no other call writes the
            // value, and none reads it yet.
            unsafe { (*self.value.get()).write(value) };
            // INVARIANT: There is a value now.
            self.state.store(SET, ordering::Release);
            true
        }
    }

    impl<T> Default for SetOnce<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T> Drop for SetOnce<T> {
        fn drop(&mut self) {
            if self.state.load(ordering::Relaxed) == SET {
                // SAFETY: `state` is `SET`, so there is a value. It is not used any more.
                unsafe { (*self.value.get()).assume_init_drop() };
            }
        }
    }
}
