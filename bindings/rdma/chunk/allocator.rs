// SPDX-License-Identifier: GPL-2.0

//! Allocation of the pages of chunks.

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

/// The order of the largest block that is asked for: 512 KiB with pages of 4 KiB.
const MAX_ORDER: u32 = 7;
/// The order of the largest block that the kernel makes by moving other pages: 32 KiB with pages of
/// 4 KiB (C: `PAGE_ALLOC_COSTLY_ORDER`).
const EASY_ORDER: u32 = 3;

/// Allocates the memory of chunks.
///
/// A chunk is made of the largest blocks that there are; single pages are enough. After an
/// allocation of some size has failed, blocks of that size are not asked for any more.
pub(super) struct Allocator {
    pages: usize,
    node: i32,
    max_order: u32,
}

impl Allocator {
    /// Prepares to allocate `count` chunks of `chunk_size` bytes, if possible on `node` (-1 for
    /// any).
    ///
    /// `EINVAL` unless `chunk_size` is a multiple of the page size and not 0. `ENOMEM` if the
    /// machine has less memory available: the check comes before the allocation, so that the
    /// machine does not run out of memory.
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
            // A larger block can be replaced by smaller ones.
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
    /// `EINVAL` unless the number of pages of a chunk is a power of two, `ENOMEM` if there is no
    /// such block.
    pub(super) fn add_block(&mut self, segments: &mut KVVec<Pages>) -> Result {
        let order = self.pages.trailing_zeros();
        if !self.pages.is_power_of_two() {
            return Err(EINVAL);
        }
        let block = Pages::zeroed(self.node, order, true)?;
        Ok(segments.push(block, GFP_KERNEL)?)
    }
}
