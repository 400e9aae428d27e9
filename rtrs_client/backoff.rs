// SPDX-License-Identifier: GPL-2.0

//! How long a path waits before it connects again.

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

/// The failures since the path worked the last time.
///
/// Only the task that connects the path or takes it down changes this, one at a time.
/// [`Backoff::reset`] is the exception.
pub(crate) struct Backoff {
    /// Times are kept relative to this time, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the path came up, in ms after `origin`.
    up_since: Atomic<i64>,
    /// The failed attempts to connect since the path was up the last time.
    failed_attempts: Atomic<u32>,
    /// How many times in a row the path was up for no longer than the longest delay.
    short_lived: Atomic<u32>,
    /// Whether the session cannot use what the server offers. Another attempt would find the same.
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

    /// Notes that the session cannot use what the server offers. No attempt follows until
    /// [`Backoff::reset`].
    pub(crate) fn note_hopeless(&self) {
        self.hopeless.store(true, ordering::Relaxed);
    }

    /// Whether no attempt is to follow.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.hopeless.load(ordering::Relaxed)
    }

    /// The failed attempts to connect since the path was up the last time.
    pub(crate) fn failed_attempts(&self) -> u32 {
        self.failed_attempts.load(ordering::Relaxed)
    }

    /// Counts a failed attempt to connect.
    pub(crate) fn failed(&self) {
        // An attempt takes at least a round trip, so the number does not wrap around.
        let failed = self.failed_attempts().wrapping_add(1);
        self.failed_attempts.store(failed, ordering::Relaxed);
    }

    /// Notes that the path is up.
    pub(crate) fn connected(&self) {
        self.failed_attempts.store(0, ordering::Relaxed);
        let now = self.origin.elapsed().as_millis();
        self.up_since.store(now, ordering::Relaxed);
    }

    /// Notes that the path is not up any more. `longest_ms` is the longest delay.
    pub(crate) fn lost(&self, longest_ms: u32) {
        let up_since = self.up_since.load(ordering::Relaxed);
        // Both are times of one clock, which does not go back.
        let was_up = self.origin.elapsed().as_millis().wrapping_sub(up_since);
        let before = self.short_lived.load(ordering::Relaxed);
        let short_lived = reconnect::short_lived(before, was_up, longest_ms);
        self.short_lived.store(short_lived, ordering::Relaxed);
    }

    /// Forgets all failures so far.
    pub(crate) fn reset(&self) {
        self.failed_attempts.store(0, ordering::Relaxed);
        self.short_lived.store(0, ordering::Relaxed);
        self.hopeless.store(false, ordering::Relaxed);
    }

    /// The time to wait while the server is away on purpose, in ms. `longest_ms` is the longest
    /// delay.
    pub(crate) fn drain_delay_ms(longest_ms: u32) -> u32 {
        reconnect::drain_delay_ms(longest_ms, random::u32_below(u32::MAX))
    }

    /// The time to wait, in ms. `longest_ms` is the longest delay.
    pub(crate) fn delay_ms(&self, longest_ms: u32) -> u32 {
        let short_lived = self.short_lived.load(ordering::Relaxed);
        reconnect::delay_ms(
            reconnect::failures(self.failed_attempts(), short_lived),
            longest_ms,
            random::u32_below(u32::MAX),
        )
    }
}
