// SPDX-License-Identifier: GPL-2.0

//! The address and the length of the memory in a region, as its peer uses them.

use super::MemoryRegion;

impl MemoryRegion {
    /// The address at which the peer accesses the first byte: the offset of the byte in its page. 0
    /// if the region has no memory.
    ///
    /// The address can be out of date when this returns, unless the caller keeps the table mapped.
    #[inline]
    pub fn iova(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: The region is valid. The field is not written to while the region has memory. If
        // the memory is being changed, the volatile access of one word gets the old or the new
        // number.
        unsafe { (&raw const (*self.as_raw()).iova).read_volatile() }
    }

    /// The length in bytes of the memory in the region; see [`Self::iova()`].
    #[inline]
    pub fn len(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: As in `iova()`.
        unsafe { (&raw const (*self.as_raw()).length).read_volatile() }
    }

    /// Whether the region has no memory.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address for the peer of the last memory in the region, and its length in bytes.
    pub fn last_place(&self) -> (u64, u64) {
        // SAFETY: The region is valid. The accesses are volatile, and of one word each.
        unsafe {
            (
                (&raw const (*self.as_raw()).iova).read_volatile(),
                (&raw const (*self.as_raw()).length).read_volatile(),
            )
        }
    }
}
