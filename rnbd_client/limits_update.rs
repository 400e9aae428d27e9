// SPDX-License-Identifier: GPL-2.0

//! Has the disk here the limits that the server's disk has by now.
//!
//! A disk's limits change while none of its requests is in flight, and no new request is let in
//! meanwhile. Requests may be in flight for long: the server's disk may hang, and the requests of a
//! lost session may be held. So each device has a work item of its own for that, which nothing
//! waits for. It gives up when the device is not mapped any more, since the server says the limits
//! again when it opens the device again; and after [`LONGEST_WAIT_MS`], to try again later.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    block::mq::{
        gen_disk::GenDisk,
        limits::ChangingLimits, //
    },
    impl_has_delayed_work,
    kobject::{
        uevent,
        Uevent, //
    },
    new_delayed_work,
    prelude::*,
    workqueue::{
        DelayedWork,
        DelayedWorkItem,
        QueueHandle, //
    }, //
};
use proto::{
    device_state::DeviceState,
    rnbd::DiskLimits,
    text::Text, //
};

use crate::{
    queue::Queue,
    remote_device::{
        device_log,
        RemoteDevice, //
    }, //
};

/// How long new requests of the disk wait for those in flight, in ms.
const LONGEST_WAIT_MS: i64 = 2000;

/// How long it takes until the next attempt, in ms; twice as long after each, [`DOUBLINGS`] times.
const RETRY_MS: u32 = 1000;
const DOUBLINGS: u32 = 5;

/// The bytes of a log line about what has changed.
const CHANGES_LEN: usize = 360;

/// The limits that a device's disk has, and those that it is to have.
#[pin_data]
pub(crate) struct LimitsUpdate {
    remote: Arc<RemoteDevice>,
    #[pin]
    state: Mutex<State>,
    /// Gives the disk the limits that it is to have.
    #[pin]
    work: DelayedWork<Self>,
}

/// # Invariants
///
/// The work is queued, or runs, while there is a disk, `wanted` is another than `given`, and the
/// device is mapped.
struct State {
    /// What the disk was given last, or refused; `None` until it is made.
    given: Option<DiskLimits>,
    /// What the server has told last.
    wanted: Option<DiskLimits>,
    /// Attempts that have failed since.
    attempts: u32,
    /// Nothing before the disk is made and when it is to be removed.
    disk: Option<Arc<GenDisk<Queue>>>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for LimitsUpdate { self.work }
}

impl LimitsUpdate {
    /// For a device that the server has not opened yet; works on `queue`. Sleeps.
    pub(crate) fn new(remote: Arc<RemoteDevice>, queue: &QueueHandle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                remote,
                state <- new_mutex!(
                    State {
                        given: None,
                        wanted: None,
                        attempts: 0,
                        disk: None,
                    },
                    "LimitsUpdate::state"
                ),
                work <- new_delayed_work!(queue, "LimitsUpdate::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The disk is about to be made with these limits. Sleeps.
    pub(crate) fn begin(&self, limits: DiskLimits) {
        self.state.lock().given = Some(limits);
    }

    /// There is a disk now. Sleeps.
    pub(crate) fn set_disk(self: &Arc<Self>, disk: Arc<GenDisk<Queue>>) {
        self.state.lock().disk = Some(disk);
        // It may have been told meanwhile.
        self.queue_in(0);
    }

    /// The server's disk has these limits. Sleeps, but waits for no request.
    pub(crate) fn tell(self: &Arc<Self>, limits: DiskLimits) {
        {
            let mut state = self.state.lock();
            state.wanted = Some(limits);
            state.attempts = 0;
            if state.given == Some(limits) {
                return;
            }
        }
        self.queue_in(0);
    }

    /// Lets go of the disk: when this returns nothing here uses it, and nothing will. The device is
    /// unmapped, so requests in flight are not waited for. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        let disk = self.state.lock().disk.take();
        DelayedWork::<Self>::cancel_sync(self);
        drop(disk);
    }

    /// Has the work done in `delay` ms. Any context.
    fn queue_in(self: &Arc<Self>, delay: u32) {
        // If it waits for another attempt it comes earlier.
        let _ = DelayedWork::<Self>::modify(self.clone(), msecs_to_jiffies(delay));
    }

    /// The disk, the limits that it has, and those that it is to have; nothing if they are the
    /// same.
    fn next(&self) -> Option<(Arc<GenDisk<Queue>>, DiskLimits, DiskLimits)> {
        let state = self.state.lock();
        let (given, wanted) = (state.given?, state.wanted?);
        (given != wanted).then_some(())?;
        Some((state.disk.clone()?, given, wanted))
    }

    /// Whether the server has the device open, so that requests in flight may end.
    fn is_mapped(&self) -> bool {
        self.remote.state() == DeviceState::Mapped
    }

    /// Gives the disk the limits.
    fn change(&self, disk: &GenDisk<Queue>, limits: &DiskLimits) -> Result {
        let began = Instant::<Monotonic>::now();
        let limits = ChangingLimits {
            physical_block_size: limits.physical_block_size,
            io_opt: self.remote.server.transport.max_io_size(),
            max_discard_sectors: limits.max_discard_sectors,
            discard_granularity: limits.discard_granularity,
            discard_alignment: limits.discard_alignment,
            max_secure_erase_sectors: limits.max_secure_erase_sectors,
            max_write_zeroes_sectors: limits.max_write_zeroes_sectors,
        };
        disk.change_limits(&limits, || {
            self.is_mapped() && began.elapsed().as_millis() < LONGEST_WAIT_MS
        })
    }

    /// The disk was given these limits, or cannot have them, for which it is not asked again.
    fn note_given(self: &Arc<Self>, limits: DiskLimits) {
        let is_wanted = {
            let mut state = self.state.lock();
            state.given = Some(limits);
            state.wanted == Some(limits)
        };
        if !is_wanted {
            // It was told of others meanwhile, which may be those of before.
            self.queue_in(0);
        }
    }

    /// Requests were in flight for too long; returns in how many ms to try again, if that makes
    /// sense.
    fn note_failed(&self) -> Option<u32> {
        let mut state = self.state.lock();
        let attempt = state.attempts.min(DOUBLINGS);
        state.attempts = attempt.wrapping_add(1);
        self.is_mapped().then_some(RETRY_MS << attempt)
    }
}

impl DelayedWorkItem for LimitsUpdate {
    fn run(this: Arc<Self>) {
        let Some((disk, before, after)) = this.next() else {
            return;
        };
        if !this.is_mapped() {
            return;
        }
        match this.change(&disk, &after) {
            Ok(()) => {
                this.note_given(after);
                kernel_ext::ratelimited!(device_log!(
                    pr_info,
                    this.remote,
                    "The server's disk has other limits now: {}",
                    Text::<CHANGES_LEN>::of(&before.changes(&after)).as_str()
                ));
                let _ = uevent(&*disk, Uevent::Change);
            }
            Err(EBUSY) => {
                if let Some(delay) = this.note_failed() {
                    // Not if it was told of others meanwhile.
                    let _ = DelayedWork::<Self>::queue(this, msecs_to_jiffies(delay));
                }
            }
            Err(error) => {
                this.note_given(after);
                kernel_ext::ratelimited!(device_log!(
                    pr_err,
                    this.remote,
                    "The limits of the server's disk cannot be taken over ({}), err: {}",
                    Text::<CHANGES_LEN>::of(&before.changes(&after)).as_str(),
                    error.to_errno()
                ));
            }
        }
    }
}
