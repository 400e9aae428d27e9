// SPDX-License-Identifier: GPL-2.0

//! Atomic variables of the IO path.
//!
//! `kernel::sync::atomic` is meant for this, but each of its operations is a call of a C function,
//! and a request takes dozens of them. These are instructions. They have the same interface, so
//! that a file changes from one to the other by its imports.
//!
//! They are for what only Rust code of these modules reads and writes. Between such code the
//! orderings needed here mean the same in Rust's memory model as in the kernel's: acquire and
//! release pair up, and [`ordering::Full`] has a full barrier on both sides.

use core::{
    cell::UnsafeCell,
    sync::atomic::{
        self,
        fence,
        Ordering, //
    },
};

/// How an operation is ordered with others; the names are those of `kernel::sync::atomic`.
pub mod ordering {
    /// Not at all.
    pub struct Relaxed;
    /// What follows comes after it.
    pub struct Acquire;
    /// What precedes comes before it.
    pub struct Release;
    /// Both, as by a full barrier on either side.
    pub struct Full;
}

mod sealed {
    use core::sync::atomic::Ordering;

    /// An ordering of an operation that reads and writes.
    pub trait Any {
        const ORDERING: Ordering;
        const FULL: bool = false;
    }
    /// One of an operation that reads.
    pub trait Load {
        const ORDERING: Ordering;
    }
    /// One of an operation that writes.
    pub trait Store {
        const ORDERING: Ordering;
    }
}

macro_rules! orderings {
    ($($trait:ident $name:ident = $ordering:ident $(, $full:literal)?;)*) => {$(
        impl sealed::$trait for ordering::$name {
            const ORDERING: Ordering = Ordering::$ordering;
            $(const FULL: bool = $full;)?
        }
    )*};
}

orderings! {
    Any Relaxed = Relaxed;
    Any Acquire = Acquire;
    Any Release = Release;
    Any Full = SeqCst, true;
    Load Relaxed = Relaxed;
    Load Acquire = Acquire;
    Store Relaxed = Relaxed;
    Store Release = Release;
}

/// A full barrier beside an operation that is none itself: on x86 every one that reads and writes
/// is.
#[inline(always)]
fn barrier(full: bool) {
    if full && !cfg!(target_arch = "x86_64") {
        fence(Ordering::SeqCst);
    }
}

/// A type of which there are atomic variables; implemented here.
///
/// # Safety
///
/// `Cell` has the layout of `Self`, may be shared by threads, and there is one of every value of
/// `Self`. The functions do what they are called, atomically, and only put values of `Self` into
/// it.
pub unsafe trait Value: Copy {
    /// Rust's type of them, which has the layout of `Self`.
    #[doc(hidden)]
    type Cell;

    #[doc(hidden)]
    fn load(cell: &Self::Cell, ordering: Ordering) -> Self;
    #[doc(hidden)]
    fn store(cell: &Self::Cell, value: Self, ordering: Ordering);
    #[doc(hidden)]
    fn swap(cell: &Self::Cell, value: Self, ordering: Ordering) -> Self;
    #[doc(hidden)]
    fn exchange(cell: &Self::Cell, old: Self, new: Self, ordering: Ordering) -> Result<Self, Self>;
}

/// A [`Value`] that can be added to, wrapping around.
pub trait Number: Value {
    #[doc(hidden)]
    fn add(cell: &Self::Cell, value: Self, ordering: Ordering) -> Self;
    #[doc(hidden)]
    fn sub(cell: &Self::Cell, value: Self, ordering: Ordering) -> Self;
}

/// A variable that may be used from all CPUs at once. All operations may be used in any context.
#[repr(transparent)]
pub struct Atomic<T: Value>(UnsafeCell<T>);

// SAFETY: A value is plain data, or a pointer, of which only the value is moved.
unsafe impl<T: Value> Send for Atomic<T> {}

// SAFETY: All access is atomic.
unsafe impl<T: Value> Sync for Atomic<T> {}

