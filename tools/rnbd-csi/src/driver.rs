// SPDX-License-Identifier: GPL-2.0

//! The driver: the services that it was started with, and which call is for which of them.

use crate::controller::Controller;
use crate::controller::Maker;
use crate::grpc::server::Service;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::*;
use crate::node::Node;
use crate::wire;
use crate::wire::Message;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The services of a driver. The identity service is always there.
pub(crate) struct Driver {
    /// The name by which the orchestrator knows the driver.
    pub(crate) name: String,
    /// The node service.
    pub(crate) node: Option<Node>,
    /// The controller service.
    pub(crate) controller: Option<Controller>,
}

/// The calls that are answered: their service, name, request and response, whether they never
/// block, and what answers them.
macro_rules! calls {
    ($($service:literal $name:literal
        $request:ty => $response:ty, $quick:literal, $answer:expr;)+) => {
        impl Service for Driver {
            fn is_quick(&self, path: &str) -> bool {
                $(if path == concat!("/csi.v1.", $service, "/", $name) {
                    return $quick;
                })+
                // It is refused.
                true
            }

            fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>> {
                $(if path == concat!("/csi.v1.", $service, "/", $name) {
                    let request: $request = wire::decode(request).map_err(Status::internal)?;
                    let answer: fn(&Driver, &$request) -> Result<$response> = $answer;
                    return wire::encode(&answer(self, &request)?).map_err(Status::internal);
                })+
                let why = format!("this driver has no call {path}");
                Err(Status::new(Code::Unimplemented, why))
            }
        }

        /// The path of the call of that name.
        pub(crate) fn path(name: &str) -> Option<&'static str> {
            $(if name == $name {
                return Some(concat!("/csi.v1.", $service, "/", $name));
            })+
            None
        }

        /// The path of the call of that name, and its request, which is given as JSON, as bytes.
        pub(crate) fn request(
            name: &str,
            json: &str,
        ) -> std::result::Result<(&'static str, Vec<u8>), String> {
            $(if name == $name {
                let path = concat!("/csi.v1.", $service, "/", $name);
                return Ok((path, from_json::<$request>(json)?));
            })+
            Err(format!("there is no call {name:?}; the calls are: {}", [$($name),+].join(", ")))
        }

        /// The response of the call of that name as JSON.
        pub(crate) fn response(
            name: &str,
            bytes: &[u8],
        ) -> std::result::Result<serde_json::Value, String> {
            $(if name == $name {
                return to_json::<$response>(bytes);
            })+
            Err(format!("there is no call {name:?}"))
        }
    };
}

calls! {
    "Identity" "GetPluginInfo" Empty => GetPluginInfoResponse, true,
        |driver, _| Ok(driver.info());
    "Identity" "GetPluginCapabilities" Empty => GetPluginCapabilitiesResponse, true,
        |driver, _| Ok(driver.can());
    "Identity" "Probe" Empty => ProbeResponse, true,
        |driver, _| Ok(driver.probe());
    "Node" "NodeStageVolume" NodeStageVolumeRequest => Empty, false,
        |driver, request| driver.node()?.stage(request);
    "Node" "NodeUnstageVolume" NodeUnstageVolumeRequest => Empty, false,
        |driver, request| driver.node()?.unstage(request);
    "Node" "NodePublishVolume" NodePublishVolumeRequest => Empty, false,
        |driver, request| driver.node()?.publish(request);
    "Node" "NodeUnpublishVolume" NodeUnpublishVolumeRequest => Empty, false,
        |driver, request| driver.node()?.unpublish(request);
    "Node" "NodeGetVolumeStats" NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse, false,
        |driver, request| driver.node()?.stats(request);
    "Node" "NodeExpandVolume" NodeExpandVolumeRequest => NodeExpandVolumeResponse, false,
        |driver, request| driver.node()?.expand(request);
    "Node" "NodeGetCapabilities" Empty => NodeGetCapabilitiesResponse, true,
        |driver, _| Ok(driver.node()?.can());
    "Node" "NodeGetInfo" Empty => NodeGetInfoResponse, true,
        |driver, _| Ok(driver.node()?.info());
    "Controller" "CreateVolume" CreateVolumeRequest => CreateVolumeResponse, false,
        |driver, request| driver.controller()?.maker()?.create(request);
    "Controller" "DeleteVolume" DeleteVolumeRequest => Empty, false,
        |driver, request| driver.controller()?.maker()?.delete(request);
    "Controller" "ControllerExpandVolume"
        ControllerExpandVolumeRequest => ControllerExpandVolumeResponse, false,
        |driver, request| driver.controller()?.maker()?.expand(request);
    "Controller" "ValidateVolumeCapabilities"
        ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse, false,
        |driver, request| driver.controller()?.validate(request);
    "Controller" "ListVolumes" ListVolumesRequest => ListVolumesResponse, false,
        |driver, request| driver.controller()?.maker()?.list(request);
    "Controller" "ControllerGetVolume"
        ControllerGetVolumeRequest => ControllerGetVolumeResponse, false,
        |driver, request| driver.controller()?.maker()?.get(request);
    "Controller" "GetCapacity" GetCapacityRequest => GetCapacityResponse, false,
        |driver, request| driver.controller()?.maker()?.capacity(request);
    "Controller" "ControllerGetCapabilities" Empty => ControllerGetCapabilitiesResponse, true,
        |driver, _| Ok(driver.controller()?.can());
}

