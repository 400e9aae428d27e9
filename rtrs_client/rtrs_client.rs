// SPDX-License-Identifier: GPL-2.0

//! RTRS client: RDMA transport, initiating end.
//!
//! A user opens a [`Session`] with a server, over one or more paths, and sends requests: a header
//! of its own, and data to or from the server's user. Each tag has one request at a time. The user
//! chooses the tags, of which there are [`Session::queue_depth`]. Tasks that wait for their
//! requests can use a [`SyncSession`] instead. The transport does not know what the requests mean.
//! `Documentation/rtrs-api.md` says which functions may be called in which context.
//!
//! ```ignore
//! let session = Session::open(&params, events)?;
//! session.service_request(&header, ServiceData::FromServer(&mut response), || Ok(()))?;
//!
//! let mut permit = session.permit(tag).ok_or(EBUSY)?;
//! fill(permit.scatter());
//! session.send(permit, Kind::Write, queue, &header)?; // events.complete(tag, result) follows.
//! ```
//!
//! Requests that come together go into a [`Submission`], so that the device is told of all at once.

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
    device::class::Class,
    prelude::*,
    rdma::client::Registration,
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};

mod abandon;
mod availability;
mod backoff;
mod connection;
mod connection_set;
mod drain;
mod events;
mod failover;
mod globals;
mod handler;
mod heartbeat;
mod hotplug;
mod incarnation;
mod leave;
mod outcome;
mod owned_session;
mod params;
mod path;
mod permit;
mod policy;
mod poll;
mod requests;
mod service;
mod session;
mod session_core;
mod sessions;
mod settings;
mod sharing;
mod stats;
mod submission;
mod sync_session;
mod sysfs;
mod task_tags;
mod work;

pub use kernel_ext::{
    module::ModuleReference,
    page::buffer::PageBuffer,
    scatterlist::ScatterTable, //
};
pub use proto::addr::PathAddress;

pub use crate::{
    events::{
        LinkEvent,
        SessionEvents,
        SubmitError, //
    },
    outcome::Outcome,
    owned_session::OwnedSession,
    permit::Permit,
    requests::{
        request::{
            Kind,
            MAX_USER_HEADER, //
        },
        submit::SubmissionRoom, //
    },
    service::ServiceData,
    session::{
        OpenParams,
        Session, //
    },
    session_core::SessionCore,
    settings::Reconnect,
    submission::Submission,
    sync_session::SyncSession,
    task_tags::{
        TaskTag,
        TaskTags, //
    }, //
};

module! {
    type: RtrsClient,
    name: "rtrs_client",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: RDMA transport, initiating end",
    license: "GPL",
}

/// The module. Its users, which hold the sessions, prevent that it is unloaded.
struct RtrsClient {
    _devices: Registration<hotplug::Devices>,
    /// Dropped last: dropping it waits for all work.
    _queue: OwnedQueue,
}

impl kernel::Module for RtrsClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let queue = OwnedQueue::new(
            c"rtrs_client",
            QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM,
        )?;
        let globals = globals::Globals {
            class: Class::new(c"rtrs-client")?,
            sessions: sessions::Sessions::new()?,
            queue: queue.handle(),
            module: ModuleReference::new::<Self>,
        };
        let devices = hotplug::Devices::register()?;
        globals::set_globals(Some(Arc::new(globals, GFP_KERNEL)?));
        Ok(Self {
            _devices: devices,
            _queue: queue,
        })
    }
}

impl Drop for RtrsClient {
    fn drop(&mut self) {
        globals::set_globals(None);
    }
}
