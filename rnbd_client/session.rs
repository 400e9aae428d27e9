// SPDX-License-Identifier: GPL-2.0

//! A session: the transport to one server, and the devices that use it.

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
    block::{
        mq::{
            request_table::RequestTable,
            tag_set::{
                TagSet,
                TagSetParams, //
            }, //
        },
        status::Status, //
    },
    cpu,
    impl_has_delayed_work,
    mm::without_io,
    module::ModuleReference,
    new_delayed_work,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    },
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
    client::Client,
    device::Device,
    queue::{
        IoPath,
        Queue, //
    },
    remote,
    RnbdClient, //
};

/// How long a device that could not be opened again waits for the next attempt, in ms; twice as
/// long after each, [`ATTEMPTS`] times, so for four minutes.
const FIRST_DELAY_MS: u32 = 250;
const ATTEMPTS: u32 = 10;

/// As long as requests are held the wait is doubled no more than so often, up to four seconds, and
/// attempts after that do not count.
const DOUBLINGS_WHILE_HELD: u32 = 4;

/// The work item that handles link events.
const EVENTS: u64 = 0;
/// The work item that tells user space of them.
const TELL: u64 = 1;

/// An open session.
pub(crate) struct Session {
    pub(crate) name: SessName,
    pub(crate) transport: Arc<rtrs_client::Session>,
    pub(crate) tag_set: Arc<TagSet<Queue>>,
    pub(crate) nr_poll_queues: u32,
    link: Arc<Link>,
}

/// The half of a session that the transport calls.
#[pin_data]
pub(crate) struct Link {
    name: SessName,
    queue: QueueHandle,
    /// That of `tell`, for which nobody waits.
    news_queue: QueueHandle,
    /// The requests that the transport has, by their tags; set before there is one.
    pub(crate) in_flight: SetOnce<RequestTable<Queue>>,
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
    /// The number of the session that the server has: one more each time that the last path is
    /// lost, from 1. What the server said of a device in an earlier one is void.
    epoch: Atomic<u32>,
    /// The last epoch in which the server was sent the session information; 0 for none.
    greeted: Atomic<u32>,
    /// What is left to do about link events, in `work`.
    lost: Atomic<bool>,
    is_back: Atomic<bool>,
    again: Atomic<bool>,
    #[pin]
    work: Work<Self>,
    /// Tells user space what has become of the devices.
    #[pin]
    tell: Work<Self, TELL>,
    /// How often devices were opened again since the session is back.
    attempts: Atomic<u32>,
    /// Has `work` open those that are left.
    #[pin]
    retry: DelayedWork<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
    impl HasWork<Self, TELL> for Link { self.tell }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Link { self.retry }
}

