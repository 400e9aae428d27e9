// SPDX-License-Identifier: GPL-2.0

//! A session: the transport to one server, and the devices that use it.

use kernel::{
    impl_has_work,
    new_work,
    sync::Arc,
    time::msecs_to_jiffies,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    block::mq::tag_set::{
        TagSet,
        TagSetParams, //
    },
    cpu,
    impl_has_delayed_work,
    mm::without_io,
    module::ModuleReference,
    new_delayed_work,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu,
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
    map_options::SessionOptions,
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
    device_list::DeviceList,
    drain::{
        self,
        Leaving, //
    },
    in_flight::InFlight,
    news::NewsReader,
    queue::{
        IoSession,
        Queue, //
    },
    reopening::Reopening,
    server::{
        Epoch,
        Server, //
    }, //
};

/// How long the client waits before it asks for news, in ms: after the server has rung, and between
/// two questions about devices that were opened. So the server is not asked more often than that.
const RUNG_DELAY_MS: u32 = 250;
/// How long the client waits after a failed attempt to ask for news, in ms.
const NEWS_DELAY_MS: u32 = 1000;

/// The work item that handles link events.
const EVENTS: u64 = 0;
/// The work item that sends uevents.
const UEVENTS: u64 = 1;
/// The work item by which news are asked for.
const ASK: u64 = 2;
/// The work item by which the server is left.
const LEAVE: u64 = 3;

/// What sessions need of the module.
#[derive(Clone)]
pub(crate) struct SessionContext {
    /// The workqueue for work that requests may wait for.
    pub(crate) queue: QueueHandle,
    /// The workqueue for uevents.
    pub(crate) uevent_queue: QueueHandle,
    /// The workqueue for work that waits for requests.
    pub(crate) limits_queue: QueueHandle,
    /// Takes a reference to the module, which keeps the module loaded.
    pub(crate) module: fn() -> Result<ModuleReference>,
}

/// An open session.
pub(crate) struct Session {
    pub(crate) server: Arc<Server>,
    pub(crate) tag_set: Arc<TagSet<Queue>>,
    pub(crate) nr_poll_queues: u32,
    link: Arc<Link>,
}

/// The half of a session that the transport calls.
#[pin_data]
struct Link {
    context: SessionContext,
    epoch: Arc<Epoch>,
    /// Set before there is a request.
    in_flight: SetOnce<Arc<InFlight>>,
    #[pin]
    devices: DeviceList,
    /// Events that `work` has yet to handle: the session was lost, is back, or devices are to be
    /// opened again.
    lost: Atomic<bool>,
    is_back: Atomic<bool>,
    again: Atomic<bool>,
    /// The server's news, which `work` reads.
    news: NewsReader,
    #[pin]
    work: Work<Self>,
    /// Sends the devices' pending uevents.
    #[pin]
    uevents: Work<Self, UEVENTS>,
    /// The attempts to open devices again. Used by `work` only.
    reopening: Reopening,
    /// Has `work` open the devices that are left.
    #[pin]
    retry: DelayedWork<Self>,
    /// Has `work` ask for news.
    #[pin]
    ask: DelayedWork<Self, ASK>,
    /// Whether `work` is about to leave the server.
    #[pin]
    leaving: Leaving,
    /// Has `work` look whether it can leave the server.
    #[pin]
    leave: DelayedWork<Self, LEAVE>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
    impl HasWork<Self, UEVENTS> for Link { self.uevents }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Link { self.retry }
    impl HasDelayedWork<Self, ASK> for Link { self.ask }
    impl HasDelayedWork<Self, LEAVE> for Link { self.leave }
}

