// SPDX-License-Identifier: GPL-2.0

//! The data that the disks of a tag set share, as `driver_data` of the tag set.

use crate::bindings;

/// The data to which `driver_data` of a tag set points.
pub(super) struct SetData<T> {
    pub(super) nr_poll_queues: u32,
    /// The data that the disks share.
    pub(super) data: T,
}

impl<T> SetData<T> {
    /// # Safety
    ///
    /// `set` must be the set of a `TagSet` whose disks share a `T`, and must outlive `'a`.
    pub(super) unsafe fn of<'a>(set: *mut bindings::blk_mq_tag_set) -> &'a Self {
        // SAFETY: By the safety requirement `driver_data` points to a `SetData<T>`.
        unsafe { &*(*set).driver_data.cast::<Self>() }
    }
}
