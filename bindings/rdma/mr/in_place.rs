// SPDX-License-Identifier: GPL-2.0

//! Other memory in a region, for a peer that may still use the key.

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
    /// Takes the memory of `table` into the region in place of what was there last, at the same
    /// address and under the same keys, which are not valid any more. So a peer that still uses
    /// them gets at that memory once it is registered, which is possible on the queue pair of the
    /// last registration only.
    ///
    /// `EINVAL` if what was there last had another length or began at another place of its page,
    /// and as [`Self::load()`].
    pub fn load_in_place(&self, table: &ScatterTable) -> Result {
        let (list, entries) = table.mapped_by(self.0.serial).ok_or(EINVAL)?;
        let direction = self.0.change(Use::Mapped, Use::Busy)?;
        let last = self.last_place();
        // SAFETY: The list has that many mapped entries, and the state was changed just now.
        let taken = unsafe { self.map_in(list, entries) };
        let taken = taken.and_then(|()| {
            if self.last_place() == last {
                Ok(())
            } else {
                Err(EINVAL)
            }
        });
        // INVARIANT: As in `Mapped` no key is valid, or the domain is drained, and nothing that was
        // posted makes the key valid.
        let next = match taken {
            Ok(()) => Use::Replaced,
            Err(_) => Use::Mapped,
        };
        self.0
            .state
            .store(state(next, direction), ordering::Release);
        taken
    }

    /// As [`Self::begin_registering()`], under a key that was registered before.
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
        // INVARIANT: The request is not made.
        let _ = self.0.change(Use::Registering, Use::Replaced);
        Err(result)
    }
}
