// SPDX-License-Identifier: GPL-2.0

//! Taking a path's connections down, and what happens to the requests in flight.

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
    sync::atomic::ordering,
    workqueue::DelayedWork, //
};
use proto::rtrs::Imm;

use super::{
    Control,
    Path,
    HEARTBEAT, //
};
use crate::{
    connection::post_immediate,
    connection_set::ConnectionSet,
    incarnation::Incarnation,
    requests::outstanding::Outstanding,
    work::WorkKind, //
};

/// How often a path that waits for the server looks for paths to ask by, in milliseconds.
const LOOK_AGAIN_MS: u32 = 200;

/// How long a path that has asked the server waits before it asks again for the first time, in
/// milliseconds.
const FIRST_PATIENCE_MS: u32 = 1000;

/// The longest such wait, in milliseconds.
const MAX_PATIENCE_MS: u32 = 32_000;

/// The longest wait for a server that cannot be asked, in milliseconds.
const DISCONNECTION_TIMEOUT_MS: u32 = 1000;

/// How the wait for the server has ended, before the requests of a lost path that have no response
/// are sent again or given up.
///
/// Such a request may still be on its way, or lie in the server's memory, when its path is lost. It
/// must not be carried out after its copy that another path has carried. Nor may its data arrive in
/// a chunk that is used for something else meanwhile. After `PATH_ENDED` neither can happen. No
/// request of the path begins at the server any more, and the path's queue pairs there take
/// nothing. A request that has begun owns its chunk, so its copy waits until that request is over
/// (rule 2). Documentation/design.md has the rules, in "When a path fails"; `proto/tests/fence` is
/// their model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// No request that is to be sent again can begin at the server. The requests may go by other
    /// paths.
    Passed,
    /// No path is left by which the server could be asked. The requests are given up, and with them
    /// the server's session, whose chunks are not used again: see [`Availability::giving_up()`] and
    /// [`ConnReq::given_up_since()`](proto::rtrs::ConnReq::given_up_since).
    ///
    /// [`Availability::giving_up()`]: crate::availability::Availability::giving_up
    Lost,
    /// The server cannot be asked. The requests go by other paths all the same, as C's do at once.
    /// Documentation/design.md says what can still happen then.
    Absent,
}

/// The other paths by which the server can be asked to end a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carriers {
    /// No such path is up.
    None,
    /// Each of them has the question.
    Asked,
    /// At least one of them did not take the question.
    Full,
}

impl Path {
    /// Takes the connections away from the IO path, ends them, and sends the requests in flight by
    /// another path or gives them up.
    ///
    /// The state is not `connected`, and the caller has locked `control`: no other task sets the
    /// connections again.
    pub(super) fn take_down(self: &Arc<Self>, control: &mut Control) {
        DelayedWork::<Path, HEARTBEAT>::cancel_sync(self);
        let mut set = self.connections.replace(None);
        if let Some(connections) = &set {
            for connection in connections.iter() {
                connection.queue_pair().disconnect();
            }
            let mut drained = true;
            for connection in connections.iter() {
                drained &= connection.queue_pair().drain().is_ok();
            }
            let fence = self.wait_for_server(connections);
            let incarnation = connections.incarnation.clone();
            if !drained {
                // Work requests that the device has not reported end with their queue pairs.
                drop(set.take());
            }
            self.settle(&incarnation, fence);
        }
        if core::mem::replace(&mut control.up, false) {
            let settings = &self.session.settings;
            self.backoff.lost(settings.reconnect_delay_ms());
            self.session.availability.path_down();
        }
        // Last, as the end of a connection may wait some seconds for a peer that is gone.
        drop(set);
    }

    /// Waits until the server begins with none of this path's requests any more; see [`Fence`].
    ///
    /// Does not wait if no request is in flight. Abandoned requests do not count: they are not sent
    /// again, and their tags and chunks are used for nothing else until the server has accepted
    /// this path again, which it does only when their work is over.
    fn wait_for_server(&self, set: &ConnectionSet<Path>) -> Fence {
        let Some(requests) = set.incarnation.requests() else {
            return Fence::Passed;
        };
        if requests.in_flight() == 0 {
            return Fence::Passed;
        }
        let path_number = set.incarnation.path_number;
        self.ending.begin(path_number);
        let fence = if requests.ends_other_paths() {
            self.wait_for_path_ended(path_number)
        } else {
            if !self.heartbeat.is_silent() {
                self.wait_for_disconnection(set);
            }
            Fence::Absent
        };
        self.ending.end();
        fence
    }

