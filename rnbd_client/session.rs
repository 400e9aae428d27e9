// SPDX-License-Identifier: GPL-2.0

//! A session: the transport to one server, and the devices that use it.

use core::mem;

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    atomic::{
        ordering,
        Atomic, //
    },
    block::{
        request_table::RequestTable,
        status::Status,
        tag_set::{
            TagSet,
            TagSetParams, //
        }, //
    },
    cpu,
    impl_has_delayed_work,
    module::ModuleReference,
    new_delayed_work,
    once::SetOnce,
    reclaim::without_io,
    workqueue::{
        self,
        DelayedWork,
        DelayedWorkItem,
        QueueHandle, //
    }, //
};
use proto::{
    addr::PathAddress,
    device_state::DeviceState,
    map_options::MapOptions,
    name::{
        Name,
        SessName, //
    }, //
};
use rtrs_client::{
    LinkEvent,
    OpenParams,
    SessionEvents,
    SubmitError, //
};

use crate::{
    device::Device,
    queue::{
        IoPath,
        Queue, //
    },
    remote,
    RnbdClient, //
};

/// How long a device that could not be opened again waits for the next attempt, in ms; twice as long
/// after each, [`ATTEMPTS`] times, so for four minutes.
const FIRST_DELAY_MS: u32 = 250;
const ATTEMPTS: u32 = 10;

/// As long as requests are held for it there are more attempts, and the wait is doubled so often at
/// most, up to four seconds.
const DOUBLINGS_WHILE_HELD: u32 = 4;

/// An open session.
pub(crate) struct Session {
    pub(crate) name: SessName,
    pub(crate) transport: Arc<rtrs_client::Session>,
    pub(crate) tag_set: Arc<TagSet<Queue>>,
    pub(crate) nr_poll_queues: u32,
    link: Arc<Link>,
}

/// The devices of a session.
struct Devices {
    list: KVec<Arc<Device>>,
    /// Room for a copy of the list, made when a device is added: what happens to a link must reach
    /// all devices, however short memory is then.
    room: KVec<Arc<Device>>,
}

impl Devices {
    const fn new() -> Self {
        Self {
            list: KVec::new(),
            room: KVec::new(),
        }
    }

    fn add(&mut self, device: Arc<Device>) -> Result {
        let len = self.list.len().saturating_add(1);
        self.room.reserve(len, GFP_KERNEL)?;
        Ok(self.list.push(device, GFP_KERNEL)?)
    }

    /// A copy of the list, in the room that is there for one.
    fn copied(&mut self) -> KVec<Arc<Device>> {
        let mut copy = mem::take(&mut self.room);
        for device in &self.list {
            if copy.push_within_capacity(device.clone()).is_err() {
                pr_err!("no room for a list of devices\n");
                break;
            }
        }
        copy
    }

    /// Takes the empty room back, unless another one was made meanwhile.
    fn give_back(&mut self, room: KVec<Arc<Device>>) {
        if self.room.capacity() < room.capacity() {
            self.room = room;
        }
    }
}

/// The half of a session that the transport calls.
#[pin_data]
pub(crate) struct Link {
    name: SessName,
    queue: QueueHandle,
    /// The requests that the transport has, by their tags; set before there is one.
    pub(crate) in_flight: SetOnce<RequestTable<Queue>>,
    #[pin]
    devices: Mutex<Devices>,
    /// The transport, while the session is open; the two know each other.
    #[pin]
    transport: Mutex<Option<Arc<rtrs_client::Session>>>,
    /// How often the last path was lost. What the server said of a device before that is void.
    losses: Atomic<u32>,
    /// What is left to do about link events, in `work`.
    lost: Atomic<bool>,
    is_back: Atomic<bool>,
    again: Atomic<bool>,
    #[pin]
    work: Work<Self>,
    /// How often devices were opened again since the session is back.
    attempts: Atomic<u32>,
    /// Has `work` open those that are left.
    #[pin]
    retry: DelayedWork<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Link { self.retry }
}

