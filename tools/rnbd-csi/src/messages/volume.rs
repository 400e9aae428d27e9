// SPDX-License-Identifier: GPL-2.0

//! Messages about volumes that several services use.

use super::Empty;
use super::Map;
use crate::wire::message;

message! {
    /// How a volume shall be used.
    VolumeCapability {
        block: Option<Empty> = 1,
        mount: Option<MountVolume> = 2,
        access_mode: Option<AccessMode> = 3,
    }
}

message! {
    /// As a file system.
    MountVolume {
        fs_type: String = 1,
        mount_flags: Vec<String> = 2,
        volume_mount_group: String = 3,
    }
}

message! {
    /// By how many, and for what: a number of [`mode`].
    AccessMode {
        mode: i32 = 1,
    }
}

/// The values of [`AccessMode::mode`].
pub(crate) mod mode {
    pub(crate) const SINGLE_NODE_WRITER: i32 = 1;
    pub(crate) const SINGLE_NODE_READER_ONLY: i32 = 2;
    pub(crate) const MULTI_NODE_READER_ONLY: i32 = 3;
    pub(crate) const MULTI_NODE_SINGLE_WRITER: i32 = 4;
    pub(crate) const MULTI_NODE_MULTI_WRITER: i32 = 5;
    pub(crate) const SINGLE_NODE_SINGLE_WRITER: i32 = 6;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 7;
}

message! {
    /// How large a volume shall be, in bytes; 0 is no bound.
    CapacityRange {
        required_bytes: i64 = 1,
        limit_bytes: i64 = 2,
    }
}

message! {
    /// A volume, as orchestrators know it.
    Volume {
        capacity_bytes: i64 = 1,
        volume_id: String = 2,
        volume_context: Map = 3,
    }
}

message! {
    /// Whether a volume works, and in words why not.
    VolumeCondition {
        abnormal: bool = 1,
        message: String = 2,
    }
}
