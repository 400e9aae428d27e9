// SPDX-License-Identifier: GPL-2.0

//! Messages of the node service.

use super::CapacityRange;
use super::Map;
use super::VolumeCapability;
use super::VolumeCondition;
use crate::wire::message;

message! {
    /// Maps a disk, and mounts its file system for the node.
    NodeStageVolumeRequest {
        volume_id: String = 1,
        publish_context: Map = 2,
        staging_target_path: String = 3,
        volume_capability: Option<VolumeCapability> = 4,
        volume_context: Map = 6,
    }
}

message! {
    /// Undoes the staging.
    NodeUnstageVolumeRequest {
        volume_id: String = 1,
        staging_target_path: String = 2,
    }
}

message! {
    /// Gives a staged volume to a container.
    NodePublishVolumeRequest {
        volume_id: String = 1,
        publish_context: Map = 2,
        staging_target_path: String = 3,
        target_path: String = 4,
        volume_capability: Option<VolumeCapability> = 5,
        readonly: bool = 6,
        volume_context: Map = 8,
    }
}

message! {
    /// Takes a volume from a container.
    NodeUnpublishVolumeRequest {
        volume_id: String = 1,
        target_path: String = 2,
    }
}

message! {
    /// Asks how full a volume is.
    NodeGetVolumeStatsRequest {
        volume_id: String = 1,
        volume_path: String = 2,
        staging_target_path: String = 3,
    }
}

message! {
    /// How full a volume is, and whether it works. The specification had the condition from 1.3 on,
    /// as an alpha field, and has withdrawn it in its newest version.
    NodeGetVolumeStatsResponse {
        usage: Vec<VolumeUsage> = 1,
        volume_condition: Option<VolumeCondition> = 2,
    }
}

message! {
    /// How much of a volume is used, in [`unit`].
    VolumeUsage {
        available: i64 = 1,
        total: i64 = 2,
        used: i64 = 3,
        unit: i32 = 4,
    }
}

/// The values of [`VolumeUsage::unit`].
pub(crate) mod unit {
    pub(crate) const BYTES: i32 = 1;
    pub(crate) const INODES: i32 = 2;
}

message! {
    /// Has a node use all of a volume that has grown.
    NodeExpandVolumeRequest {
        volume_id: String = 1,
        volume_path: String = 2,
        capacity_range: Option<CapacityRange> = 3,
        staging_target_path: String = 4,
        volume_capability: Option<VolumeCapability> = 5,
    }
}

message! {
    /// How large it is now, in bytes.
    NodeExpandVolumeResponse {
        capacity_bytes: i64 = 1,
    }
}

message! {
    /// Which node this is. Volumes can be reached from all nodes, so there is no topology.
    NodeGetInfoResponse {
        node_id: String = 1,
        max_volumes_per_node: i64 = 2,
    }
}

message! {
    /// What the node service can do.
    NodeGetCapabilitiesResponse {
        capabilities: Vec<ServiceCapability> = 1,
    }
}

message! {
    /// One thing that the node service, or the controller service, can do.
    ServiceCapability {
        rpc: Option<Rpc> = 1,
    }
}

message! {
    /// Its number: of [`node_can`] or of `controller_can`.
    Rpc {
        kind: i32 = 1,
    }
}

/// What a node service can do.
pub(crate) mod node_can {
    pub(crate) const STAGE_UNSTAGE_VOLUME: i32 = 1;
    pub(crate) const GET_VOLUME_STATS: i32 = 2;
    pub(crate) const EXPAND_VOLUME: i32 = 3;
    pub(crate) const VOLUME_CONDITION: i32 = 4;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 5;
}

/// A list of capabilities by their numbers.
pub(crate) fn capabilities(numbers: &[i32]) -> Vec<ServiceCapability> {
    let one = |&kind: &i32| ServiceCapability {
        rpc: Some(Rpc { kind }),
    };
    numbers.iter().map(one).collect()
}
