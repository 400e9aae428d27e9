// SPDX-License-Identifier: GPL-2.0

//! The end of a path that the client asks for on another one.
//!
//! A client whose path fails sends its requests again by another one. What the first path had sent
//! must not be carried out after that, see [`Imm::PathEnd`]; so the client is told when this path has
//! ended.

use kernel::{
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLockIrq, //
    },
    workqueue::WorkItem, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited, //
};
use proto::rtrs::{
    Imm,
    MAX_PATHS_NUM, //
};
use rtrs_core::connection::SERVICE_CID;

use crate::path::{
    Path,
    ASKED, //
};

/// The end of a path, and who is to be told; and of which others the client asks on this path.
#[pin_data]
pub(crate) struct PathEnd {
    #[pin]
    state: Mutex<State>,
    /// Their numbers, each once; there is room for all paths.
    #[pin]
    others: SpinLockIrq<KVec<u32>>,
}

struct State {
    /// No queue pair of the path takes anything any more.
    ended: bool,
    /// The paths by which the client has asked for it, each once; there is room for all.
    asked_on: KVec<Arc<Path>>,
}

impl PathEnd {
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
    fn note(&self, number: u32) {
        let mut others = self.others.lock();
        if !others.contains(&number) {
            // Of more than there can be paths nobody waits for an answer.
            let _ = others.push_within_capacity(number);
        }
    }

    /// Takes out one of those that were noted. Any context.
    fn take_noted(&self) -> Option<u32> {
        self.others.lock().pop()
    }

    /// Whether the path has ended; `carrier` is told later if not. Sleeps.
    fn has_ended(&self, carrier: &Arc<Path>) -> bool {
        let mut state = self.state.lock();
        if !state.ended && !state.asked_on.iter().any(|path| Arc::ptr_eq(path, carrier)) {
            // There are not more paths.
            let _ = state.asked_on.push_within_capacity(carrier.clone());
        }
        state.ended
    }

    /// The path has ended; returns who is to be told. Sleeps.
    fn set_ended(&self) -> KVec<Arc<Path>> {
        let mut state = self.state.lock();
        state.ended = true;
        core::mem::take(&mut state.asked_on)
    }
}

/// The client asks on `carrier` for the end of the path that has this number. Any context: who handles
/// completions does not wait for those who make paths.
pub(crate) fn asked(carrier: &Arc<Path>, number: u32) {
    carrier.end().note(number);
    carrier.queue_asked();
}

impl WorkItem<ASKED> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(number) = this.end().take_noted() {
            end(&this, number);
        }
    }
}

/// Ends the path that has this number, and tells the client on `carrier` when that is done. Sleeps.
fn end(carrier: &Arc<Path>, number: u32) {
    let mut ended = true;
    for path in carrier.session().paths().lock().iter() {
        if path.number() != number || Arc::ptr_eq(path, carrier) {
            continue;
        }
        if path.close() {
            pr_info_ratelimited!("<{}>: closing, the client has given it up\n", path);
        }
        ended &= path.end().has_ended(carrier);
    }
    if ended {
        tell(carrier, number);
    }
}

/// The queue pairs of `path`, which is closed, take nothing any more. Sleeps.
pub(crate) fn ended(path: &Path) {
    for carrier in path.end().set_ended() {
        tell(&carrier, path.number());
    }
}

/// Tells the client on `carrier`.
fn tell(carrier: &Arc<Path>, number: u32) {
    let Some(io) = carrier.io() else { return };
    let Some(queue_pair) = io.queue_pair(SERVICE_CID) else {
        return;
    };
    let immediate = Imm::PathEnded { path: number };
    if let Err(error) = queue_pair.handler().send_immediate(queue_pair, immediate) {
        pr_err_ratelimited!(
            "<{}>: sending the end of a path failed: {:?}\n",
            carrier,
            error
        );
        carrier.close();
    }
}
