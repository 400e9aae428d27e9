// SPDX-License-Identifier: GPL-2.0

//! Where the pages of chunks come from.

use crate::{
    bindings,
    page::Pages,
    prelude::*, //
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    }, //
};

/// The largest block that is asked for at once, 512 KiB with pages of 4 KiB.
const MAX_ORDER: u32 = 7;
/// Blocks up to this one, 32 KiB, the kernel makes by moving other pages (C:
/// `PAGE_ALLOC_COSTLY_ORDER`).
const EASY_ORDER: u32 = 3;

/// Allocates the memory of chunks.
///
/// Larger blocks are used where there are any, but none are needed. Once there is no block of some
/// size, none is looked for any more.
pub(super) struct Allocator {
    pages: usize,
    node: i32,
    max_order: u32,
}

impl Allocator {
    /// For `count` chunks of `chunk_size` bytes, if possible on `node` (-1 for any).
    ///
    /// `EINVAL` unless `chunk_size` is a multiple of the page size and not 0. `ENOMEM` if less
    /// memory than that can be had, which is better known before the machine is out of it.
    pub(super) fn new(count: usize, chunk_size: usize, node: i32) -> Result<Self> {
        if chunk_size == 0 || chunk_size % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let pages = chunk_size >> PAGE_SHIFT;
        let needed = count.checked_mul(pages).ok_or(ENOMEM)?;
        // SAFETY: Can always be called.
        let available = unsafe { bindings::rnbd_helper_available_pages() };
        if needed > available {
            return Err(ENOMEM);
        }
        Ok(Self {
            pages,
            node,
            max_order: MAX_ORDER,
        })
    }

    /// Appends the segments of a chunk to `segments`. Sleeps.
    pub(super) fn add_chunk(&mut self, segments: &mut KVVec<Pages>) -> Result {
        let mut left = self.pages;
        while left > 0 {
            let order = left.ilog2().min(self.max_order);
            // A larger one can be had in pieces, too.
            match Pages::zeroed(self.node, order, order <= EASY_ORDER) {
                Ok(segment) => {
                    segments.push(segment, GFP_KERNEL)?;
                    left -= 1 << order;
                }
                Err(_) if order > 0 => self.max_order = order - 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends a chunk that is one block to `segments`. Sleeps.
    ///
    /// `EINVAL` unless the chunk has a power of two of pages, `ENOMEM` if there is no such block.
    pub(super) fn add_block(&mut self, segments: &mut KVVec<Pages>) -> Result {
        let order = self.pages.trailing_zeros();
        if !self.pages.is_power_of_two() {
            return Err(EINVAL);
        }
        let block = Pages::zeroed(self.node, order, true)?;
        Ok(segments.push(block, GFP_KERNEL)?)
    }
}