impl Session {
    /// Connects to the server, and sends the session information. Sleeps.
    ///
    /// `ENXIO` if no path is given; the errors of [`rtrs_client::Session::open`], of the server,
    /// and `ENOMEM`.
    pub(crate) fn open(context: &SessionContext, options: &SessionOptions) -> Result<Arc<Self>> {
        let name = options.sessname;
        let mut paths: KVec<PathAddress> = KVec::new();
        for path in options.paths() {
            paths.push(*path, GFP_KERNEL)?;
        }
        if paths.is_empty() {
            pr_err!(
                "session {} not found, and path= not given: give path= to open the session\n",
                name.as_cstr()
            );
            return Err(ENXIO);
        }
        let failed = |what: &'static str| {
            move |error: &Error| {
                pr_err!(
                    "cannot {} session {}, err: {}\n",
                    what,
                    name.as_cstr(),
                    error.to_errno()
                );
            }
        };
        let link = Link::new(context)?;
        let params = OpenParams {
            name: name.as_cstr(),
            paths: &paths,
            port: options.dest_port,
            num_poll_queues: options.nr_poll_queues,
            reconnect: None,
        };
        let events = Arc::new(Events(link.clone()), GFP_KERNEL)?;
        let transport = rtrs_client::Session::open(&params, events).inspect_err(failed("open"))?;
        Self::with_transport(name, &transport, link)
            .inspect_err(failed("set up"))
            .inspect_err(|_| transport.close())
    }

    // Not inlined, so that it takes no room on the stack while the transport connects, which needs
    // most of the stack.
    #[inline(never)]
    fn with_transport(
        name: SessName,
        transport: &Arc<rtrs_client::Session>,
        link: Arc<Link>,
    ) -> Result<Arc<Self>> {
        let queue_depth = transport.queue_depth();
        let nr_poll_queues = u32::from(transport.num_poll_queues());
        let in_flight = InFlight::new(queue_depth)?;
        link.in_flight.populate(in_flight.clone());
        let tag_set = TagSet::new(
            TagSetParams {
                queue_depth,
                nr_queues: u32::from(transport.num_irq_queues()),
                nr_poll_queues,
            },
            IoSession {
                transport: transport.clone(),
                in_flight,
            },
        )?;
        let server = Server::new(name, transport.clone(), link.epoch.clone());
        server.greet()?;
        pr_info!(
            "session {}: {} requests of at most {} bytes, {} queues and {} polled ones for \
             {} CPUs\n",
            name.as_cstr(),
            tag_set.queue_depth(),
            transport.max_io_size(),
            transport.num_irq_queues(),
            nr_poll_queues,
            cpu::online_cpus()
        );
        let session = Self {
            server: Arc::new(server, GFP_KERNEL)?,
            tag_set,
            nr_poll_queues,
            link,
        };
        Ok(Arc::new(session, GFP_KERNEL)?)
    }

    /// Closes the transport. No request is in flight afterwards, and no work runs any more. The
    /// session's devices must be gone. Sleeps.
    pub(crate) fn close(&self) {
        self.server.transport.close();
        // The devices of abandoned requests keep the session.
        if let Some(in_flight) = self.link.in_flight.as_ref() {
            in_flight.close();
        }
        // No link event comes any more, and without devices there is no further attempt.
        workqueue::flush::<_, EVENTS>(&self.link);
        DelayedWork::<Link>::cancel_sync(&self.link);
        DelayedWork::<Link, ASK>::cancel_sync(&self.link);
        DelayedWork::<Link, LEAVE>::cancel_sync(&self.link);
        workqueue::flush::<_, EVENTS>(&self.link);
        workqueue::flush::<_, UEVENTS>(&self.link);
    }

    /// Adds a device. `EEXIST` if the session has a device of this path. Sleeps.
    pub(crate) fn add_device(&self, device: &Arc<Device>) -> Result {
        self.link.devices.add(device)
    }

    /// Asks the server for news of all devices, in the background: a device was opened. If a
    /// question was asked just before, the next one waits, so that many devices that are opened in
    /// a row take few questions. Any context.
    pub(crate) fn want_news(&self) {
        self.link.news.want_all();
        // While this work is queued, it will ask.
        let delay = msecs_to_jiffies(RUNG_DELAY_MS);
        if DelayedWork::<Link, ASK>::queue(self.link.clone(), delay).is_ok() {
            self.link.queue_work();
        }
    }

    /// Removes a device from the list. The caller has unmapped the device. Sleeps.
    pub(crate) fn remove_device(&self, device: &Device) {
        self.link.devices.remove(device);
        self.link.queue_work();
    }

    /// `EHOSTDOWN` while the server is away on purpose, so that no device can be opened. Any
    /// context.
    pub(crate) fn check_away(&self) -> Result {
        if self.server.transport.is_server_away() {
            return Err(EHOSTDOWN);
        }
        Ok(())
    }

    /// Whether there is a device of this path. Sleeps.
    pub(crate) fn has_device(&self, path: &Name) -> bool {
        self.link.devices.has(path)
    }
}

