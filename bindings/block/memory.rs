// SPDX-License-Identifier: GPL-2.0

//! The memory of a request's data, and how memory for a request is asked for. Would be a new part
//! of `kernel::block`.

use core::ptr::NonNull;

use crate::bindings;

/// Memory is not waited for.
pub(crate) const GFP_NOWAIT: bindings::gfp_t =
    1 << bindings::___GFP_KSWAPD_RECLAIM_BIT | 1 << bindings::___GFP_NOWARN_BIT;

/// Memory may be waited for, but not by submitting IO, since it is IO that waits.
pub(crate) const GFP_NOIO: bindings::gfp_t =
    1 << bindings::___GFP_DIRECT_RECLAIM_BIT | 1 << bindings::___GFP_KSWAPD_RECLAIM_BIT;

/// A piece of memory for the data of a request; made by the types of this crate.
pub struct Segment {
    /// The first page.
    pub(crate) page: NonNull<bindings::page>,
    /// Where the data begins, in bytes from the start of `page`.
    pub(crate) offset: u32,
    /// The length in bytes; it may reach into the pages that follow.
    pub(crate) len: u32,
}

/// The memory of a request's data.
///
/// # Safety
///
/// - The segments name memory that stays valid, and may be read and written by the device, until
///   what the object borrows from is dropped; moving that does not matter, nor what becomes of the
///   object, which is gone when a request has been submitted.
/// - They are not empty and their lengths add up to `len()`, every time.
/// - Only the first one may begin, and only the last one end, elsewhere than at a page boundary.
/// - If there is an `only_segment()`, it is the only one.
pub unsafe trait Memory {
    /// The length in bytes.
    fn len(&self) -> usize;

    /// Whether there is no memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segment, if there is one and it is easily found that there are no more.
    #[inline]
    fn only_segment(&self) -> Option<Segment> {
        None
    }

    /// Calls `visit` with each segment, in order.
    fn for_each_segment(&self, visit: impl FnMut(Segment));
}
