// SPDX-License-Identifier: GPL-2.0

//! The requests that had not ended when their path failed.

use kernel_ext::{
    prelude::*,
    sync::{
        atomic::ordering,
        state_cell::Owned, //
    }, //
};

use super::{
    request::Request,
    tags::{
        Phase,
        Tags, //
    },
    PathRequests, //
};

/// A request that had not ended when its path failed.
pub(crate) enum Outstanding<'a> {
    /// The server has not responded. The request is sent again by another path, also if the server
    /// lacks `FEATURE_PATH_END`. It is given up if no path was left to ask the server by
    /// (`Fence::Lost` in `path/teardown.rs`), or if no other path can carry it (`failover.rs`).
    ToSendAgain(Owned<'a, Request>),
    /// The server has responded with this result, and the device still used the data.
    Answered(Owned<'a, Request>, Result),
    /// The user has abandoned the request, and the server has responded.
    Closed(Owned<'a, Request>),
}

impl PathRequests {
    /// Takes the next request that was never finished, beginning with tag `from`. `tags` are those
    /// of the session.
    ///
    /// Only for the teardown, after the queue pairs are drained: from then on the device uses no
    /// request's data. Two kinds of requests stay where they are: those whose data the device might
    /// still use, and those that the user has abandoned and the server has not responded to, as the
    /// server may still be at work on them.
    pub(crate) fn take_outstanding<'a>(
        &self,
        tags: &'a Tags,
        from: &mut u32,
    ) -> Option<Outstanding<'a>> {
        while let Some((cell, chunk)) = tags.get(*from).zip(self.chunks.get(*from as usize)) {
            *from = from.checked_add(1)?;
            let state = cell.state();
            let Some(phase) = self.incarnation.phase_of(state) else {
                continue;
            };
            let Some(mut request) = cell.take(state) else {
                continue;
            };
            if let Err(error) = chunk.region.unmap(&mut request.data) {
                kernel_ext::pr_err_ratelimited!(
                    "request {}: the RDMA device may still use the request's memory ({:?}), so the \
                     request never ends; restart this machine\n",
                    request.tag(),
                    error
                );
                request.put(state);
                continue;
            }
            self.left(&mut request);
            if phase == Phase::Closing {
                return Some(Outstanding::Closed(request));
            }
            if phase.is_abandoned() {
                // The user gets its data back. The tag is not used before the path is up again.
                request.data.clear();
                let state = self
                    .incarnation
                    .state(request.connection, Phase::LeftBehind);
                request.put(state);
                continue;
            }
            if phase.awaits_response() {
                return Some(Outstanding::ToSendAgain(request));
            }
            let errno = chunk.result.load(ordering::Relaxed);
            return Some(Outstanding::Answered(
                request,
                kernel::error::to_result(errno),
            ));
        }
        None
    }
}
