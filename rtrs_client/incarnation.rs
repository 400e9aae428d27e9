// SPDX-License-Identifier: GPL-2.0

//! One establishment of a path's connections, from the first step to the teardown.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    sync::set_once::SetOnce, //
};
use rtrs_core::heartbeat::Heartbeat;

use crate::{
    heartbeat::HeartbeatMessages,
    requests::PathRequests,
    stats::Stats, //
};

/// The path of a connection, as its handlers use it.
pub(crate) trait PathEvents: Send + Sync + 'static {
    /// The addresses that the path was made with, for log lines.
    fn name_text(&self) -> &str;
    /// The heartbeat, which counts messages of the server.
    fn heartbeat(&self) -> &Heartbeat;
    /// The statistics.
    fn stats(&self) -> &Stats;
    /// Wakes the task that connects the path or takes it down: a step of the establishment is done,
    /// or a connection has ended. Any context.
    fn wake(&self);
    /// Handles the failure of a connection. Returns whether the path was in use until now. Any
    /// context.
    fn connection_failed(this: &Arc<Self>) -> bool;
    /// Whether the server is expected to be away: the path connects by itself, and the server is
    /// away on purpose. Then errors for lack of a server are not logged. Any context.
    fn expects_absence(&self) -> bool;
    /// Whether this is the first refusal of a draining server since the path was up or an
    /// administrator asked for an attempt. Notes the refusal. Any context.
    fn is_first_refusal(&self) -> bool;
    /// Notes that the server has ended the path with this number in messages. Any context.
    fn path_ended(&self, number: u32);
    /// Handles a doorbell of the server, with `number`. Any context; does not sleep.
    fn doorbell(&self, number: u32);
}

/// The state that the handlers of all connections of one establishment share.
pub(crate) struct Incarnation<P: PathEvents> {
    pub(crate) path: Arc<P>,
    /// The number of the path in messages on other paths, for this establishment. The states of
    /// tags have another number ([`PathRequests::incarnation()`]).
    pub(crate) path_number: u32,
    requests: SetOnce<PathRequests>,
    /// The heartbeats and acknowledgements in the send queue of the service connection.
    pub(crate) heartbeat: HeartbeatMessages,
}

impl<P: PathEvents> Incarnation<P> {
    /// Begins a new establishment, whose number in messages on other paths is `path_number`.
    pub(crate) fn new(path: Arc<P>, path_number: u32) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                path,
                path_number,
                requests: SetOnce::new(),
                heartbeat: HeartbeatMessages::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The requests, once the server has made its offer.
    #[inline]
    pub(crate) fn requests(&self) -> Option<&PathRequests> {
        self.requests.as_ref()
    }

    /// Sets the requests. `EEXIST` if they are set already.
    pub(crate) fn set_requests(&self, requests: PathRequests) -> Result {
        if self.requests.populate(requests) {
            Ok(())
        } else {
            Err(EEXIST)
        }
    }
}
