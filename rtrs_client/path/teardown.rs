// SPDX-License-Identifier: GPL-2.0

//! Taking a path's connections down, and what becomes of the requests in flight.

use kernel::{
    sync::{
        rcu,
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    pr_info_ratelimited,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    workqueue::DelayedWork, //
};
use proto::rtrs::Imm;

use super::{
    Control,
    Path,
    BEAT, //
};
use crate::{
    connection::post_immediate,
    incarnation::ConnectionSet,
    session::Session,
    transfer::Outstanding,
    work::WorkKind, //
};

/// What a path that is being taken down is to hear from the server by another path.
pub(super) struct Ending(Atomic<u32>);

impl Ending {
    /// Nothing is awaited. Neither this nor the next is the number of a path.
    const NONE: u32 = u32::MAX;
    /// The server has ended the path.
    const CONFIRMED: u32 = u32::MAX - 1;

    /// Nothing is awaited.
    pub(super) fn new() -> Self {
        Self(Atomic::new(Self::NONE))
    }

    /// From here on the end of path `number` is awaited.
    fn begin(&self, number: u32) {
        self.0.store(number, ordering::Relaxed);
    }

    /// Nothing is awaited any more.
    fn end(&self) {
        self.0.store(Self::NONE, ordering::Relaxed);
    }

    /// Whether what was awaited has come.
    fn is_confirmed(&self) -> bool {
        self.0.load(ordering::Acquire) == Self::CONFIRMED
    }

    /// The server has ended path `number`; whether that was awaited here. Any context.
    fn confirm(&self, number: u32) -> bool {
        number < Self::CONFIRMED
            && self
                .0
                .cmpxchg(number, Self::CONFIRMED, ordering::Full)
                .is_ok()
    }
}

impl Session {
    /// The server says, by whichever path, that it has ended path `number`. Any context.
    pub(crate) fn path_ended(&self, number: u32) {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return;
        };
        for path in paths.iter().filter(|path| path.ending.confirm(number)) {
            path.wake();
        }
    }
}

impl Path {
    /// Takes the connections away from the IO path, ends them, and sends what was in flight on
    /// another path or fails it.
    ///
    /// The state is not `connected`, so nobody sets them again.
    pub(super) fn take_down(self: &Arc<Self>, control: &mut Control) {
        DelayedWork::<Path, BEAT>::cancel_sync(self);
        let set = self.connections.replace(None);
        if let Some(set) = &set {
            for connection in set.iter() {
                connection.queue_pair().disconnect();
            }
            for connection in set.iter() {
                connection.queue_pair().drain();
            }
            self.wait_for_server(set);
            self.settle(set);
        }
        if core::mem::replace(&mut control.up, false) {
            let settings = &self.session.settings;
            self.backoff.lost(settings.reconnect_delay_ms());
            self.session.path_down();
        }
        // Last, as the end of a connection may wait some seconds for a peer that is gone.
        drop(set);
    }

    /// Waits until the server has ended the path, too, if there are requests that it has not
    /// answered: from then on it begins with none of them any more. Otherwise one that is still on its
    /// way could be carried out after its copy on another path, and after what was written since.
    ///
    /// It says so by this path, or by another one if that can be asked.
    fn wait_for_server(&self, set: &ConnectionSet) {
        let transfer = set.incarnation.transfer();
        if transfer.is_none_or(|transfer| transfer.in_flight() == 0) {
            return;
        }
        self.ending.begin(set.incarnation.number);
        let others = self.ask_others(set.incarnation.number);
        if others || !self.heartbeat.is_silent() {
            self.wait_for_end(set, self.heartbeat.confirmation_timeout_ms());
        }
        self.ending.end();
    }

    /// As [`Path::wait_for_server`], who has asked, for `timeout` milliseconds at most.
    fn wait_for_end(&self, set: &ConnectionSet, timeout: u32) {
        let began = Instant::<Monotonic>::now();
        let all_ended = || {
            set.iter()
                .all(|connection| connection.queue_pair().handler().has_ended())
        };
        while !self.ending.is_confirmed() && !all_ended() {
            let left = i64::from(timeout).saturating_sub(began.elapsed().as_millis());
            let left = u32::try_from(left).unwrap_or(0);
            if left == 0 || self.wake.wait_timeout(left).is_err() {
                pr_info_ratelimited!(
                    "{}: the server has not confirmed the disconnection within {} ms\n",
                    self.name_text(),
                    timeout
                );
                return;
            }
        }
    }

    /// Asks the server by the other paths to end this one, which is `number` for it; says whether one
    /// of them took the message.
    fn ask_others(&self, number: u32) -> bool {
        let guard = rcu::read_lock();
        let Some(paths) = self.session.paths.load(&guard) else {
            return false;
        };
        let mut asked = false;
        for path in paths.iter().filter(|path| path.is_connected()) {
            let Some(set) = path.connections(&guard) else {
                continue;
            };
            let (Some(transfer), Some(service)) = (set.incarnation.transfer(), set.get(0)) else {
                continue;
            };
            if transfer.ends_other_paths() {
                let posted = post_immediate(
                    service.queue_pair(),
                    WorkKind::Send,
                    Imm::PathEnd { path: number },
                );
                asked |= posted.is_ok();
            }
        }
        asked
    }

    /// Finishes all requests that the failed connections leave behind.
    fn settle(&self, set: &ConnectionSet) {
        let Some(transfer) = set.incarnation.transfer() else {
            return;
        };
        let mut tag = 0;
        while let Some(outstanding) = transfer.take_outstanding(&mut tag) {
            match outstanding {
                Outstanding::Answered(request) => self.session.finish(request),
                Outstanding::Unanswered(request) => self.session.fail_over(self, request),
            }
        }
    }
}