impl Link {
    fn new(context: &SessionContext) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                context: context.clone(),
                epoch: Arc::new(Epoch::new(), GFP_KERNEL)?,
                in_flight: SetOnce::new(),
                devices <- DeviceList::new(),
                lost: Atomic::new(false),
                is_back: Atomic::new(false),
                again: Atomic::new(false),
                news: NewsReader::new(),
                work <- new_work!("Link::work"),
                uevents <- new_work!("Link::uevents"),
                reopening: Reopening::new(),
                retry <- new_delayed_work!(&context.queue, "Link::retry"),
                ask <- new_delayed_work!(&context.queue, "Link::ask"),
                leaving <- Leaving::new(),
                leave <- new_delayed_work!(&context.queue, "Link::leave"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Opens devices again, and has the devices that are left opened later. Process context;
    /// sleeps.
    fn remap(self: &Arc<Self>, devices: impl Iterator<Item = Arc<Device>>) {
        if let Some(delay) = self.reopening.open(devices) {
            // The timer may still run for an attempt after an earlier loss, and for longer.
            let _ = DelayedWork::<Self>::modify(self.clone(), msecs_to_jiffies(delay));
        }
    }

    /// Has `work` look at the events that were noted. Any context.
    fn queue_work(self: &Arc<Self>) {
        // If the work is queued already, it will see the events.
        let _ = self.context.queue.enqueue::<Self, EVENTS>(self.clone());
    }

    /// Asks the server for news before devices are opened, if the server was away: new devices are
    /// not to wait until each device was opened. Process context; sleeps.
    fn ask_whether_back(self: &Arc<Self>) {
        let Some(device) = self.devices.each().next() else {
            return;
        };
        let server = &device.remote.server;
        // Opening a device greets the server again if this fails.
        if server.transport.is_server_away() && server.greet().is_ok() {
            self.read_news();
        }
    }

    /// Asks the server for changes of disks; returns whether there were any. After a failure asks
    /// again some time later, unless the response was invalid. Process context; sleeps.
    fn read_news(self: &Arc<Self>) -> bool {
        // Without devices there is nothing to ask for.
        let Some(device) = self.devices.each().next() else {
            return false;
        };
        let server = &device.remote.server;
        let mut is_noted = false;
        let epoch = server.epoch();
        if server.features_in(epoch).is_none() {
            // No device was opened yet, so there are no news.
            return false;
        }
        let result = self.news.read(server, epoch, |response| {
            self.devices
                .for_each(|device| is_noted |= device.take_news(response, epoch));
        });
        let error = match result {
            Ok(drain_ms) => {
                self.leaving
                    .told(server, epoch, drain_ms, self.devices.each());
                return is_noted;
            }
            Err(error) => error,
        };
        // Without a path nothing is logged: another path may come before the session is lost. If
        // the session was lost and is back, its event asks again.
        if server.transport.is_connected() && server.epoch() == epoch {
            kernel_ext::pr_info_ratelimited!(
                "session {}: the client cannot learn whether the server's disks have changed, \
                 err: {}\n",
                server.session.as_cstr(),
                error.to_errno()
            );
        }
        if error == EINVAL {
            // A server with an invalid response is there, and does not say that it is draining.
            self.leaving.told(server, epoch, None, self.devices.each());
        } else {
            self.ask_in(NEWS_DELAY_MS);
        }
        is_noted
    }

    /// Has news asked for in `delay` ms, or earlier if a question is due earlier. Any context.
    fn ask_in(self: &Arc<Self>, delay: u32) {
        self.news.want();
        let _ = DelayedWork::<Self, ASK>::queue(self.clone(), msecs_to_jiffies(delay));
    }

    /// Handles the events that were noted. Requests may wait for this: memory is allocated
    /// [`without_io`], and uevents are left to another work item.
    fn handle_events(self: &Arc<Self>) {
        // The devices that an event concerns are in the list before the event is noted.
        let lost = self.lost.xchg(false, ordering::Full);
        let again = self.again.xchg(false, ordering::Full);
        let is_back = self.is_back.xchg(false, ordering::Full);
        let wants_news = self.news.take_wanted();
        if lost {
            for device in self.devices.each() {
                device.note_link_lost();
            }
        }
        if is_back {
            self.ask_whether_back();
            self.reopening.begin();
            // A session that is left again at once opens no device: the next session does.
            if !self.is_leaving() {
                self.remap(self.devices.each());
            }
        } else if again && !self.is_leaving() {
            let is_left = |device: &Arc<Device>| {
                let remote = &device.remote;
                remote.state() == DeviceState::Disconnected && !remote.is_closed_by_server()
            };
            self.remap(self.devices.each().filter(is_left));
        }
        let is_event = lost || is_back || again;
        if is_event {
            // Before the server is asked, since that may take long.
            self.queue_uevents();
        }
        if (is_back || again || wants_news) && self.read_news() {
            self.queue_uevents();
        }
        self.go_on_draining();
    }

    /// Whether the server's present session is being left: devices are opened in the next session.
    /// Sleeps.
    fn is_leaving(&self) -> bool {
        self.leaving.is_of(self.epoch.get())
    }

    /// Goes on with leaving a server that goes away on purpose. Process context; sleeps.
    fn go_on_draining(self: &Arc<Self>) {
        let Some(device) = self.devices.each().next() else {
            return;
        };
        let server = &device.remote.server;
        if self.leaving.go_on(server) {
            let delay = msecs_to_jiffies(drain::LOOK_AGAIN_MS);
            // If the work is queued already, it looks then.
            let _ = DelayedWork::<Self, LEAVE>::queue(self.clone(), delay);
        }
        // Requests wait no longer if the server is back and no device is awaited.
        if !self.devices.any(|device| device.remote.is_awaited()) {
            server.transport.end_drain();
        }
    }

    /// Has the devices' pending uevents sent. Any context.
    fn queue_uevents(self: &Arc<Self>) {
        // If the work is queued already, it will see these uevents.
        let queue = &self.context.uevent_queue;
        let _ = queue.enqueue::<Self, UEVENTS>(self.clone());
    }
}

impl WorkItem<EVENTS> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.handle_events());
    }
}

