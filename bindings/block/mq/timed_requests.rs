// SPDX-License-Identifier: GPL-2.0

//! Makes the block layer note the times of a disk's requests.
//!
//! Would extend `kernel::block::mq::gen_disk`.
//!
//! C header: `block/blk-stat.h`

use kernel::sync::Arc;

use super::{
    gen_disk::GenDisk,
    operations::Operations, //
};
use crate::bindings;

/// While this value exists, the requests of the disk have
/// [times](super::request::OwnedRequest::times). It holds the disk, so dropping it removes the
/// disk, and sleeps, if there is no other holder.
///
/// # Invariants
///
/// Each value is one call of `rnbd_helper_times_begin` for the queue of `disk`, which returned
/// `was_set`.
#[must_use = "times are noted until this is dropped"]
pub struct TimedRequests<O: Operations> {
    disk: Arc<GenDisk<O>>,
    was_set: bool,
}

impl<O: Operations> TimedRequests<O> {
    /// Begins to note times, for requests of `disk` that begin from now on, and possibly for some
    /// in flight. Any context.
    pub fn new(disk: Arc<GenDisk<O>>) -> Self {
        // SAFETY: The queue exists as long as the disk, and has the statistics that all queues of
        // tag sets have.
        let was_set = unsafe { bindings::rnbd_helper_times_begin(disk.queue()) };
        // INVARIANT: The call above returned `was_set`.
        Self { disk, was_set }
    }
}

impl<O: Operations> Drop for TimedRequests<O> {
    fn drop(&mut self) {
        // SAFETY: As in `new`. By the type invariant this ends that call's effect.
        unsafe { bindings::rnbd_helper_times_end(self.disk.queue(), self.was_set) };
    }
}
