// SPDX-License-Identifier: GPL-2.0

//! The end of a path, for which the client asks on another path: rule 1 of failover in
//! Documentation/design.md.
//!
//! A client whose path fails sends its requests again by another path. From then on no request that
//! came by the first path may *begin*. A request that has begun must end before the client gets the
//! response to its copy. A request *begins* when it claims its chunk while the path is connected
//! (`request::begin()`). So the client is told when the first path has ended: none of its requests
//! begins any more, its queue pairs were disconnected, which puts them into the error state, and
//! are drained; see [`Imm::PathEnd`](proto::rtrs::Imm::PathEnd).
//!
//! A request that had begun may go on, and be handed to the user later, so a request that hangs
//! does not hold up all others. A begun request that is deferred, or still waits for room or for an
//! invalidation, is dropped (`request::resume()`, `PathIo::release_leftovers()`). A begun request
//! owns its chunk (`claims.rs`): a copy that comes by another path waits for it, and the client
//! does not get the chunk back before both have finished. With
//! [`Needs::sleeping_requests`](crate::Needs::sleeping_requests) a callback that sleeps does hold
//! up the drain, and so the end of the path.

use core::mem;
use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::spinlock_irq::{
        new_spinlock_irq,
        SpinLockIrq, //
    }, //
};
use proto::rtrs::MAX_PATHS_NUM;

/// The end of a path, the paths on which the client is told of that end, and the other paths for
/// whose end the client asks on this path. `P` is the type of paths.
#[pin_data]
pub(crate) struct PathEnd<P> {
    #[pin]
    state: Mutex<State<P>>,
    /// The numbers of the other paths, each once; there is room for all paths of a session.
    #[pin]
    others: SpinLockIrq<KVec<u32>>,
}

struct State<P> {
    /// [`PathEnd::set_ended()`] was called.
    ended: bool,
    /// The paths on which the client has asked for the end, each once; there is room for all paths.
    asked_on: KVec<Arc<P>>,
}

impl<P> PathEnd<P> {
    /// Makes the end of a path that has not ended. Sleeps.
    pub(crate) fn new() -> Result<impl PinInit<Self>> {
        let asked_on = KVec::with_capacity(MAX_PATHS_NUM, GFP_KERNEL)?;
        let others = KVec::with_capacity(MAX_PATHS_NUM, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            state <- new_mutex!(State { ended: false, asked_on }, "rtrs_server::PathEnd::state"),
            others <- new_spinlock_irq!(others, "rtrs_server::PathEnd::others"),
        }))
    }

    /// Notes that the client asks for the end of path `number`. Any context.
    pub(crate) fn note(&self, number: u32) {
        let mut others = self.others.lock();
        if !others.contains(&number) {
            // A session has no more paths than there is room for. A client that names more is not
            // told of the rest.
            let _ = others.push_within_capacity(number);
        }
    }

    /// Whether the path has ended. If not, the client is told later, on `carrier`. Sleeps.
    pub(crate) fn ended_or_tell(&self, carrier: &Arc<P>) -> bool {
        let mut state = self.state.lock();
        if !state.ended && !state.asked_on.iter().any(|path| Arc::ptr_eq(path, carrier)) {
            // A session has no more paths than there is room for.
            let _ = state.asked_on.push_within_capacity(carrier.clone());
        }
        state.ended
    }

    /// Takes out a path for whose end the client has asked. Any context.
    pub(crate) fn next_noted(&self) -> Option<u32> {
        self.others.lock().pop()
    }

    /// Notes that the path has ended. Returns the paths on which the client is to be told. Sleeps.
    ///
    /// The queue pairs of the path are drained in error or destroyed: nothing that still comes by
    /// the path gets into a chunk, and no handler sees a request of it any more. A worker that
    /// still has one finds the path closing (`request::begin()`).
    pub(crate) fn set_ended(&self) -> KVec<Arc<P>> {
        let mut state = self.state.lock();
        state.ended = true;
        mem::take(&mut state.asked_on)
    }
}
