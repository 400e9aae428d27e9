// SPDX-License-Identifier: GPL-2.0

//! The node service: volumes come to this node, and to its containers, and go.

mod expand;
mod publish;
mod stage;
mod stats;

use std::sync::Arc;

use rnbdctl::System;

use crate::busy::Busy;
use crate::device::Device;
use crate::device::Devices;
use crate::grpc::Result;
use crate::messages::capabilities;
use crate::messages::node_can;
use crate::messages::NodeGetCapabilitiesResponse;
use crate::messages::NodeGetInfoResponse;

/// What the node service can do.
const CAN: &[i32] = &[
    node_can::STAGE_UNSTAGE_VOLUME,
    node_can::GET_VOLUME_STATS,
    node_can::EXPAND_VOLUME,
    node_can::VOLUME_CONDITION,
    node_can::SINGLE_NODE_MULTI_WRITER,
];

/// The node service.
#[derive(Debug)]
pub(crate) struct Node {
    node_id: String,
    devices: Arc<Devices>,
    busy: Busy,
}

impl Node {
    /// The service of the node of that id.
    pub(crate) fn new(system: System, node_id: &str) -> Self {
        Self {
            node_id: node_id.to_owned(),
            devices: Arc::new(Devices::new(system, node_id)),
            busy: Busy::default(),
        }
    }

    /// Begins to tend the mirrors of mirrored volumes, until the process ends.
    pub(crate) fn tend(&self) -> Result {
        self.devices.tend()
    }

    /// Which node this is. How many volumes it can have is not bounded here.
    pub(crate) fn info(&self) -> NodeGetInfoResponse {
        NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            max_volumes_per_node: 0,
        }
    }

    /// What this service can do.
    pub(crate) fn can(&self) -> NodeGetCapabilitiesResponse {
        NodeGetCapabilitiesResponse {
            capabilities: capabilities(CAN),
        }
    }

    /// Whether volumes can be mapped: the module is loaded.
    pub(crate) fn is_ready(&self) -> bool {
        self.devices.system().client_loaded()
    }
}

/// The size of a device, for a response.
fn bytes(device: &Device) -> i64 {
    device
        .bytes
        .and_then(|bytes| i64::try_from(bytes).ok())
        .unwrap_or_default()
}
