// SPDX-License-Identifier: GPL-2.0

//! The controller service: which volumes there are.
//!
//! - [`fixed`]: of static volumes, which an administrator has made, it only confirms that they are
//!   there.
//! - [`server`]: on a server it makes them, too.
//! - [`mirrored`]: mirrored volumes, by the drivers of several servers ([`peer`]); [`legs`] has the
//!   sizes.

mod fixed;
pub(crate) mod legs;
mod mirrored;
mod peer;
pub(crate) mod range;
mod server;

pub(crate) use fixed::Fixed;
pub(crate) use mirrored::Mirrored;
pub(crate) use peer::Peer;
pub(crate) use server::Options;
pub(crate) use server::Server;

use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::capabilities;
use crate::messages::ControllerExpandVolumeRequest;
use crate::messages::ControllerExpandVolumeResponse;
use crate::messages::ControllerGetCapabilitiesResponse;
use crate::messages::ControllerGetVolumeRequest;
use crate::messages::ControllerGetVolumeResponse;
use crate::messages::CreateVolumeRequest;
use crate::messages::CreateVolumeResponse;
use crate::messages::DeleteVolumeRequest;
use crate::messages::Empty;
use crate::messages::GetCapacityRequest;
use crate::messages::GetCapacityResponse;
use crate::messages::ListVolumesRequest;
use crate::messages::ListVolumesResponse;
use crate::messages::ValidateVolumeCapabilitiesRequest;
use crate::messages::ValidateVolumeCapabilitiesResponse;

/// The controller service.
pub(crate) enum Controller {
    /// Of volumes that are there.
    Fixed(Fixed),
    /// Of a server that makes volumes.
    Server(Server),
    /// Of volumes that are mirrored over several servers.
    Mirrored(Mirrored),
}

/// A controller that makes volumes.
pub(crate) trait Maker {
    /// Whether nodes can use the volumes that are made.
    fn is_ready(&self) -> bool;

    /// Makes a volume, or gives the one of that name.
    fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse>;

    /// Deletes a volume, if it is there and not mapped.
    fn delete(&self, request: &DeleteVolumeRequest) -> Result<Empty>;

    /// Makes a volume larger. A volume that is large enough stays as it is.
    fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse>;

    /// Whether a volume can be used in some ways.
    fn validate(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse>;

    /// The volumes, or a part of them; `UNIMPLEMENTED` if they cannot be listed.
    fn list(&self, _request: &ListVolumesRequest) -> Result<ListVolumesResponse> {
        let why = "this driver cannot list its volumes";
        Err(Status::new(Code::Unimplemented, why))
    }

    /// One volume.
    fn get(&self, request: &ControllerGetVolumeRequest) -> Result<ControllerGetVolumeResponse>;

    /// How much room there is for volumes that can be used in those ways.
    fn capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse>;
}

impl Controller {
    /// What this service can do.
    pub(crate) fn can(&self) -> ControllerGetCapabilitiesResponse {
        let numbers: &[i32] = match self {
            Self::Fixed(_) => &[],
            Self::Server(_) => server::CAN,
            Self::Mirrored(_) => mirrored::CAN,
        };
        ControllerGetCapabilitiesResponse {
            capabilities: capabilities(numbers),
        }
    }

    /// Whether a volume can be used in some ways.
    pub(crate) fn validate(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        match self {
            Self::Fixed(fixed) => fixed.validate(request),
            Self::Server(server) => server.validate(request),
            Self::Mirrored(mirrored) => mirrored.validate(request),
        }
    }

    /// What makes volumes; `UNIMPLEMENTED` if they are not made here.
    pub(crate) fn maker(&self) -> Result<&dyn Maker> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Mirrored(mirrored) => Ok(mirrored),
            Self::Fixed(_) => Err(Status::new(
                Code::Unimplemented,
                "this driver has static volumes only; to make volumes, run rnbd-csi --server on a \
                 storage server",
            )),
        }
    }
}

/// A size as a message has it.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
