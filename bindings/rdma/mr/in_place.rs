// SPDX-License-Identifier: GPL-2.0

//! Replacing the memory in a region under the same key, for a peer that may still use the key.

use super::{
    state,
    MemoryRegion,
    Use, //
};
use crate::{
    prelude::*,
    rdma::Access,
    scatterlist::ScatterTable,
    sync::atomic::ordering, //
};

impl MemoryRegion {
    /// Puts the memory of `table` into the region in place of the region's last memory, at the same
    /// address and under the same keys, which are not valid any more. After the next registration a
    /// peer that still uses the old keys accesses the memory of `table`. That registration must be
    /// posted on the queue pair of the last one.
    ///
    /// `EINVAL` if the last memory had another length or another offset in its page. Otherwise the
    /// errors of [`Self::load()`].
    pub fn load_in_place(&self, table: &ScatterTable) -> Result {
        let (list, entries) = table.mapped_by(self.0.serial).ok_or(EINVAL)?;
        let direction = self.0.change(Use::Mapped, Use::Busy)?;
        let last = self.last_place();
        // SAFETY: The list has `entries` mapped entries, and the state was just changed to `Busy`.
        let taken = unsafe { self.map_in(list, entries) };
        let taken = taken.and_then(|()| {
            if self.last_place() == last {
                Ok(())
            } else {
                Err(EINVAL)
            }
        });
        // INVARIANT: As in `Mapped`: no key is valid and no posted request will make the key valid,
        // or the domain is drained.
        let next = match taken {
            Ok(()) => Use::Replaced,
            Err(_) => Use::Mapped,
        };
        self.0
            .state
            .store(state(next, direction), ordering::Release);
        taken
    }

    /// As [`Self::begin_registering()`], for a region of [`Self::load_in_place()`], whose key was
    /// registered before.
    #[cold]
    pub(super) fn begin_registering_again(&self, access: Access, queue_pair: u64) -> Result<u64> {
        let direction = self.0.change(Use::Replaced, Use::Registering)?;
        let last = self.0.queue_pair.load(ordering::Relaxed);
        let result = match (
            access.suits(direction),
            queue_pair == 0 || queue_pair == last,
        ) {
            (true, true) => return Ok(last),
            (true, false) => EBUSY,
            (false, _) => EINVAL,
        };
        // INVARIANT: The caller does not make the request.
        let _ = self.0.change(Use::Registering, Use::Replaced);
        Err(result)
    }
}
