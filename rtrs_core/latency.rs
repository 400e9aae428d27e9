// SPDX-License-Identifier: GPL-2.0

//! Where the time of requests goes: histograms of either end (`proto::latency`).
//!
//! Requests are counted only for as many seconds as an administrator asks for ([`Lease`]). So a
//! program that was killed leaves nothing switched on, and several programs need not know of each
//! other. The counts stay afterwards, and only grow.

use kernel::{
    static_lock_class,
    sync::{
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};
use kernel_ext::{
    cpu,
    impl_has_delayed_work,
    lock_class_name,
    new_delayed_work,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    },
    sysfs::SysfsOutput,
    time::monotonic_ns,
    workqueue::{
        DelayedWork,
        DelayedWorkItem,
        QueueHandle, //
    }, //
};
use proto::latency::{
    self,
    Kind,
    BUCKETS, //
};

/// The counters of a histogram: its buckets, and the sum of the times in ns.
const COUNTERS: usize = BUCKETS + 1;

/// The counters of a CPU.
type Row = KVVec<Atomic<u64>>;

/// The interval at which the work looks for the end of a lease, in ms.
const TICK_MS: u64 = 1000;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The histograms of a device: one for each kind of request and each stage.
///
/// # Invariants
///
/// If `since_ns` is not 0, `rows` is set.
pub struct Latency<const STAGES: usize> {
    /// The time since which requests are counted; 0 while they are not.
    since_ns: Atomic<u64>,
    /// By number of the CPU. Made when requests are counted for the first time.
    rows: SetOnce<KVVec<Row>>,
}

impl<const STAGES: usize> Default for Latency<STAGES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const STAGES: usize> Latency<STAGES> {
    /// Makes histograms without counts.
    pub const fn new() -> Self {
        Self {
            since_ns: Atomic::new(0),
            rows: SetOnce::new(),
        }
    }

    /// The time since which requests are counted, as a value of `monotonic_ns()`. `None` while they
    /// are not. Any context.
    #[inline]
    pub fn since_ns(&self) -> Option<u64> {
        let since_ns = self.since_ns.load(ordering::Relaxed);
        (since_ns != 0).then_some(since_ns)
    }

    /// Counts a request that took so many ns in each stage, if requests are counted. Any context.
    pub fn count(&self, kind: Kind, stages: [u64; STAGES]) {
        if self.since_ns().is_none() {
            return;
        }
        let row = self.rows.as_ref();
        // The task may be on another CPU by now, so each addition is atomic.
        let Some(row) = row.and_then(|rows| rows.get(cpu::current_cpu() as usize)) else {
            return;
        };
        for (stage, ns) in stages.into_iter().enumerate() {
            let Some(counters) = row.get(Self::place(kind, stage)..) else {
                return;
            };
            if let Some(count) = counters.get(latency::bucket(ns)) {
                count.add(1u64, ordering::Relaxed);
            }
            if let Some(sum) = counters.get(BUCKETS) {
                sum.add(ns, ordering::Relaxed);
            }
        }
    }

    /// The index of a histogram's first counter in a row.
    fn place(kind: Kind, stage: usize) -> usize {
        // Both factors are small.
        let histogram = kind.index().wrapping_mul(STAGES).wrapping_add(stage);
        histogram.wrapping_mul(COUNTERS)
    }

    /// Writes a histogram to a file. `proto::latency` has the format. Sleeps.
    pub fn show(&self, kind: Kind, stage: usize, out: &mut SysfsOutput<'_>) -> Result {
        let mut sums = KVec::from_elem(0u64, COUNTERS, GFP_KERNEL)?;
        let rows = self.rows.as_ref().map_or(&[][..], |rows| rows);
        for row in rows {
            let counters = row.get(Self::place(kind, stage)..).ok_or(EIO)?;
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum = sum.wrapping_add(counter.load(ordering::Relaxed));
            }
        }
        let (buckets, ns) = sums.split_at_checked(BUCKETS).ok_or(EIO)?;
        let requests = buckets
            .iter()
            .fold(0u64, |sum, count| sum.wrapping_add(*count));
        let ns = ns.first().ok_or(EIO)?;
        out.print(fmt!("requests {}\nns {}\n", requests, *ns))?;
        for (bucket, count) in buckets.iter().enumerate() {
            if *count != 0 {
                out.print(fmt!("{} {}\n", latency::least_ns(bucket), *count))?;
            }
        }
        Ok(())
    }

    /// Makes the counters, unless they are made already. Sleeps.
    fn make_rows(&self) -> Result {
        if self.rows.as_ref().is_some() {
            return Ok(());
        }
        let len = Self::place(Kind::Read, Kind::ALL.len().wrapping_mul(STAGES));
        let mut rows = KVVec::new();
        for _ in 0..cpu::nr_cpu_ids() {
            let mut row = Row::with_capacity(len, GFP_KERNEL)?;
            for _ in 0..len {
                row.push(Atomic::new(0), GFP_KERNEL)?;
            }
            rows.push(row, GFP_KERNEL)?;
        }
        // Another task may have made them meanwhile.
        self.rows.populate(rows);
        Ok(())
    }
}

