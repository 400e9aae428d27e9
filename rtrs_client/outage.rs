// SPDX-License-Identifier: GPL-2.0

//! Since when a session is without a path.

use kernel::{
    sync::atomic::{
        ordering,
        Atomic, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// The last time without a path; only looked at by requests that find none.
pub(crate) struct Outage {
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the last path was lost, in ms after `origin`.
    began: Atomic<i64>,
    /// No path has been up since.
    lasts: Atomic<bool>,
}

impl Outage {
    /// A session begins without a path.
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            began: Atomic::new(0),
            lasts: Atomic::new(true),
        }
    }

    /// The last path is lost.
    pub(crate) fn begin(&self) {
        self.began
            .store(self.origin.elapsed().as_millis(), ordering::Relaxed);
        self.lasts.store(true, ordering::Release);
    }

    /// There is a path again.
    pub(crate) fn end(&self) {
        self.lasts.store(false, ordering::Release);
    }

    /// Whether the last path was lost less than `ms` ago.
    pub(crate) fn is_younger_than(&self, ms: u32) -> bool {
        let began = self.began.load(ordering::Relaxed);
        self.origin.elapsed().as_millis().saturating_sub(began) < i64::from(ms)
    }

    /// Whether a request that finds no path comes before the loss of the last one has been noted.
    pub(crate) fn is_about_to_begin(&self) -> bool {
        !self.lasts.load(ordering::Acquire)
    }
}
