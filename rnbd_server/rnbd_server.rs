// SPDX-License-Identifier: GPL-2.0

//! RNBD server: block devices for remote clients.
//!
//! A client's session opens devices by their path below the search path: block devices, whose
//! requests become bios, and regular files, whose requests become `kiocb`s. The devices that
//! sessions have open are shown below `/sys/class/rnbd-server/ctl/devices`.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::sync::Arc;
use kernel_ext::{
    device::class::{
        Class,
        ClassDevice, //
    },
    module::{
        ModuleReference,
        Returned, //
    },
    prelude::*,
    sysfs::Directory,
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};
mod commands;
mod control;
mod device_table;
mod discovery;
mod disk;
mod drain;
mod export;
mod export_policy;
mod file;
mod handle;
mod handler;
mod io;
mod io_completion;
mod latency;
mod machine;
mod news;
mod params;
mod reservation_store;
mod reservation_table;
mod reservations;
mod reserved_disks;
mod server;
mod service;
mod session;
mod session_device;
mod session_list;
mod unfinished;
mod walk;
mod watch;

use export_policy::ExportPolicy;
use handler::Sessions;
use reservation_store::ReservationStore;
use reserved_disks::ReservedDisks;
use server::Server;
use service::{
    Service,
    StopService, //
};
use unfinished::{
    StopUnfinished,
    Unfinished, //
};
use watch::{
    StopWatch,
    Watch, //
};

module! {
    type: RnbdServer,
    name: "rnbd_server",
    authors: ["The RNBD in Rust developers"],
    description: "RNBD server: block devices for remote clients",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RnbdServer {
    // Dropped in this order. First no client can come in any more and all sessions are down. Then
    // no task looks at the sessions' disks. Then all queued work is done, and nothing is left in
    // the directories.
    _service: StopService,
    _watch: StopWatch,
    _unfinished: StopUnfinished,
    _queues: [OwnedQueue; 2],
    _server: Arc<Server>,
    _ctl: ClassDevice<Service>,
    _class: Class,
    // Waits for functions that end bios: they may return after their devices were closed.
    _returned: Returned,
}

impl kernel::Module for RnbdServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Made first, so that it is dropped last after an error, too: clients may have been let in.
        let returned = Returned::new();
        let policy = ExportPolicy::new(*params::REQUIRE_EXPORT_POLICY.get())?;
        let reserved = ReservedDisks::new(ReservationStore::open(params::STATE_DIR.get())?)?;
        let service = Service::new(policy.clone(), reserved.clone())?;
        let class = Class::new(c"rnbd-server")?;
        let ctl = class.device(c"ctl", service::FILES, service.clone())?;
        let devices = Directory::empty(&ctl, c"devices")?;
        let queue = OwnedQueue::new(c"rnbd_server", QueueFlags::UNBOUND)?;
        let discovery = OwnedQueue::new(c"rnbd_server_discovery", QueueFlags::ORDERED)?;
        let (handle, discovery_handle) = (queue.handle(), discovery.handle());
        let module = ModuleReference::new::<Self>;
        let server = Server::new(devices, reserved, policy, handle, discovery_handle, module)?;
        let watch = StopWatch(Watch::new(server.clone())?);
        let unfinished = StopUnfinished(Unfinished::new(server.clone())?);
        let sessions = Sessions {
            server: server.clone(),
            watch: watch.0.clone(),
            unfinished: unfinished.0.clone(),
        };
        let service = StopService(service);
        service.0.serve(Arc::new(sessions, GFP_KERNEL)?)?;
        ctl.add_file(&service::EXPORT_POLICY)?;
        // Announced when the file is there: a program may be waiting to write to it.
        ctl.announce();
        Ok(Self {
            _service: service,
            _watch: watch,
            _unfinished: unfinished,
            _queues: [queue, discovery],
            _server: server,
            _ctl: ctl,
            _class: class,
            _returned: returned,
        })
    }
}
