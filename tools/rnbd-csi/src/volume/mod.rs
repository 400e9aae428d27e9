// SPDX-License-Identifier: GPL-2.0

//! What a volume is, and what orchestrators keep about it.
//!
//! - [`disk`]: a disk of a server.
//! - [`id`]: a volume: a disk of a server, or a mirror of disks of several servers.
//! - [`context`]: what an orchestrator keeps about a volume, and tells each time.

pub(crate) mod context;
mod disk;
pub(crate) mod id;

pub(crate) use context::Context;
pub(crate) use disk::DiskId;
pub(crate) use id::MirrorId;
pub(crate) use id::VolumeId;

use crate::grpc::Result;
use crate::grpc::Status;

/// An error if a field of a request is empty that has to be there.
pub(crate) fn needed(name: &str, value: &str) -> Result {
    match value.is_empty() {
        true => Err(Status::invalid(format!("{name} is missing"))),
        false => Ok(()),
    }
}
