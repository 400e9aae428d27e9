// SPDX-License-Identifier: GPL-2.0

//! RNBD server: block devices for remote clients.
//!
//! A client's session opens devices by their path below the search path; its requests become bios
//! of those devices. What a session has open is shown below `/sys/class/rnbd-server/ctl/devices`.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    class::{
        Class,
        ClassDevice, //
    },
    sysfs::Directory,
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};
use rtrs_server::Listener;

mod control;
mod device_table;
mod export;
mod handle;
mod io;
mod params;
mod server;
mod session;
mod session_device;
mod sysfs;

use server::{
    Server,
    Sessions, //
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
    // Dropped in this order: no client can come in any more and all sessions are down; what they
    // have queued is done; then there is nothing left in the directories.
    _listener: Listener,
    _queue: OwnedQueue,
    _server: Arc<Server>,
    _ctl: ClassDevice<()>,
    _class: Class,
}

impl kernel::Module for RnbdServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let class = Class::new(c"rnbd-server")?;
        let ctl = class.device(c"ctl", &[], Arc::new((), GFP_KERNEL)?)?;
        let devices = Directory::empty(&ctl, c"devices")?;
        ctl.announce();
        let queue = OwnedQueue::new(c"rnbd_server", QueueFlags::UNBOUND)?;
        let server = Server::new(devices, queue.handle())?;
        let sessions = Arc::new(Sessions(server.clone()), GFP_KERNEL)?;
        let port = *params::PORT_NR.get();
        let listener = Listener::open(sessions, port)
            .inspect_err(|error| pr_err!("cannot listen on port {}: {:?}\n", port, error))?;
        Ok(Self {
            _listener: listener,
            _queue: queue,
            _server: server,
            _ctl: ctl,
            _class: class,
        })
    }
}
