// SPDX-License-Identifier: GPL-2.0

//! What the disks of a tag set share, as the block layer keeps it.

use crate::bindings;

/// What `driver_data` of a tag set points to.
pub(super) struct SetData<T> {
    pub(super) nr_poll_queues: u32,
    /// What the disks share.
    pub(super) data: T,
}

impl<T> SetData<T> {
    /// # Safety
    ///
    /// `set` must be the set of a `TagSet` whose disks share a `T`. It outlives `'a`.
    pub(super) unsafe fn of<'a>(set: *mut bindings::blk_mq_tag_set) -> &'a Self {
        // SAFETY: By the safety requirement `driver_data` points to such a value.
        unsafe { &*(*set).driver_data.cast::<Self>() }
    }
}
