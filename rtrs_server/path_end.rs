// SPDX-License-Identifier: GPL-2.0

//! The end of a path that the client asks for on another one.
//!
//! A client whose path fails sends its requests again by another path. What the first path had sent
//! must not be carried out after that, see [`Imm::PathEnd`]; so the client is told when this path
//! has ended: none of its requests begins any more, and its queue pairs are in error and drained.
//!
//! A request that had begun may go on. It owns its chunk (`claims.rs`), so a copy of it that comes
//! by another path waits for it, and the client does not get the chunk back before both have
//! finished. So one request that hangs does not hold up all others.

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

/// The end of a path, the paths on which the client is told of it, and the ends of other paths for
/// which the client asks on this one. `P` is the type of paths.
#[pin_data]
pub(crate) struct PathEnd<P> {
    #[pin]
    state: Mutex<State<P>>,
    /// The numbers of the other paths, each once; there is room for all paths.
    #[pin]
    others: SpinLockIrq<KVec<u32>>,
}

struct State<P> {
    /// See [`PathEnd::end()`].
    ended: bool,
    /// The paths by which the client has asked for it, each once; there is room for all.
    asked_on: KVec<Arc<P>>,
}

impl<P> PathEnd<P> {
    /// Of a path that has not ended. Sleeps.
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
            // A session has no more paths than there is room for, so a client that asks for more
            // gets no word of them.
            let _ = others.push_within_capacity(number);
        }
    }

    /// Whether the path has ended; `carrier` is told later if not. Sleeps.
    pub(crate) fn has_ended(&self, carrier: &Arc<P>) -> bool {
        let mut state = self.state.lock();
        if !state.ended && !state.asked_on.iter().any(|path| Arc::ptr_eq(path, carrier)) {
            // There are not more paths.
            let _ = state.asked_on.push_within_capacity(carrier.clone());
        }
        state.ended
    }

    /// Takes out a path for whose end the client has asked. Any context.
    pub(crate) fn next_noted(&self) -> Option<u32> {
        self.others.lock().pop()
    }

    /// The path has ended: it is being closed, so that none of its requests begins; its queue pairs
    /// are drained in error, so that nothing that still comes by it gets into a chunk, and no
    /// handler of it runs. Returns the paths on which the client is to be told. Sleeps.
    pub(crate) fn end(&self) -> KVec<Arc<P>> {
        let mut state = self.state.lock();
        state.ended = true;
        mem::take(&mut state.asked_on)
    }
}
