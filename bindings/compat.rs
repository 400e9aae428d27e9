// SPDX-License-Identifier: GPL-2.0

//! Differences between the supported kernels.
//!
//! Would be: nothing, and would not be sent. Code that depends on the kernel's version is in this
//! file and folder, in `compat.h`, `compat.c` and `bindgen_parameters_before_7.3`;
//! `Documentation/kernels.md` lists it. The rest of the crate is written for the newest kernel, and
//! uses the items that this module exports. Kbuild sets `SINCE_7_3` for kernel 7.3 and later. When
//! a kernel is dropped, the code for it is deleted.

#[cfg(not(SINCE_7_3))]
pub(crate) mod errno;
#[cfg(not(SINCE_7_3))]
pub(crate) mod spinlock_irq;

use crate::bindings;
use kernel::ModuleMetadata;

/// The `THIS_MODULE` of the module `M`.
#[cfg(SINCE_7_3)]
pub(crate) const fn this_module<M: ModuleMetadata>() -> *mut bindings::module {
    M::THIS_MODULE.as_ptr()
}

/// The `THIS_MODULE` of the module into which this function is compiled: of `M`, or of a module
/// that depends on `M`.
///
/// Before 7.3 the kernel crate does not tell which module `M` is. This function is generic over a
/// type of the driver, so it is compiled in the driver's crate, or in a crate that uses the driver,
/// and `__this_module` is that of this crate.
#[cfg(not(SINCE_7_3))]
#[expect(clippy::extra_unused_type_parameters)]
pub(crate) const fn this_module<M: ModuleMetadata>() -> *mut bindings::module {
    &raw mut bindings::__this_module
}

/// A full memory barrier (C: `smp_mb()`). Any context.
#[inline(always)]
pub(crate) fn smp_mb() {
    #[cfg(SINCE_7_3)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Full);
    #[cfg(not(SINCE_7_3))]
    kernel::sync::barrier::smp_mb();
}

#[cfg(SINCE_7_3)]
pub use kernel::sync::rcu::synchronize_rcu;

/// Waits until all RCU read sections that have begun have ended. Sleeps. Must not be called in a
/// read section, where it would wait for its own caller.
#[cfg(not(SINCE_7_3))]
pub fn synchronize_rcu() {
    // SAFETY: The function has no memory safety requirement. If it is called where sleeping is not
    // allowed, the kernel reports that, or the machine stops. The kernel crate's function is safe
    // for the same reason.
    unsafe { bindings::synchronize_rcu() };
}

/// The values of `enum dma_data_direction`, which is a type of its own since 7.3.
#[cfg(SINCE_7_3)]
pub(crate) mod dma_data_direction {
    use crate::bindings::dma_data_direction as Raw;

    pub(crate) const BIDIRECTIONAL: i32 = Raw::DMA_BIDIRECTIONAL.0;
    pub(crate) const TO_DEVICE: i32 = Raw::DMA_TO_DEVICE.0;
    pub(crate) const FROM_DEVICE: i32 = Raw::DMA_FROM_DEVICE.0;

    pub(crate) const fn from(value: i32) -> Raw {
        Raw(value)
    }
}

/// The values of `enum dma_data_direction`, which is an integer before 7.3.
#[cfg(not(SINCE_7_3))]
pub(crate) mod dma_data_direction {
    use crate::bindings;

    pub(crate) const BIDIRECTIONAL: i32 = bindings::dma_data_direction_DMA_BIDIRECTIONAL;
    pub(crate) const TO_DEVICE: i32 = bindings::dma_data_direction_DMA_TO_DEVICE;
    pub(crate) const FROM_DEVICE: i32 = bindings::dma_data_direction_DMA_FROM_DEVICE;

    pub(crate) const fn from(value: i32) -> bindings::dma_data_direction {
        value
    }
}

/// A limit in `struct ib_device_attr`: `u32` since 7.3, `int` before.
pub(crate) trait DeviceLimit {
    /// The limit. A negative value counts as 0.
    fn limit(self) -> u32;
}

impl DeviceLimit for u32 {
    #[inline(always)]
    fn limit(self) -> u32 {
        self
    }
}

#[cfg(not(SINCE_7_3))]
impl DeviceLimit for i32 {
    #[inline(always)]
    fn limit(self) -> u32 {
        self.max(0).unsigned_abs()
    }
}
