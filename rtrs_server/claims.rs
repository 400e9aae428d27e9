// SPDX-License-Identifier: GPL-2.0

//! Which request owns a chunk, among all paths of a session: rule 2 of failover in
//! Documentation/design.md.
//!
//! A chunk has one owner at a time, whatever path its requests come by. A second request for the
//! chunk is parked. The chunks belong to the session, and a client that fails over sends a request
//! again, in the same chunk, on another path. The first copy may still be at work here: its path
//! died, its IO did not. If both copies went on, the client could be told that the second copy is
//! finished, and reuse the chunk while the user still takes the first copy's data from it. A write
//! of the first copy could also reach the disk after a newer write to the same place.
//!
//! When the chunk is free again, a first copy that is late must not begin: `path_end.rs` sees to
//! that. C clients do not ask for the end of a path. So a late copy of theirs that finds its chunk
//! free begins, and may write old data over newer data. If it finds the chunk owned by the next
//! request, it is taken for a copy of that request.
//!
//! The responses to all copies are sent when the last copy has finished. Until then the owner's
//! response is withheld, since the server does not know which copy the client waits for: copies may
//! be looked at in any order. The client cannot reuse the chunk before, so every read of the chunk
//! finds the same request. Responses are withheld for all clients. For a client that asks for the
//! end of a path this changes nothing: the paths of earlier copies carry no response any more.
//!
//! All requests for a chunk must therefore be copies of the same request. A client that has lost
//! all paths, or has no path that can carry a request, gives requests up, and then uses their
//! chunks for other requests. Such a client gets a new session with other chunks; see
//! [`ConnReq::given_up`](proto::rtrs::ConnReq::given_up). C clients do not tell whether they have
//! given up requests; for them this danger is as with C servers.

use core::{
    mem,
    ptr, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        box_slot::BoxList,
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    }, //
};

use crate::chunk::{
    ChunkBox,
    PathChunk, //
};

/// No request owns the chunk.
const FREE: u32 = 0;
/// A request owns the chunk.
const OWNED: u32 = 1;
/// A request owns the chunk, and other requests for the chunk are parked or their responses
/// withheld; or [`ChunkClaims::count_old()`] has seen the owner.
const CONTENDED: u32 = 2;

/// The requests for a chunk that are not its owner.
struct Others<P: Send + Sync + 'static> {
    /// [`ChunkClaims::count_old()`] has seen the present owner.
    seen: bool,
    /// Requests that have not begun.
    parked: BoxList<PathChunk<P>>,
    /// Requests that have finished; their responses wait for the parked requests.
    withheld: BoxList<PathChunk<P>>,
}

/// What comes next for a chunk whose owner has finished.
pub(crate) enum Next<P: Send + Sync + 'static> {
    /// This parked request owns the chunk now, and begins.
    Begin(ChunkBox<P>),
    /// No request is parked: the caller sends these responses, then calls [`ChunkClaims::next()`]
    /// again. The caller owns the chunk.
    Respond(BoxList<PathChunk<P>>),
    /// The chunk is free.
    Free,
}

/// The owners of a session's chunks. All methods but [`Self::new()`] may be called in any context.
///
/// # Invariants
///
/// - `states` and `others` have an element for each chunk.
/// - A state changes from or to `CONTENDED` only with `others` locked.
/// - A state is `CONTENDED` if its chunk has other requests, or if its owner was seen.
#[pin_data]
pub(crate) struct ChunkClaims<P: Send + Sync + 'static> {
    states: KVVec<Atomic<u32>>,
    #[pin]
    others: SpinLockIrq<KVVec<Others<P>>>,
}

