// SPDX-License-Identifier: GPL-2.0

//! What a failed path leaves behind.

use kernel::prelude::*;

use super::Transfer;
use crate::request::Request;

/// A request that a failed path leaves behind.
pub(crate) enum Outstanding {
    /// May be sent on another path.
    Unanswered(KBox<Request>),
    /// The server has answered; the device still used its data.
    Answered(KBox<Request>),
}

impl Transfer {
    /// Takes one more request that was never finished, beginning with tag `from`.
    ///
    /// Only for the teardown, after the queue pairs are drained, so that the device uses nothing
    /// of it any more.
    pub(crate) fn take_outstanding(&self, from: &mut usize) -> Option<Outstanding> {
        while let Some(tag) = self.tags.get(*from) {
            if let Some(mut request) = tag.in_flight.take() {
                self.count(request.connection, -1);
                self.release(tag, &mut request);
                return Some(Outstanding::Unanswered(request));
            }
            if let Some(mut request) = tag.answered.take() {
                self.release(tag, &mut request);
                return Some(Outstanding::Answered(request));
            }
            *from = from.saturating_add(1);
        }
        None
    }
}
