// SPDX-License-Identifier: GPL-2.0

//! The major number of a block driver. Would be a new part of `kernel::block`.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use crate::{
    bindings,
    prelude::*, //
};
use kernel::sync::Arc;

/// The most bytes of a name (C: `struct blk_major_name`, with its end).
const MAX_NAME: usize = 15;

/// A major number of block devices, registered as long as this value exists.
///
/// # Invariants
///
/// `number` was given by `__register_blkdev` for `name`.
pub struct Major {
    number: c_int,
    name: &'static CStr,
}

impl Major {
    /// Registers a free number under a name for `/proc/devices`. Sleeps. `EINVAL` for a name of
    /// more than 15 bytes.
    pub fn register(name: &'static CStr) -> Result<Arc<Self>> {
        // The kernel keeps only 15 bytes of a name; with a longer name `unregister_blkdev` would
        // not find the number.
        if name.to_bytes().len() > MAX_NAME {
            return Err(EINVAL);
        }
        // SAFETY: The name is a static C string, which the function copies. There is no probe
        // function that could outlive this module.
        let number = unsafe { bindings::__register_blkdev(0, name.as_char_ptr(), None) };
        if number < 0 {
            return Err(Error::from_errno(number));
        }
        // INVARIANT: The number was just registered for the name.
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
        // SAFETY: `register` got this number for this name, and only this destructor gives it back.
        // No disk with this number exists, since each disk holds a reference to the `Major`.
        unsafe { bindings::unregister_blkdev(self.number.unsigned_abs(), self.name.as_char_ptr()) };
    }
}
