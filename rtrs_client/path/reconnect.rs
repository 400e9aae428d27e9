// SPDX-License-Identifier: GPL-2.0

//! Connecting a path again: after a while by itself, at once if an administrator asks for it.

use kernel::{
    sync::Arc,
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta, //
    }, //
};
use kernel_ext::{
    mm::without_io,
    pr_err_ratelimited,
    prelude::*,
    tracepoint,
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use proto::{
    drain::MAX_REFUSAL_MS,
    path_state::{
        ClientEvent,
        ClientState, //
    }, //
};

use super::{
    Path,
    RECONNECT, //
};
use crate::backoff::Backoff;

/// The pauses of a `reconnect` by hand after a server has refused it, in milliseconds.
const REFUSED_PAUSES_MS: [i64; 4] = [50, 100, 200, 400];

impl Path {
    /// Disconnects now and connects again, as the `reconnect` file asks for. Sleeps.
    pub(crate) fn reconnect_now(self: &Arc<Self>) -> Result {
        if self.change_state(ClientEvent::Reconnect).is_none()
            && self.state() != ClientState::Reconnecting
        {
            return Err(EBUSY);
        }
        self.as_asked_for(|| self.reconnect_with_pauses());
        if self.is_connected() {
            Ok(())
        } else {
            Err(ENOTCONN)
        }
    }

    /// Connects again, several times if the server refuses. Sleeps.
    fn reconnect_with_pauses(self: &Arc<Self>) {
        let mut pauses = REFUSED_PAUSES_MS.into_iter();
        loop {
            DelayedWork::<Path, RECONNECT>::cancel_sync(self);
            // Failures of before do not count.
            self.backoff.reset();
            if self.try_reconnect() != Err(ECONNRESET) {
                break;
            }
            // A server refuses as long as it has not noticed that the old connections are gone.
            let Some(pause) = pauses.next() else {
                break;
            };
            fsleep(Delta::from_millis(pause));
        }
    }

    /// Makes one attempt to reconnect, if the state is still `reconnecting`. Sleeps.
    ///
    /// Requests may wait for the attempt, and other tasks for `control`. So each task that locks
    /// `control` and allocates memory does so [`without_io`].
    fn try_reconnect(self: &Arc<Self>) -> Result {
        without_io(|| self.try_reconnect_without_io())
    }

    fn try_reconnect_without_io(self: &Arc<Self>) -> Result {
        tracepoint::clt_reconnect_work(|| self.trace());
        let mut control = self.control.lock();
        if self.state() != ClientState::Reconnecting {
            return Err(ECANCELED);
        }
        // The work that takes a failed path down may not have run yet.
        self.take_down(&mut control);
        self.session.note_end_of_drain();
        // While the server may be away on purpose no attempt counts.
        let is_excused = self.session.drain.excuses_attempts();
        let failed = self.backoff.failed_attempts();
        if !is_excused && self.session.settings.gives_up_after(failed) {
            pr_info!(
                "{}: no more attempts to reconnect (max_reconnect_attempts): when the server is \
                 back, write 1 to the path's file reconnect\n",
                self.name_text()
            );
            self.stop_reconnecting();
            return Err(ECANCELED);
        }
        if self.change_state(ClientEvent::Connect).is_none() {
            return Err(ECANCELED);
        }
        let result = self.connect_locked(&mut control);
        // An attempt that a draining server refused does not count: the server lets clients in
        // again, within a day.
        let is_refused = result == Err(EHOSTDOWN);
        let is_excused =
            is_excused || is_refused && self.session.availability.was_lost_within(MAX_REFUSAL_MS);
        if result.is_err() && self.change_state(ClientEvent::Reconnect).is_some() {
            if !is_excused {
                self.stats.reconnect_failed();
                self.backoff.failed();
            }
            if self.backoff.is_hopeless() {
                pr_err_ratelimited!(
                    "{}: no more attempts to reconnect: the server's sess_queue_depth or \
                     max_chunk_size does not fit the session; correct it, then write 1 to the \
                     path's file reconnect\n",
                    self.name_text()
                );
                self.stop_reconnecting();
                return Err(ECANCELED);
            }
            self.schedule_attempt(is_excused);
        }
        result
    }

    /// Queues the next attempt, for the time when the pause is over. Any context.
    pub(super) fn schedule_reconnect(self: &Arc<Self>) {
        self.schedule_attempt(self.session.drain.excuses_attempts());
    }

    /// As [`Self::schedule_reconnect`]; `is_excused` if the last attempt does not count.
    fn schedule_attempt(self: &Arc<Self>, is_excused: bool) {
        let longest = self.session.settings.reconnect_delay_ms();
        let delay = if is_excused {
            Backoff::drain_delay_ms(longest)
        } else {
            self.backoff.delay_ms(longest)
        };
        // An error means that it is waiting already, that the path is closed, or that the module
        // goes.
        let _ = DelayedWork::<Path, RECONNECT>::queue(self.clone(), msecs_to_jiffies(delay));
    }

    /// Applies changed settings of the session: the heartbeat, or the wait for the next attempt,
    /// begins anew with the new time. Sleeps.
    pub(crate) fn settings_changed(self: &Arc<Self>) {
        self.heartbeat.set(self.session.settings.heartbeat());
        if self.is_connected() {
            // The heartbeat does nothing if the path has been lost meanwhile.
            self.restart_heartbeat();
            self.cancel_if_dead();
        } else {
            self.requeue_attempt(|| self.schedule_reconnect());
        }
    }

    /// Connects again now if the path waits for its next attempt: the path's device may be back.
    /// Sleeps.
    pub(crate) fn retry(self: &Arc<Self>) {
        self.requeue_attempt(|| {
            self.backoff.reset();
            let _ = DelayedWork::<Path, RECONNECT>::queue(self.clone(), 0);
        });
    }

    /// Calls `queue` to queue the next attempt to reconnect, if the path waits for an attempt.
    /// Sleeps.
    fn requeue_attempt(self: &Arc<Self>, queue: impl FnOnce()) {
        // While the cancellation goes on no other task can queue an attempt. So this task queues an
        // attempt, whether or not one was waiting. A task that fails to queue one has changed the
        // state before. A surplus attempt sees by the state that there is nothing to do.
        DelayedWork::<Path, RECONNECT>::cancel(self);
        if self.state() == ClientState::Reconnecting {
            queue();
            self.cancel_if_dead();
        }
    }

    /// Cancels the works that the caller has queued, if the task that removed the path may have
    /// cancelled too early for them. Sleeps.
    fn cancel_if_dead(self: &Arc<Self>) {
        if self.state() == ClientState::Dead {
            self.cancel_delayed_works();
        }
    }
}

/// Connects a path again.
impl DelayedWorkItem<RECONNECT> for Path {
    fn run(this: Arc<Self>) {
        // The attempt logs its own errors.
        let _ = this.try_reconnect();
    }
}
