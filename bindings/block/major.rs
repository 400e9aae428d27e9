// SPDX-License-Identifier: GPL-2.0

//! The major number of a block driver.

use crate::bindings;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A major number of block devices, ours while this lives.
///
/// # Invariants
///
/// `number` was given by `__register_blkdev` for `name`.
pub struct Major {
    number: c_int,
    name: &'static CStr,
}

impl Major {
    /// Registers a free number under a name for `/proc/devices`. Sleeps.
    pub fn register(name: &'static CStr) -> Result<Arc<Self>> {
        // SAFETY: The name is a string.
        let number = unsafe { bindings::__register_blkdev(0, name.as_char_ptr(), None) };
        if number < 0 {
            return Err(Error::from_errno(number));
        }
        // INVARIANT: As just registered.
        let this = Self { number, name };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The number.
    pub(super) fn number(&self) -> c_int {
        self.number
    }
}

impl Drop for Major {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the number is registered under this name.
        unsafe { bindings::unregister_blkdev(self.number.unsigned_abs(), self.name.as_char_ptr()) };
    }
}