impl WorkItem<UEVENTS> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for device in this.devices.each() {
            // The uevents stay pending while the device has no disk.
            let _ = device.send_uevents();
        }
    }
}

impl DelayedWorkItem for Link {
    fn run(this: Arc<Self>) {
        // Devices are opened in `work`, so that one task at a time opens them.
        this.again.store(true, ordering::Release);
        this.queue_work();
    }
}

impl DelayedWorkItem<ASK> for Link {
    fn run(this: Arc<Self>) {
        this.queue_work();
    }
}

impl DelayedWorkItem<LEAVE> for Link {
    fn run(this: Arc<Self>) {
        this.queue_work();
    }
}

/// The session, as the transport knows it.
struct Events(Arc<Link>);

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        if let Some(in_flight) = self.0.in_flight.as_ref() {
            in_flight.complete(tag, result);
        }
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        if let Some(in_flight) = self.0.in_flight.as_ref() {
            in_flight.ended_without_response(tag, error);
        }
    }

    fn tag_of_moved(&self, number: u32) -> u32 {
        let in_flight = self.0.in_flight.as_ref();
        in_flight.map_or(number, |in_flight| in_flight.tag_of_moved(number))
    }

    fn abandoned_ended(&self, tag: u32) {
        if let Some(in_flight) = self.0.in_flight.as_ref() {
            in_flight.abandoned_ended(tag);
        }
    }

    fn link_event(&self, event: LinkEvent) {
        // The transport waits for this function, so nothing is asked of the transport here.
        match event {
            LinkEvent::Disconnected => {
                // Before any device's state changes; see `RemoteDevice::opened_by_server`.
                self.0.epoch.end();
                self.0.devices.for_each(|device| device.remote.link_lost());
                // A task that sends a request reads its device's number and finds a path under one
                // RCU read lock. After the grace period no task with an old number can find a path
                // that comes now.
                rcu::synchronize_rcu();
                self.0.lost.store(true, ordering::Release);
            }
            LinkEvent::Reconnected => self.0.is_back.store(true, ordering::Release),
        }
        self.0.queue_work();
    }

    fn doorbell(&self, number: u32) {
        if !self.0.news.has_read(self.0.epoch.get(), number) {
            self.0.ask_in(RUNG_DELAY_MS);
        }
    }

    fn module(&self) -> Result<ModuleReference> {
        (self.0.context.module)()
    }
}
