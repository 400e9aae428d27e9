// SPDX-License-Identifier: GPL-2.0

//! A device that a session has open.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    static_key::ServerTimes,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    sysfs::{
        Attribute,
        Directory,
        StoreContext,
        SysfsOutput, //
    },
    workqueue::QueueHandle, //
};
use proto::{
    latency::Kind,
    name::{
        Name,
        SessName, //
    },
    reservation::Access,
    rnbd::{
        AccessMode,
        Command,
        DeviceNews,
        IoMode,
        Open,
        Reservation, //
    },
    setting::LATENCY_SECONDS,
    text::{
        Text,
        Untrusted, //
    }, //
};
use rtrs_core::{
    error::from_errno,
    sysfs::is_text, //
};
use rtrs_server::Worker;

use crate::{
    export::ExportOpen,
    handle::{
        Handle,
        HandleUse, //
    },
    latency::{
        ServerLatency,
        ServerLease, //
    },
    machine::Machine,
    reservation_table::Reserved,
    reservations::{
        Attached,
        Reservations, //
    },
    reserved_disks::ReservedDisk, //
};

/// The session that has a device open.
pub(crate) trait DeviceOwner: Send + Sync {
    /// The name of the session.
    fn name(&self) -> &SessName;

    /// Closes the device although its client uses it. Sleeps.
    fn force_close(&self, device: &Arc<SessionDevice>);
}

/// A device that a session has open.
///
/// The device and its directory keep each other until [`SessionDevice::close`]. So do the device
/// and the reservations of its disk.
///
/// # Invariants
///
/// While `access` is less than [`Access::ReadWrite`], or is about to become so, `worker` is held.
/// So all requests go to the worker, which looks at `access`.
#[pin_data]
pub(crate) struct SessionDevice {
    owner: Arc<dyn DeviceOwner>,
    id: u32,
    name: Name,
    mode: AccessMode,
    io_mode: IoMode,
    handle: Handle,
    /// For requests that may sleep.
    worker: Worker,
    /// For commands about reservations. These commands wait for requests.
    commands: Worker,
    /// An [`Access`]: what reservations let the client do.
    access: Atomic<u32>,
    /// The disk, and the device's place in its list.
    reserved: Arc<ReservedDisk>,
    place: u64,
    /// The histograms of request times, and the lease that limits for how long requests are
    /// counted.
    latency: Arc<ServerLatency>,
    lease: Arc<ServerLease>,
    /// The last command for the disk, and its result.
    #[pin]
    last_command: Mutex<Option<(Reservation, Result)>>,
    /// Changed under the session's lock `last_news`.
    #[pin]
    noted: Mutex<Noted>,
    #[pin]
    shown: Mutex<Option<Shown>>,
}

/// The state of a device's disk when the server last looked.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noted {
    pub(crate) state: DeviceNews,
    /// The number of the change that led to `state`.
    pub(crate) sequence: u32,
}

/// What is shown, and counted, of an open device.
struct Shown {
    // Each directory is removed before its parent.
    latency: Directory<SessionDevice>,
    directory: Directory<SessionDevice>,
    attached: Attached,
    export: ExportOpen,
}

impl SessionDevice {
    /// Makes a device and its directory; `queue` is for work that the device does by itself.
    /// Sleeps.
    ///
    /// `EEXIST` if the session has the same disk open under another name.
    pub(crate) fn new(
        owner: Arc<dyn DeviceOwner>,
        id: u32,
        message: &Open,
        handle: Handle,
        export: ExportOpen,
        machine: Machine,
        queue: &QueueHandle,
    ) -> Result<Arc<Self>> {
        let (worker, commands) = (Worker::new()?, Worker::new()?);
        let reserved = export.reserved().clone();
        let reservations = reserved.reservations().clone();
        let place = reservations.next_place();
        let io_mode = export.io_mode();
        let latency = Arc::new(ServerLatency::new(), GFP_KERNEL)?;
        let lease = ServerLease::new(latency.clone(), queue)?;
        let device = Arc::pin_init(
            pin_init!(Self {
                owner,
                id,
                name: message.dev_name,
                mode: message.access_mode,
                io_mode,
                handle,
                worker,
                commands,
                access: Atomic::new(Access::ReadWrite.to_u32()),
                reserved,
                place,
                latency,
                lease,
                last_command <- new_mutex!(None, "SessionDevice::last_command"),
                noted <- new_mutex!(Noted::default(), "SessionDevice::noted"),
                shown <- new_mutex!(None, "SessionDevice::shown"),
            }),
            GFP_KERNEL,
        )?;
        let attached = reservations.attach(place, machine, device.clone())?;
        let directory = Directory::new(
            export.sessions(),
            device.owner.name().as_cstr(),
            FILES,
            device.clone(),
        )?;
        let latency = Directory::new(&directory, c"latency", LATENCY_FILES, device.clone())?;
        *device.shown.lock() = Some(Shown {
            latency,
            directory,
            attached,
            export,
        });
        Ok(device)
    }