fn from_json<M: Message + serde::de::DeserializeOwned>(
    json: &str,
) -> std::result::Result<Vec<u8>, String> {
    let message: M = serde_json::from_str(json).map_err(|error| error.to_string())?;
    wire::encode(&message)
}

fn to_json<M: Message + serde::Serialize>(
    bytes: &[u8],
) -> std::result::Result<serde_json::Value, String> {
    let message: M = wire::decode(bytes)?;
    serde_json::to_value(message).map_err(|error| error.to_string())
}

impl Driver {
    fn info(&self) -> GetPluginInfoResponse {
        GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: VERSION.to_owned(),
        }
    }

    fn can(&self) -> GetPluginCapabilitiesResponse {
        let mut capabilities = Vec::new();
        if self.controller.is_some() {
            capabilities.push(PluginCapability {
                service: Some(PluginService {
                    kind: CONTROLLER_SERVICE,
                }),
                volume_expansion: None,
            });
        }
        capabilities.push(PluginCapability {
            service: None,
            volume_expansion: Some(PluginExpansion { kind: ONLINE }),
        });
        GetPluginCapabilitiesResponse { capabilities }
    }

    /// It is ready when the modules are loaded that the services need. That they are not is no
    /// fault of the driver's.
    fn probe(&self) -> ProbeResponse {
        let is_ready = self.node.as_ref().is_none_or(Node::is_ready)
            && match &self.controller {
                Some(controller) => controller.maker().map_or(true, Maker::is_ready),
                None => true,
            };
        ProbeResponse {
            ready: Some(BoolValue { value: is_ready }),
        }
    }

    fn node(&self) -> Result<&Node> {
        self.node.as_ref().ok_or_else(|| missing("node"))
    }

    fn controller(&self) -> Result<&Controller> {
        self.controller
            .as_ref()
            .ok_or_else(|| missing("controller"))
    }
}

