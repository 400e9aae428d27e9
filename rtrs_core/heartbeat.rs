// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path.
//!
//! At every interval each end looks whether a message has come from the peer since its last look.
//! If so, the end sends a heartbeat on the service connection, also while there are requests, and
//! counts 1. If not, the end sends nothing, and raises the count by 1. A message of the peer sets
//! the count to 0. The path is lost at the first look at which the count exceeds
//! [`Settings::missed_max`].
//!
//! The owner of a path keeps a [`Heartbeat`] and a delayed work that calls [`Heartbeat::tick`]
//! every [`Heartbeat::interval`]. Its completion handlers call [`Heartbeat::received`].

use kernel::{
    time::{
        msecs_to_jiffies,
        Instant,
        Jiffies,
        Monotonic, //
    }, //
};
use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};
use proto::heartbeat;
pub use proto::heartbeat::{
    Action,
    Settings, //
};

/// The heartbeat of one path. All methods may be called in any context.
pub struct Heartbeat {
    interval_ms: Atomic<u32>,
    missed_max: Atomic<u32>,
    /// Intervals without a message of the peer.
    missed: Atomic<u32>,
    /// Times are kept relative to this time, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the heartbeat whose round trip goes on was posted, in ns after `origin`. 0 if there is
    /// none.
    sent: Atomic<i64>,
    /// The round-trip time of the last heartbeat, in ns.
    latency: Atomic<i64>,
}

impl Heartbeat {
    /// Makes a heartbeat with no missed interval and no round-trip time.
    pub fn new(settings: Settings) -> Self {
        Self {
            interval_ms: Atomic::new(settings.interval_ms),
            missed_max: Atomic::new(settings.missed_max),
            missed: Atomic::new(0),
            origin: Instant::now(),
            sent: Atomic::new(0),
            latency: Atomic::new(0),
        }
    }

    /// The settings in force.
    fn settings(&self) -> Settings {
        Settings {
            interval_ms: self.interval_ms.load(ordering::Relaxed),
            missed_max: self.missed_max.load(ordering::Relaxed),
        }
    }

    /// Changes the settings. A call of [`Heartbeat::tick`] that is waiting for its time is not
    /// moved.
    pub fn set(&self, settings: Settings) {
        self.interval_ms
            .store(settings.interval_ms, ordering::Relaxed);
        self.missed_max
            .store(settings.missed_max, ordering::Relaxed);
    }

    /// The time between two calls of [`Heartbeat::tick`].
    pub fn interval(&self) -> Jiffies {
        msecs_to_jiffies(self.settings().interval_ms)
    }

    /// Counts an interval that has passed, and returns what to do.
    ///
    /// Called by one work item at a time.
    pub fn tick(&self) -> Action {
        let settings = self.settings();
        let mut missed = self.missed.load(ordering::Relaxed);
        loop {
            let (action, now) = heartbeat::tick(missed, &settings);
            // A message that came meanwhile has set `missed` to zero, and that counts.
            match self.missed.cmpxchg(missed, now, ordering::Relaxed) {
                Ok(_) => return action,
                Err(received) => missed = received,
            }
        }
    }

    /// Begins a round trip: a heartbeat is about to be posted. If an earlier round trip still goes
    /// on, the new one is not measured. A round trip goes on until the peer acknowledges, even if
    /// the peer's device has the heartbeat.
    pub fn posting(&self) {
        let now = self.origin.elapsed().as_nanos();
        let _ = self.sent.cmpxchg(0, now, ordering::Relaxed);
    }

    /// Notes a message of the peer: a heartbeat, an acknowledgement or a request.
    #[inline]
    pub fn received(&self) {
        // Every request comes here, so the cache line is not written without need.
        if self.missed.load(ordering::Relaxed) != 0 {
            self.missed.store(0, ordering::Relaxed);
        }
    }

    /// Notes the acknowledgement of a heartbeat.
    pub fn acknowledged(&self) {
        self.received();
        let now = self.origin.elapsed().as_nanos();
        let sent = self.sent.xchg(0, ordering::Relaxed);
        if sent != 0 {
            // Both are times of one clock, which does not go back.
            self.latency
                .store(now.wrapping_sub(sent), ordering::Relaxed);
        }
    }

    /// The round-trip time of the last acknowledged heartbeat in ns. 0 before the first.
    pub fn latency_ns(&self) -> u64 {
        self.latency.load(ordering::Relaxed).unsigned_abs()
    }

    /// Whether the peer has been silent for so long that the path is lost.
    pub fn is_silent(&self) -> bool {
        heartbeat::is_silent(self.missed.load(ordering::Relaxed), &self.settings())
    }

    /// Forgets missed intervals and the round trip that goes on. For a path that is connected
    /// again.
    pub fn reset(&self) {
        self.missed.store(0, ordering::Relaxed);
        self.sent.store(0, ordering::Relaxed);
    }
}