impl Session {
    /// Connects to the server, and says hello. Sleeps.
    ///
    /// `ENXIO` if no path is given; the errors of [`rtrs_client::Session::open`], of the server,
    /// and `ENOMEM`.
    pub(crate) fn open(client: &Client, options: &MapOptions) -> Result<Arc<Self>> {
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
                queue: client.queue.clone(),
                news_queue: client.news_queue.clone(),
                in_flight: SetOnce::new(),
                devices <- new_mutex!(KVec::new(), "Link::devices"),
                epoch: Atomic::new(1),
                greeted: Atomic::new(0),
                lost: Atomic::new(false),
                is_back: Atomic::new(false),
                again: Atomic::new(false),
                work <- new_work!("Link::work"),
                tell <- new_work!("Link::tell"),
                attempts: Atomic::new(0),
                retry <- new_delayed_work!(&client.queue, "Link::retry"),
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
        remote::greet(&session)?;
        pr_info!(
            "session {}: {} requests of at most {} bytes, {} queues and {} polled ones for \
             {} CPUs\n",
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
        // No link event comes any more, and without devices there is no further attempt.
        workqueue::flush::<_, EVENTS>(&self.link);
        DelayedWork::cancel_sync(&self.link);
        workqueue::flush::<_, EVENTS>(&self.link);
        workqueue::flush::<_, TELL>(&self.link);
    }

    /// The number of the session that the server has now; another one after the last path was lost.
    /// Any context.
    pub(crate) fn epoch(&self) -> u32 {
        self.link.epoch.load(ordering::Acquire)
    }

    /// Whether the server has been sent the session information in this epoch. Any context.
    pub(crate) fn is_greeted(&self, epoch: u32) -> bool {
        self.link.greeted.load(ordering::Relaxed) == epoch
    }

    /// Notes that the server has been sent the session information in this epoch. Any context.
    pub(crate) fn note_greeted(&self, epoch: u32) {
        self.link.greeted.store(epoch, ordering::Relaxed);
    }

    /// Adds a device. `EEXIST` if the session has one of this path. Sleeps.
    pub(crate) fn add_device(&self, device: &Arc<Device>) -> Result {
        let mut devices = self.link.devices.lock();
        if devices.iter().any(|other| other.path == device.path) {
            return Err(EEXIST);
        }
        // Who tells of a lost link waits for the lock.
        Ok(without_io(|| devices.push(device.clone(), GFP_KERNEL))?)
    }

    /// Forgets a device. Sleeps.
    pub(crate) fn remove_device(&self, device: &Device) {
        let removed = {
            let mut devices = self.link.devices.lock();
            let index = devices
                .iter()
                .position(|other| core::ptr::eq(&**other, device));
            index.and_then(|index| devices.remove(index).ok())
        };
        drop(removed);
    }

    /// Whether there is a device of this path. Sleeps.
    pub(crate) fn has_device(&self, path: &Name) -> bool {
        let devices = self.link.devices.lock();
        devices.iter().any(|device| device.path == *path)
    }
}

impl Link {
    /// Opens the devices again that the server had to close; some time later those that failed for
    /// want of memory, as their disk could not be read, or as the path failed that carried the
    /// request, and while requests are held those whose disk the server does not have yet. Others
    /// that fail wait for the administrator. Process context; sleeps.
    fn remap(self: &Arc<Self>, devices: impl Iterator<Item = Arc<Device>>) {
        // Only changed here, one at a time.
        let attempt = self.attempts.load(ordering::Relaxed);
        let mut held = false;
        let mut again = false;
        for device in devices {
            let transport = &device.session.transport;
            held = transport.holds_io();
            let Err(error) = device.link_is_back(attempt == 0) else {
                continue;
            };
            again |= [ENOMEM, EIO, ECONNABORTED, EAGAIN].contains(&error)
                || held && [ENOENT, ENXIO, ENODEV, ENOMEDIUM].contains(&error);
            // The session need not be lost with a path: another one may have come up, and there is
            // no event then.
            if !transport.is_connected() {
                // The others would fail as well.
                again = true;
                break;
            }
        }
        if !held || attempt < DOUBLINGS_WHILE_HELD {
            let next = attempt.saturating_add(1);
            self.attempts.store(next, ordering::Relaxed);
        }
        if again && attempt < ATTEMPTS {
            let delay = msecs_to_jiffies(FIRST_DELAY_MS << attempt);
            // It may still wait for an attempt after an earlier loss, and longer.
            let _ = DelayedWork::modify(self.clone(), delay);
        }
    }

    /// The devices, in the order of their numbers; without memory for a list of them. Sleeps.
    fn each_device(&self) -> impl Iterator<Item = Arc<Device>> + '_ {
        let mut last = None;
        core::iter::from_fn(move || {
            let devices = self.devices.lock();
            let later = devices.iter().filter(|device| Some(device.index()) > last);
            let next = later.min_by_key(|device| device.index())?.clone();
            last = Some(next.index());
            Some(next)
        })
    }

    /// Does what is left to do about link events. Requests may wait for it, so [`without_io`], and
    /// what user space is told is left to `tell`, which may wait for others that allocate with IO.
    fn handle_events(self: &Arc<Self>) {
        // What an event concerns is in the list before it is noted.
        let lost = self.lost.xchg(false, ordering::Full);
        let again = self.again.xchg(false, ordering::Full);
        let is_back = self.is_back.xchg(false, ordering::Full);
        if lost {
            for device in self.each_device() {
                device.note_link_lost();
            }
        }
        if is_back {
            self.attempts.store(0, ordering::Relaxed);
            self.remap(self.each_device());
        } else if again {
            let is_left = |device: &Arc<Device>| device.state() == DeviceState::Disconnected;
            self.remap(self.each_device().filter(is_left));
        }
        // If it is queued already, it will see what was noted.
        let _ = self.news_queue.enqueue::<Self, TELL>(self.clone());
    }
}

impl WorkItem<EVENTS> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.handle_events());
    }
}

impl WorkItem<TELL> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for device in this.each_device() {
            // There is nobody to tell if the device is being made or removed.
            let _ = device.tell_news();
        }
    }
}

impl DelayedWorkItem for Link {
    fn run(this: Arc<Self>) {
        // In `work` as well, so that devices are opened by one at a time.
        this.again.store(true, ordering::Release);
        let _ = this.queue.enqueue::<Self, EVENTS>(this.clone());
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
                self.0.epoch.fetch_add(1, ordering::Full);
                for device in self.0.devices.lock().iter() {
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
        let _ = self.0.queue.enqueue::<Link, EVENTS>(self.0.clone());
    }

    fn module(&self) -> Result<ModuleReference> {
        ModuleReference::new::<RnbdClient>()
    }
}
