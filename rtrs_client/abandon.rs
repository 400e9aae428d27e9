// SPDX-License-Identifier: GPL-2.0

//! How the user abandons a request that the server does not respond to.

use kernel::sync::rcu;
use kernel_ext::page::buffer::PageBuffer;

use crate::{
    requests::{
        submit::Posted,
        tags::FLAGS, //
    },
    session::Session, //
};

impl Session {
    /// Whether the request of this number can be [abandoned](Self::abandon) at this moment. `moved`
    /// says whether the request was sent by [`Self::send_moved`]. Any context; never sleeps.
    pub fn can_abandon(&self, number: u32, moved: bool) -> bool {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return false;
        };
        let found = paths.iter().find_map(|path| {
            let set = path.connections(&guard)?;
            let cid_and_flags = set.incarnation.requests()?.abandonable_on(number, moved)?;
            Some(!path.is_polled(cid_and_flags & !FLAGS))
        });
        found == Some(true)
    }

    /// Abandons the request of `number`, and returns whether that was possible. It is not possible
    ///
    /// - if the request has ended or is about to end,
    /// - if the device has not written the data yet, or is just registering it,
    /// - if the request's path is being lost,
    /// - if the request went by a polled queue: no task may poll for the late response.
    ///
    /// `moved` is as of [`Self::can_abandon`]. The caller makes sure that the number is not used
    /// for another request meanwhile that was sent in the same way.
    ///
    /// `committed` is called if the request is abandoned, before anything follows from that. Then
    /// [`SessionEvents::abandoned_ended`] is called for the request, and neither
    /// [`SessionEvents::complete`] nor [`SessionEvents::unanswered`]. The permit can be taken after
    /// that call. Until then the server may carry the request out at any time. The memory of the
    /// data is given back as soon as no device can reach it; data that the server sends later goes
    /// to `sink`. Any context, also with a lock held that the user does not take in the session's
    /// callbacks. Never sleeps.
    ///
    /// [`SessionEvents::complete`]: crate::SessionEvents::complete
    /// [`SessionEvents::unanswered`]: crate::SessionEvents::unanswered
    /// [`SessionEvents::abandoned_ended`]: crate::SessionEvents::abandoned_ended
    pub fn abandon(
        &self,
        number: u32,
        moved: bool,
        sink: PageBuffer,
        committed: impl FnOnce(),
    ) -> bool {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return false;
        };
        for path in paths.iter() {
            let Some(set) = path.connections(&guard) else {
                continue;
            };
            let requests = set.incarnation.requests();
            let cid_and_flags =
                requests.and_then(|requests| requests.abandonable_on(number, moved));
            let Some(cid_and_flags) = cid_and_flags else {
                continue;
            };
            let cid = cid_and_flags & !FLAGS;
            let Some((requests, connection)) = set.sender(usize::from(cid)) else {
                continue;
            };
            if path.is_polled(cid) {
                return false;
            }
            let (is_abandoned, posted) = requests.abandon(
                connection.queue_pair(),
                cid_and_flags,
                number,
                sink,
                committed,
            );
            if posted == Posted::Broken {
                path.submission_failed();
            }
            return is_abandoned;
        }
        false
    }
}
