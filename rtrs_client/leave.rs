// SPDX-License-Identifier: GPL-2.0

//! Leaving a server that goes away on purpose.

use kernel::time::{
    delay::fsleep,
    Delta,
    Instant,
    Monotonic, //
};

use crate::session::Session;

/// How often the session looks whether requests are in flight, in milliseconds.
const LOOK_AGAIN_MS: i64 = 10;

impl Session {
    /// Disconnects all paths when no request is in flight any more, at the latest after
    /// `longest_ms`; they are connected again by themselves. Sleeps.
    ///
    /// The user sends no more requests. Those that are in flight after that time end as when a
    /// path fails.
    pub fn leave(&self, longest_ms: u32) {
        let began = Instant::<Monotonic>::now();
        while self.in_flight() != 0 && began.elapsed().as_millis() < i64::from(longest_ms) {
            fsleep(Delta::from_millis(LOOK_AGAIN_MS));
        }
        let Some(paths) = self.paths.get() else {
            return;
        };
        self.availability.leave();
        for path in paths.iter() {
            path.connection_failed();
        }
    }

    /// The requests in flight on all paths. Looks at every tag for each path. Sleeps.
    fn in_flight(&self) -> usize {
        let paths = self.paths.get();
        let each = paths.iter().flat_map(|paths| paths.iter());
        // At most as many as there are tags.
        each.fold(0, |sum, path| sum.wrapping_add(path.in_flight()))
    }
}
