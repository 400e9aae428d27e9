// SPDX-License-Identifier: GPL-2.0

//! How a request whose path is lost goes to another path, or is given up: rule 3 of failover in
//! Documentation/design.md. Rule 1, which comes before, is in `path/teardown.rs`: only after it do
//! requests get here.

use kernel::{
    sync::rcu,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        rcu::synchronize_rcu,
        state_cell::Owned, //
    }, //
};

use crate::{
    events::SubmitError,
    path::Path,
    requests::{
        request::Request,
        submit::{
            Refused,
            SubmissionRoom, //
        }, //
    },
    session::Session,
    submission::Submission, //
};

/// How long a request of a failed path waits before it is offered again to paths that are up and
/// cannot take it for the moment, in milliseconds.
const FAIL_OVER_PAUSE_MS: i64 = 10;

impl Session {
    /// Sends a request of a failed path by another path, or gives it up if no path can carry it.
    /// Sleeps.
    ///
    /// A path that is up and short of memory is asked again until it takes the request, or is lost
    /// itself. To give the request up instead would cost every path that is up, see
    /// [`Self::fail_paths`].
    pub(crate) fn fail_over<'a>(&'a self, failed: &Path, mut request: Owned<'a, Request>) {
        let error = loop {
            let Err(refused) = self.send_except(failed, request) else {
                return;
            };
            request = refused.request;
            if SubmitError::new(refused.error) != SubmitError::Busy {
                break refused.error;
            }
            fsleep(Delta::from_millis(FAIL_OVER_PAUSE_MS));
        };
        self.give_up_for(request, error);
    }

    /// Sends a request on a path other than `failed`.
    fn send_except<'a>(
        &'a self,
        failed: &Path,
        request: Owned<'a, Request>,
    ) -> Result<(), Refused<'a>> {
        let guard = rcu::read_lock();
        let mut room = SubmissionRoom::EMPTY;
        let mut submission = Submission::new(self, &guard, &mut room);
        submission.add_by_policy::<true>(request, Some(failed))
    }

    /// Tells the user of a request that was in flight on a lost path and is sent on no other path.
    /// Sleeps.
    pub(crate) fn give_up(&self, request: Owned<'_, Request>) {
        self.give_up_for(request, ECONNABORTED);
    }

    /// As [`Self::give_up`], with `error` as the reason.
    fn give_up_for(&self, request: Owned<'_, Request>, error: Error) {
        // In this order: each path that came up before the count has changed is failed, and a path
        // that comes up later has told the server the new count. The tag is free last.
        self.availability.giving_up();
        self.fail_paths();
        let error = match self.tags.is_of_service(request.tag()) {
            true => ECONNABORTED,
            false => error,
        };
        self.tags.unanswered(request, error);
    }

    /// Fails all paths that are up, before a request is given up. The server may be at work on that
    /// request, and learns that it was given up only from a path that connects. When this returns,
    /// no task sends by these paths any more; they are taken down in the background. Sleeps.
    fn fail_paths(&self) {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return;
        };
        let mut any = false;
        for path in paths.iter().filter(|path| path.is_connected()) {
            // Such a path did not get the request for one of two reasons. The path cannot carry it,
            // since its limits are lower than those of the lost path. Or the path came up after the
            // lost path had found no path to ask by, so there was no fence.
            any |= path.connection_failed();
        }
        drop(guard);
        if any {
            // A task that found such a path connected has sent its request by then.
            synchronize_rcu();
        }
    }
}
