// SPDX-License-Identifier: GPL-2.0

//! Adds the memory of a request's data to bios. Belongs to [`bio`](super).

use core::ptr::{
    self,
    NonNull, //
};

use super::flags::flag;
use crate::{
    bindings,
    block::{
        memory::{
            Memory,
            Segment,
            GFP_NOIO, //
        },
        mq::limits::SECTOR_SIZE,
        status::Status, //
    }, //
};

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

/// The bios of a request whose data does not fit into one bio.
///
/// # Invariants
///
/// - `parent` is valid and not ended.
/// - `part` is null, or a bio that is ours, is chained to `parent`, is not submitted, and has less
///   data than `part_len`.
struct Parts {
    parent: *mut bindings::bio,
    /// The bio that is being filled.
    part: *mut bindings::bio,
    /// The number of bytes in a full part: whole blocks.
    part_len: u32,
    /// The operation of the next part.
    op: bindings::blk_opf_t,
    /// The first sector of the next part.
    sector: u64,
}

impl Parts {
    /// The number of vectors of a part.
    const VECS: u32 = bindings::BIO_MAX_VECS;

    /// The part that is being filled. If there is none, makes a new one; `None` if there is no
    /// memory for it.
    fn current(&mut self) -> Option<*mut bindings::bio> {
        if !self.part.is_null() {
            return Some(self.part);
        }
        // SAFETY: By the type invariant the parent is valid. `fs_bio_set` always exists. An
        // allocation from it waits for memory rather than fails. It cannot wait for the parent,
        // which is of another set.
        let part = unsafe {
            bindings::bio_alloc_bioset(
                (*self.parent).bi_bdev,
                Self::VECS as u16,
                self.op,
                GFP_NOIO,
                &raw mut bindings::fs_bio_set,
            )
        };
        if part.is_null() {
            return None;
        }
        // SAFETY: The part is new, and by the type invariant the parent is not ended.
        unsafe {
            (*part).bi_iter.bi_sector = self.sector;
            (*part).bi_ioprio = (*self.parent).bi_ioprio;
            bindings::bio_chain(part, self.parent);
        }
        // Only the first part flushes the earlier writes.
        self.op &= !flag(bindings::req_flag_bits___REQ_PREFLUSH);
        // INVARIANT: The part is empty and was just chained.
        self.part = part;
        Some(part)
    }

    /// Adds a segment, and submits each part that becomes full. False if a part could not be made
    /// or filled.
    ///
    /// # Safety
    ///
    /// The segment's memory stays valid until the parent is ended.
    unsafe fn add(&mut self, segment: &Segment) -> bool {
        let mut skip = 0;
        while skip < segment.len {
            let Some(part) = self.current() else {
                return false;
            };
            // SAFETY: By the type invariant the part is ours.
            let filled = unsafe { (*part).bi_iter.bi_size };
            let len = (segment.len - skip).min(self.part_len - filled);
            // SAFETY: The part is ours, and the bytes lie in the segment.
            if !unsafe { add(part, segment, skip, len) } {
                return false;
            }
            skip += len;
            if filled + len == self.part_len {
                self.sector += u64::from(self.part_len / SECTOR_SIZE);
                // INVARIANT: A full part is not kept.
                self.part = ptr::null_mut();
                // SAFETY: The part is ours, and complete.
                unsafe { bindings::submit_bio(part) };
            }
        }
        true
    }
}

/// Submits `memory` in as many bios as needed. `parent` waits for all of them.
///
/// # Safety
///
/// `parent` has a sector and an operation and no data, and is not ended before this returns.
/// `memory` stays valid until `parent` is ended.
pub(super) unsafe fn submit_parts(
    parent: *mut bindings::bio,
    memory: &impl Memory,
    block_size: u32,
) {
    // One vector may be lost to a start in the middle of a page. A part ends at a block boundary.
    let room = (Parts::VECS - 1) * bindings::PAGE_SIZE as u32;
    // INVARIANT: The parent is as the caller says, and there is no part yet.
    let mut parts = Parts {
        parent,
        part: ptr::null_mut(),
        part_len: room - room % block_size.max(SECTOR_SIZE),
        // SAFETY: The parent is valid.
        op: unsafe { (*parent).bi_opf },
        // SAFETY: As above.
        sector: unsafe { (*parent).bi_iter.bi_sector },
    };
    let mut added = true;
    memory.for_each_segment(|segment| {
        // SAFETY: The caller keeps the memory until the parent is ended.
        added = added && unsafe { parts.add(&segment) };
    });
    if !added {
        // SAFETY: The parent is not ended.
        unsafe { (*parent).bi_status = Status::IO_ERROR.as_raw() };
    }
    match (NonNull::new(parts.part), added) {
        (None, _) => {}
        // SAFETY: The last part is ours, and complete.
        (Some(part), true) => unsafe { bindings::submit_bio(part.as_ptr()) },
        // SAFETY: The last part is ours, and ends without having been submitted.
        (Some(part), false) => unsafe { bindings::bio_endio(part.as_ptr()) },
    }
}
