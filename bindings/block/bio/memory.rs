// SPDX-License-Identifier: GPL-2.0

//! The memory of a request's data, and how a bio gets it. Belongs to [`bio`](super).

use core::ptr::{
    self,
    NonNull, //
};

use super::{
    flag,
    GFP_NOIO, //
};
use crate::{
    bindings,
    block::{
        mq::limits::SECTOR_SIZE,
        status::Status, //
    }, //
};

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

/// Adds all segments of `memory` to `bio`; false if they do not fit.
///
/// # Safety
///
/// `bio` is valid and not submitted, and `memory` outlives it.
#[inline]
pub(super) unsafe fn add_all(bio: *mut bindings::bio, memory: &impl Memory) -> bool {
    let mut fits = true;
    memory.for_each_segment(|segment| {
        // SAFETY: The segment names valid memory.
        fits = fits && unsafe { add(bio, &segment, 0, segment.len) };
    });
    fits
}

/// Adds `len` bytes of a segment, from `skip` on, to `bio`; false if they do not fit.
///
/// # Safety
///
/// `bio` is valid and not submitted; the bytes lie in the segment, whose memory outlives the bio.
#[inline]
unsafe fn add(bio: *mut bindings::bio, segment: &Segment, skip: u32, len: u32) -> bool {
    // SAFETY: By the safety requirement.
    let added =
        unsafe { bindings::bio_add_page(bio, segment.page.as_ptr(), len, segment.offset + skip) };
    u32::try_from(added) == Ok(len)
}

/// Submits `memory` in as many bios as it takes, all of which `parent` waits for.
///
/// # Safety
///
/// `parent` has a sector and an operation and no data; it is not ended before this returns.
/// `memory` stays valid until it is ended.
pub(super) unsafe fn submit_parts(
    parent: *mut bindings::bio,
    memory: &impl Memory,
    block_size: u32,
) {
    // One vector may be lost to a start in the middle of a page. A part ends at a block boundary.
    let vecs = bindings::BIO_MAX_VECS;
    let room = (vecs - 1) * bindings::PAGE_SIZE as u32;
    let part_len = room - room.checked_rem(block_size).unwrap_or(0);
    let mut part: *mut bindings::bio = ptr::null_mut();
    // SAFETY: The parent is valid.
    let (bdev, mut op, prio, mut sector) = unsafe {
        (
            (*parent).bi_bdev,
            (*parent).bi_opf,
            (*parent).bi_ioprio,
            (*parent).bi_iter.bi_sector,
        )
    };
    let mut failed = false;
    memory.for_each_segment(|segment| {
        let mut skip = 0;
        while skip < segment.len && !failed {
            if part.is_null() {
                // SAFETY: The general set is always there; its bios wait for memory rather than
                // fail, and are not those that the parent could have used up.
                part = unsafe {
                    bindings::bio_alloc_bioset(
                        bdev,
                        vecs as u16,
                        op,
                        GFP_NOIO,
                        &raw mut bindings::fs_bio_set,
                    )
                };
                if part.is_null() {
                    failed = true;
                    break;
                }
                // SAFETY: The part is ours, the parent not ended.
                unsafe {
                    (*part).bi_iter.bi_sector = sector;
                    (*part).bi_ioprio = prio;
                    bindings::bio_chain(part, parent);
                }
                // What was written before is flushed by the first part.
                op &= !flag(bindings::req_flag_bits___REQ_PREFLUSH);
            }
            // SAFETY: The part is ours.
            let filled = unsafe { (*part).bi_iter.bi_size };
            let len = (segment.len - skip).min(part_len - filled);
            // SAFETY: The bytes lie in the segment.
            if !unsafe { add(part, &segment, skip, len) } {
                failed = true;
                break;
            }
            skip += len;
            if filled + len == part_len {
                sector += u64::from(part_len / SECTOR_SIZE);
                // SAFETY: The part is complete.
                unsafe { bindings::submit_bio(part) };
                part = ptr::null_mut();
            }
        }
    });
    if failed {
        // SAFETY: The parent is not ended.
        unsafe { (*parent).bi_status = Status::IO_ERROR.as_raw() };
    }
    if !part.is_null() {
        // SAFETY: The last part is complete, or ended here without having been submitted.
        unsafe {
            if failed {
                bindings::bio_endio(part);
            } else {
                bindings::submit_bio(part);
            }
        }
    }
}
