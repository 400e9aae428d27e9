// SPDX-License-Identifier: GPL-2.0

//! Messages of the controller service.

use super::CapacityRange;
use super::Map;
use super::ServiceCapability;
use super::Volume;
use super::VolumeCapability;
use super::VolumeCondition;
use crate::wire::message;
use crate::wire::Empty;

message! {
    /// Makes a volume.
    CreateVolumeRequest {
        name: String = 1,
        capacity_range: Option<CapacityRange> = 2,
        volume_capabilities: Vec<VolumeCapability> = 3,
        parameters: Map = 4,
        /// A snapshot or volume to copy; what is in it does not matter, as it is refused.
        volume_content_source: Option<Empty> = 6,
        mutable_parameters: Map = 8,
    }
}

message! {
    /// The volume that was made, or was there.
    CreateVolumeResponse {
        volume: Option<Volume> = 1,
    }
}

message! {
    /// Deletes a volume.
    DeleteVolumeRequest {
        volume_id: String = 1,
    }
}

message! {
    /// Asks whether a volume can be used in some ways.
    ValidateVolumeCapabilitiesRequest {
        volume_id: String = 1,
        volume_context: Map = 2,
        volume_capabilities: Vec<VolumeCapability> = 3,
        parameters: Map = 4,
    }
}

message! {
    /// What of that was confirmed; or in words why nothing was.
    ValidateVolumeCapabilitiesResponse {
        confirmed: Option<Confirmed> = 1,
        message: String = 2,
    }
}

message! {
    /// What was asked, if all of it can be.
    Confirmed {
        volume_context: Map = 1,
        volume_capabilities: Vec<VolumeCapability> = 2,
        parameters: Map = 3,
    }
}

message! {
    /// Asks for all volumes, or for a part of them.
    ListVolumesRequest {
        max_entries: i32 = 1,
        starting_token: String = 2,
    }
}

message! {
    /// Volumes, and where the next part begins.
    ListVolumesResponse {
        entries: Vec<ListedVolume> = 1,
        next_token: String = 2,
    }
}

message! {
    /// A volume, and how it is.
    ListedVolume {
        volume: Option<Volume> = 1,
        status: Option<VolumeStatus> = 2,
    }
}

message! {
    /// How a volume is.
    VolumeStatus {
        published_node_ids: Vec<String> = 1,
        volume_condition: Option<VolumeCondition> = 2,
        /// Whether a node has the volume mapped. The specification has no such field, and
        /// orchestrators skip it; the controller of mirrored volumes asks the servers of legs.
        is_mapped: bool = 1000,
    }
}

message! {
    /// Asks how much room there is.
    GetCapacityRequest {
        volume_capabilities: Vec<VolumeCapability> = 1,
        parameters: Map = 2,
    }
}

message! {
    /// How much room there is, in bytes, and how large and small a volume can be.
    GetCapacityResponse {
        available_capacity: i64 = 1,
        maximum_volume_size: Option<Int64Value> = 2,
        minimum_volume_size: Option<Int64Value> = 3,
    }
}

message! {
    /// A number that can be absent.
    Int64Value {
        value: i64 = 1,
    }
}

message! {
    /// What the controller service can do.
    ControllerGetCapabilitiesResponse {
        capabilities: Vec<ServiceCapability> = 1,
    }
}

/// What a controller service can do.
pub(crate) mod controller_can {
    pub(crate) const CREATE_DELETE_VOLUME: i32 = 1;
    pub(crate) const LIST_VOLUMES: i32 = 3;
    pub(crate) const GET_CAPACITY: i32 = 4;
    pub(crate) const EXPAND_VOLUME: i32 = 9;
    pub(crate) const VOLUME_CONDITION: i32 = 11;
    pub(crate) const GET_VOLUME: i32 = 12;
    pub(crate) const SINGLE_NODE_MULTI_WRITER: i32 = 13;
}

message! {
    /// Makes a volume larger.
    ControllerExpandVolumeRequest {
        volume_id: String = 1,
        capacity_range: Option<CapacityRange> = 2,
        volume_capability: Option<VolumeCapability> = 4,
    }
}

message! {
    /// How large it is now, in bytes, and whether nodes have to do something about it.
    ControllerExpandVolumeResponse {
        capacity_bytes: i64 = 1,
        node_expansion_required: bool = 2,
    }
}

message! {
    /// Asks for one volume.
    ControllerGetVolumeRequest {
        volume_id: String = 1,
    }
}

message! {
    /// A volume, and how it is.
    ControllerGetVolumeResponse {
        volume: Option<Volume> = 1,
        status: Option<VolumeStatus> = 2,
    }
}
