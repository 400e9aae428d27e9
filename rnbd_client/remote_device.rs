// SPDX-License-Identifier: GPL-2.0

//! A device of a server, and whether requests can be sent to it.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    block::{
        mq::request::Op,
        status::Status, //
    },
    ida::IdaNumber,
    prelude::*,
    random,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::KillableMutex,
        set_once::SetOnce, //
    }, //
};
use proto::{
    device_state::{
        DeviceEvent,
        DeviceState, //
    },
    latency::CLIENT_STAGES,
    map_options::MapOptions,
    name::Name,
    rnbd::{
        AccessMode,
        IoMode,
        OpenRsp,
        Wwid, //
    },
    setting::HOLD_DISK_IO, //
};
use rtrs_client::SubmitError;
use rtrs_core::{
    error::from_errno,
    latency::Latency, //
};

use crate::{
    server::{
        Opened,
        Server, //
    },
    state_word::StateWord, //
};

mod news;
mod timeout;

/// Logs a line about a device, as `<path@session> …`.
macro_rules! device_log {
    ($log:ident, $device:expr, $($message:tt)+) => {
        $log!(
            "<{}@{}> {}\n",
            $device.path.as_cstr(),
            $device.server.session.as_cstr(),
            fmt!($($message)+)
        )
    };
}
pub(crate) use device_log;

/// The histograms of a device.
pub(crate) type ClientLatency = Latency<{ CLIENT_STAGES.len() }>;

/// A device of a server, as the requests to its disk use it.
///
/// # Invariants
///
/// - The device state in `state` changes under the lock of `users` only.
/// - While the state is `Mapped`, `device_id`, `epoch`, `nsectors` and `write_cache` are what the
///   server said of the device in the epoch `epoch`, and `write_cache` is set if the server has
///   said so at any time since it opened the device. They are written before the state becomes
///   `Mapped`; afterwards `nsectors` and `write_cache` change under the lock of `users`.
/// - `is_closed_there` changes under the lock of `users`. It is set before the state leaves
///   `Mapped` for this reason, so a task that reads the state `Disconnected` afterwards sees it.
#[pin_data]
pub(crate) struct RemoteDevice {
    pub(crate) server: Arc<Server>,
    /// The device's path on the server.
    pub(crate) path: Name,
    pub(crate) access_mode: AccessMode,
    /// How the server is to read and write the disk; `None`: as the server is set.
    pub(crate) io_mode: Option<IoMode>,
    /// How the server read and wrote the disk when it last opened the device, as on the wire; 0 if
    /// it has not told.
    used_io_mode: Atomic<u32>,
    /// The number of the disk, which no other disk gets while this device is there.
    index: IdaNumber,
    state: StateWord,
    /// How long a request may be in flight before it is ended, in ms; 0 for no limit.
    io_timeout_ms: Atomic<u32>,
    /// How long requests wait while no path is up, in ms; -1 for as long as the session's setting
    /// says.
    hold_io_ms: Atomic<i32>,
    /// How many requests were ended because they took too long.
    io_timeouts: Atomic<u32>,
    /// The number that the server gave the device.
    device_id: Atomic<u32>,
    /// The epoch in which the server gave that number.
    epoch: Atomic<u32>,
    /// The size in sectors.
    nsectors: Atomic<u64>,
    /// Whether the disk has a volatile write cache.
    write_cache: Atomic<bool>,
    /// Whether the server's disk has a volatile write cache by now, as the news say. For the log.
    disk_has_cache: Atomic<bool>,
    /// Whether the server's disk is read-only, as far as the server has told.
    disk_is_read_only: Atomic<bool>,
    /// Whether the server is to be asked to open the device again, while its requests are held.
    is_awaited: Atomic<bool>,
    /// Whether the server's disk was removed, as far as the server has told.
    disk_is_gone: Atomic<bool>,
    /// Whether the server has closed the device by itself, in the epoch `epoch`.
    is_closed_there: Atomic<bool>,
    /// The disk's wwid; set when the server opens the device for the first time.
    wwid: SetOnce<Wwid>,
    /// The histograms of the times of the device's requests.
    pub(crate) latency: Arc<ClientLatency>,
    /// The number of the last command about the disk's reservation.
    last_command: Atomic<u32>,
    /// Lets one command about the reservation at a time be sent.
    #[pin]
    commands: KillableMutex,
    /// How often the disk is open here.
    #[pin]
    users: Mutex<usize>,
}