    /// The number by which the client knows the device.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The path that the client gave, below the search path.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// What the client may do.
    pub(crate) fn mode(&self) -> AccessMode {
        self.mode
    }

    /// How the disk is read and written.
    pub(crate) fn io_mode(&self) -> IoMode {
        self.io_mode
    }

    /// Lets the caller at the device, unless it is closed. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<HandleUse> {
        self.handle.enter()
    }

    /// Does what [`Self::enter`] does; if the device is being drained, waits for that, `timeout` ms
    /// at most. Sleeps.
    ///
    /// `EAGAIN` if the drain takes longer, and if the device is closed.
    pub(crate) fn enter_within(&self, timeout: Msecs) -> Result<HandleUse> {
        match self.enter() {
            Some(device_use) => Ok(device_use),
            None if self.finish_drain(timeout) => self.enter().ok_or(EAGAIN),
            None => Err(EAGAIN),
        }
    }

    /// Waits while the device is being drained, see [`Reserved`]. False if the device is closed.
    /// Sleeps.
    pub(crate) fn wait_open(&self) -> bool {
        self.handle.gate().wait_open()
    }

    /// What reservations let the client do. Any context.
    pub(crate) fn access(&self) -> Access {
        Access::from_u32(self.access.load(ordering::Relaxed))
    }

    /// The reservations of the device's disk.
    pub(crate) fn reservations(&self) -> &Reservations {
        self.reserved.reservations()
    }

    /// Does a command about reservations; see [`Reservations::execute`]. Sleeps.
    pub(crate) fn execute(&self, command: &Command) -> Result {
        self.reserved.execute(self.place, command)
    }

    /// The last command for the disk that came by this device, and its result.
    pub(crate) fn last_command(&self) -> &Mutex<Option<(Reservation, Result)>> {
        &self.last_command
    }

    /// The histograms of the times of the device's requests. Any context.
    pub(crate) fn latency(&self) -> &ServerLatency {
        &self.latency
    }

    /// The state of the device's disk when the server last looked.
    pub(crate) fn noted(&self) -> &Mutex<Noted> {
        &self.noted
    }

    /// The worker for requests that may sleep.
    #[inline]
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The worker for commands about reservations.
    pub(crate) fn commands(&self) -> &Worker {
        &self.commands
    }

    /// Begins to close the device: lets no request in from now on. [`Self::close`] is to follow.
    /// Sleeps, but not for requests.
    ///
    /// A grace period of RCU goes by until the requests are known to be finished. Another one goes
    /// by until no task finds the device by its number any more. With this call first, both go by
    /// at the same time. A task that waits for the requests may let requests in again;
    /// [`Self::close`] closes the device all the same.
    pub(crate) fn begin_close(&self) {
        self.handle.gate().begin_drain();
    }

    /// Closes the device when its requests are finished, and removes its directory. Sleeps.
    ///
    /// Called with the control lock of the session held, and not from a function of the directory
    /// that has not released its protection.
    pub(crate) fn close(&self) {
        let shown = self.shown.lock().take();
        if let Some(Shown {
            latency,
            directory,
            attached,
            export,
        }) = shown
        {
            latency.remove();
            directory.remove();
            drop(self.lease.stop());
            self.lease.cancel();
            self.handle.gate().close();
            // Not earlier: until the gate is closed, a command for the disk waits for the requests.
            // Nor may `export` be dropped earlier: until then no other session can open the disk
            // with `rw`. With `migration` it can, whatever requests there are.
            drop(attached);
            pr_info_ratelimited!(
                "session {:?}: closed device {:?}\n",
                self.owner.name().as_cstr(),
                export.device_name()
            );
        }
    }
}

