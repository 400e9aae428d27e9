// SPDX-License-Identifier: GPL-2.0

//! Gives the disk here the present limits of the server's disk.
//!
//! A disk's limits change while none of its requests is in flight, and no new request is let in
//! meanwhile. Requests may be in flight for long: the server's disk may hang, and the requests of a
//! lost session may be held. So each device has a work item of its own for that. Only the removal
//! of the disk waits for the work item. The work item gives up when the device is not mapped any
//! more, since the server tells the limits again when it opens the device again. It also gives up
//! after [`LONGEST_WAIT_MS`], to try again later.
//!
//! Between two attempts new requests are let in for a second at least, whatever the server tells
//! meanwhile, and for longer after each attempt that has failed. Only opening the device again
//! ends that pause.

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

/// The pause after an attempt, in ms. It doubles after each failed attempt, [`DOUBLINGS`] times.
const PAUSE_MS: u32 = 1000;
const DOUBLINGS: u32 = 5;

/// The length of a log line about changed limits, in bytes.
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
/// The work is queued or runs, or a task is about to queue the work, while all of this holds:
///
/// - There is a disk.
/// - The disk does not have the limits that follow from `wanted`.
/// - The device is mapped.
struct State {
    /// The limits that the disk was given last, or has refused; `None` until the disk is made.
    given: Option<DiskLimits>,
    /// The limits that the server has told last.
    wanted: Option<DiskLimits>,
    /// The disk has lost writes of zeroes since the server opened the device.
    lost_zeroes: bool,
    /// The number of attempts that have failed since the last success, or since the device was
    /// opened again.
    failed: u32,
    /// When the last attempt ended, and the pause in ms that follows it; `None` if there is none.
    pause: Option<(Instant<Monotonic>, u32)>,
    /// `None` before the disk is made, and once it is to be removed.
    disk: Option<Arc<GenDisk<Queue>>>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for LimitsUpdate { self.work }
}

impl LimitsUpdate {
    /// Makes the state of a device that the server has not opened yet; works on `queue`. Sleeps.
    pub(crate) fn new(remote: Arc<RemoteDevice>, queue: &QueueHandle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                remote,
                state <- new_mutex!(
                    State {
                        given: None,
                        wanted: None,
                        lost_zeroes: false,
                        failed: 0,
                        pause: None,
                        disk: None,
                    },
                    "LimitsUpdate::state"
                ),
                work <- new_delayed_work!(queue, "LimitsUpdate::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Notes the limits with which the disk is about to be made. Sleeps.
    pub(crate) fn begin(&self, limits: DiskLimits) {
        self.state.lock().given = Some(limits);
    }

    /// Sets the disk, which was just made. Sleeps.
    pub(crate) fn set_disk(self: &Arc<Self>, disk: Arc<GenDisk<Queue>>) {
        self.state.lock().disk = Some(disk);
        // The server may have told limits in the meantime.
        self.queue();
    }

    /// Takes the limits of the server's disk. The disk here gets them when the pause after the last
    /// attempt is over. Sleeps, but waits for no request.
    pub(crate) fn tell(self: &Arc<Self>, limits: DiskLimits) {
        self.state.lock().wanted = Some(limits);
        self.queue();
    }

    /// Takes the limits of the server's disk, when the server has opened the device again. Sleeps,
    /// but waits for no request.
    pub(crate) fn opened_again(self: &Arc<Self>, limits: DiskLimits) {
        let mut state = self.state.lock();
        state.wanted = Some(limits);
        state.lost_zeroes = false;
        state.failed = 0;
        state.pause = None;
        // The work may wait for the end of the pause. It is queued with `state` held, so that no
        // other task queues it in between for the old pause.
        let _ = DelayedWork::<Self>::modify(self.clone(), 0);
    }

    /// Lets go of the disk: when this returns nothing here uses the disk, and nothing will. The
    /// device is unmapped, so requests in flight are not waited for. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        let disk = self.state.lock().disk.take();
        DelayedWork::<Self>::cancel_sync(self);
        drop(disk);
    }

    /// Queues the work for the end of the pause, if there is something to do. Sleeps.
    fn queue(self: &Arc<Self>) {
        let state = self.state.lock();
        if state.change().is_none() {
            return;
        }
        let delay = msecs_to_jiffies(state.pause_left());
        // If the work is queued already, it runs no later.
        let _ = DelayedWork::<Self>::queue(self.clone(), delay);
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

    /// Notes that the disk was given these limits, or cannot have them; it is not given them again.
    fn note_given(&self, limits: DiskLimits) {
        let mut state = self.state.lock();
        let before = state.given.replace(limits);
        state.lost_zeroes |= before.is_some_and(|before| before.loses_zeroes(&limits));
        state.failed = 0;
        state.pause = Some((Instant::now(), PAUSE_MS));
    }

    /// Notes that requests were in flight for too long, or that another task was changing limits.
    fn note_failed(&self) {
        let mut state = self.state.lock();
        let failed = state.failed.min(DOUBLINGS);
        state.failed = failed.wrapping_add(1);
        state.pause = Some((Instant::now(), PAUSE_MS << failed));
    }
}

impl State {
    /// The disk, the limits that it has, and those that it is to have; `None` if the two are the
    /// same.
    fn change(&self) -> Option<(Arc<GenDisk<Queue>>, DiskLimits, DiskLimits)> {
        let given = self.given?;
        let after = given.follow(&self.wanted?, self.lost_zeroes);
        (given != after).then_some(())?;
        Some((self.disk.clone()?, given, after))
    }

    /// The rest of the pause in ms.
    fn pause_left(&self) -> u32 {
        let Some((since, pause)) = self.pause else {
            return 0;
        };
        match u32::try_from(since.elapsed().as_millis()) {
            Ok(elapsed) if elapsed < pause => pause.wrapping_sub(elapsed),
            _ => 0,
        }
    }
}

impl DelayedWorkItem for LimitsUpdate {
    fn run(this: Arc<Self>) {
        if !this.is_mapped() {
            // Opening the device again queues the work.
            return;
        }
        let change = {
            let state = this.state.lock();
            // During the last attempt, before there was a pause, the server may have told limits.
            if state.pause_left() == 0 {
                state.change()
            } else {
                None
            }
        };
        let Some((disk, before, after)) = change else {
            this.queue();
            return;
        };
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
            Err(EBUSY) => this.note_failed(),
            Err(error) => {
                this.note_given(after);
                kernel_ext::ratelimited!(device_log!(
                    pr_err,
                    this.remote,
                    "The device cannot take over the new limits of the server's disk ({}), err: \
                     {}; the device keeps its limits",
                    Text::<CHANGES_LEN>::of(&before.changes(&after)).as_str(),
                    error.to_errno()
                ));
            }
        }
        // For another attempt, or for limits that the server has told meanwhile.
        this.queue();
    }
}
