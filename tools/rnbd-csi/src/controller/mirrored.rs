// SPDX-License-Identifier: GPL-2.0

//! The controller of mirrored volumes: each leg is made by the driver of its server.
//!
//! The controller keeps no list of volumes: the legs of a volume have names that are made of the
//! volume's name, and the servers say which of them are there.

use super::fixed;
use super::legs;
use super::peer::Leg;
use super::peer::Peer;
use super::range;
use super::range::Range;
use super::signed;
use super::Maker;
use crate::busy::Busy;
use crate::busy::Turn;
use crate::capability::Wanted;
use crate::fail;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::controller_can;
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
use crate::messages::Int64Value;
use crate::messages::Map;
use crate::messages::ValidateVolumeCapabilitiesRequest;
use crate::messages::ValidateVolumeCapabilitiesResponse;
use crate::messages::Volume;
use crate::messages::VolumeCondition;
use crate::messages::VolumeStatus;
use crate::store::name;
use crate::volume::id::MAX_MADE;
use crate::volume::needed;
use crate::volume::Context;
use crate::volume::DiskId;
use crate::volume::MirrorId;
use crate::volume::VolumeId;

/// What this service can do.
pub(super) const CAN: &[i32] = &[
    controller_can::CREATE_DELETE_VOLUME,
    controller_can::GET_CAPACITY,
    controller_can::EXPAND_VOLUME,
    controller_can::VOLUME_CONDITION,
    controller_can::GET_VOLUME,
    controller_can::SINGLE_NODE_MULTI_WRITER,
];

/// The parameter of a storage class that names the servers, with commas between them.
pub(super) const SERVERS: &str = "servers";

/// The controller of mirrored volumes.
pub(crate) struct Mirrored {
    peers: Vec<Peer>,
    busy: Busy,
}

/// The legs of a volume of this driver: for each its server and, if it is there, the leg.
struct Legs<'p> {
    /// The name of each leg at its server.
    stored: String,
    found: Vec<(&'p Peer, Option<Leg>)>,
}

impl Mirrored {
    /// The controller of volumes on these servers.
    pub(crate) fn new(peers: Vec<Peer>) -> Self {
        Self {
            peers,
            busy: Busy::default(),
        }
    }

    /// The servers that a storage class names, and their names as ids have them.
    fn chosen(&self, parameters: &Map) -> Result<(Vec<&Peer>, String)> {
        for key in parameters.keys() {
            if key != SERVERS && !key.contains('/') {
                return Err(Status::invalid(format!(
                    "parameter {key} is unknown; the known parameter is {SERVERS}"
                )));
            }
        }
        let text = parameters.get(SERVERS).ok_or_else(|| {
            Status::invalid(format!(
                "parameter {SERVERS} is missing: the servers of the legs, with commas between them"
            ))
        })?;
        let names = text.split(',').map(str::trim);
        let peers = names
            .map(|name| self.peer(name))
            .collect::<Result<Vec<_>>>()?;
        // Whether they can be the servers of one volume: it does not depend on the disk.
        let disk = |peer: &&Peer| DiskId::parse(&format!("{}:x", peer.name));
        let disks = peers
            .iter()
            .map(disk)
            .collect::<std::result::Result<_, _>>();
        let together = disks
            .and_then(MirrorId::new)
            .map_err(|why| Status::invalid(format!("{SERVERS}={text:?}: {why}")))?;
        Ok((peers, together.servers()))
    }

    fn peer(&self, name: &str) -> Result<&Peer> {
        let name = name.to_ascii_lowercase();
        let mut peers = self.peers.iter();
        peers.find(|peer| peer.name == name).ok_or_else(|| {
            Status::invalid(format!(
                "server {name:?} is not known to this driver; start it with --server-socket \
                 NAME=unix://PATH"
            ))
        })
    }

    /// The legs of the volume of that id, and the turn of a call for it; `None` if the id is not of
    /// a volume that this driver makes.
    fn legs(&self, id: &str) -> Result<Option<(Legs<'_>, Turn<'_>)>> {
        needed("volume_id", id)?;
        let Ok(VolumeId::Mirror(mirror)) = VolumeId::parse(id) else {
            return Ok(None);
        };
        let disk = mirror.legs().first();
        let stored = disk.and_then(|leg| leg.path().rsplit('/').next());
        let together = mirror.servers();
        let Some(stored) = stored.filter(|stored| name::is_leg_of(stored, &together)) else {
            return Ok(None);
        };
        let turn = self.busy.turn(stored)?;
        let servers = mirror.legs().iter();
        let peers = servers.map(|leg| self.peer(&leg.server()));
        let peers = peers
            .collect::<Result<Vec<_>>>()
            .map_err(|status| Status::precondition(format!("volume {id}: {}", status.message)))?;
        Ok(Some((Legs::find(peers, stored)?, turn)))
    }