impl<T: Value> Atomic<T> {
    /// Makes a variable.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn cell(&self) -> &T::Cell {
        const {
            assert!(size_of::<T>() == size_of::<T::Cell>());
            assert!(align_of::<T>() == align_of::<T::Cell>());
        }
        // SAFETY: The layouts are the same, and nobody accesses it otherwise.
        unsafe { &*self.0.get().cast() }
    }

    /// Reads it.
    #[inline(always)]
    pub fn load<O: sealed::Load>(&self, _: O) -> T {
        T::load(self.cell(), O::ORDERING)
    }

    /// Writes it.
    #[inline(always)]
    pub fn store<O: sealed::Store>(&self, value: T, _: O) {
        T::store(self.cell(), value, O::ORDERING);
    }

    /// Writes it and returns what was there before.
    #[inline(always)]
    pub fn xchg<O: sealed::Any>(&self, value: T, _: O) -> T {
        barrier(O::FULL);
        let old = T::swap(self.cell(), value, O::ORDERING);
        barrier(O::FULL);
        old
    }

    /// Writes `new` if `old` was there, and returns it; otherwise returns what was there. Ordered
    /// only if it writes.
    #[inline(always)]
    pub fn cmpxchg<O: sealed::Any>(&self, old: T, new: T, _: O) -> Result<T, T> {
        barrier(O::FULL);
        let result = T::exchange(self.cell(), old, new, O::ORDERING);
        barrier(O::FULL);
        result
    }
}

impl<T: Number> Atomic<T> {
    /// Adds to it, wrapping around.
    #[inline(always)]
    pub fn add<O: sealed::Any>(&self, value: T, ordering: O) {
        self.fetch_add(value, ordering);
    }

    /// Adds to it, wrapping around, and returns what was there before.
    #[inline(always)]
    pub fn fetch_add<O: sealed::Any>(&self, value: T, _: O) -> T {
        barrier(O::FULL);
        let old = T::add(self.cell(), value, O::ORDERING);
        barrier(O::FULL);
        old
    }

    /// Subtracts from it, wrapping around, and returns what was there before.
    #[inline(always)]
    pub fn fetch_sub<O: sealed::Any>(&self, value: T, _: O) -> T {
        barrier(O::FULL);
        let old = T::sub(self.cell(), value, O::ORDERING);
        barrier(O::FULL);
        old
    }
}

macro_rules! value {
    ($({$($generic:tt)*})? $type:ty, $cell:ty) => {
        // SAFETY: The functions are those of Rust's atomic type.
        unsafe impl $(<$($generic)*>)? Value for $type {
            type Cell = $cell;

            #[inline(always)]
            fn load(cell: &$cell, ordering: Ordering) -> Self {
                cell.load(ordering)
            }
            #[inline(always)]
            fn store(cell: &$cell, value: Self, ordering: Ordering) {
                cell.store(value, ordering);
            }
            #[inline(always)]
            fn swap(cell: &$cell, value: Self, ordering: Ordering) -> Self {
                cell.swap(value, ordering)
            }
            #[inline(always)]
            fn exchange(
                cell: &$cell,
                old: Self,
                new: Self,
                ordering: Ordering,
            ) -> Result<Self, Self> {
                cell.compare_exchange(old, new, ordering, Ordering::Relaxed)
            }
        }
    };
}

macro_rules! number {
    ($type:ty, $cell:ty) => {
        value!($type, $cell);

        impl Number for $type {
            #[inline(always)]
            fn add(cell: &$cell, value: Self, ordering: Ordering) -> Self {
                cell.fetch_add(value, ordering)
            }
            #[inline(always)]
            fn sub(cell: &$cell, value: Self, ordering: Ordering) -> Self {
                cell.fetch_sub(value, ordering)
            }
        }
    };
}

number!(u32, atomic::AtomicU32);
number!(i32, atomic::AtomicI32);
number!(u64, atomic::AtomicU64);
number!(i64, atomic::AtomicI64);
value!(bool, atomic::AtomicBool);
value!({T} *mut T, atomic::AtomicPtr<T>);
