// SPDX-License-Identifier: GPL-2.0

//! Atomic variables of the IO path.
//!
//! Would be: nothing, and would not be sent. Where `CONFIG_RUST_INLINE_HELPERS` is on, this module
//! is `rust/kernel/sync/atomic.rs`. Where it is off, each operation of the kernel crate is a call
//! of a C function, and a request takes dozens of them. Then this module has the same interface,
//! with operations that are instructions.
//!
//! Only Rust code of these modules may read and write such a variable. In such code the orderings
//! mean the same in Rust's memory model as in the kernel's: acquire pairs with release, and
//! [`ordering::Full`] has a full barrier on both sides.

pub use kernel::sync::atomic::ordering;

#[cfg(CONFIG_RUST_INLINE_HELPERS)]
pub use kernel::sync::atomic::Atomic;

#[cfg(not(CONFIG_RUST_INLINE_HELPERS))]
pub use instructions::Atomic;

#[cfg(not(CONFIG_RUST_INLINE_HELPERS))]
mod instructions {
    use super::ordering::{
        self,
        OrderingType, //
    };
    use core::{
        cell::UnsafeCell,
        sync::atomic::{
            self,
            fence,
            Ordering, //
        },
    };

    /// A variable that may be used on all CPUs concurrently. All operations may be used in any
    /// context.
    ///
    /// # Invariants
    ///
    /// After the variable was made, the value is only accessed by atomic operations.
    #[repr(transparent)]
    pub struct Atomic<T: Copy>(UnsafeCell<T>);

    // SAFETY: `atomic!` gives operations only to types of plain data and to pointers, of which only
    // the address is moved.
    unsafe impl<T: Copy> Send for Atomic<T> {}

    // SAFETY: All access through a shared reference is atomic.
    unsafe impl<T: Copy> Sync for Atomic<T> {}

    impl<T: Copy> Atomic<T> {
        /// Makes a variable.
        pub const fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }
    }

    #[inline(always)]
    fn order<O: ordering::Ordering>() -> Ordering {
        match O::TYPE {
            OrderingType::Relaxed => Ordering::Relaxed,
            OrderingType::Acquire => Ordering::Acquire,
            OrderingType::Release => Ordering::Release,
            OrderingType::Full => Ordering::SeqCst,
        }
    }

    /// Runs an operation that reads and writes. For [`ordering::Full`] adds a full barrier on both
    /// sides, except on x86, where each such operation is a full barrier.
    #[inline(always)]
    fn ordered<O: ordering::Ordering, R>(operation: impl FnOnce(Ordering) -> R) -> R {
        let barrier = || {
            if matches!(O::TYPE, OrderingType::Full) && !cfg!(target_arch = "x86_64") {
                fence(Ordering::SeqCst);
            }
        };
        barrier();
        let result = operation(order::<O>());
        barrier();
        result
    }

    macro_rules! atomic {
        ($({$generic:ident})? $type:ty, $cell:ty $(, $number:ident)?) => {
            impl $(<$generic>)? Atomic<$type> {
                #[inline(always)]
                fn cell(&self) -> &$cell {
                    // SAFETY: The value is valid and aligned, and all its accesses are atomic.
                    unsafe { <$cell>::from_ptr(self.0.get()) }
                }

                /// Reads the value.
                #[inline(always)]
                pub fn load<O: ordering::AcquireOrRelaxed>(&self, _: O) -> $type {
                    self.cell().load(order::<O>())
                }

                /// Writes the value.
                #[inline(always)]
                pub fn store<O: ordering::ReleaseOrRelaxed>(&self, value: $type, _: O) {
                    self.cell().store(value, order::<O>());
                }

                /// Writes a new value and returns the old one.
                #[inline(always)]
                pub fn xchg<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                    ordered::<O, _>(|order| self.cell().swap(value, order))
                }

                /// Writes `new` if the value is `old`. Returns the value that was found, as `Ok` if
                /// `new` was written. Ordered only if it writes.
                #[inline(always)]
                pub fn cmpxchg<O: ordering::Ordering>(
                    &self,
                    old: $type,
                    new: $type,
                    _: O,
                ) -> Result<$type, $type> {
                    ordered::<O, _>(|order| {
                        self.cell().compare_exchange(old, new, order, Ordering::Relaxed)
                    })
                }

                $(
                    /// Adds to the value, wrapping around.
                    #[inline(always)]
                    pub fn add(&self, value: $number, _: ordering::Relaxed) {
                        self.cell().fetch_add(value, Ordering::Relaxed);
                    }

                    /// Adds to the value, wrapping around, and returns the old value.
                    #[inline(always)]
                    pub fn fetch_add<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                        ordered::<O, _>(|order| self.cell().fetch_add(value, order))
                    }

                    /// Subtracts from the value, wrapping around, and returns the old value.
                    #[inline(always)]
                    pub fn fetch_sub<O: ordering::Ordering>(&self, value: $type, _: O) -> $type {
                        ordered::<O, _>(|order| self.cell().fetch_sub(value, order))
                    }
                )?
            }
        };
    }

    atomic!(u32, atomic::AtomicU32, u32);
    atomic!(i32, atomic::AtomicI32, i32);
    atomic!(u64, atomic::AtomicU64, u64);
    atomic!(i64, atomic::AtomicI64, i64);
    atomic!(bool, atomic::AtomicBool);
    atomic!({T} *mut T, atomic::AtomicPtr<T>);
}
