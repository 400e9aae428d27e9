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

/// What connections tell their path, and have of it.
pub(crate) trait PathEvents: Send + Sync + 'static {
    /// The addresses that the path was made with, for log lines.
    fn name_text(&self) -> &str;
    /// The heartbeat, which counts what comes from the server.
    fn heartbeat(&self) -> &Heartbeat;
    /// The statistics.
    fn stats(&self) -> &Stats;
    /// A step of the establishment is done, or a connection has ended. Any context.
    fn wake(&self);
    /// A connection failed; whether the path was used until now. Any context.
    fn connection_failed(this: &Arc<Self>) -> bool;
    /// Whether the path connects by itself to a server that is away on purpose, so that it is no
    /// news when the server is not there. Any context.
    fn expects_absence(&self) -> bool;
    /// Whether the server has not refused the path before, as it is draining, since the path was up
    /// or an administrator has asked for an attempt; from here on it has. Any context.
    fn is_first_refusal(&self) -> bool;
    /// The server says that it has ended the path that has this number in messages. Any context.
    fn path_ended(&self, number: u32);
    /// The server has rung, with `number`. Any context; does not sleep.
    fn doorbell(&self, number: u32);
}

/// What the handlers of all connections of one establishment share.
pub(crate) struct Incarnation<P: PathEvents> {
    pub(crate) path: Arc<P>,
    /// The number that it has in messages on other paths.
    pub(crate) number: u32,
    requests: SetOnce<PathRequests>,
    /// What of the heartbeat is in the send queue of the service connection.
    pub(crate) heartbeat: HeartbeatMessages,
}

impl<P: PathEvents> Incarnation<P> {
    /// Begins a new establishment, `number` for other paths.
    pub(crate) fn new(path: Arc<P>, number: u32) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                path,
                number,
                requests: SetOnce::new(),
                heartbeat: HeartbeatMessages::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The requests, once the server has said what it offers.
    #[inline]
    pub(crate) fn requests(&self) -> Option<&PathRequests> {
        self.requests.as_ref()
    }

    /// Sets the requests; `EEXIST` if there are some.
    pub(crate) fn set_requests(&self, requests: PathRequests) -> Result {
        if self.requests.populate(requests) {
            Ok(())
        } else {
            Err(EEXIST)
        }
    }
}
