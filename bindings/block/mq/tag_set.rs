// SPDX-License-Identifier: GPL-2.0

//! Tag sets: the requests that disks of a driver share. Would extend `kernel::block::mq::tag_set`.

use super::{
    operations::{
        Operations,
        Vtable, //
    },
    request::Private,
    set_data::SetData, //
};
use crate::{
    bindings,
    prelude::*, //
};
use core::mem::offset_of;
use kernel::{
    error::to_result,
    sync::Arc,
    types::Opaque, //
};

/// The size of a tag set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagSetParams {
    /// The number of requests, over all queues and disks.
    pub queue_depth: u32,
    /// The number of queues to which the CPUs are assigned; at least one.
    pub nr_queues: u32,
    /// The number of polled queues; may be zero. Their numbers follow those of the `nr_queues`
    /// queues.
    pub nr_poll_queues: u32,
}

/// A set of requests with tags that are unique over all its queues and disks.
///
/// The disks share the tags fairly. Reads and writes go through the same queues, as in the C
/// module; polled requests go through queues of their own.
///
/// Dropping the set sleeps. Every disk holds a reference to its set.
///
/// # Invariants
///
/// `inner` was made by `blk_mq_alloc_tag_set`; its `driver_data` points to `data`.
#[pin_data(PinnedDrop)]
pub struct TagSet<O: Operations> {
    data: SetData<O::SetData>,
    #[pin]
    inner: Opaque<bindings::blk_mq_tag_set>,
}

// SAFETY: The block layer does its own locking, and the data is `Send`.
unsafe impl<O: Operations> Send for TagSet<O> {}

// SAFETY: The block layer does its own locking, and the data is `Sync`.
unsafe impl<O: Operations> Sync for TagSet<O> {}

impl<O: Operations> TagSet<O> {
    /// Makes a tag set and all its requests. Sleeps.
    ///
    /// `EINVAL` for no queues or no depth.
    pub fn new(params: TagSetParams, data: O::SetData) -> Result<Arc<Self>> {
        let nr_queues = params.nr_queues;
        let nr_hw_queues = nr_queues.checked_add(params.nr_poll_queues).ok_or(EINVAL)?;
        if nr_queues == 0 {
            return Err(EINVAL);
        }
        let cmd_size = u32::try_from(size_of::<Private>())?;
        // DEFAULT and READ, which share queues, and POLL.
        let nr_maps = if params.nr_poll_queues > 0 { 3 } else { 2 };
        Arc::pin_init(
            pin_init!(Self {
                data: SetData {
                    nr_poll_queues: params.nr_poll_queues,
                    data,
                },
                inner <- Opaque::try_ffi_init(|inner: *mut bindings::blk_mq_tag_set| {
                    // SAFETY: `inner` is the field of that name of a `TagSet<O>`. The field `data`
                    // is initialised, as it is declared before.
                    let data = unsafe {
                        let this = inner.byte_sub(offset_of!(Self, inner)).cast::<Self>();
                        &raw mut (*this).data
                    };
                    let set = bindings::blk_mq_tag_set {
                        ops: &Vtable::<O>::MQ_OPS,
                        nr_maps,
                        nr_hw_queues,
                        queue_depth: params.queue_depth,
                        cmd_size,
                        numa_node: bindings::NUMA_NO_NODE,
                        // Tags are unique over all queues. By default there is no I/O scheduler, as
                        // for a set whose queues have tags of their own.
                        flags: bindings::BLK_MQ_F_TAG_HCTX_SHARED
                            | bindings::BLK_MQ_F_NO_SCHED_BY_DEFAULT,
                        driver_data: data.cast(),
                        ..pin_init::zeroed()
                    };
                    // SAFETY: `inner` is valid for writing.
                    unsafe { inner.write(set) };
                    // SAFETY: `inner` is a zeroed set with the fields above filled in.
                    to_result(unsafe { bindings::blk_mq_alloc_tag_set(inner) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The number of requests. Less than [`TagSetParams::queue_depth`] if the block layer's limit
    /// (10240) or lack of memory reduced it.
    pub fn queue_depth(&self) -> u32 {
        // SAFETY: By the type invariant the set is initialised; the field does not change.
        unsafe { (*self.inner.get()).queue_depth }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::blk_mq_tag_set {
        self.inner.get()
    }
}

#[pinned_drop]
impl<O: Operations> PinnedDrop for TagSet<O> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `blk_mq_alloc_tag_set` made the set, and only this destructor frees it. Every
        // disk holds a reference to its set, and gives that up only when its queue does not use the
        // set any more.
        unsafe { bindings::blk_mq_free_tag_set(self.inner.get()) };
    }
}
