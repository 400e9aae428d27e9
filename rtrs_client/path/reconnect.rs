// SPDX-License-Identifier: GPL-2.0

//! Connecting a path again: after a while by itself, at once if somebody asks for it.

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

    /// Connects again; some times if the server refuses that. Sleeps.
    fn reconnect_with_pauses(self: &Arc<Self>) {
        let mut pauses = REFUSED_PAUSES_MS.into_iter();
        loop {
            DelayedWork::<Path, RECONNECT>::cancel_sync(self);
            // What has failed before does not count.
            self.backoff.reset();
            if self.try_reconnect() != Err(ECONNRESET) {
                break;
            }
            // A server refuses that has not seen yet that the old connections are gone.
            let Some(pause) = pauses.next() else {
                break;
            };
            fsleep(Delta::from_millis(pause));
        }
    }

    /// One attempt to reconnect, if the path still wants that. Sleeps.
    ///
    /// Requests may wait for it, and others may wait for `control`, which is why all that takes
    /// that lock and allocates does so [`without_io`].
    fn try_reconnect(self: &Arc<Self>) -> Result {
        without_io(|| self.try_reconnect_without_io())
    }

    fn try_reconnect_without_io(self: &Arc<Self>) -> Result {
        tracepoint::clt_reconnect_work(|| self.trace());
        let mut control = self.control.lock();
        if self.state() != ClientState::Reconnecting {
            return Err(ECANCELED);
        }
        // The work that does this when a path fails may not have come to it yet.
        self.take_down(&mut control);
        self.session.note_end_of_drain();
        // While the server may be away on purpose no attempt counts.
        let is_excused = self.session.drain.excuses_attempts();
        let failed = self.backoff.failed_attempts();
        if !is_excused && self.session.settings.gives_up_after(failed) {
            pr_info!("{}: no more attempts to reconnect\n", self.name_text());
            self.give_up();
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
                    "{}: no more attempts to reconnect; write 1 to reconnect when the server \
                     offers again what it did\n",
                    self.name_text()
                );
                self.give_up();
                return Err(ECANCELED);
            }
            self.schedule_attempt(is_excused);
        }
        result
    }

    /// Has the next attempt made after the time to wait. Any context.
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

    /// The settings of the session have changed: what waits for its time gets a new one. Sleeps.
    pub(crate) fn settings_changed(self: &Arc<Self>) {
        self.heartbeat.set(self.session.settings.heartbeat());
        if self.is_connected() {
            // It does nothing if the path has been lost meanwhile.
            self.restart_heartbeat();
            self.cancel_if_dead();
        } else {
            self.requeue_attempt(|| self.schedule_reconnect());
        }
    }

    /// Connects again now if the path waits for the time to do so: its device may be back. Sleeps.
    pub(crate) fn retry(self: &Arc<Self>) {
        self.requeue_attempt(|| {
            self.backoff.reset();
            let _ = DelayedWork::<Path, RECONNECT>::queue(self.clone(), 0);
        });
    }

    /// Has `queue` queue the next attempt to reconnect, if the path waits for one. Sleeps.
    fn requeue_attempt(self: &Arc<Self>, queue: impl FnOnce()) {
        // While this goes on nobody else can queue one, so that it has to be done here, whether or
        // not there was one: whoever fails to has changed the state before. One attempt too many
        // finds by the state that there is nothing to do.
        DelayedWork::<Path, RECONNECT>::cancel(self);
        if self.state() == ClientState::Reconnecting {
            queue();
            self.cancel_if_dead();
        }
    }

    /// Cancels what the caller has queued if that came too late for whoever removed the path.
    /// Sleeps.
    fn cancel_if_dead(self: &Arc<Self>) {
        if self.state() == ClientState::Dead {
            self.cancel_delayed_works();
        }
    }
}

/// Connects a path again.
impl DelayedWorkItem<RECONNECT> for Path {
    fn run(this: Arc<Self>) {
        // It says by itself what went wrong.
        let _ = this.try_reconnect();
    }
}
