// SPDX-License-Identifier: GPL-2.0

//! Where a peer finds what is in a region.

use super::MemoryRegion;

impl MemoryRegion {
    /// The address for the peer of the first byte: where it lies in its page. 0 if nothing is in
    /// the region.
    ///
    /// Only a caller that keeps the table from being unmapped can rely on it.
    #[inline]
    pub fn iova(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: The region is valid. The field is not written to while something is in it, and if
        // that has just changed the volatile access gets either number, of a word at once.
        unsafe { (&raw const (*self.as_raw()).iova).read_volatile() }
    }

    /// The length in bytes of what is in the region; see [`Self::iova()`].
    #[inline]
    pub fn len(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: As in `iova()`.
        unsafe { (&raw const (*self.as_raw()).length).read_volatile() }
    }

    /// Whether nothing is in the region.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address for the peer of what was in the region last, and its length in bytes.
    pub fn last_place(&self) -> (u64, u64) {
        // SAFETY: The region is valid. The accesses are volatile, of a word at once.
        unsafe {
            (
                (&raw const (*self.as_raw()).iova).read_volatile(),
                (&raw const (*self.as_raw()).length).read_volatile(),
            )
        }
    }
}