impl Session {
    /// Connects to the server, and says hello. Sleeps.
    ///
    /// `ENXIO` if no path is given; the errors of [`rtrs_client::Session::open`], of the server,
    /// and `ENOMEM`.
    pub(crate) fn open(queue: &QueueHandle, options: &MapOptions) -> Result<Arc<Self>> {
        let name = options.sessname;
        let mut paths: KVec<PathAddress> = KVec::new();
        for path in options.paths() {
            paths.push(*path, GFP_KERNEL)?;
        }
        if paths.is_empty() {
            pr_err!(
                "map_device: session {} not found, and path= not given\n",
                name.as_cstr()
            );
            return Err(ENXIO);
        }
        let link = Arc::pin_init(
            pin_init!(Link {
                name,
                queue: queue.clone(),
                in_flight: SetOnce::new(),
                devices <- new_mutex!(Devices::new(), "Link::devices"),
                transport <- new_mutex!(None, "Link::transport"),
                losses: Atomic::new(0),
                lost: Atomic::new(false),
                is_back: Atomic::new(false),
                again: Atomic::new(false),
                work <- new_work!("Link::work"),
                attempts: Atomic::new(0),
                retry <- new_delayed_work!(queue, "Link::retry"),
            }),
            GFP_KERNEL,
        )?;
        let events = Arc::new(Events(link.clone()), GFP_KERNEL)?;
        let params = OpenParams {
            name: name.as_cstr(),
            paths: &paths,
            port: options.dest_port,
            nr_poll_queues: options.nr_poll_queues,
        };
        let transport = rtrs_client::Session::open(&params, events).inspect_err(|error| {
            pr_err!(
                "map_device: cannot open session {}, err: {}\n",
                name.as_cstr(),
                error.to_errno()
            );
        })?;
        Self::with_transport(name, &transport, link).inspect_err(|error| {
            pr_err!(
                "map_device: cannot set up session {}, err: {}\n",
                name.as_cstr(),
                error.to_errno()
            );
            transport.close();
        })
    }

    fn with_transport(
        name: SessName,
        transport: &Arc<rtrs_client::Session>,
        link: Arc<Link>,
    ) -> Result<Arc<Self>> {
        let queue_depth = transport.queue_depth();
        let nr_poll_queues = u32::from(transport.num_poll_queues());
        link.in_flight.populate(RequestTable::new(queue_depth)?);
        let tag_set = TagSet::new(
            TagSetParams {
                queue_depth,
                nr_queues: u32::from(transport.num_irq_queues()),
                nr_poll_queues,
            },
            IoPath {
                transport: transport.clone(),
                link: link.clone(),
            },
        )?;
        let session = Arc::new(
            Self {
                name,
                transport: transport.clone(),
                tag_set,
                nr_poll_queues,
                link: link.clone(),
            },
            GFP_KERNEL,
        )?;
        remote::session_info(transport)?;
        *link.transport.lock() = Some(transport.clone());
        pr_info!(
            "session {}: {} requests of at most {} bytes, {} queues and {} polled ones for {} CPUs\n",
            name.as_cstr(),
            session.tag_set.queue_depth(),
            transport.max_io_size(),
            transport.num_irq_queues(),
            nr_poll_queues,
            cpu::online_cpus()
        );
        Ok(session)
    }

    /// Closes the transport; no request is in flight afterwards and nothing runs any more. Its
    /// devices must be gone. Sleeps.
    pub(crate) fn close(&self) {
        self.transport.close();
        // No link event comes any more.
        drop(self.link.transport.lock().take());
        // Without the transport there is no further attempt.
        workqueue::flush(&self.link);
        DelayedWork::cancel_sync(&self.link);
        workqueue::flush(&self.link);
    }

    /// How often the last path was lost so far. Any context.
    pub(crate) fn losses(&self) -> u32 {
        self.link.losses.load(ordering::Acquire)
    }

    /// Adds a device. `EEXIST` if the session has one of this path. Sleeps.
    pub(crate) fn add_device(&self, device: &Arc<Device>) -> Result {
        let mut devices = self.link.devices.lock();
        if devices.list.iter().any(|other| other.path == device.path) {
            return Err(EEXIST);
        }
        // Who tells of a lost link waits for the lock.
        without_io(|| devices.add(device.clone()))
    }

    /// Forgets a device. Sleeps.
    pub(crate) fn remove_device(&self, device: &Device) {
        let removed = {
            let mut devices = self.link.devices.lock();
            let index = devices
                .list
                .iter()
                .position(|other| core::ptr::eq(&**other, device));
            index.and_then(|index| devices.list.remove(index).ok())
        };
        drop(removed);
    }

    /// Whether there is a device of this path. Sleeps.
    pub(crate) fn has_device(&self, path: &Name) -> bool {
        let devices = self.link.devices.lock();
        devices.list.iter().any(|device| device.path == *path)
    }
}

