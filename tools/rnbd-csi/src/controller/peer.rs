// SPDX-License-Identifier: GPL-2.0

//! A storage server of mirrored volumes. The controller calls the driver of that server at its
//! socket, and that driver makes the legs.

use std::path::PathBuf;

use crate::driver;
use crate::grpc::client;
use crate::grpc::client::Ended;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::CapacityRange;
use crate::messages::ControllerExpandVolumeRequest;
use crate::messages::ControllerExpandVolumeResponse;
use crate::messages::ControllerGetVolumeRequest;
use crate::messages::ControllerGetVolumeResponse;
use crate::messages::CreateVolumeRequest;
use crate::messages::CreateVolumeResponse;
use crate::messages::DeleteVolumeRequest;
use crate::messages::Empty;
use crate::messages::GetCapacityRequest;
use crate::messages::GetCapacityResponse;
use crate::messages::Map;
use crate::messages::Volume;
use crate::messages::VolumeCapability;
use crate::volume::Context;
use crate::volume::DiskId;
use crate::wire;
use crate::wire::Message;

/// The parameter by which a server makes a leg, and not a volume. It has the names of all servers
/// of the mirrored volume, as the volume's id has them.
pub(crate) const LEG: &str = "leg";

/// A storage server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The server's name in the ids of its volumes.
    pub(crate) name: String,
    /// The socket of its driver.
    pub(crate) socket: PathBuf,
}

/// A leg at its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    /// The disk.
    pub(super) disk: DiskId,
    /// Its size.
    pub(super) bytes: u64,
    /// How the server is reached.
    pub(super) context: Context,
    /// Whether a node has it mapped.
    pub(super) is_mapped: bool,
    /// The fault of the leg, in words; empty if the leg is well.
    pub(super) trouble: String,
}

impl Peer {
    /// Parses `NAME=unix://PATH`. The error is in words.
    pub(crate) fn parse(
        text: &str,
        name: fn(&str) -> std::result::Result<String, String>,
        socket: fn(&str) -> std::result::Result<PathBuf, String>,
    ) -> std::result::Result<Self, String> {
        let (server, path) = text.split_once('=').ok_or("write NAME=unix://PATH")?;
        Ok(Self {
            name: name(server)?,
            socket: socket(path)?,
        })
    }

    /// The leg in the file or logical volume `stored`; `None` if the server has no such leg.
    pub(super) fn find(&self, stored: &str) -> Result<Option<Leg>> {
        let request = ControllerGetVolumeRequest {
            volume_id: self.id(stored),
        };
        let found: ControllerGetVolumeResponse = match self.call("ControllerGetVolume", &request) {
            Err(status) if status.code == Code::NotFound => return Ok(None),
            found => found?,
        };
        let status = found.status.unwrap_or_default();
        let condition = status.volume_condition.unwrap_or_default();
        let mut leg = self.leg(found.volume)?;
        leg.is_mapped = status.is_mapped;
        leg.trouble = match condition.abnormal {
            true => condition.message,
            false => String::new(),
        };
        Ok(Some(leg))
    }

    /// Makes a leg of the volume `name` on these servers, or gives the one that is there.
    pub(super) fn make(
        &self,
        name: &str,
        servers: &str,
        range: CapacityRange,
        capabilities: &[VolumeCapability],
    ) -> Result<Leg> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(range),
            volume_capabilities: capabilities.to_vec(),
            parameters: Map::from([(LEG.to_owned(), servers.to_owned())]),
            ..CreateVolumeRequest::default()
        };
        let made: CreateVolumeResponse = self.call("CreateVolume", &request)?;
        self.leg(made.volume)
    }

    /// Deletes a leg, if it is there.
    pub(super) fn delete(&self, stored: &str) -> Result {
        let request = DeleteVolumeRequest {
            volume_id: self.id(stored),
        };
        let _: Empty = self.call("DeleteVolume", &request)?;
        Ok(())
    }

    /// Makes a leg larger, unless it is large enough; returns its size.
    pub(super) fn grow(&self, stored: &str, range: CapacityRange) -> Result<u64> {
        let request = ControllerExpandVolumeRequest {
            volume_id: self.id(stored),
            capacity_range: Some(range),
            volume_capability: None,
        };
        let grown: ControllerExpandVolumeResponse =
            self.call("ControllerExpandVolume", &request)?;
        self.size(grown.capacity_bytes)
    }

    /// How many bytes are free for one leg, and the bytes of the smallest leg.
    pub(super) fn room(&self) -> Result<(u64, u64)> {
        let room: GetCapacityResponse = self.call("GetCapacity", &GetCapacityRequest::default())?;
        let smallest = room.minimum_volume_size.unwrap_or_default();
        Ok((
            self.size(room.available_capacity)?,
            self.size(smallest.value)?,
        ))
    }

    /// The id of a leg at this server. A server does not look at the folder in an id.
    fn id(&self, stored: &str) -> String {
        format!("{}:{stored}", self.name)
    }

    fn leg(&self, volume: Option<Volume>) -> Result<Leg> {
        let wrong = |why: String| self.wrong(&why);
        let volume = volume.ok_or_else(|| self.wrong("it gives no volume"))?;
        let disk = DiskId::parse(&volume.volume_id).map_err(wrong)?;
        if disk.server() != self.name {
            let why = format!("it calls itself {}", disk.server());
            return Err(self.wrong(&why));
        }
        Ok(Leg {
            disk,
            bytes: self.size(volume.capacity_bytes)?,
            context: Context::parse(&volume.volume_context)?,
            is_mapped: false,
            trouble: String::new(),
        })
    }

    fn size(&self, bytes: i64) -> Result<u64> {
        u64::try_from(bytes).map_err(|_| self.wrong("it gives a negative size"))
    }

    fn wrong(&self, why: &str) -> Status {
        Status::internal(format!(
            "the driver of server {} at {}: {why}",
            self.name,
            self.socket.display()
        ))
    }

    fn call<Q: Message, A: Message>(&self, name: &str, request: &Q) -> Result<A> {
        let path = driver::path(name).ok_or_else(|| self.wrong("no such call"))?;
        let bytes = wire::encode(request).map_err(Status::internal)?;
        match client::call(&self.socket, path, &bytes) {
            Ok(Ended::Response(bytes)) => wire::decode(&bytes).map_err(|why| self.wrong(&why)),
            Ok(Ended::Failed(code, why)) => Err(Status::new(
                Code::of_name(code),
                format!("server {}: {why}", self.name),
            )),
            Err(why) => Err(Status::new(
                Code::Unavailable,
                format!("the driver of server {} does not respond: {why}", self.name),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_away_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let peer = Peer {
            name: "storage2".to_owned(),
            socket: folder.path().join("no.sock"),
        };
        let error = peer.find("csim-a").unwrap_err();
        assert_eq!(error.code, Code::Unavailable);
        let said = "the driver of server storage2 does not respond: ";
        assert!(error.message.starts_with(said), "{error:?}");
        assert!(peer.leg(None).is_err());
        let other = Volume {
            volume_id: "storage3:csim-a".to_owned(),
            ..Volume::default()
        };
        let error = peer.leg(Some(other)).unwrap_err();
        assert!(error.message.contains("calls itself storage3"), "{error:?}");
    }
}
