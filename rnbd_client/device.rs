// SPDX-License-Identifier: GPL-2.0

//! A device of a server and the disk that stands for it here.

use core::mem;
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    block::mq::{
        gen_disk::GenDisk,
        timed_requests::TimedRequests, //
    },
    kobject::{
        uevent,
        Uevent, //
    },
    mm::without_io,
    prelude::*,
    static_key::ClientTimes,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::{
            Completion,
            KillableMutex, //
        },
        set_once::SetOnce, //
    },
    workqueue::QueueHandle, //
};
use proto::{
    device_state::DeviceState,
    latency::CLIENT_STAGES,
    rnbd::{
        DiskLimits,
        NewsRsp,
        OpenRsp,
        Wwid, //
    }, //
};
use rtrs_core::{
    error::from_errno,
    latency::Lease, //
};

use crate::{
    fixed_limits::FixedLimits,
    limits_update::LimitsUpdate,
    queue::Queue,
    remote_device::{
        device_log,
        RemoteDevice, //
    }, //
};

/// The block layer's default of `queue/io_timeout`, in ms.
const DEFAULT_TIMEOUT_MS: u32 = 30_000;

/// Limits for how long the times of requests are counted, and holds what the block layer needs for
/// that.
type ClientLease = Lease<(TimedRequests<Queue>, ClientTimes), { CLIENT_STAGES.len() }>;

/// A device and its disk.
#[pin_data]
pub(crate) struct Device {
    pub(crate) remote: Arc<RemoteDevice>,
    /// The limits that the disk keeps; set when the server opens the device for the first time.
    fixed_limits: SetOnce<FixedLimits>,
    /// The limits that may change.
    limits_update: Arc<LimitsUpdate>,
    /// Limits for how long the times of the device's requests are counted.
    lease: Arc<ClientLease>,
    /// Pending uevents: that the device is closed, and that it is open again.
    is_offline: Atomic<bool>,
    is_online: Atomic<bool>,
    /// The server has told another size, which the disk does not have yet.
    is_resized: Atomic<bool>,
    /// Has the server close the device in the background, for [`Self::remove`].
    #[pin]
    close_work: Work<Self>,
    /// `close_work` has run.
    #[pin]
    closed: Completion,
    /// The queue of `close_work`.
    queue: QueueHandle,
    /// Lets one task at a time have the server open the device again.
    #[pin]
    opening: KillableMutex,
    /// `None` before the disk is made and after it was removed.
    #[pin]
    disk: Mutex<Option<Arc<GenDisk<Queue>>>>,
}

impl_has_work! {
    impl HasWork<Self> for Device { self.close_work }
}

impl WorkItem for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.close();
        this.closed.complete_all();
    }
}

