// SPDX-License-Identifier: GPL-2.0

//! Who uses a chunk.
//!
//! The chunks belong to the session, and a client that fails over sends a request again, in the
//! same chunk, on another path. The first one may still be at work here: its path died, not its
//! IO. If both went on, the client could be told that the second is finished and reuse the chunk
//! while the first still writes from it to its old place on the disk. So a chunk has one owner at
//! a time, whatever path it came by, and a second request waits.
//!
//! Waiting is enough only because the second request is the first one again, with the same data:
//! the client has written that to the chunk already, under the hands of the first. A client that
//! has lost all of its paths gives its requests up, and then uses the chunks for others. It gets a new
//! session with other chunks; see [`ConnReq::given_up`](proto::rtrs::ConnReq::given_up). With C clients,
//! who do not tell whether they have given up any, this danger is as with C servers.

use kernel::prelude::*;
use kernel_ext::atomic::{
    ordering,
    Atomic, //
};

const FREE: u32 = 0;
const OWNED: u32 = 1;
/// Owned, and another path's request waits for it.
const AWAITED: u32 = 2;

/// The owners of a session's chunks.
pub(crate) struct ChunkOwners {
    states: KVVec<Atomic<u32>>,
}

impl ChunkOwners {
    /// `count` chunks without owners. Sleeps.
    pub(crate) fn new(count: u32) -> Result<Self> {
        let mut states = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            states.push(Atomic::new(FREE), GFP_KERNEL)?;
        }
        Ok(Self { states })
    }

    fn state(&self, chunk: u32) -> Option<&Atomic<u32>> {
        self.states.get(chunk as usize)
    }

    /// Makes the caller the owner of `chunk`, unless it has one.
    #[inline]
    pub(crate) fn claim(&self, chunk: u32) -> bool {
        self.state(chunk)
            .is_some_and(|state| state.cmpxchg(FREE, OWNED, ordering::Full).is_ok())
    }

    /// Asks for [`ChunkOwners::release`] to report that somebody waits for `chunk`.
    ///
    /// False if it has no owner any more: then claim it.
    pub(crate) fn wait_for(&self, chunk: u32) -> bool {
        self.state(chunk).is_some_and(
            |state| match state.cmpxchg(OWNED, AWAITED, ordering::Full) {
                Ok(_) => true,
                Err(state) => state == AWAITED,
            },
        )
    }

    /// Gives `chunk` up. True if somebody waits for it.
    #[inline]
    #[must_use = "somebody may have to be woken up"]
    pub(crate) fn release(&self, chunk: u32) -> bool {
        self.state(chunk)
            .is_some_and(|state| state.xchg(FREE, ordering::Full) == AWAITED)
    }
}