fn missing(service: &str) -> Status {
    let why = format!("this driver was started without the {service} service");
    Status::new(Code::Unimplemented, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver() -> Driver {
        let root = tempfile::tempdir().unwrap();
        let system = rnbdctl::System::new(Some(root.path()), None);
        Driver {
            name: "rnbd.example".into(),
            node: Some(Node::new(system, "node1")),
            controller: None,
        }
    }

    /// A call as an orchestrator makes it, by the same table.
    fn call(name: &str, json: &str) -> Result<serde_json::Value> {
        let (path, bytes) = request(name, json).unwrap();
        let bytes = driver().call(path, &bytes)?;
        Ok(response(name, &bytes).unwrap())
    }

    #[test]
    fn the_driver_says_what_it_is() {
        let info = call("GetPluginInfo", "{}").unwrap();
        assert_eq!(info["name"], "rnbd.example");
        assert_eq!(info["vendor_version"], VERSION);
        let can = call("GetPluginCapabilities", "{}").unwrap();
        assert_eq!(can["capabilities"].as_array().map(Vec::len), Some(1));
        // No module is loaded.
        let probe = call("Probe", "{}").unwrap();
        assert_eq!(probe["ready"]["value"], false);
        assert_eq!(call("NodeGetInfo", "{}").unwrap()["node_id"], "node1");
        let can = call("NodeGetCapabilities", "{}").unwrap();
        assert_eq!(can["capabilities"].as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn calls_that_are_not_there_are_refused() {
        for path in ["/csi.v1.Node/NodeFly", "/csi.v0.Node/NodeGetInfo", "", "/"] {
            let error = driver().call(path, &[]).unwrap_err();
            assert_eq!(error.code, Code::Unimplemented, "{path}");
            assert!(driver().is_quick(path));
        }
        let error = call("CreateVolume", "{}").unwrap_err();
        assert_eq!(error.code, Code::Unimplemented);
        assert!(request("NodeFly", "{}").is_err());
        assert!(request("NodeGetInfo", "{\"x\": 1}").is_err());
    }

    #[test]
    fn requests_that_lack_something_are_refused() {
        let block = r#""volume_capability": {"block": {}, "access_mode": {"mode": 1}}"#;
        for (name, json) in [
            ("NodeStageVolume", "{}".to_owned()),
            ("NodeStageVolume", "{\"volume_id\": \"s:a\"}".to_owned()),
            (
                "NodeStageVolume",
                format!("{{\"volume_id\": \"s:a\", {block}}}"),
            ),
            (
                "NodeStageVolume",
                "{\"volume_id\": \"s:a\", \"staging_target_path\": \"/a\"}".to_owned(),
            ),
            (
                "NodeStageVolume",
                format!("{{\"staging_target_path\": \"/a\", {block}}}"),
            ),
            ("NodeUnstageVolume", "{\"volume_id\": \"s:a\"}".to_owned()),
            (
                "NodeUnstageVolume",
                "{\"staging_target_path\": \"/a\"}".to_owned(),
            ),
            ("NodePublishVolume", "{\"volume_id\": \"s:a\"}".to_owned()),
            ("NodeUnpublishVolume", "{\"volume_id\": \"s:a\"}".to_owned()),
            (
                "NodeUnpublishVolume",
                "{\"target_path\": \"/a\"}".to_owned(),
            ),
            ("NodeGetVolumeStats", "{\"volume_id\": \"s:a\"}".to_owned()),
            ("NodeGetVolumeStats", "{\"volume_path\": \"/a\"}".to_owned()),
            ("NodeExpandVolume", "{\"volume_id\": \"s:a\"}".to_owned()),
            ("NodeExpandVolume", "{\"volume_path\": \"/a\"}".to_owned()),
        ] {
            let error = call(name, &json).unwrap_err();
            assert_eq!(
                error.code,
                Code::InvalidArgument,
                "{name} {json}: {error:?}"
            );
        }
    }

    #[test]
    fn volumes_that_are_not_staged_are_not_found() {
        for (name, path, code) in [
            ("NodeGetVolumeStats", "volume_path", Code::NotFound),
            ("NodeExpandVolume", "volume_path", Code::NotFound),
        ] {
            let json = format!("{{\"volume_id\": \"s:a\", \"{path}\": \"/no/such\"}}");
            assert_eq!(call(name, &json).unwrap_err().code, code, "{name}");
        }
        // What is not there needs not be undone.
        for (name, path) in [
            ("NodeUnstageVolume", "staging_target_path"),
            ("NodeUnpublishVolume", "target_path"),
        ] {
            for id in ["s:a", "no id of ours"] {
                let json = format!("{{\"volume_id\": \"{id}\", \"{path}\": \"/no/such\"}}");
                assert!(call(name, &json).is_ok(), "{name}");
            }
        }
    }
}
