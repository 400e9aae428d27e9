// SPDX-License-Identifier: GPL-2.0

//! Devices, sessions and paths of this machine as a client and as a server.
//!
//! All types are plain data. The field names are those of the JSON output. Its schema has their
//! documentation, too ([`crate::schema`]); there `null` stands for `None`.

mod block_stat;
mod client;
mod clients;
mod latency;
mod names;
mod path;
mod rdma;
mod server;
mod settings;
mod version;

pub use block_stat::BlockStat;
pub use client::AccessMode;
pub use client::Client;
pub use client::ClientDevice;
pub use client::ClientSession;
pub use client::DeviceState;
pub use client::IoModeWish;
pub use client::Policy;
pub use client::SessionState;
pub use clients::ClientUse;
pub use clients::Reserved;
pub use clients::ServerClients;
pub use latency::Bucket;
pub use latency::DeviceLatency;
pub use latency::KindLatency;
pub use latency::Latency;
pub use latency::StageLatency;
pub use names::natural_cmp;
pub use path::Path;
pub use path::PathState;
pub use path::PathStats;
pub use path::Side;
pub use rdma::rdma_mtu;
pub use rdma::Gid;
pub use rdma::RdmaDevice;
pub use rdma::RdmaPort;
pub use server::Export;
pub use server::Server;
pub use server::ServerDevice;
pub use server::ServerSession;
pub use settings::range;
pub use settings::Settings;
pub use version::Version;
pub use version::JSON_VERSION;
