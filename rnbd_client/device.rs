// SPDX-License-Identifier: GPL-2.0

//! A mapped device.

use core::mem;
use kernel::{
    c_str,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    block::{
        mq::{
            gen_disk::GenDisk,
            operations::OpenMode,
            request::Op, //
        },
        status::Status, //
    },
    ida::IdaNumber,
    kobject::{
        uevent,
        Uevent, //
    },
    mm::without_io,
    module::ModuleReference,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Turn,
        set_once::SetOnce, //
    },
    sysfs::{
        Directory,
        Link, //
    }, //
};
use proto::{
    device_state::{
        DeviceEvent,
        DeviceState, //
    },
    map_options::MapOptions,
    name::Name,
    rnbd::{
        AccessMode,
        OpenRsp, //
    }, //
};
use rtrs_client::SubmitError;
use rtrs_core::error::from_errno;

use crate::{
    client::{
        Client,
        SessionUser, //
    },
    queue::Queue,
    remote,
    session::Session,
    shape::Shape,
    sysfs,
    RnbdClient, //
};

/// Logs a line about a device, as `<path@session> …`.
macro_rules! device_log {
    ($log:ident, $device:expr, $($message:tt)+) => {
        $log!(
            "<{}@{}> {}\n",
            $device.path.as_cstr(),
            $device.session.name.as_cstr(),
            fmt!($($message)+)
        )
    };
}
pub(crate) use device_log;

/// A device of a server, and the disk that stands for it here.
#[pin_data]
pub(crate) struct Device {
    pub(crate) session: Arc<Session>,
    /// The device's path on the server.
    pub(crate) path: Name,
    pub(crate) access_mode: AccessMode,
    pub(crate) nr_poll_queues: u32,
    index: IdaNumber,
    /// The server's number; valid while the device is mapped.
    device_id: Atomic<u32>,
    /// The session's epoch in which it gave that number.
    epoch: Atomic<u32>,
    /// The size in sectors that it told with that number.
    nsectors: Atomic<u64>,
    /// Whether the disk with that number has a volatile write cache; as valid as the number.
    write_cache: Atomic<bool>,
    /// What user space is to be told: that the device is closed, and that it is open again.
    is_offline: Atomic<bool>,
    is_online: Atomic<bool>,
    /// What the disk was made with; set when the server opens the device for the first time.
    shape: SetOnce<Shape>,
    /// A [`DeviceState`]; changed under the lock of `users`.
    state: Atomic<u32>,
    /// How often the disk is open.
    #[pin]
    users: Mutex<usize>,
    /// Lets one at a time have the server open the device again.
    #[pin]
    opening: Turn,
    #[pin]
    parts: Mutex<Parts>,
}

/// What a device consists of while it is mapped; dropped in this order.
#[derive(Default)]
struct Parts {
    link: Option<Link>,
    directory: Option<Directory<Device>>,
    disk: Option<GenDisk<Queue>>,
    user: Option<SessionUser>,
    /// While it is mapped, the module cannot be unloaded: nobody loses a disk by mistake.
    module: Option<ModuleReference>,
}

impl Device {
    /// Makes the device that `options` describe, and its disk. Sleeps.
    ///
    /// `EEXIST` if the session has one of this path, the server's error, and those of making a
    /// disk. Nothing is left of it after an error.
    pub(crate) fn map(client: &Arc<Client>, user: SessionUser, options: &MapOptions) -> Result {
        let session = user.session()?;
        let path = options.device_path;
        let index = client.new_index().inspect_err(|error| {
            pr_err!(
                "map_device: no index for device {} of session {}, err: {}\n",
                path.as_cstr(),
                session.name.as_cstr(),
                error.to_errno()
            );
        })?;
        let module = ModuleReference::new::<RnbdClient>()?;
        let device = Arc::pin_init(
            pin_init!(Self {
                session,
                path,
                access_mode: options.access_mode,
                nr_poll_queues: options.nr_poll_queues,
                index,
                device_id: Atomic::new(0),
                epoch: Atomic::new(0),
                nsectors: Atomic::new(0),
                write_cache: Atomic::new(true),
                is_offline: Atomic::new(false),
                is_online: Atomic::new(false),
                shape: SetOnce::new(),
                state: Atomic::new(DeviceState::Init.to_u32()),
                users <- new_mutex!(0, "Device::users"),
                opening <- Turn::new(),
                parts <- new_mutex!(
                    Parts { user: Some(user), module: Some(module), ..Parts::default() },
                    "Device::parts"
                ),
            }),
            GFP_KERNEL,
        )?;
        if let Err(error) = device.session.add_device(&device) {
            device.discard();
            return Err(error);
        }
        device.set_up(client).inspect_err(|_| {
            // Not if somebody has unmapped it already.
            if let Ok(was) = device.change_state(DeviceEvent::Unmap) {
                device.tear_down(was);
            }
        })
    }

