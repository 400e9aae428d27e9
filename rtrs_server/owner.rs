// SPDX-License-Identifier: GPL-2.0

//! Who uses a chunk.
//!
//! The chunks belong to the session, and a client that fails over sends a request again, in the
//! same chunk, on another path. The first one may still be at work here: its path died, not its
//! IO. If both went on, the client could be told that the second is finished and reuse the chunk
//! while the first still writes from it to its old place on the disk. So a chunk has one owner at
//! a time, whatever path it came by, and a second request waits.
//!
//! Nobody here knows which of them the client waits for, as they may be looked at in any order. So if
//! others wait the owner is not answered when it is finished, but after all of them: until then the
//! client cannot reuse the chunk, and whatever is read from it again is the same request.
//!
//! Waiting is enough only because all of them are the same request. A client that has lost all of its
//! paths gives its requests up, and then uses the chunks for others. It gets a new session with other
//! chunks; see [`ConnReq::given_up`](proto::rtrs::ConnReq::given_up). With C clients, who do not tell
//! whether they have given up any, this danger is as with C servers.

use kernel::prelude::*;
use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};

const FREE: u32 = 0;
const OWNED: u32 = 1;
/// Owned, and another path's request waits for it.
const AWAITED: u32 = 2;
/// The owner has finished while others waited: whoever passes chunks on decides what comes next.
const ENDED: u32 = 3;
/// The same, and another one waits that may not have been seen.
const ENDED_AWAITED: u32 = 4;

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

    /// Waits for `chunk`, to which it is passed on later. The caller has put its request where it is
    /// found then.
    ///
    /// False if it has no owner any more: then claim it.
    pub(crate) fn wait_for(&self, chunk: u32) -> bool {
        let Some(state) = self.state(chunk) else {
            return false;
        };
        let mut now = state.load(ordering::Relaxed);
        loop {
            let next = match now {
                FREE => return false,
                OWNED => AWAITED,
                ENDED => ENDED_AWAITED,
                // A full barrier all the same: it is seen that the request is there.
                same => same,
            };
            match state.cmpxchg(now, next, ordering::Full) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
    }

    /// Whether others wait for `chunk`, which the caller owns.
    #[inline]
    pub(crate) fn is_awaited(&self, chunk: u32) -> bool {
        self.state(chunk)
            .is_some_and(|state| state.load(ordering::Relaxed) == AWAITED)
    }

    /// The owner of `chunk` has finished. True if others wait for it: then [`Self::is_ended`] is to be
    /// looked at.
    #[inline]
    #[must_use = "somebody may wait"]
    pub(crate) fn release(&self, chunk: u32) -> bool {
        let Some(state) = self.state(chunk) else {
            return false;
        };
        match state.cmpxchg(OWNED, FREE, ordering::Full) {
            Ok(_) => false,
            Err(now) => Self::end(state, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn end(state: &Atomic<u32>, now: u32) -> bool {
        if now != AWAITED {
            return false;
        }
        // Only the owner changes this.
        state.store(ENDED, ordering::Release);
        true
    }

    /// Whether the owner of `chunk` has finished while others waited. From here on
    /// [`Self::claim_ended`] tells of those that come. One at a time, as the next two.
    pub(crate) fn is_ended(&self, chunk: u32) -> bool {
        self.state(chunk).is_some_and(|state| {
            match state.cmpxchg(ENDED_AWAITED, ENDED, ordering::Full) {
                Ok(_) => true,
                Err(state) => state == ENDED,
            }
        })
    }

    /// Makes a request that waited the owner of `chunk`, which is ended. There may be others.
    pub(crate) fn pass_on(&self, chunk: u32) {
        if let Some(state) = self.state(chunk) {
            state.store(AWAITED, ordering::Release);
        }
    }

    /// Makes the caller the owner of `chunk`, which is ended, since nobody waits. False if somebody does
    /// now.
    pub(crate) fn claim_ended(&self, chunk: u32) -> bool {
        self.state(chunk)
            .is_some_and(|state| state.cmpxchg(ENDED, OWNED, ordering::Full).is_ok())
    }
}