/// For how long the requests of a device are counted. A value of type `H` is held meanwhile.
///
/// # Invariants
///
/// Whenever `state` is not locked and its `held` is `Some`:
///
/// - The work is queued or runs, or the task that has set `held` is about to queue the work.
/// - `since_ns` of the histograms is not 0.
#[pin_data]
pub struct Lease<H: Send + Unpin + 'static, const STAGES: usize> {
    latency: Arc<Latency<STAGES>>,
    #[pin]
    state: Mutex<State<H>>,
    /// Ends the lease.
    #[pin]
    work: DelayedWork<Lease<H, STAGES>>,
}

/// The state of a [`Lease`].
struct State<H> {
    /// The end of the lease, as a value of `monotonic_ns()`.
    until_ns: u64,
    held: Option<H>,
}

impl_has_delayed_work! {
    impl{H: Send + Unpin + 'static, const STAGES: usize} HasDelayedWork<Self> for Lease<H, STAGES> {
        self.work
    }
}

impl<H: Send + Unpin + 'static, const STAGES: usize> Lease<H, STAGES> {
    /// Makes a lease that has ended, for the histograms `latency`. Its work runs on `queue`.
    /// Sleeps.
    pub fn new(latency: Arc<Latency<STAGES>>, queue: &QueueHandle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                latency,
                state <- Mutex::new(
                    State {
                        until_ns: 0,
                        held: None,
                    },
                    lock_class_name!("Lease::state"),
                    static_lock_class!()
                ),
                work <- new_delayed_work!(queue, "Lease::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has requests counted for `seconds` from now on. An earlier call that asked for a later end
    /// stays in force. If the lease has ended, `hold` makes the value that the lease keeps while
    /// requests are counted. Sleeps. `ENOMEM`, and the errors of `hold`.
    pub fn set(self: &Arc<Self>, seconds: u32, hold: impl FnOnce() -> Result<H>) -> Result {
        self.latency.make_rows()?;
        let mut state = self.state.lock();
        if state.held.is_none() {
            state.held = Some(hold()?);
            // The time is not 0, as the machine was started some time ago.
            let since_ns = monotonic_ns().max(1);
            self.latency.since_ns.store(since_ns, ordering::Relaxed);
        }
        let time_ns = u64::from(seconds).wrapping_mul(NS_PER_S);
        state.until_ns = state.until_ns.max(monotonic_ns().wrapping_add(time_ns));
        drop(state);
        // If the work is queued already, it finds the new end.
        self.queue();
        Ok(())
    }

    /// How many seconds are left, rounded up: at least 1 while requests are counted, 0 after that.
    /// Sleeps.
    pub fn seconds_left(&self) -> u64 {
        let state = self.state.lock();
        match state.held {
            // The value is held, and requests are counted, until the work runs after the end.
            Some(_) => Self::left_ns(&state).div_ceil(NS_PER_S).max(1),
            None => 0,
        }
    }

    /// Ends the lease, and returns the value that was held. Sleeps, but does not wait long.
    /// Dropping the value may take long.
    pub fn stop(&self) -> Option<H> {
        self.end(&mut self.state.lock())
    }

    /// Waits until the work has dropped a value that it may just have taken. After [`Self::stop`],
    /// and without a later [`Self::set`]. Sleeps; must not be called in that work.
    pub fn cancel(self: &Arc<Self>) {
        DelayedWork::<Self>::cancel_sync(self);
    }

    fn left_ns(state: &State<H>) -> u64 {
        let now_ns = monotonic_ns();
        // `max` has made the first operand no less than the second.
        state.until_ns.max(now_ns).wrapping_sub(now_ns)
    }

    /// Ends the counting. The returned value is to be dropped without the lock.
    fn end(&self, state: &mut State<H>) -> Option<H> {
        self.latency.since_ns.store(0, ordering::Relaxed);
        state.until_ns = 0;
        state.held.take()
    }

    /// Queues the work that looks for the end.
    fn queue(self: &Arc<Self>) {
        let ms = Self::left_ns(&self.state.lock()) / NS_PER_MS;
        // One more, as the division rounds down. The sum fits.
        let ms = ms.min(TICK_MS).wrapping_add(1) as u32;
        let _ = DelayedWork::<Self>::queue(self.clone(), msecs_to_jiffies(ms));
    }
}

impl<H: Send + Unpin + 'static, const STAGES: usize> DelayedWorkItem for Lease<H, STAGES> {
    fn run(this: Arc<Self>) {
        let held = {
            let mut state = this.state.lock();
            if state.held.is_none() {
                return;
            }
            match Self::left_ns(&state) {
                0 => this.end(&mut state),
                _ => None,
            }
        };
        // The lock is not held here: `queue` takes it, and dropping `held` may take long.
        if held.is_none() {
            this.queue();
        }
    }
}
