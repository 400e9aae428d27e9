// SPDX-License-Identifier: GPL-2.0

//! Messages of the identity service.

use crate::wire::message;

/// The value of [`PluginService::kind`] of a driver that has the controller service.
pub(crate) const CONTROLLER_SERVICE: i32 = 1;
/// The value of [`PluginExpansion::kind`] of volumes that can grow while they are published.
pub(crate) const ONLINE: i32 = 1;

message! {
    /// Which driver this is.
    GetPluginInfoResponse {
        name: String = 1,
        vendor_version: String = 2,
    }
}

message! {
    /// Which services the driver has.
    GetPluginCapabilitiesResponse {
        capabilities: Vec<PluginCapability> = 1,
    }
}

message! {
    /// Either a service or a way of expansion.
    PluginCapability {
        service: Option<PluginService> = 1,
        volume_expansion: Option<PluginExpansion> = 2,
    }
}

message! {
    /// A service.
    PluginService {
        kind: i32 = 1,
    }
}

message! {
    /// A way of expansion.
    PluginExpansion {
        kind: i32 = 1,
    }
}

message! {
    /// Whether the driver can work.
    ProbeResponse {
        ready: Option<BoolValue> = 1,
    }
}

message! {
    /// A truth value that can be absent.
    BoolValue {
        value: bool = 1,
    }
}
