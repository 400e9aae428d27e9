// SPDX-License-Identifier: GPL-2.0

//! Changes devices, sessions and paths, and explains the kernel's errors.

pub mod device;
pub mod discover;
pub mod drain;
pub mod errno;
pub mod export;
pub mod fabric;
pub mod join;
pub mod latency;
pub mod map;
pub mod path;
pub mod policy;
pub mod session;
pub mod stats;
mod tunable;
mod write;

pub use discover::discover;
pub use discover::DiscoverRequest;
pub use discover::RemoteDisk;
pub use map::map;
pub use map::MapRequest;
pub use map::Mapped;