impl RemoteDevice {
    /// Makes a device that the server has not opened yet. Sleeps.
    pub(crate) fn new(
        server: Arc<Server>,
        index: IdaNumber,
        options: &MapOptions,
    ) -> Result<Arc<Self>> {
        let latency = Arc::new(ClientLatency::new(), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                server,
                path: options.device_path,
                access_mode: options.access_mode,
                io_mode: options.io_mode,
                used_io_mode: Atomic::new(0),
                index,
                state: StateWord::new(DeviceState::Init),
                io_timeout_ms: Atomic::new(0),
                hold_io_ms: Atomic::new(HOLD_DISK_IO.default),
                io_timeouts: Atomic::new(0),
                device_id: Atomic::new(0),
                epoch: Atomic::new(0),
                nsectors: Atomic::new(0),
                write_cache: Atomic::new(true),
                disk_has_cache: Atomic::new(true),
                disk_is_read_only: Atomic::new(false),
                is_awaited: Atomic::new(false),
                disk_is_gone: Atomic::new(false),
                is_closed_there: Atomic::new(false),
                wwid: SetOnce::new(),
                latency,
                // Random, so that another mapping has begun with another number. The upper half is
                // cut off.
                last_command: Atomic::new(random::u64() as u32),
                commands <- KillableMutex::new(),
                users <- new_mutex!(0, "RemoteDevice::users"),
            }),
            GFP_KERNEL,
        )
    }

    /// Asks the server to open the disk; see [`Server::open`]. Sleeps.
    pub(crate) fn open(&self) -> Result<Opened> {
        // With the mode that was used before, clients can come back in any order and use the disk
        // as they did.
        let used = self.used_io_mode.load(ordering::Relaxed) as u8;
        let used = IoMode::from_wire(used).unwrap_or(None);
        self.server
            .open(&self.path, self.access_mode, self.io_mode, used)
    }

    /// Notes the disk's wwid, unless a wwid is noted already. Any context.
    pub(crate) fn set_wwid(&self, wwid: Wwid) {
        self.wwid.populate(wwid);
    }

    /// The disk's wwid; empty if the server has told none. Any context.
    pub(crate) fn wwid(&self) -> &Wwid {
        self.wwid.as_ref().unwrap_or(&Wwid::NONE)
    }

    /// The number of the disk.
    pub(crate) fn index(&self) -> u32 {
        self.index.get()
    }

    /// The state. Any context.
    #[inline]
    pub(crate) fn state(&self) -> DeviceState {
        self.state.state()
    }

    /// Changes the state by an event; returns the state before. Sleeps.
    pub(crate) fn change_state(&self, event: DeviceEvent) -> Result<DeviceState> {
        let _users = self.users.lock();
        self.change_state_locked(event)
    }

    /// Does what [`Self::change_state`] does, with the lock of `users` held.
    fn change_state_locked(&self, event: DeviceEvent) -> Result<DeviceState> {
        let before = self.state();
        let after = before.next(event).map_err(from_errno)?;
        self.state.change(before, after);
        Ok(before)
    }

    /// The server's number of the device, if requests may be sent. Any context.
    #[inline]
    pub(crate) fn mapped_id(&self) -> Option<u32> {
        (self.state.may_send()).then(|| self.device_id.load(ordering::Relaxed))
    }

    /// Whether the server has the device open under this number. Any context.
    pub(crate) fn is_mapped_as(&self, device_id: u32) -> bool {
        self.state() == DeviceState::Mapped && self.device_id.load(ordering::Relaxed) == device_id
    }

    /// The server's number of the device, and the epoch in which the server gave it, if the device
    /// is open there. Sleeps.
    pub(crate) fn mapped_in(&self) -> Option<(u32, u32)> {
        let _users = self.users.lock();
        if self.state() != DeviceState::Mapped {
            return None;
        }
        let device_id = self.device_id.load(ordering::Relaxed);
        Some((device_id, self.epoch.load(ordering::Relaxed)))
    }

    /// Lets one command about the reservation at a time be sent.
    pub(crate) fn commands(&self) -> &KillableMutex {
        &self.commands
    }

    /// The number of the next command about the reservation. Any context.
    pub(crate) fn next_command(&self) -> u32 {
        let last = self.last_command.fetch_add(1, ordering::Relaxed);
        last.wrapping_add(1)
    }

    /// The size in sectors, as far as the server has told.
    pub(crate) fn nsectors(&self) -> u64 {
        self.nsectors.load(ordering::Relaxed)
    }

    /// Whether flushes must go to the server. Valid after [`Self::mapped_id`] has returned a
    /// number, under the same RCU read lock.
    ///
    /// A flush is about writes that ended before the flush was made. Each of these writes was sent
    /// with the number that came with this value, or with an earlier one, so the value is at least
    /// as new as the write.
    #[inline]
    pub(crate) fn has_write_cache(&self) -> bool {
        self.write_cache.load(ordering::Relaxed)
    }

    /// The status of a request while the device is not mapped. The request comes again if requests
    /// are to wait for a path, unless it is to fail fast. If the device has unanswered requests,
    /// the request ends as they did: the server may still carry them out, and a request that is
    /// sent now could be on the disk before them. Any context.
    #[cold]
    pub(crate) fn status_if_not_mapped(&self, is_fail_fast: bool) -> Status {
        match self.state() {
            DeviceState::Mapped if self.state.unanswered() != 0 => Status::TIMEOUT,
            // The device was mapped after the caller's look.
            DeviceState::Mapped => Status::RESOURCE,
            DeviceState::Disconnected if !is_fail_fast && self.holds_io() => Status::RESOURCE,
            _ => Status::IO_ERROR,
        }
    }

    /// Whether requests are to wait while the device is not mapped. Any context.
    pub(crate) fn holds_io(&self) -> bool {
        !self.is_closed_there() && self.is_waited_for()
    }

    /// Whether the server has closed the device by itself, and has not opened it since. Any
    /// context.
    fn is_closed_there(&self) -> bool {
        self.is_closed_there.load(ordering::Relaxed)
    }

    /// Whether requests are held while the device is not mapped. This does not look whether the
    /// server has closed the device; [`Self::holds_io`] does. Any context.
    pub(crate) fn is_waited_for(&self) -> bool {
        let (transport, ms) = (&self.server.transport, self.hold_ms());
        if self.is_awaited.load(ordering::Relaxed) {
            transport.holds_awaited_io(ms)
        } else {
            transport.holds_io(ms)
        }
    }

    /// Whether the server has closed the device by itself in the present session. Then the device
    /// is opened again only by the administrator. In the next session it is opened as all devices
    /// are. Any context.
    pub(crate) fn is_closed_by_server(&self) -> bool {
        self.is_closed_there() && self.epoch.load(ordering::Relaxed) == self.server.epoch()
    }

    /// Whether the server is to be asked to open the device again, while its requests are held. Any
    /// context.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state() == DeviceState::Disconnected && self.is_awaited.load(ordering::Relaxed)
    }

    /// Sets whether the server is to be asked to open the device again, while its requests are
    /// held. Any context.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, ordering::Relaxed);
    }

    /// Whether a request that the transport refused comes again. A request that is to fail fast
    /// does not wait for a path. Any context.
    #[cold]
    pub(crate) fn waits_after(&self, error: SubmitError, is_fail_fast: bool) -> bool {
        match error {
            SubmitError::Busy => true,
            SubmitError::NoPath => {
                !is_fail_fast && self.server.transport.holds_refused_io(self.hold_ms())
            }
            SubmitError::Failed(_) => false,
        }
    }

    /// Notes that the server has opened the device in `epoch`; returns the state before.
    /// `when_back` runs if that was `Disconnected`, before the session can be lost again. Sleeps.
    ///
    /// `ENOENT` if the device was unmapped meanwhile; the task that did that tells the server to
    /// close it. `ECONNABORTED` if the session was lost meanwhile: the server's next session has
    /// other numbers, and a request with this number would go to another disk.
    pub(crate) fn opened_by_server(
        &self,
        response: &OpenRsp,
        epoch: u32,
        when_back: impl FnOnce(),
    ) -> Result<DeviceState> {
        let changed = {
            let _users = self.users.lock();
            // If the session is lost after this, `link_lost` waits for the lock.
            if self.server.epoch() != epoch {
                return Err(ECONNABORTED);
            }
            // Before `epoch` changes, so that no reader takes the device for closed in the new
            // epoch.
            self.is_closed_there.store(false, ordering::Relaxed);
            self.note_id(response, epoch);
            if response.io_mode.is_some() {
                let used = IoMode::to_wire(response.io_mode);
                self.used_io_mode.store(used.into(), ordering::Relaxed);
            }
            self.nsectors.store(response.nsectors, ordering::Relaxed);
            let write_cache = response.cache_policy.writeback;
            self.write_cache.store(write_cache, ordering::Relaxed);
            if self.state() == DeviceState::Init {
                self.disk_has_cache.store(write_cache, ordering::Relaxed);
            }
            if self.server.epoch_with_news() != Some(epoch) {
                // This server would not tell when the disk is no longer so.
                self.disk_is_read_only.store(false, ordering::Relaxed);
                self.disk_is_gone.store(false, ordering::Relaxed);
            }
            let changed = self.change_state_locked(DeviceEvent::Opened);
            if let Ok(DeviceState::Disconnected) = changed {
                when_back();
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

    /// The server has opened a disk that cannot stand for this one. Returns whether to close it
    /// now. Sleeps.
    pub(crate) fn refused_by_limits(&self, response: &OpenRsp, epoch: u32) -> bool {
        let _users = self.users.lock();
        match self.state() {
            // The task that unmaps the device closes it, and may be waiting for this. If that task
            // was killed, another device may have the number by now.
            DeviceState::Unmapped => {
                self.note_id(response, epoch);
                false
            }
            // Requests use that number.
            DeviceState::Mapped => false,
            _ => true,
        }
    }

    /// Whether the disk can be read only: it was mapped so, or the server's disk is read-only. Any
    /// context.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access_mode.is_read_only() || self.disk_is_read_only.load(ordering::Relaxed)
    }

    fn note_id(&self, response: &OpenRsp, epoch: u32) {
        self.device_id.store(response.device_id, ordering::Relaxed);
        self.epoch.store(epoch, ordering::Relaxed);
    }

    /// Notes that the session has lost its last path. Sleeps.
    pub(crate) fn link_lost(&self) {
        // In no state is this an error.
        let before = self.change_state(DeviceEvent::LinkLost);
        let was_mapped = matches!(before, Ok(DeviceState::Mapped));
        if self.server.transport.is_server_away() && (was_mapped || self.is_closed_there()) {
            self.is_awaited.store(true, ordering::Relaxed);
        }
        if was_mapped {
            kernel_ext::ratelimited!(device_log!(pr_err, self, "Device disconnected."));
        }
    }

    /// Lets no request be sent from here on. Requests are held as long as the transport wants that.
    /// The server opens the device again when the session was lost and is back. Sleeps.
    pub(crate) fn hold(&self) {
        // In any other state nothing is sent anyway.
        let before = self.change_state(DeviceEvent::LinkLost);
        if matches!(before, Ok(DeviceState::Mapped)) || self.is_closed_there() {
            self.is_awaited.store(true, ordering::Relaxed);
        }
    }

    /// Has the server close the device, if it is still open there. Sleeps.
    pub(crate) fn close(&self) {
        let epoch = self.epoch.load(ordering::Relaxed);
        if self.server.epoch() != epoch {
            // The server has closed the device with the session.
            return;
        }
        if self.state.unanswered() != 0 {
            // The server would not confirm the close before it has finished these requests, nor
            // take other messages. It closes the device with the session.
            device_log!(
                pr_info,
                self,
                "The client does not ask the server to close the device, as the server has not \
                 finished all requests; the server closes the device with the session"
            );
            return;
        }
        let device_id = self.device_id.load(ordering::Relaxed);
        if let Err(error) = self.server.close(device_id, epoch) {
            // The server closes the device with the session.
            device_log!(
                pr_info,
                self,
                "The server did not confirm the close, err: {}; the server closes the device with \
                 the session",
                error.to_errno()
            );
        }
    }

    /// Begins to unmap the device; returns the state before. Sleeps.
    ///
    /// `EALREADY` if another task is doing that, `EBUSY` if the disk is open, unless by force.
    pub(crate) fn begin_unmap(&self, force: bool) -> Result<DeviceState> {
        let users = self.users.lock();
        if self.state() != DeviceState::Unmapped && !force && *users > 0 {
            device_log!(
                pr_err,
                self,
                "Closing device failed, device is in use, ({} device users): unmount it, or stop \
                 what else uses it; force in unmap_device loses data that is not written yet",
                *users
            );
            return Err(EBUSY);
        }
        self.change_state_locked(DeviceEvent::Unmap)
    }

    /// Whether a program has the disk open. Sleeps.
    pub(crate) fn has_users(&self) -> bool {
        *self.users.lock() != 0
    }

    /// Counts an open of the disk. `EPERM` for writing by a device that is mapped read-only, `EIO`
    /// once the device is unmapped. Sleeps.
    ///
    /// A disk that became read-only in another way may be opened for writing, as local disks may:
    /// the block layer refuses writes of programs. It lets writes of other drivers through, and a C
    /// server carries these out even by a read-only mapping.
    pub(crate) fn opened_by_user(&self, for_writing: bool) -> Result {
        if for_writing && self.access_mode.is_read_only() {
            return Err(EPERM);
        }
        let mut users = self.users.lock();
        if self.state() == DeviceState::Unmapped {
            return Err(EIO);
        }
        *users = users.checked_add(1).ok_or(EBUSY)?;
        Ok(())
    }

    /// Counts a close of the disk. Sleeps.
    pub(crate) fn closed_by_user(&self) {
        let mut users = self.users.lock();
        // The block layer calls this once for each success of `opened_by_user`.
        *users = users.wrapping_sub(1);
    }

    /// Logs that a request failed. Any context.
    #[cold]
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
}
