// SPDX-License-Identifier: GPL-2.0

//! How long a path waits until it connects again.

use kernel::time::{
    Instant,
    Monotonic, //
};
use kernel_ext::{
    random,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::reconnect;

/// What has failed since the path worked the last time.
///
/// Only whoever connects or tears down changes it, one at a time, but for [`Backoff::reset`].
pub(crate) struct Backoff {
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the path came up, in ms after `origin`.
    up_since: Atomic<i64>,
    /// The attempts to connect that failed since it was up the last time.
    failed_attempts: Atomic<u32>,
    /// The times in a row that it was up for no longer than the longest delay.
    short_lived: Atomic<u32>,
    /// The server offers what the session cannot use; another attempt would find the same.
    hopeless: Atomic<bool>,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            up_since: Atomic::new(0),
            failed_attempts: Atomic::new(0),
            short_lived: Atomic::new(0),
            hopeless: Atomic::new(false),
        }
    }

    /// The server offers what the session cannot use: no attempt follows until [`Backoff::reset`].
    pub(crate) fn give_up(&self) {
        self.hopeless.store(true, ordering::Relaxed);
    }

    /// Whether no attempt is to follow.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.hopeless.load(ordering::Relaxed)
    }

    /// The attempts to connect that failed since the path was up the last time.
    pub(crate) fn failed_attempts(&self) -> u32 {
        self.failed_attempts.load(ordering::Relaxed)
    }

    /// An attempt to connect failed.
    pub(crate) fn failed(&self) {
        // An attempt takes at least a round trip, so that they do not become that many.
        let failed = self.failed_attempts().wrapping_add(1);
        self.failed_attempts.store(failed, ordering::Relaxed);
    }

    /// The path is up.
    pub(crate) fn connected(&self) {
        self.failed_attempts.store(0, ordering::Relaxed);
        let now = self.origin.elapsed().as_millis();
        self.up_since.store(now, ordering::Relaxed);
    }

    /// The path is not up any more. `longest_ms` is the longest delay.
    pub(crate) fn lost(&self, longest_ms: u32) {
        let up_since = self.up_since.load(ordering::Relaxed);
        // Both are times of one clock, which does not go back.
        let was_up = self.origin.elapsed().as_millis().wrapping_sub(up_since);
        let before = self.short_lived.load(ordering::Relaxed);
        let short_lived = reconnect::short_lived(before, was_up, longest_ms);
        self.short_lived.store(short_lived, ordering::Relaxed);
    }

    /// What has failed so far says nothing any more.
    pub(crate) fn reset(&self) {
        self.failed_attempts.store(0, ordering::Relaxed);
        self.short_lived.store(0, ordering::Relaxed);
        self.hopeless.store(false, ordering::Relaxed);
    }

    /// How long to wait, in ms, while the server is away on purpose, if the longest delay is
    /// `longest_ms`.
    pub(crate) fn drain_delay_ms(longest_ms: u32) -> u32 {
        reconnect::drain_delay_ms(longest_ms, random::u32_below(u32::MAX))
    }

    /// How long to wait, in ms, if the longest delay is `longest_ms`.
    pub(crate) fn delay_ms(&self, longest_ms: u32) -> u32 {
        let short_lived = self.short_lived.load(ordering::Relaxed);
        reconnect::delay_ms(
            reconnect::failures(self.failed_attempts(), short_lived),
            longest_ms,
            random::u32_below(u32::MAX),
        )
    }
}
