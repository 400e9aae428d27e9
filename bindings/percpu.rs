// SPDX-License-Identifier: GPL-2.0

//! Values of which each CPU has its own.
//!
//! Would be: `rust/kernel/percpu.rs`.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use core::{
    marker::PhantomData,
    mem,
    ptr::NonNull, //
};
use kernel::prelude::*;

use crate::{
    bindings,
    cpu,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

/// One `T` for each possible CPU.
///
/// Statistics are counted on the CPU that happens to run ([`PerCpu::current`]) and added up when
/// they are shown ([`PerCpu::iter`]). As a task may be moved to another CPU in between, all
/// access is by shared reference; `T` is made of [`Counter`]s or atomics.
///
/// # Invariants
///
/// `base` is a per-CPU allocation of the size of `T`; the value of each possible CPU is
/// initialised.
pub struct PerCpu<T: Send + Sync + 'static> {
    base: NonNull<c_void>,
    _values: PhantomData<T>,
}

// SAFETY: The object owns the values, and `T` is `Send`.
unsafe impl<T: Send + Sync + 'static> Send for PerCpu<T> {}

// SAFETY: Only shared references to the values are handed out, and `T` is `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for PerCpu<T> {}

impl<T: Send + Sync + 'static> PerCpu<T> {
    /// Makes a value for each CPU with `init`. Sleeps.
    pub fn new(mut init: impl FnMut() -> T) -> Result<Self> {
        const {
            assert!(mem::size_of::<T>() > 0);
            // PCPU_MIN_UNIT_SIZE; beyond that an allocation can only fail.
            assert!(mem::size_of::<T>() <= 32768);
            assert!(mem::align_of::<T>() <= 4096);
        }
        // SAFETY: Size and alignment are as above.
        let base = unsafe {
            bindings::pcpu_alloc_noprof(
                mem::size_of::<T>(),
                mem::align_of::<T>(),
                false,
                bindings::GFP_KERNEL,
            )
        };
        let base = NonNull::new(base).ok_or(ENOMEM)?;
        for cpu in cpu::possible_cpus() {
            // SAFETY: The CPU is possible, and its memory is not in use yet.
            unsafe { Self::raw(base, cpu).write(init()) };
        }
        // INVARIANT: The values of all possible CPUs were just made.
        Ok(Self {
            base,
            _values: PhantomData,
        })
    }

    /// The value of the CPU that this runs on, or ran on a moment ago. Any context.
    pub fn current(&self) -> &T {
        // SAFETY: The values of all possible CPUs are initialised, and only shared.
        unsafe { &*bindings::rnbd_helper_raw_cpu_ptr(self.base.as_ptr()).cast::<T>() }
    }

    /// The values with their CPUs, in ascending order. Any context.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        cpu::possible_cpus().map(|cpu| {
            // SAFETY: The values of all possible CPUs are initialised, and only shared.
            (cpu, unsafe { &*Self::raw(self.base, cpu) })
        })
    }

    /// Adds up something over all CPUs. Any context.
    pub fn sum(&self, mut of: impl FnMut(&T) -> u64) -> u64 {
        self.iter()
            .fold(0, |sum, (_, value)| sum.wrapping_add(of(value)))
    }

    /// Where the value of `cpu` is.
    ///
    /// # Safety
    ///
    /// `base` is as in the type invariant, `cpu` is possible.
    unsafe fn raw(base: NonNull<c_void>, cpu: u32) -> *mut T {
        // SAFETY: By the safety requirement.
        unsafe { bindings::rnbd_helper_per_cpu_ptr(base.as_ptr(), cpu) }.cast()
    }
}

impl<T: Send + Sync + 'static> Drop for PerCpu<T> {
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            for cpu in cpu::possible_cpus() {
                // SAFETY: The value of every possible CPU is there, and nobody else uses it.
                unsafe { Self::raw(self.base, cpu).drop_in_place() };
            }
        }
        // SAFETY: `base` is a per-CPU allocation of this object, and is not used any more.
        unsafe { bindings::free_percpu(self.base.as_ptr()) };
    }
}

/// `N` numbers of events for each CPU, which wrap around.
///
/// Counting is one instruction of that CPU on machines that have one, and takes no lock.
///
/// # Invariants
///
/// `cpus.base` is a per-CPU allocation of `N` words, which are only written by `this_cpu_add()`,
/// and read and reset as atomics.
pub struct Counters<const N: usize> {
    cpus: PerCpu<[Atomic<u64>; N]>,
}

impl<const N: usize> Counters<N> {
    /// Nothing counted. Sleeps.
    pub fn new() -> Result<Self> {
        // INVARIANT: Nothing is counted yet.
        Ok(Self {
            cpus: PerCpu::new(|| [const { Atomic::new(0) }; N])?,
        })
    }

    /// Counts `number` events as those of `index`; nothing if there is no such index. Any context.
    #[inline]
    pub fn add(&self, index: usize, number: u64) {
        if index < N {
            // SAFETY: By the type invariant there are that many words for each CPU.
            unsafe {
                bindings::rnbd_helper_this_cpu_add(self.cpus.base.as_ptr().cast(), index, number)
            }
        }
    }

    /// Counts `first` events as those of `index` and `second` as those of the next one; nothing if
    /// there are no such two. Any context.
    #[inline]
    pub fn add_two(&self, index: usize, first: u64, second: u64) {
        if index < N && index + 1 < N {
            let base = self.cpus.base.as_ptr().cast();
            // SAFETY: By the type invariant there are that many words for each CPU.
            unsafe { bindings::rnbd_helper_this_cpu_add_two(base, index, first, second) };
        }
    }

    /// The events of `index` on all CPUs. Any context.
    pub fn sum(&self, index: usize) -> u64 {
        self.cpus.sum(|counters| {
            let counter = counters.get(index);
            counter.map_or(0, |counter| counter.load(ordering::Relaxed))
        })
    }

    /// Begins at zero again. What is counted at the same moment may be lost, or not forgotten. Any
    /// context.
    pub fn reset(&self) {
        for (_, counters) in self.cpus.iter() {
            for counter in counters {
                counter.store(0, ordering::Relaxed);
            }
        }
    }
}

/// A number of events; wraps around.
pub struct Counter(Atomic<u64>);

impl Counter {
    /// Makes a counter of nothing.
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts `number` events. Any context.
    #[inline]
    pub fn add(&self, number: u64) {
        self.0.add(number, ordering::Relaxed);
    }

    /// The number of events.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(ordering::Relaxed)
    }

    /// Begins at zero again. What is counted at the same moment may be lost.
    pub fn reset(&self) {
        self.0.store(0, ordering::Relaxed);
    }
}
