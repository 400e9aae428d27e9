// SPDX-License-Identifier: GPL-2.0

//! RTRS client: RDMA transport, initiating end.
//!
//! A user opens a [`Session`] with a server, over one or more paths, and sends requests: a header
//! of its own, and data to or from the server's user. There is one request per tag at a time; the
//! user chooses the tags (a block driver uses those of its tag set), of which there are
//! [`Session::queue_depth`]. The transport knows nothing of what the requests mean.
//!
//! ```ignore
//! let session = Session::open(&params, events)?;
//! session.service_request(&header, ServiceData::FromServer(&mut answer), || Ok(()))?;
//!
//! let mut permit = session.permit(tag).ok_or(EBUSY)?;
//! fill(permit.scatter());
//! let guard = rcu::read_lock();
//! let mut room = MaybeUninit::uninit();
//! let mut submission = Submission::new(&session, &guard, &mut room);
//! submission.add(permit, Kind::Write, queue, &header)?; // … events.complete(tag, result) follows.
//! ```

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
    device::class::Class,
    rdma::client::Registration,
    sync::rcu::RcuArc,
    workqueue::{
        OwnedQueue,
        QueueFlags,
        QueueHandle, //
    }, //
};

mod backoff;
mod beat;
mod bounce;
mod connection;
mod establish;
mod hotplug;
mod incarnation;
mod link;
mod outage;
mod params;
mod path;
mod permit;
mod policy;
mod request;
mod service;
mod session;
mod settings;
mod stats;
mod submission;
mod sysfs;
mod transfer;
mod work;

pub use crate::{
    permit::{
        Permit,
        SubmitError, //
    },
    request::Kind,
    service::ServiceData,
    session::{
        LinkEvent,
        OpenParams,
        Session,
        SessionEvents, //
    },
    submission::Submission,
    transfer::FullBatch, //
};

module! {
    type: RtrsClient,
    name: "rtrs_client",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: RDMA transport, initiating end",
    license: "GPL",
}

/// What sessions need of the module.
struct Globals {
    class: Class,
    sessions: Arc<hotplug::Sessions>,
    queue: QueueHandle,
}

static GLOBALS: RcuArc<Globals> = RcuArc::empty();

fn globals() -> Result<Arc<Globals>> {
    GLOBALS.get().ok_or(ENODEV)
}

/// The module; dropped when it is unloaded, which its users, who hold the sessions, prevent.
struct RtrsClient {
    _devices: Registration<hotplug::Devices>,
    /// Dropped last: it waits for all work.
    _queue: OwnedQueue,
}

impl kernel::Module for RtrsClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let queue = OwnedQueue::new(
            c"rtrs_client",
            QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM,
        )?;
        let globals = Globals {
            class: Class::new(c"rtrs-client")?,
            sessions: hotplug::Sessions::new()?,
            queue: queue.handle(),
        };
        let devices = hotplug::Devices::register()?;
        drop(GLOBALS.replace(Some(Arc::new(globals, GFP_KERNEL)?)));
        Ok(Self {
            _devices: devices,
            _queue: queue,
        })
    }
}

impl Drop for RtrsClient {
    fn drop(&mut self) {
        drop(GLOBALS.replace(None));
    }
}