impl Device {
    /// Makes a device without a disk; `queue` is for work that waits for requests. Sleeps.
    pub(crate) fn new(remote: Arc<RemoteDevice>, queue: &QueueHandle) -> Result<Arc<Self>> {
        let limits_update = LimitsUpdate::new(remote.clone(), queue)?;
        let lease = ClientLease::new(remote.latency.clone(), queue)?;
        Arc::pin_init(
            pin_init!(Self {
                remote,
                fixed_limits: SetOnce::new(),
                limits_update,
                lease,
                is_offline: Atomic::new(false),
                is_online: Atomic::new(false),
                is_resized: Atomic::new(false),
                close_work <- new_work!("Device::close_work"),
                closed <- Completion::new(),
                queue: queue.clone(),
                opening <- KillableMutex::new(),
                disk <- new_mutex!(None, "Device::disk"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has the server open the device for the first time. Sleeps.
    pub(crate) fn open(&self) -> Result<OpenRsp> {
        let remote = &self.remote;
        loop {
            let opened = remote.open()?;
            match remote.opened_by_server(&opened.response, opened.epoch, || {}) {
                Ok(_) => {
                    self.fixed_limits.populate(FixedLimits::of(&opened));
                    self.limits_update
                        .begin(DiskLimits::of_open(&opened.response));
                    remote.set_wwid(opened.identity.map_or(Wwid::NONE, |identity| identity.wwid));
                    return Ok(opened.response);
                }
                // The server may have opened the device in its present session, where no task would
                // close it. Asking again makes no difference to the server. Without a path this
                // ends.
                Err(ECONNABORTED) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets the disk, and gives it the size that the server's disk has by now. Sleeps.
    pub(crate) fn set_disk(&self, disk: GenDisk<Queue>) -> Result {
        let disk = Arc::new(disk, GFP_KERNEL)?;
        let mut place = self.disk.lock();
        self.limits_update.set_disk(disk.clone());
        // If the device was opened again meanwhile, there was no disk yet to be resized.
        self.change_capacity(place.insert(disk), self.remote.nsectors())
    }

    /// Calls `run` with the disk, which is not removed meanwhile; `ENOENT` if there is none.
    /// Sleeps.
    pub(crate) fn with_disk<R>(&self, run: impl FnOnce(&GenDisk<Queue>) -> Result<R>) -> Result<R> {
        run(self.disk.lock().as_deref().ok_or(ENOENT)?)
    }

    /// Removes the disk and has the server close the device, after the change to `Unmapped` from
    /// state `was`. Sleeps, until all requests in flight have ended.
    pub(crate) fn remove(self: &Arc<Self>, was: DeviceState) {
        let disk = mem::take(&mut *self.disk.lock());
        self.limits_update.stop();
        let (timed, key) = self.lease.stop().unzip();
        drop(timed);
        // No program can open the disk any more.
        let is_closing = match &disk {
            Some(disk) if was != DeviceState::Init && !self.remote.has_users() => {
                disk.freeze();
                // While the disk is removed: both wait for grace periods. It fails if the queue is
                // being destroyed.
                self.queue.enqueue::<Self, 0>(self.clone()).is_ok()
            }
            _ => false,
        };
        // Usually this is the last reference, so the disk is removed now. If the work of the lease
        // is just ending the lease, the disk may be removed there.
        drop(disk);
        self.lease.cancel();
        // Not earlier: this waits for a CPU that is being taken offline, and that CPU waits for
        // requests.
        drop(key);
        if is_closing {
            // A task that is killed leaves the server to the work.
            let _ = self.closed.wait_killable();
        } else if was != DeviceState::Init {
            self.close();
        }
    }

    /// Has the server close the device, when no request is in flight any more. Sleeps.
    fn close(&self) {
        // The server knows a device by its path, so the device must be closed after the last time
        // that it was opened. It must be closed only once: the number is another device's then.
        if self.opening.lock_killable().is_ok() {
            self.remote.close();
        }
    }

    /// Asks the server to open the device again. Sleeps.
    ///
    /// `ENODEV`, `EALREADY` or `EBUSY` if the device is not disconnected, the server's error.
    pub(crate) fn remap(&self) -> Result {
        self.remote.state().check_remap().map_err(from_errno)?;
        device_log!(pr_info, self.remote, "Remapping device.");
        without_io(|| self.reopen()).inspect_err(|error| {
            device_log!(
                pr_err,
                self.remote,
                "remap_device failed, err: {}",
                error.to_errno()
            );
        })?;
        self.send_uevents()
    }

    /// Has the server open the device again; [`Self::send_uevents`] is to follow. Sleeps.
    ///
    /// Requests may wait for this.
    fn reopen(&self) -> Result {
        let remote = &*self.remote;
        let opening = self.opening.lock_killable()?;
        if remote.state() == DeviceState::Unmapped {
            return Err(ENODEV);
        }
        let opened = remote.open().inspect_err(|error| {
            kernel_ext::ratelimited!(device_log!(
                pr_err,
                remote,
                "Opening failed, server responded: {}",
                error.to_errno()
            ));
        })?;
        if let Some(Err(error)) = self
            .fixed_limits
            .as_ref()
            .map(|limits| limits.check(remote, &FixedLimits::of(&opened)))
        {
            if remote.refused_by_limits(&opened.response, opened.epoch) {
                // The error that was found is the one to report.
                let _ = remote.server.close(opened.response.device_id, opened.epoch);
            }
            return Err(error);
        }
        let before = remote.opened_by_server(&opened.response, opened.epoch, || {
            self.is_online.store(true, ordering::Release);
        })?;
        self.limits_update
            .opened_again(DiskLimits::of_open(&opened.response));
        drop(opening);
        if before == DeviceState::Disconnected {
            kernel_ext::ratelimited!(device_log!(
                pr_info,
                remote,
                "Device online, device remapped successfully"
            ));
        }
        Ok(())
    }

    /// Opens the device again, since the session has a path again; `is_first` for the first attempt
    /// since then. Process context of the module's own; sleeps.
    ///
    /// The server's error, which has been logged, or `ENOMEM`.
    pub(crate) fn link_is_back(&self, is_first: bool) -> Result {
        if matches!(
            self.remote.state(),
            DeviceState::Init | DeviceState::Unmapped
        ) {
            // The task that is mapping the device gets an error.
            return Ok(());
        }
        if is_first {
            kernel_ext::ratelimited!(device_log!(
                pr_info,
                self.remote,
                "session reconnected, remapping device"
            ));
        }
        self.reopen()
    }

    /// Has [`Self::send_uevents`] tell that the device is closed. Any context.
    pub(crate) fn note_link_lost(&self) {
        if self.remote.state() == DeviceState::Disconnected {
            // A pending event that the device is open is outdated.
            self.is_online.store(false, ordering::Release);
            self.is_offline.store(true, ordering::Release);
        }
    }

    /// Takes the server's news of this device in `epoch`. If there are news, [`Self::send_uevents`]
    /// is to follow, and this returns true. Sleeps, but waits for nothing that requests may wait
    /// for.
    pub(crate) fn take_news(&self, response: &NewsRsp<'_>, epoch: u32) -> bool {
        if self.remote.take_close(response, epoch) {
            self.note_link_lost();
            return true;
        }
        let Some((news, is_resized)) = self.remote.take_news(response, epoch) else {
            return false;
        };
        if is_resized {
            self.is_resized.store(true, ordering::Release);
        }
        if let Some(limits) = self.fixed_limits.as_ref() {
            // If the disk's fixed limits have changed, requests in the old blocks may fail, as they
            // do on a disk of this machine; the change was logged.
            if limits
                .check(&self.remote, &FixedLimits::of_news(&news))
                .is_ok()
            {
                self.limits_update.tell(DiskLimits::of_news(&news));
            }
        }
        true
    }

    /// Sends pending uevents, and gives the disk the size and the read-only state that the server
    /// told. Sleeps.
    ///
    /// uevents allocate, and wait for other senders of uevents, so the completion of requests must
    /// never depend on this. `ENOENT` if there is no disk; the uevents stay pending then.
    pub(crate) fn send_uevents(&self) -> Result {
        self.with_disk(|disk| {
            if self.is_offline.xchg(false, ordering::Full) {
                let _ = uevent(disk, Uevent::Offline);
            }
            if self.is_online.xchg(false, ordering::Full) {
                self.change_capacity(disk, self.remote.nsectors())?;
                let _ = uevent(disk, Uevent::Online);
            }
            // Only then: the administrator may have set another size since.
            if self.is_resized.xchg(false, ordering::Full) {
                self.change_capacity(disk, self.remote.nsectors())?;
            }
            disk.set_read_only(self.remote.is_read_only());
            Ok(())
        })
    }

    /// Has requests end to which the server does not respond within `ms`, from now on; 0: no limit.
    /// `ENOENT` without a disk. Sleeps.
    pub(crate) fn set_io_timeout(&self, ms: u32) -> Result {
        self.with_disk(|disk| {
            // While no request is ended, the block layer's own default does no harm.
            disk.set_request_timeout(if ms == 0 { DEFAULT_TIMEOUT_MS } else { ms });
            self.remote.set_io_timeout_ms(ms);
            Ok(())
        })
    }

    /// Has the times of requests counted for `seconds`; 0: no longer. `ENOENT` without a disk.
    /// Sleeps.
    pub(crate) fn set_latency_seconds(&self, seconds: u32) -> Result {
        if seconds == 0 {
            drop(self.lease.stop());
            return Ok(());
        }
        // The key is made and, if the lease has one already, dropped without the lock. Either waits
        // for a CPU that is being taken offline. That CPU waits for requests, which the removal of
        // the disk may have to end.
        let mut key = Some(ClientTimes::new());
        // Locked until the lease is set: the disk is taken out before the lease is stopped.
        let disk = self.disk.lock();
        let disk = disk.as_ref().ok_or(ENOENT)?;
        self.lease.set(seconds, || {
            let key = key.take().ok_or(EINVAL)?;
            Ok((TimedRequests::new(disk.clone()), key))
        })
    }

    /// For how many seconds the times of requests are still counted. Sleeps.
    pub(crate) fn latency_seconds(&self) -> u64 {
        self.lease.seconds_left()
    }

    /// Sets the disk's size in sectors. `ENOENT` if the device is not mapped, `EINVAL` for more
    /// than a disk can have. Sleeps.
    pub(crate) fn resize(&self, sectors: u64) -> Result {
        if self.remote.state() != DeviceState::Mapped {
            device_log!(
                pr_err,
                self.remote,
                "Failed to set new size of the device, device is not opened: write the size again \
                 when the device's state is open"
            );
            return Err(ENOENT);
        }
        self.with_disk(|disk| self.change_capacity(disk, sectors))
    }

    fn change_capacity(&self, disk: &GenDisk<Queue>, sectors: u64) -> Result {
        let before = disk.capacity();
        if before == sectors {
            return Ok(());
        }
        disk.set_capacity(sectors)?;
        kernel_ext::ratelimited!(device_log!(
            pr_info,
            self.remote,
            "Device size changed from {} to {} sectors",
            before,
            sectors
        ));
        Ok(())
    }
}
