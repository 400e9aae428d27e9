// SPDX-License-Identifier: GPL-2.0

//! The controller service: which volumes there are.
//!
//! Of static volumes, which an administrator has made, it only confirms that they are there. On a
//! server it makes them, too.

mod fixed;
pub(crate) mod range;
mod server;

pub(crate) use fixed::Fixed;
pub(crate) use server::Options;
pub(crate) use server::Server;

use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::capabilities;
use crate::messages::ControllerGetCapabilitiesResponse;
use crate::messages::ValidateVolumeCapabilitiesRequest;
use crate::messages::ValidateVolumeCapabilitiesResponse;

/// The controller service.
pub(crate) enum Controller {
    /// Of volumes that are there.
    Fixed(Fixed),
    /// Of a server that makes volumes.
    Server(Server),
}

impl Controller {
    /// What this service can do.
    pub(crate) fn can(&self) -> ControllerGetCapabilitiesResponse {
        let numbers: &[i32] = match self {
            Self::Fixed(_) => &[],
            Self::Server(_) => server::CAN,
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
        }
    }

    /// The server; `UNIMPLEMENTED` if volumes are not made here.
    pub(crate) fn server(&self) -> Result<&Server> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Fixed(_) => Err(Status::new(
                Code::Unimplemented,
                "this driver has static volumes only; to make volumes, run rnbd-csi --server on a \
                 storage server",
            )),
        }
    }
}