    /// Asks the server by other paths to end this path, and waits until the server has confirmed
    /// it. `number` is the path's number in messages. No clock ends the wait: it goes on as long as
    /// a path is up by which the server can be asked.
    ///
    /// Each path carries the question again after a path has come up, since the paths that carried
    /// it may be dying; and after a time without a response, since a server whose send queue is
    /// full drops its response. That time doubles: soft-RoCE puts off sending a lost message again
    /// each time that another message is posted.
    fn wait_for_path_ended(&self, number: u32) -> Fence {
        let mut asked: Option<(Instant<Monotonic>, u32)> = None;
        let mut patience_ms = FIRST_PATIENCE_MS;
        while !self.ending.is_confirmed() {
            let times_up = self.session.availability.times_up();
            let is_asked = asked.is_some_and(|(at, then)| {
                then == times_up && at.elapsed().as_millis() < i64::from(patience_ms)
            });
            match self.ask_others(number, !is_asked) {
                Carriers::None => return Fence::Lost,
                Carriers::Full => asked = None,
                Carriers::Asked if is_asked => {}
                Carriers::Asked => {
                    let now = Instant::<Monotonic>::now();
                    if asked.replace((now, times_up)).is_some() {
                        patience_ms = patience_ms.wrapping_mul(2).min(MAX_PATIENCE_MS);
                    }
                }
            }
            // The response wakes this task. Any other wake-up only causes one more look.
            let _ = self.wake.wait_timeout(LOOK_AGAIN_MS);
        }
        Fence::Passed
    }

    /// Waits for a server that cannot be asked to confirm the disconnection, for
    /// [`DISCONNECTION_TIMEOUT_MS`] at most.
    ///
    /// Such a server tells nothing better, but a disconnection is not the end of the path. Data can
    /// still arrive in a chunk until the server has drained its queue pairs, and the server may
    /// still carry out a request that it began with before.
    fn wait_for_disconnection(&self, set: &ConnectionSet<Path>) {
        let began = Instant::<Monotonic>::now();
        let all_ended = || {
            set.iter()
                .all(|connection| connection.queue_pair().handler().is_disconnected())
        };
        while !all_ended() {
            let elapsed = began.elapsed().as_millis();
            let left = i64::from(DISCONNECTION_TIMEOUT_MS).wrapping_sub(elapsed);
            let left = u32::try_from(left).ok().filter(|left| *left != 0);
            if left.is_none_or(|left| self.wake.wait_timeout(left).is_err()) {
                pr_info_ratelimited!(
                    "{}: the server has not confirmed the disconnection within {} ms\n",
                    self.name_text(),
                    DISCONNECTION_TIMEOUT_MS
                );
                return;
            }
        }
    }

    /// Looks for the other paths by which the server can be asked to end this path, and asks by
    /// them if `asks`. `number` is this path's number in messages.
    fn ask_others(&self, number: u32, asks: bool) -> Carriers {
        let guard = rcu::read_lock();
        let mut carriers = Carriers::None;
        let Some(paths) = self.owner.paths().load(&guard) else {
            return carriers;
        };
        for path in paths.iter().filter(|path| path.is_connected()) {
            let Some(set) = path.connections(&guard) else {
                continue;
            };
            let (Some(requests), Some(service)) = (set.incarnation.requests(), set.get(0)) else {
                continue;
            };
            if !requests.ends_other_paths() {
                continue;
            }
            if carriers == Carriers::None {
                carriers = Carriers::Asked;
            }
            let immediate = Imm::PathEnd { path: number };
            if asks && post_immediate(service.queue_pair(), WorkKind::Send, immediate).is_err() {
                carriers = Carriers::Full;
            }
        }
        carriers
    }

    /// Ends each request that the failed connections still carried, sends it again, or gives it up.
    fn settle(&self, incarnation: &Incarnation<Path>, fence: Fence) {
        let Some(requests) = incarnation.requests() else {
            return;
        };
        let (tags, mut tag) = (&self.session.tags, 0);
        let incarnation_number = requests.incarnation();
        self.left_behind_in
            .store(incarnation_number, ordering::Relaxed);
        while let Some(outstanding) = requests.take_outstanding(tags, &mut tag) {
            match outstanding {
                Outstanding::Answered(request, result) => tags.finish(request, result),
                Outstanding::Closed(request) => tags.abandoned_ended(request),
                Outstanding::ToSendAgain(request) if fence == Fence::Lost => {
                    self.owner.give_up(request)
                }
                Outstanding::ToSendAgain(mut request) => {
                    tags.note_resent(&mut request, incarnation_number);
                    self.owner.fail_over(self, request);
                }
            }
        }
    }
}
