// SPDX-License-Identifier: GPL-2.0

//! The memory of a request's data, and allocation flags for requests. Would be a new part of
//! `kernel::block`.

use core::ptr::NonNull;

use crate::bindings;

/// The allocation must not wait for memory.
pub(crate) const GFP_NOWAIT: bindings::gfp_t =
    1 << bindings::___GFP_KSWAPD_RECLAIM_BIT | 1 << bindings::___GFP_NOWARN_BIT;

/// The allocation may wait for memory, but must not submit IO to free some, as IO itself waits for
/// the allocation.
pub(crate) const GFP_NOIO: bindings::gfp_t =
    1 << bindings::___GFP_DIRECT_RECLAIM_BIT | 1 << bindings::___GFP_KSWAPD_RECLAIM_BIT;

/// A piece of memory for the data of a request; made by the types of this crate.
pub struct Segment {
    /// The first page.
    pub(crate) page: NonNull<bindings::page>,
    /// The offset of the data in bytes from the start of `page`.
    pub(crate) offset: u32,
    /// The length in bytes. The data may reach into the pages that follow.
    pub(crate) len: u32,
}

/// The memory of a request's data.
///
/// # Safety
///
/// - The memory of the segments stays valid, and may be read and written by a device, until the
///   owner from which the object borrows is dropped. It stays valid if that owner is moved, and
///   after the object is dropped, which happens when a request has been submitted.
/// - No segment is empty, and the lengths of the segments always add up to `len()`.
/// - Each segment but the first begins at a page boundary, and each segment but the last ends at
///   one.
/// - If `only_segment()` returns a segment, there is no other segment.
pub unsafe trait Memory {
    /// The length in bytes.
    fn len(&self) -> usize;

    /// Whether there is no memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segment, if there is exactly one and that is known without a search.
    #[inline]
    fn only_segment(&self) -> Option<Segment> {
        None
    }

    /// Calls `visit` with each segment, in order.
    fn for_each_segment(&self, visit: impl FnMut(Segment));
}
