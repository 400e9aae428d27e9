// SPDX-License-Identifier: GPL-2.0

//! Memory for requests, with a reserve. Belongs to [`fs`](super).
//!
//! C header: [`include/linux/mempool.h`](srctree/include/linux/mempool.h)

use core::ptr::NonNull;

use crate::{
    bindings,
    prelude::*, //
};

/// A pool of pieces of memory of one size.
///
/// # Invariants
///
/// `pool` is a pool of pieces of `size` bytes, which is destroyed when this value is dropped.
pub(super) struct Pool {
    pool: NonNull<bindings::mempool>,
    size: usize,
}

// SAFETY: A `mempool` can be used in any task, also concurrently.
unsafe impl Send for Pool {}
// SAFETY: As above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes a pool of pieces for a `T`, with `reserve` pieces in reserve. Sleeps.
    pub(super) fn new<T>(reserve: i32) -> Result<Self> {
        let size = size_of::<T>();
        // SAFETY: The function takes any numbers.
        let pool = unsafe {
            bindings::rnbd_helper_mempool_create_kmalloc_pool(reserve, size) //
        };
        // INVARIANT: The pool was just made.
        Ok(Self {
            pool: NonNull::new(pool).ok_or(ENOMEM)?,
            size,
        })
    }

    /// Takes an uninitialised piece with room for a `T`; `None` if there is no memory, or if the
    /// pieces are shorter.
    ///
    /// Any context if `gfp` does not allow sleeping. If it does, the call waits for memory.
    pub(super) fn take<T>(&self, gfp: bindings::gfp_t) -> Option<NonNull<T>> {
        const {
            // `kmalloc` aligns to 8 bytes on all machines.
            assert!(align_of::<T>() <= 8);
        }
        if size_of::<T>() > self.size {
            return None;
        }
        // SAFETY: By the type invariant the pool exists.
        let piece = unsafe { bindings::mempool_alloc_noprof(self.pool.as_ptr(), gfp) };
        NonNull::new(piece.cast())
    }

    /// Gives a piece back. Any context.
    ///
    /// # Safety
    ///
    /// The piece was taken from this pool, and nothing in it is used any more.
    pub(super) unsafe fn put<T>(&self, piece: *mut T) {
        // SAFETY: By the safety requirement.
        unsafe { bindings::mempool_free(piece.cast(), self.pool.as_ptr()) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the pool is ours. All pieces are back: each slot in use has
        // entered the gate of the file with this pool.
        unsafe { bindings::mempool_destroy(self.pool.as_ptr()) };
    }
}
