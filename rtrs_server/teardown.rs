// SPDX-License-Identifier: GPL-2.0

//! Taking a path down, and ending a path when the client asks for that on another path.

use core::mem;
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    pr_info_ratelimited,
    workqueue::{
        self,
        DelayedWork, //
    }, //
};
use proto::{
    path_state::ServerEvent,
    rtrs::Imm, //
};

use crate::path::{
    Path,
    PathState,
    AUTHENTICATE,
    CLOSE,
    END_OTHERS,
    ESTABLISH, //
};

impl WorkItem<CLOSE> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.take_down();
    }
}

impl WorkItem<END_OTHERS> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(number) = this.end().next_noted() {
            this.end_other(number);
        }
    }
}

impl Path {
    /// Takes the path down. Called once, in its own work.
    fn take_down(self: &Arc<Self>) {
        // The path is closing: none of these works is queued again, or the work does nothing.
        workqueue::cancel_sync::<Self, AUTHENTICATE>(self);
        workqueue::cancel_sync::<Self, ESTABLISH>(self);
        DelayedWork::cancel_sync(self);
        self.ticket().end_half_open();

        let state = mem::replace(&mut *self.state().lock(), PathState::Closing);
        if let PathState::Connecting(setup) = &state {
            for queue_pair in &setup.queue_pairs {
                queue_pair.disconnect();
            }
        }
        let mut is_drained = true;
        if let Some(io) = self.core().enter() {
            // All queue pairs are disconnected first, so that the waits for the peer overlap.
            for queue_pair in &io.queue_pairs {
                queue_pair.disconnect();
            }
            for queue_pair in &io.queue_pairs {
                is_drained &= queue_pair.drain().is_ok();
            }
            // The completions that these requests wait for do not come any more.
            io.release_leftovers();
        }
        if is_drained {
            self.tell_ended();
        }
        // This work is not queued again either.
        workqueue::cancel_sync::<Self, END_OTHERS>(self);
        // Waits for the operations, with the user of the transport or with the session's worker.
        let io = self.core().expel_requests();
        if let Some(io) = &io {
            // Operations may have begun to wait since the first call.
            io.release_leftovers();
        }
        if let PathState::Up | PathState::Answered = state {
            self.owner().path_down(self);
        }
        drop(state);
        drop(io);
        if !is_drained {
            // The device did not say when data no longer arrives. Now there are no queue pairs any
            // more by which data could arrive in a chunk.
            self.tell_ended();
        }

        self.core().change_state(ServerEvent::Closed);
        self.owner().clone().path_closed(self);
    }

    /// Tells the client that the path has ended, on each path where the client has asked. Sleeps.
    fn tell_ended(&self) {
        for carrier in self.end().set_ended() {
            carrier.send_immediate(Imm::PathEnded {
                path: self.number(),
            });
        }
    }

    /// Ends path `number`, and tells the client on this path when that is done. Sleeps.
    ///
    /// If no path has the number, the path has ended: a path is in the list until its operations
    /// are over. This path is not meant, since the client sends by it.
    fn end_other(self: &Arc<Self>, number: u32) {
        let mut ended = true;
        self.owner().for_each_path(&mut |path| {
            if path.number() != number || Arc::ptr_eq(path, self) {
                return;
            }
            if path.close() {
                pr_info_ratelimited!("<{}>: closing, the client has lost the path\n", path);
            }
            ended &= path.end().ended_or_tell(self);
        });
        if ended {
            self.send_immediate(Imm::PathEnded { path: number });
        }
    }
}
