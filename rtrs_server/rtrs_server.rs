// SPDX-License-Identifier: GPL-2.0

//! RTRS server: RDMA transport, serving end.
//!
//! A [`Listener`] accepts the connections of clients. Each client is a [`Session`]: a number of
//! chunks of memory for the client's requests, and one or more paths. A path has a service
//! connection, and as many connections for requests as the client makes: usually one for each CPU
//! of the client. A request becomes an [`Operation`], which the listener's user gets through its
//! [`SessionHandler`] and responds to when the request is done.
//! `Documentation/rtrs-api.md` says what may be called where.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::prelude::*;
use proto::rtrs::{
    MAX_HDR_SIZE,
    PROTO_VER_MAJOR,
    PROTO_VER_MINOR, //
};

mod accept;
mod admission;
mod authenticate;
mod chunk;
mod claims;
mod clients;
mod connect;
mod connection;
mod context;
mod establish;
mod fifo;
mod in_place;
mod limits;
mod listener;
mod long_copies;
mod memory;
mod negotiation;
mod operation;
mod origin;
mod params;
mod path;
mod path_core;
mod path_end;
mod path_io;
mod pool;
mod private;
mod request;
mod response;
mod send_queue;
mod session;
mod session_io;
mod sessions;
mod sysfs;
mod teardown;
mod times;
mod worker;
mod wr_kind;

pub use kernel_ext::rdma::chunk::single::ChunkData;
pub use proto::{
    addr::Address,
    client_id::ClientId, //
};

pub use chunk::{
    Direction,
    MAX_INLINE_HEADER, //
};
pub use listener::Listener;
pub use operation::{
    Operation,
    SessionHandler,
    Worker, //
};
pub use session::{
    Server,
    Session, //
};
pub use session_io::Needs;
pub use times::Times;

module! {
    type: RtrsServer,
    name: "rtrs_server",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS server: RDMA transport, serving end",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RtrsServer {
    _devices: listener::DevicesOwner,
    _context: context::ContextOwner,
}

impl kernel::Module for RtrsServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let settings = params::Settings::new()?;
        let layout = &settings.layout;
        pr_info!(
            "RTRS {}.{}: max_chunk_size {} (data {}, headers {}), sess_queue_depth {}, \
             always_invalidate {}\n",
            PROTO_VER_MAJOR,
            PROTO_VER_MINOR,
            layout.chunk_size(),
            settings.max_io_size,
            MAX_HDR_SIZE,
            layout.queue_depth(),
            u8::from(settings.always_invalidate)
        );
        let context = context::ContextOwner::new::<Self>(settings)?;
        Ok(Self {
            _devices: listener::DevicesOwner::new()?,
            _context: context,
        })
    }
}