impl Link {
    /// Opens the devices again that the server had to close; some time later those that failed for
    /// want of memory, as their disk could not be read, or as the path failed that carried the
    /// request, and while requests are held those whose disk the server does not have yet. Others
    /// that fail wait for the administrator. Process context; sleeps.
    fn remap<'a>(self: &Arc<Self>, devices: impl Iterator<Item = &'a Arc<Device>>) {
        let Some(transport) = self.transport.lock().clone() else {
            return;
        };
        // The session need not be lost with a path: another one may have come up, and there is no
        // event then.
        let held = transport.holds_io();
        let may_pass = |error| {
            [ENOMEM, EIO, ECONNABORTED, EAGAIN].contains(&error)
                || held && [ENOENT, ENXIO, ENODEV, ENOMEDIUM].contains(&error)
        };
        let mut again = false;
        match remote::session_info(&transport) {
            Ok(_) => {
                for device in devices {
                    let result = device.link_is_back();
                    again |= result.is_err_and(may_pass);
                    if result.is_err() && !transport.is_connected() {
                        // The others would fail as well.
                        again = true;
                        break;
                    }
                }
            }
            Err(error) => {
                pr_err!(
                    "session {}: the server does not answer, err: {}\n",
                    self.name.as_cstr(),
                    error.to_errno()
                );
                again = may_pass(error);
            }
        }
        let attempt = self.attempts.fetch_add(1, ordering::Relaxed);
        if again && (attempt < ATTEMPTS || held) {
            let most = if held { DOUBLINGS_WHILE_HELD } else { ATTEMPTS };
            let delay = msecs_to_jiffies(FIRST_DELAY_MS << attempt.min(most));
            // It may still wait for an attempt after an earlier loss, and longer.
            let _ = DelayedWork::modify(self.clone(), delay);
        }
    }

    /// Does what is left to do about link events. Requests may wait for it, so [`without_io`].
    fn handle_events(self: &Arc<Self>) {
        // What an event concerns is in the list before it is noted.
        let lost = self.lost.xchg(false, ordering::Full);
        let again = self.again.xchg(false, ordering::Full);
        let is_back = self.is_back.xchg(false, ordering::Full);
        let mut devices = self.devices.lock().copied();
        if lost {
            for device in &devices {
                device.tell_link_lost();
            }
        }
        if is_back {
            self.attempts.store(0, ordering::Relaxed);
            self.remap(devices.iter());
        } else if again {
            let is_left = |device: &&Arc<Device>| device.state() == DeviceState::Disconnected;
            self.remap(devices.iter().filter(is_left));
        }
        devices.clear();
        self.devices.lock().give_back(devices);
    }
}

impl WorkItem for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.handle_events());
    }
}

impl DelayedWorkItem for Link {
    fn run(this: Arc<Self>) {
        // In `work` as well, so that there is one list of devices at a time.
        this.again.store(true, ordering::Release);
        let _ = this.queue.enqueue(this.clone());
    }
}

/// What the transport knows of a session.
struct Events(Arc<Link>);

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        let table = self.0.in_flight.as_ref();
        let request = table.and_then(|table| table.take(tag));
        let Some(request) = request else {
            return;
        };
        if let Err(error) = result {
            request.disk().io_failed(request.op(), error);
        }
        request.complete(Status::from_result(result));
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        let table = self.0.in_flight.as_ref();
        let Some(request) = table.and_then(|table| table.take(tag)) else {
            return;
        };
        let result = if request.disk().waits_after(error) {
            // It comes back through `queue_rq`, where it gets a new message: the server may know
            // the device by another number by then.
            request.requeue()
        } else {
            Err(request)
        };
        if let Err(request) = result {
            let error = error.to_error();
            request.disk().io_failed(request.op(), error);
            request.complete(Status::from_error(error));
        }
    }

    fn link_event(&self, event: LinkEvent) {
        // The transport waits for this to return, so that nothing is asked of it here.
        match event {
            LinkEvent::Disconnected => {
                // Before any device's state changes; see `Device::opened_by_server`.
                self.0.losses.fetch_add(1, ordering::Full);
                for device in self.0.devices.lock().list.iter() {
                    device.link_lost();
                }
                // Whoever sends a request reads its device's number and finds a path under one RCU
                // read lock: with a number of before nobody may find a path that comes now.
                rcu::synchronize_rcu();
                self.0.lost.store(true, ordering::Release);
            }
            LinkEvent::Reconnected => self.0.is_back.store(true, ordering::Release),
        }
        // If the work is queued already, it will see what was noted.
        let _ = self.0.queue.enqueue(self.0.clone());
    }

    fn module(&self) -> Result<ModuleReference> {
        ModuleReference::new::<RnbdClient>()
    }
}
