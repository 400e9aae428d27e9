// SPDX-License-Identifier: GPL-2.0

//! Allocation of small numbers. Each number has one holder at a time.
//!
//! Would be: `rust/kernel/ida.rs`. `rust/kernel/id_pool.rs` has no lock, and its user has to grow
//! it.
//!
//! C header: [`include/linux/idr.h`](srctree/include/linux/idr.h)

use crate::{
    bindings,
    prelude::*, //
};
use kernel::{
    sync::Arc,
    types::Opaque, //
};

/// A source of numbers (C: `struct ida`).
///
/// # Invariants
///
/// `inner` is initialised.
#[pin_data(PinnedDrop)]
pub struct Ida {
    #[pin]
    inner: Opaque<bindings::ida>,
}

// SAFETY: An IDA does its own locking.
unsafe impl Send for Ida {}
// SAFETY: See above.
unsafe impl Sync for Ida {}

impl Ida {
    /// Makes a source of numbers, all of them free.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                // SAFETY: `inner` is valid for writing, and pinned.
                inner <- Opaque::ffi_init(|inner| unsafe {
                    bindings::rnbd_helper_ida_init(inner)
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Takes the smallest free number of at most `max`.
    ///
    /// `ENOSPC` if no number is free, `ENOMEM`. Sleeps.
    pub fn allocate(self: &Arc<Self>, max: u32) -> Result<IdaNumber> {
        // SAFETY: By the type invariant `inner` is initialised.
        let number =
            unsafe { bindings::ida_alloc_range(self.inner.get(), 0, max, bindings::GFP_KERNEL) };
        // INVARIANT: The number was just taken for this value.
        Ok(IdaNumber {
            number: u32::try_from(number).map_err(|_| Error::from_errno(number))?,
            ida: self.clone(),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Ida {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `inner` is initialised. No number is taken, as each `IdaNumber` keeps the source
        // alive.
        unsafe { bindings::ida_destroy(self.inner.get()) };
    }
}

/// An allocated number. Dropping it frees the number, in any context.
///
/// # Invariants
///
/// `number` is taken from `ida` for this value.
#[must_use = "the number is free again otherwise"]
pub struct IdaNumber {
    number: u32,
    ida: Arc<Ida>,
}

impl IdaNumber {
    /// The number.
    pub fn get(&self) -> u32 {
        self.number
    }
}

impl Drop for IdaNumber {
    fn drop(&mut self) {
        // SAFETY: The number was taken from this source for this value, which ends here.
        unsafe { bindings::ida_free(self.ida.inner.get(), self.number) };
    }
}