impl<P: Send + Sync + 'static> ChunkClaims<P> {
    /// `count` chunks without owners. Sleeps.
    pub(crate) fn new(count: u32) -> Result<impl PinInit<Self>> {
        let mut states = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        let mut others = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            states.push(Atomic::new(FREE), GFP_KERNEL)?;
            let none = Others {
                seen: false,
                parked: BoxList::new(),
                withheld: BoxList::new(),
            };
            others.push(none, GFP_KERNEL)?;
        }
        Ok(pin_init!(Self {
            states,
            others <- new_spinlock_irq!(others, "rtrs_server::ChunkClaims::others"),
        }))
    }

    #[inline]
    fn state(&self, id: u32) -> Option<&Atomic<u32>> {
        self.states.get(id as usize)
    }

    /// Makes the caller the owner of chunk `id`. False if the chunk has an owner.
    #[inline]
    pub(crate) fn claim(&self, id: u32) -> bool {
        self.state(id)
            .is_some_and(|state| state.cmpxchg(FREE, OWNED, ordering::Full).is_ok())
    }

    /// Parks the request in `chunk` while another request owns the chunk. Returns `chunk` if no
    /// other request does any more: its request owns the chunk now.
    pub(crate) fn park(&self, chunk: ChunkBox<P>) -> Option<ChunkBox<P>> {
        let id = chunk.id;
        let mut others = self.others.lock();
        let (Some(state), Some(others)) = (self.state(id), others.get_mut(id as usize)) else {
            // No path has such a chunk.
            return None;
        };
        loop {
            let now = state.load(ordering::Relaxed);
            if now == CONTENDED {
                break;
            }
            let next = if now == FREE { OWNED } else { CONTENDED };
            if state.cmpxchg(now, next, ordering::Full).is_ok() {
                if next == OWNED {
                    return Some(chunk);
                }
                break;
            }
        }
        others.parked.push(chunk);
        None
    }

    /// Whether the response to the owner of chunk `id` is to be withheld: other requests for the
    /// chunk are parked or withheld, or [`Self::count_old()`] has seen the owner. The caller owns
    /// the chunk.
    #[inline]
    pub(crate) fn is_contended(&self, id: u32) -> bool {
        self.state(id)
            .is_some_and(|state| state.load(ordering::Relaxed) == CONTENDED)
    }

    /// Ends the ownership of chunk `id`. False if [`Self::is_contended()`] is true for the chunk:
    /// then the caller still owns the chunk, and does what [`Self::next()`] says.
    #[inline]
    #[must_use = "the caller still owns the chunk if this is false"]
    pub(crate) fn release(&self, id: u32) -> bool {
        self.state(id)
            .is_none_or(|state| state.cmpxchg(OWNED, FREE, ordering::Full).is_ok())
    }

    /// Withholds the response in `chunk`. The caller owns the chunk, for which
    /// [`Self::is_contended()`] is true, and stays the owner.
    pub(crate) fn withhold(&self, chunk: ChunkBox<P>) {
        if let Some(others) = self.others.lock().get_mut(chunk.id as usize) {
            others.withheld.push(chunk);
        }
    }

    /// What comes next for chunk `id`, which the caller owns.
    pub(crate) fn next(&self, id: u32) -> Next<P> {
        let mut others = self.others.lock();
        let (Some(state), Some(others)) = (self.state(id), others.get_mut(id as usize)) else {
            return Next::Free;
        };
        if let Some(chunk) = others.parked.next() {
            others.seen = false;
            return Next::Begin(chunk);
        }
        if !others.withheld.is_empty() {
            return Next::Respond(mem::take(&mut others.withheld));
        }
        others.seen = false;
        state.store(FREE, ordering::Release);
        Next::Free
    }

    /// Counts the requests that owned their chunk at the last call and still do. Also returns
    /// whether any chunk is in use. A request that was seen takes longer to end, as if other
    /// requests were parked: call this a few times a second at most.
    pub(crate) fn count_old(&self) -> (u32, bool) {
        let (mut count, mut is_used) = (0u32, false);
        for (id, state) in self.states.iter().enumerate() {
            if state.load(ordering::Relaxed) == FREE {
                continue;
            }
            is_used = true;
            let mut others = self.others.lock();
            let Some(others) = others.get_mut(id) else {
                continue;
            };
            let seen_before = others.seen;
            // INVARIANT: `others` is locked. `seen` is set only if the state is `CONTENDED`.
            let is_marked = state
                .cmpxchg(OWNED, CONTENDED, ordering::Full)
                .map_or_else(|now| now == CONTENDED, |_| true);
            others.seen = is_marked;
            if is_marked && seen_before {
                // At most the number of chunks.
                count = count.wrapping_add(1);
            }
        }
        (count, is_used)
    }

    /// Takes out the requests of chunk `id` that are parked or withheld on the path of `io`.
    pub(crate) fn take_of_path(&self, id: u32, io: &P) -> BoxList<PathChunk<P>> {
        let mut taken = BoxList::new();
        if let Some(others) = self.others.lock().get_mut(id as usize) {
            for list in [&mut others.parked, &mut others.withheld] {
                for chunk in mem::take(list) {
                    if chunk
                        .entered
                        .as_ref()
                        .is_some_and(|entered| ptr::eq::<P>(&**entered, io))
                    {
                        taken.push(chunk);
                    } else {
                        list.push(chunk);
                    }
                }
            }
        }
        taken
    }
}