    /// As [`Self::legs`]; `NOT_FOUND` if no leg is there.
    fn need_a_leg(&self, id: &str) -> Result<(Legs<'_>, Turn<'_>)> {
        let found = self.legs(id)?;
        found
            .filter(|(legs, _)| legs.there().next().is_some())
            .ok_or_else(|| Status::not_found(format!("there is no volume {id:?}")))
    }

    /// As [`Self::need_a_leg`]; `FAILED_PRECONDITION` unless all legs are there.
    fn need(&self, id: &str) -> Result<(Legs<'_>, Turn<'_>)> {
        let (legs, turn) = self.need_a_leg(id)?;
        let missing = legs.missing().next();
        match missing {
            None => Ok((legs, turn)),
            Some(server) => Err(Status::precondition(format!(
                "server {server} has no leg of volume {id}; make the leg as \"When a server is \
                 lost for good\" in kubernetes.md says"
            ))),
        }
    }
}

impl<'p> Legs<'p> {
    fn find(peers: Vec<&'p Peer>, stored: &str) -> Result<Self> {
        let found = peers.into_iter().map(|peer| {
            let leg = peer.find(stored)?;
            Ok((peer, leg))
        });
        Ok(Self {
            stored: stored.to_owned(),
            found: found.collect::<Result<_>>()?,
        })
    }

    /// The servers whose legs are not there.
    fn missing(&self) -> impl Iterator<Item = &'p str> + '_ {
        let missing = self.found.iter().filter(|(_, leg)| leg.is_none());
        missing.map(|(peer, _)| peer.name.as_str())
    }

    /// The legs that are there.
    fn there(&self) -> impl Iterator<Item = &Leg> {
        self.found.iter().filter_map(|(_, leg)| leg.as_ref())
    }

    /// Whether the legs that are there have sizes for a volume of that range.
    fn fit(&self, range: &Range) -> bool {
        self.there()
            .all(|leg| legs::usable(leg.bytes) >= range.required && range.is_below(leg.bytes))
    }

    /// Makes the legs that are missing. If one of them cannot be made, those that were made are
    /// deleted.
    fn make(&mut self, request: &CreateVolumeRequest, servers: &str, range: &Range) -> Result {
        let wanted = range_of_legs(range)?;
        let mut made = Vec::new();
        let result = self.found.iter_mut().try_for_each(|(peer, leg)| {
            if leg.is_none() {
                let capabilities = &request.volume_capabilities;
                *leg = Some(peer.make(&request.name, servers, wanted.clone(), capabilities)?);
                made.push(*peer);
                fail::point("leg.made");
            }
            Ok(())
        });
        let result = result.and_then(|()| self.id().map(drop));
        if result.is_err() {
            for peer in made {
                if let Err(status) = peer.delete(&self.stored) {
                    eprintln!("rnbd-csi: {} stays: {}", self.stored, status.message);
                }
            }
        }
        result
    }

    /// The id of the volume; the error is that the legs cannot be those of a volume.
    fn id(&self) -> Result<MirrorId> {
        let disks = self.there().map(|leg| leg.disk.clone()).collect();
        let id = MirrorId::new(disks).map_err(|why| {
            Status::precondition(format!(
                "{why}; give all servers the same --volume-group, or folders that have the same \
                 path below dev_search_path"
            ))
        })?;
        let bytes = id.to_string().len();
        match bytes <= MAX_MADE {
            true => Ok(id),
            false => Err(Status::precondition(format!(
                "the id {id} has {bytes} bytes, at most {MAX_MADE}; give the servers shorter names"
            ))),
        }
    }

    fn volume(&self) -> Result<Volume> {
        Ok(self.volume_with(self.id()?.to_string()))
    }

    /// The volume of that id, as far as the legs that are there tell.
    fn volume_with(&self, volume_id: String) -> Volume {
        let least = self.there().map(|leg| leg.bytes).min().unwrap_or_default();
        Volume {
            capacity_bytes: signed(legs::usable(least)),
            volume_id,
            volume_context: self.context().to_map(),
        }
    }

    fn context(&self) -> Context {
        let legs = self.there();
        Context::of_legs(legs.map(|leg| (leg.disk.server(), leg.context.clone())))
    }

    fn status(&self) -> VolumeStatus {
        let troubles = self.there().filter(|leg| !leg.trouble.is_empty());
        let troubles = troubles.map(|leg| format!("leg {}: {}", leg.disk, leg.trouble));
        let missing = self.missing();
        let missing = missing.map(|server| format!("server {server} has no leg of the volume"));
        let said: Vec<_> = troubles.chain(missing).collect();
        VolumeStatus {
            published_node_ids: Vec::new(),
            volume_condition: Some(VolumeCondition {
                abnormal: !said.is_empty(),
                message: said.join("; "),
            }),
            is_mapped: self.there().any(|leg| leg.is_mapped),
        }
    }
}

