// SPDX-License-Identifier: GPL-2.0

//! The memory of bios, the state in front of each bio, and the function that is called when a bio
//! ends. Belongs to [`bio`](super).

use core::{
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::{
    error::to_result,
    sync::Arc,
    types::Opaque, //
};

use super::flags::NOWAIT;
use crate::{
    bindings,
    block::{
        bdev::BlockDevice,
        disk::Completion, //
    },
    prelude::*,
    sync::gate::Entered, //
};

/// The value behind the gate of an open device.
///
/// A caller that has entered the gate can use both fields: the device is closed only when all
/// callers have left.
pub(super) struct Target<C: Completion> {
    // Declared first, so the device is closed before the set is dropped.
    pub(super) device: BlockDevice,
    pub(super) bios: Arc<BioSet<C>>,
}

/// The memory for requests with completions of type `C`.
///
/// Must be made and dropped in process context.
///
/// # Invariants
///
/// `set` was initialised with [`State::<C>::FRONT_PAD`] bytes in front of each bio. When the set is
/// dropped no bio of it exists, as each bio has entered the gate of a device that holds a reference
/// to the set.
#[pin_data(PinnedDrop)]
pub struct BioSet<C: Completion> {
    #[pin]
    set: Opaque<bindings::bio_set>,
    _completion: PhantomData<fn(C)>,
}

// SAFETY: A `bio_set` can be used in any task, also concurrently.
unsafe impl<C: Completion> Send for BioSet<C> {}
// SAFETY: As above.
unsafe impl<C: Completion> Sync for BioSet<C> {}

impl<C: Completion> BioSet<C> {
    /// The number of requests that can be made even if no memory is left.
    const RESERVE: u32 = 4;

    /// Makes a set. Sleeps.
    pub fn new() -> Result<Arc<Self>> {
        const {
            // The state in front of a bio is aligned as the bio.
            assert!(mem::align_of::<State<C>>() <= mem::align_of::<bindings::bio>());
        }
        let flags = bindings::BIOSET_NEED_BVECS | bindings::BIOSET_PERCPU_CACHE;
        Arc::pin_init(
            try_pin_init!(Self {
                // INVARIANT: The front pad is as required.
                set <- Opaque::try_ffi_init(|slot: *mut bindings::bio_set| {
                    // SAFETY: `slot` is valid for writes; a `bio_set` has to be zero to begin with.
                    unsafe { ptr::write_bytes(slot, 0, 1) };
                    // SAFETY: `slot` is valid and pinned.
                    to_result(unsafe {
                        bindings::bioset_init(
                            slot,
                            Self::RESERVE,
                            State::<C>::FRONT_PAD,
                            flags as kernel::ffi::c_int,
                        )
                    })
                }),
                _completion: PhantomData,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The set, valid as long as `self`.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::bio_set {
        self.set.get()
    }
}

#[pinned_drop]
impl<C: Completion> PinnedDrop for BioSet<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The set is initialised, and has no bio any more by the type invariant.
        unsafe { bindings::bioset_exit(self.set.get()) };
    }
}

/// The state in front of a bio.
///
/// # Invariants
///
/// A bio of a [`BioSet`] has a state from `Transfer::prepare` until `end_io` reads it, or until
/// `Transfer::submit_segments` takes it back from a bio that was not submitted. The state is not
/// written to meanwhile.
pub(super) struct State<C: Completion> {
    pub(super) completion: C,
    // Keeps the device open, and with it the set of the bio.
    pub(super) entered: Entered<Target<C>>,
}

impl<C: Completion> State<C> {
    /// The space in front of a bio, in bytes.
    const FRONT_PAD: u32 =
        mem::size_of::<Self>().next_multiple_of(mem::align_of::<bindings::bio>()) as u32;

    /// The address of the state of a bio.
    ///
    /// # Safety
    ///
    /// `bio` comes from a [`BioSet<C>`].
    pub(super) unsafe fn of(bio: *mut bindings::bio) -> *mut Self {
        // SAFETY: `FRONT_PAD` bytes are in front of the bio, in the same allocation.
        unsafe { bio.byte_sub(Self::FRONT_PAD as usize) }.cast()
    }

    /// Called by the block layer when the request is finished. Any context.
    ///
    /// # Safety
    ///
    /// `bio` comes from a [`BioSet<C>`], has a state, and is not used any more.
    pub(super) unsafe extern "C" fn end_io(bio: *mut bindings::bio) {
        // SAFETY: By the safety requirement. This is called once for a bio, and no other code reads
        // the state.
        let state = unsafe { Self::of(bio).read() };
        // SAFETY: The bio is finished.
        let (status, op) = unsafe { ((*bio).bi_status, (*bio).bi_opf) };
        // SAFETY: This is the reference that came with the allocation.
        unsafe { bindings::bio_put(bio) };
        match status {
            0 => state.completion.done(Ok(())),
            status => fail(state.completion, status, op),
        }
        // Only from here on can the device be closed and the set be freed, and finally the module
        // be unloaded. Unloading waits until this function has returned, see `module::Returned`.
        drop(state.entered);
    }
}

/// Ends a failed request: tells the completion to submit it again if it would have slept.
#[cold]
fn fail<C: Completion>(completion: C, status: bindings::blk_status_t, op: u32) {
    // SAFETY: The function takes any value.
    let result = to_result(unsafe { bindings::blk_status_to_errno(status) });
    let would_sleep = op & NOWAIT != 0 && matches!(result, Err(EAGAIN | EOPNOTSUPP));
    if would_sleep {
        completion.again();
    } else {
        completion.done(result);
    }
}