    /// Opens the device at the server, and makes everything that others see of it.
    fn set_up(self: &Arc<Self>, client: &Arc<Client>) -> Result {
        let failed = |error: &Error| {
            device_log!(
                pr_err,
                self,
                "map_device: failed, can't open remote device, err: {}",
                error.to_errno()
            );
        };
        let answer = loop {
            let (answer, epoch) =
                remote::open(&self.session, &self.path, self.access_mode).inspect_err(failed)?;
            match self.opened_by_server(&answer, epoch) {
                Ok(_) => break answer,
                // The server may have opened it in the session that it has now, which nobody would
                // close. To be asked again makes no difference to it; without a path it ends here.
                Err(error) if error == ECONNABORTED => continue,
                Err(error) => return Err(error),
            }
        };

        self.shape.populate(Shape::of(&answer));
        let failed = |what: &'static str| {
            move |error: &Error| {
                device_log!(
                    pr_err,
                    self,
                    "map_device: failed to make its {}, err: {}",
                    what,
                    error.to_errno()
                );
            }
        };
        // Partitions are read now.
        let disk = self.add_disk(client, &answer).inspect_err(failed("disk"))?;
        // Nobody reaches the device before the directory is made; whoever unmaps it then waits
        // for this.
        let mut parts = self.parts.lock();
        let disk = parts.disk.insert(disk);
        // If the device was opened again meanwhile there was no disk to tell the new size.
        let nsectors = self.nsectors.load(ordering::Relaxed);
        self.change_capacity(disk, nsectors)
            .inspect_err(failed("size"))?;
        let name = c_str!("rnbd");
        let directory = Directory::new(disk, name, sysfs::DEVICE_ATTRIBUTES, self.clone());
        parts.directory = Some(directory.inspect_err(failed("sysfs directory"))?);
        if let Some(disk) = &parts.disk {
            let _ = uevent(disk, Uevent::Online);
            let link = client.link_device(self, disk);
            parts.link = Some(link.inspect_err(failed("sysfs link"))?);
        }
        drop(parts);
        // What has become of it since the server opened it. Not if it is unmapped already.
        let _ = self.tell_news();
        Ok(())
    }

    /// The number of the disk.
    pub(crate) fn index(&self) -> u32 {
        self.index.get()
    }

    /// The state.
    pub(crate) fn state(&self) -> DeviceState {
        let state = self.state.load(ordering::Acquire);
        DeviceState::try_from(state).unwrap_or(DeviceState::Unmapped)
    }

    /// Does what an event does to the state; returns the state before. Sleeps.
    fn change_state(&self, event: DeviceEvent) -> Result<DeviceState> {
        let _users = self.users.lock();
        self.change_state_locked(event)
    }

    /// As [`Self::change_state`], with the lock of `users` held.
    fn change_state_locked(&self, event: DeviceEvent) -> Result<DeviceState> {
        let before = self.state();
        let after = before.next(event).map_err(from_errno)?;
        self.state.store(after.to_u32(), ordering::Release);
        Ok(before)
    }

    /// The server's number, if requests may be sent.
    #[inline]
    pub(crate) fn mapped_id(&self) -> Option<u32> {
        (self.state() == DeviceState::Mapped).then(|| self.device_id.load(ordering::Relaxed))
    }

    /// Whether flushes must go to the server. Valid after [`Self::mapped_id`] has returned a
    /// number, under the same RCU read lock.
    ///
    /// Whoever flushes has seen its writes end. A write that ended on this disk was sent with the
    /// number that came with this value, so that the value is at least as new as the write.
    #[inline]
    pub(crate) fn has_write_cache(&self) -> bool {
        self.write_cache.load(ordering::Relaxed)
    }

    /// What becomes of a request now that the device is not mapped: it comes again if the
    /// transport wants requests to wait for a path.
    #[cold]
    pub(crate) fn status_if_not_mapped(&self) -> Status {
        match self.state() {
            // Since the caller looked.
            DeviceState::Mapped => Status::RESOURCE,
            DeviceState::Disconnected if self.session.transport.holds_io() => Status::RESOURCE,
            _ => Status::IO_ERROR,
        }
    }

    /// Whether a request that the transport refused comes again.
    #[cold]
    pub(crate) fn waits_after(&self, error: SubmitError) -> bool {
        match error {
            SubmitError::Busy => true,
            SubmitError::NoPath => self.session.transport.holds_refused_io(),
            SubmitError::Failed(_) => false,
        }
    }

    /// The server has opened the device, in that epoch of the session; returns the state before.
    ///
    /// `ENOENT` if it has been unmapped meanwhile; who did that tells the server to close it.
    /// `ECONNABORTED` if the session was lost meanwhile: the server's next one has other numbers,
    /// and a request with this number would go to another disk.
    fn opened_by_server(&self, answer: &OpenRsp, epoch: u32) -> Result<DeviceState> {
        let changed = {
            let _users = self.users.lock();
            // If the session is lost after this, `link_lost` waits for the lock.
            if self.session.epoch() != epoch {
                return Err(ECONNABORTED);
            }
            self.device_id.store(answer.device_id, ordering::Relaxed);
            self.epoch.store(epoch, ordering::Relaxed);
            self.nsectors.store(answer.nsectors, ordering::Relaxed);
            self.write_cache
                .store(answer.cache_policy.writeback, ordering::Relaxed);
            let changed = self.change_state_locked(DeviceEvent::Opened);
            if let Ok(DeviceState::Disconnected) = changed {
                // Under the lock, so that it is over when the session is lost after this.
                self.is_online.store(true, ordering::Release);
            }
            changed
        };
        changed.inspect_err(|_| {
            device_log!(
                pr_info,
                self,
                "Ignoring Open-Response message from server for unmapped device"
            );
        })
    }

    /// The server has opened a disk that cannot stand for this one; whether to close it now.
    /// Sleeps.
    fn refused_by_shape(&self, answer: &OpenRsp, epoch: u32) -> bool {
        let _users = self.users.lock();
        match self.state() {
            // Whoever unmaps it does that, and may be waiting for this; if it was killed another
            // device may have the number by now.
            DeviceState::Unmapped => {
                self.device_id.store(answer.device_id, ordering::Relaxed);
                self.epoch.store(epoch, ordering::Relaxed);
                false
            }
            // Requests use that number.
            DeviceState::Mapped => false,
            _ => true,
        }
    }

    /// Somebody opens the disk. `EPERM` for writing to a read-only one, `EIO` once unmapped.
    /// Sleeps.
    pub(crate) fn opened_by_user(&self, mode: OpenMode) -> Result {
        let read_only = mode.disk_is_read_only || self.access_mode.is_read_only();
        if mode.write && read_only {
            return Err(EPERM);
        }
        let mut users = self.users.lock();
        if self.state() == DeviceState::Unmapped {
            return Err(EIO);
        }
        *users = users.saturating_add(1);
        Ok(())
    }

    /// Somebody closes the disk. Sleeps.
    pub(crate) fn closed_by_user(&self) {
        let mut users = self.users.lock();
        *users = users.saturating_sub(1);
    }

    /// Logs that a request failed.
    pub(crate) fn io_failed(&self, op: Op, error: Error) {
        let direction = if op == Op::Read { "read" } else { "write" };
        kernel_ext::ratelimited!(device_log!(
            pr_info,
            self,
            "{} I/O failed with err: {}",
            direction,
            error.to_errno()
        ));
    }

    /// Removes the device. Sleeps, until all requests under way have ended.
    ///
    /// `EALREADY` if somebody is doing that, `EBUSY` if the disk is open, unless by force.
    pub(crate) fn unmap(&self, force: bool) -> Result {
        let was = {
            let users = self.users.lock();
            if self.state() != DeviceState::Unmapped && !force && *users > 0 {
                device_log!(
                    pr_err,
                    self,
                    "Closing device failed, device is in use, ({} device users)",
                    *users
                );
                return Err(EBUSY);
            }
            self.change_state_locked(DeviceEvent::Unmap)
                .inspect_err(|_| {
                    device_log!(pr_info, self, "Device is already being unmapped");
                })?
        };
        self.tear_down(was);
        device_log!(pr_info, self, "Device is unmapped");
        Ok(())
    }

    /// Removes all that others see, and has the server close the device. After the change to
    /// `Unmapped` from state `was`, by whoever made that change.
    fn tear_down(&self, was: DeviceState) {
        let (user, module) = {
            // If the device is still being set up this waits for it.
            let parts = mem::take(&mut *self.parts.lock());
            drop(parts.link);
            drop(parts.directory);
            drop(parts.disk);
            (parts.user, parts.module)
        };
        // The server knows a device by its path, so it must be closed after the last time that it
        // was opened, and once: the number is another device's then.
        let settled = self.opening.take_killable().is_ok();
        let epoch = self.epoch.load(ordering::Relaxed);
        if settled && was != DeviceState::Init && self.session.epoch() == epoch {
            let device_id = self.device_id.load(ordering::Relaxed);
            if let Err(error) = remote::close(&self.session, device_id, epoch) {
                // The server closes it with the session.
                device_log!(
                    pr_info,
                    self,
                    "The server did not confirm the close, err: {}",
                    error.to_errno()
                );
            }
        }
        // Not before the server has closed it: to open it again meanwhile would get the very device
        // that is being closed.
        self.session.remove_device(self);
        // The last user closes the session.
        drop(user);
        drop(module);
    }

    /// Drops the parts of a device that nobody knows yet.
    fn discard(&self) {
        let parts = mem::take(&mut *self.parts.lock());
        drop(parts);
    }

    /// Asks the server to open the device again. Sleeps.
    ///
    /// `ENODEV`, `EALREADY` or `EBUSY` if the device is not disconnected, the server's error.
    pub(crate) fn remap(&self) -> Result {
        self.state().check_remap().map_err(from_errno)?;
        device_log!(pr_info, self, "Remapping device.");
        without_io(|| self.reopen()).inspect_err(|error| {
            device_log!(pr_err, self, "remap_device: {}", error.to_errno());
        })?;
        self.tell_news()
    }

    /// Has the server open the device again; [`Self::tell_news`] is to follow. Sleeps.
    ///
    /// Requests may wait for it.
    fn reopen(&self) -> Result {
        let opening = self.opening.take_killable()?;
        if self.state() == DeviceState::Unmapped {
            return Err(ENODEV);
        }
        let (answer, epoch) = remote::open(&self.session, &self.path, self.access_mode)
            .inspect_err(|error| {
                kernel_ext::ratelimited!(device_log!(
                    pr_err,
                    self,
                    "Opening failed, server responded: {}",
                    error.to_errno()
                ));
            })?;
        if let Some(Err(error)) = self.shape.as_ref().map(|shape| shape.check(self, &answer)) {
            if self.refused_by_shape(&answer, epoch) {
                // The error that was found is the one to tell.
                let _ = remote::close(&self.session, answer.device_id, epoch);
            }
            return Err(error);
        }
        let before = self.opened_by_server(&answer, epoch)?;
        drop(opening);
        if before == DeviceState::Disconnected {
            kernel_ext::ratelimited!(device_log!(
                pr_info,
                self,
                "Device online, device remapped successfully"
            ));
        }
        Ok(())
    }

    /// The session has a path again, which is news or not. Process context of the module's own;
    /// sleeps.
    ///
    /// The server's error, which has been logged, or `ENOMEM`.
    pub(crate) fn link_is_back(&self, is_news: bool) -> Result {
        if matches!(self.state(), DeviceState::Init | DeviceState::Unmapped) {
            // Whoever is mapping it gets an error.
            return Ok(());
        }
        if is_news {
            kernel_ext::ratelimited!(device_log!(
                pr_info,
                self,
                "session reconnected, remapping device"
            ));
        }
        self.reopen()
    }

    /// The session has lost its last path. Sleeps.
    pub(crate) fn link_lost(&self) {
        // There is no state in which this is an error.
        if let Ok(DeviceState::Mapped) = self.change_state(DeviceEvent::LinkLost) {
            kernel_ext::ratelimited!(device_log!(pr_err, self, "Device disconnected."));
        }
    }

    /// Has user space told of [`Self::link_lost`] by [`Self::tell_news`]. Any context.
    pub(crate) fn note_link_lost(&self) {
        if self.state() == DeviceState::Disconnected {
            // That it was open meanwhile is no news any more.
            self.is_online.store(false, ordering::Release);
            self.is_offline.store(true, ordering::Release);
        }
    }

    /// Tells user space what has become of the device, with its size. Sleeps.
    ///
    /// Nobody else may wait for it, least of all requests: it waits for others who tell something,
    /// and those for memory. `ENOENT` if there is no disk yet, of which nothing is forgotten, or
    /// any more.
    pub(crate) fn tell_news(&self) -> Result {
        self.with_disk(|disk| {
            if self.is_offline.xchg(false, ordering::Full) {
                let _ = uevent(disk, Uevent::Offline);
            }
            if self.is_online.xchg(false, ordering::Full) {
                self.change_capacity(disk, self.nsectors.load(ordering::Relaxed))?;
                let _ = uevent(disk, Uevent::Online);
            }
            Ok(())
        })
    }

    /// Sets the disk's size in sectors. `ENOENT` if the device is not mapped, `EINVAL` for more
    /// than a disk can have.
    pub(crate) fn resize(&self, sectors: u64) -> Result {
        if self.state() != DeviceState::Mapped {
            device_log!(
                pr_err,
                self,
                "Failed to set new size of the device, device is not opened"
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
        device_log!(
            pr_info,
            self,
            "Device size changed from {} to {} sectors",
            before,
            sectors
        );
        Ok(())
    }

    /// Does something with the disk, which is not removed meanwhile; `ENOENT` if it has been.
    /// Sleeps.
    fn with_disk<R>(&self, run: impl FnOnce(&GenDisk<Queue>) -> Result<R>) -> Result<R> {
        run(self.parts.lock().disk.as_ref().ok_or(ENOENT)?)
    }
}