/// The sizes that the legs of a volume of that range may have.
///
/// `OUT_OF_RANGE` if legs of the size that the volume needs are above the limit.
fn range_of_legs(range: &Range) -> Result<CapacityRange> {
    let bytes = legs::needed(range.required);
    match range.is_below(bytes) {
        true => Ok(CapacityRange {
            required_bytes: signed(bytes),
            limit_bytes: range.limit_or_none(),
        }),
        false => Err(Status::new(
            Code::OutOfRange,
            format!(
                "{range} are asked for; md keeps a part of each leg, so legs of {bytes} bytes are \
                 needed, which is above the limit"
            ),
        )),
    }
}

impl Maker for Mirrored {
    fn is_ready(&self) -> bool {
        true
    }

    fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse> {
        let range = range::of_new(request)?;
        Wanted::check_all_mirrored(&request.volume_capabilities).map_err(Status::invalid)?;
        let (peers, servers) = self.chosen(&request.parameters)?;
        let stored = name::of_leg(&request.name, &servers);
        let _turn = self.busy.turn(&stored)?;
        // All servers respond before a leg is made.
        let mut legs = Legs::find(peers, &stored)?;
        if !legs.fit(&range) {
            let why = format!("volume {:?} exists with another size", request.name);
            return Err(Status::new(Code::AlreadyExists, why));
        }
        legs.make(request, &servers, &range)?;
        Ok(CreateVolumeResponse {
            volume: Some(legs.volume()?),
        })
    }

    fn delete(&self, request: &DeleteVolumeRequest) -> Result<Empty> {
        let Some((legs, _turn)) = self.legs(&request.volume_id)? else {
            return Ok(Empty {});
        };
        // Before a leg is gone: a node may have only the other leg mapped, as a server was away.
        if let Some(leg) = legs.there().find(|leg| leg.is_mapped) {
            let why = format!(
                "a node has mapped {} of volume {}",
                leg.disk, request.volume_id
            );
            return Err(Status::precondition(why));
        }
        for (peer, _) in &legs.found {
            peer.delete(&legs.stored)?;
            fail::point("leg.deleted");
        }
        Ok(Empty {})
    }

    fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse> {
        needed("volume_id", &request.volume_id)?;
        let range = range::of_growth(request)?;
        let (legs, _turn) = self.need(&request.volume_id)?;
        let have = legs.volume()?.capacity_bytes;
        let wanted = range_of_legs(&range).map_err(|status| {
            let why = format!("{}; the volume has {have} bytes", status.message);
            Status::new(status.code, why)
        })?;
        let mut least = u64::MAX;
        for (peer, _) in &legs.found {
            least = least.min(peer.grow(&legs.stored, wanted.clone())?);
            fail::point("leg.grown");
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(legs::usable(least)),
            node_expansion_required: true,
        })
    }

    fn validate(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        needed("volume_id", &request.volume_id)?;
        fixed::needed_capabilities(request)?;
        let (legs, _turn) = self.need(&request.volume_id)?;
        let own = legs.context().to_map();
        let is_own =
            |(key, value): (&String, &String)| key.contains('/') || own.get(key) == Some(value);
        let is_context = request.volume_context.iter().all(is_own);
        let checked = match is_context {
            false => Err("volume_context is not the context of the volume".to_owned()),
            true if request.parameters.is_empty() => Ok(()),
            true => self
                .chosen(&request.parameters)
                .map(drop)
                .map_err(|status| status.message),
        };
        Ok(match checked {
            Ok(()) => fixed::answer(request, Wanted::check_all_mirrored),
            Err(message) => ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message,
            },
        })
    }

    fn get(&self, request: &ControllerGetVolumeRequest) -> Result<ControllerGetVolumeResponse> {
        let (legs, _turn) = self.need_a_leg(&request.volume_id)?;
        let volume = match legs.missing().next() {
            None => legs.volume()?,
            Some(_) => legs.volume_with(VolumeId::key(&request.volume_id)),
        };
        Ok(ControllerGetVolumeResponse {
            volume: Some(volume),
            status: Some(legs.status()),
        })
    }

    /// The room of the server that has the least.
    fn capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse> {
        let (peers, _) = self.chosen(&request.parameters)?;
        let rooms = peers.into_iter().map(Peer::room);
        let rooms = rooms.collect::<Result<Vec<_>>>()?;
        let is_possible = Wanted::check_all_mirrored(&request.volume_capabilities).is_ok();
        let least = rooms.iter().map(|(room, _)| *room).min();
        let least = least.filter(|_| is_possible).unwrap_or_default();
        let smallest = rooms.iter().map(|(_, smallest)| *smallest).max();
        let number = |value: u64| {
            Some(Int64Value {
                value: signed(value),
            })
        };
        let usable = legs::usable(least);
        Ok(GetCapacityResponse {
            available_capacity: signed(usable),
            maximum_volume_size: number(usable),
            minimum_volume_size: number(smallest.unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests;
