// SPDX-License-Identifier: GPL-2.0

//! Leaving a server that goes away on purpose.

use crate::session::Session;

impl Session {
    /// Disconnects all paths; they are connected again by themselves. Calls `is_meant` while no
    /// path comes up or is taken down, and does nothing if that returns false. Requests in flight
    /// end as when a path fails. Sleeps.
    pub fn leave(&self, is_meant: impl FnOnce() -> bool) {
        self.availability.leave(is_meant, || {
            // No path comes up meanwhile, so each path that is up is in this list. The list is
            // empty when the session has been closed.
            let paths = self.paths.get();
            for path in paths.iter().flat_map(|paths| paths.iter()) {
                path.connection_failed();
            }
        });
    }

    /// The requests in flight on all paths. Looks at every tag for each path. Sleeps.
    pub fn in_flight(&self) -> usize {
        let paths = self.paths.get();
        let each = paths.iter().flat_map(|paths| paths.iter());
        // There are at most as many as tags.
        each.fold(0, |sum, path| sum.wrapping_add(path.in_flight()))
    }
}