impl Reserved for SessionDevice {
    fn set_access(&self, access: Access) {
        let before = Access::from_u32(self.access.load(ordering::Relaxed));
        let (was_whole, is_whole) = (before == Access::ReadWrite, access == Access::ReadWrite);
        // INVARIANT: The worker is held before the access becomes less, and let go after it is
        // whole again.
        if was_whole && !is_whole {
            self.worker.hold();
        }
        self.access.store(access.to_u32(), ordering::Relaxed);
        if is_whole && !was_whole {
            self.worker.let_go();
        }
    }

    fn begin_drain(&self) {
        self.handle.gate().begin_drain();
    }

    fn finish_drain(&self, timeout: Msecs) -> bool {
        self.handle.gate().finish_drain(timeout)
    }
}

/// The files of an open device
/// (`/sys/class/rnbd-server/ctl/devices/<device>/sessions/<session>/`).
const FILES: &[Attribute<SessionDevice>] = &[
    Attribute::read_only(c"access_mode", show_access_mode),
    Attribute::read_only(c"read_only", show_read_only),
    Attribute::read_only(c"mapping_path", show_mapping_path),
    Attribute::read_only(c"io_mode", show_io_mode),
    Attribute::read_write(c"force_close", show_force_close, store_force_close),
];

/// The files of the directory `latency` of an open device.
const LATENCY_FILES: &[Attribute<SessionDevice>] = &[
    Attribute::read_write(
        c"seconds",
        |device, out| out.print(fmt!("{}\n", device.lease.seconds_left())),
        store_latency_seconds,
    ),
    Attribute::read_only(c"read_queue", show_latency::<0, 0>),
    Attribute::read_only(c"read_disk", show_latency::<0, 1>),
    Attribute::read_only(c"read_response", show_latency::<0, 2>),
    Attribute::read_only(c"read_whole", show_latency::<0, 3>),
    Attribute::read_only(c"write_queue", show_latency::<1, 0>),
    Attribute::read_only(c"write_disk", show_latency::<1, 1>),
    Attribute::read_only(c"write_response", show_latency::<1, 2>),
    Attribute::read_only(c"write_whole", show_latency::<1, 3>),
    Attribute::read_only(c"other_queue", show_latency::<2, 0>),
    Attribute::read_only(c"other_disk", show_latency::<2, 1>),
    Attribute::read_only(c"other_response", show_latency::<2, 2>),
    Attribute::read_only(c"other_whole", show_latency::<2, 3>),
];

fn store_latency_seconds(
    device: &Arc<SessionDevice>,
    _: &StoreContext<'_>,
    bytes: &[u8],
) -> Result {
    let seconds = LATENCY_SECONDS.parse(bytes).map_err(|error| {
        pr_err_ratelimited!(
            "device {:?}: latency/{}\n",
            device.name(),
            error.message().as_str()
        );
        from_errno(error.errno())
    })?;
    if seconds == 0 {
        drop(device.lease.stop());
        return Ok(());
    }
    // The number is not negative.
    let seconds = seconds.unsigned_abs();
    device.lease.set(seconds, || Ok(ServerTimes::new()))
}

/// Shows the histogram of a kind of requests and a stage, by their places in `Kind::ALL` and
/// `SERVER_STAGES`.
fn show_latency<const KIND: usize, const STAGE: usize>(
    device: &Arc<SessionDevice>,
    out: &mut SysfsOutput<'_>,
) -> Result {
    let kind = Kind::ALL.get(KIND).ok_or(EINVAL)?;
    device.latency.show(*kind, STAGE, out)
}

fn show_access_mode(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("{}\n", device.mode().as_str()))
}

fn show_read_only(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("{}\n", u8::from(device.mode().is_read_only())))
}

fn show_mapping_path(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.write_bytes(device.name().as_bytes());
    out.write_bytes(b"\n");
    Ok(())
}

fn show_io_mode(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("{}\n", device.io_mode().as_str()))
}

fn show_force_close(_: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("Usage: echo 1 > force_close\n"))
}

fn store_force_close(
    device: &Arc<SessionDevice>,
    context: &StoreContext<'_>,
    bytes: &[u8],
) -> Result {
    if !is_text(bytes, "1") {
        pr_err_ratelimited!(
            "device {:?}: force_close: invalid value '{}', write 1\n",
            device.name(),
            Text::<100>::of(&Untrusted(bytes)).as_str()
        );
        return Err(EINVAL);
    }
    pr_info_ratelimited!(
        "session {:?}: force close of {:?} requested\n",
        device.owner.name().as_cstr(),
        device.name().as_cstr()
    );
    context.release_protection()?;
    device.owner.force_close(device);
    Ok(())
}
