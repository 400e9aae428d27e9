// SPDX-License-Identifier: GPL-2.0

//! The controller of a storage server: it makes volumes where the server's module finds them.

use std::fs;

use rnbdctl::System;

use super::fixed;
use super::range;
use crate::busy::Busy;
use crate::capability::Wanted;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::controller_can;
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
use crate::messages::ListVolumesRequest;
use crate::messages::ListVolumesResponse;
use crate::messages::ListedVolume;
use crate::messages::Map;
use crate::messages::ValidateVolumeCapabilitiesRequest;
use crate::messages::ValidateVolumeCapabilitiesResponse;
use crate::messages::Volume;
use crate::messages::VolumeCondition;
use crate::messages::VolumeStatus;
use crate::store::name;
use crate::store::Store;
use crate::store::Stored;
use crate::volume::needed;
use crate::volume::Context;
use crate::volume::DiskId;

/// What this service can do.
pub(super) const CAN: &[i32] = &[
    controller_can::CREATE_DELETE_VOLUME,
    controller_can::LIST_VOLUMES,
    controller_can::GET_CAPACITY,
    controller_can::EXPAND_VOLUME,
    controller_can::VOLUME_CONDITION,
    controller_can::GET_VOLUME,
    controller_can::SINGLE_NODE_MULTI_WRITER,
];

/// The size of a volume of which none is asked for.
const DEFAULT_BYTES: u64 = 1 << 30;
/// The folder in which the server's module looks for disks.
const SEARCH_PATH: &str = "module/rnbd_server/parameters/dev_search_path";

/// What the administrator says about a server.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What the server is called, in the ids of its volumes.
    pub(crate) server: String,
    /// What nodes are told about each volume: how to reach the server, and how long to wait.
    pub(crate) context: Map,
}

/// The controller of a storage server.
pub(crate) struct Server {
    system: System,
    store: Box<dyn Store>,
    options: Options,
    busy: Busy,
}

impl Server {
    /// The controller of volumes in `store`.
    pub(crate) fn new(system: System, store: Box<dyn Store>, options: Options) -> Self {
        Self {
            system,
            store,
            options,
            busy: Busy::default(),
        }
    }

    /// Tidies up what a driver that was killed has left.
    pub(crate) fn begin(&self) -> Result {
        self.store.tidy(&|stored| self.is_mapped(stored))
    }

    /// Whether nodes can map volumes: the module is loaded.
    pub(crate) fn is_ready(&self) -> bool {
        self.system.server_loaded()
    }

    /// Makes a volume, or gives the one of that name.
    pub(crate) fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse> {
        name::check(&request.name)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid("volume_capabilities are missing"));
        }
        Wanted::check_all(&request.volume_capabilities).map_err(Status::invalid)?;
        let range = range::parse(request.capacity_range.as_ref())?;
        check_parameters(&request.parameters)?;
        check_parameters(&request.mutable_parameters)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid("volumes cannot be made as copies"));
        }
        let name = name::of(&request.name);
        let _turn = self.busy.turn(&name)?;
        let stored = match self.store.find(&name)? {
            Some(stored) if range.allows(stored.bytes) => stored,
            Some(stored) => {
                let why = format!(
                    "volume {:?} exists with another size, {} bytes",
                    request.name, stored.bytes
                );
                return Err(Status::new(Code::AlreadyExists, why));
            }
            None => {
                let bytes = range.choose(DEFAULT_BYTES, self.store.unit()?)?;
                // That nodes can reach it is known before it is made.
                self.disk(&name)?;
                self.need_room(bytes)?;
                self.store.create(&name, bytes)?
            }
        };
        Ok(CreateVolumeResponse {
            volume: Some(self.volume(&stored)?),
        })
    }

    /// Deletes a volume, if it is there and not mapped.
    pub(crate) fn delete(&self, request: &DeleteVolumeRequest) -> Result<Empty> {
        needed("volume_id", &request.volume_id)?;
        // A volume of another server, or of none, is not there.
        let Some(name) = self.name_of(&request.volume_id) else {
            return Ok(Empty {});
        };
        let _turn = self.busy.turn(&name)?;
        if let Some(stored) = self.store.find(&name)? {
            let in_use = || {
                let why = format!("a node has mapped volume {}", request.volume_id);
                Status::precondition(why)
            };
            if self.is_mapped(&stored)? {
                return Err(in_use());
            }
            if !self
                .store
                .delete(&stored, &|stored| self.is_mapped(stored))?
            {
                return Err(in_use());
            }
        }
        Ok(Empty {})
    }

    /// Makes a volume larger. What is large enough stays as it is.
    pub(crate) fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse> {
        needed("volume_id", &request.volume_id)?;
        if request.capacity_range.is_none() {
            return Err(Status::invalid("capacity_range is missing"));
        }
        let range = range::parse(request.capacity_range.as_ref())?;
        let (stored, _turn) = self.need(&request.volume_id)?;
        let mut bytes = stored.bytes;
        if bytes < range.required {
            let wanted = range.choose(DEFAULT_BYTES, self.store.unit()?)?;
            self.need_room(wanted.saturating_sub(bytes))?;
            bytes = self.store.grow(&stored, wanted)?;
        } else if !range.allows(bytes) {
            let why = format!("the volume has {bytes} bytes, and volumes do not shrink");
            return Err(Status::new(Code::OutOfRange, why));
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(bytes),
            node_expansion_required: true,
        })
    }

    /// Whether a volume can be used in some ways.
    pub(crate) fn validate(
        &self,
        request: &ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse> {
        needed("volume_id", &request.volume_id)?;
        fixed::needed_capabilities(request)?;
        let (_, _turn) = self.need(&request.volume_id)?;
        let of_ours = |(key, value): (&String, &String)| {
            key.contains('/') || self.options.context.get(key) == Some(value)
        };
        if !request.volume_context.iter().all(of_ours) {
            return Ok(ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: "volume_context is not the context of the volume".to_owned(),
            });
        }
        if let Err(status) = check_parameters(&request.parameters) {
            return Ok(ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: status.message,
            });
        }
        Ok(fixed::answer(request))
    }

    /// The volumes, in the order of their names, or a part of them. A token is the last name of the
    /// part before: so volumes that come and go do no harm.
    pub(crate) fn list(&self, request: &ListVolumesRequest) -> Result<ListVolumesResponse> {
        let most = usize::try_from(request.max_entries)
            .map_err(|_| Status::invalid("max_entries is negative"))?;
        let after = request.starting_token.as_str();
        if !after.is_empty() && !name::is_ours(after) {
            let why = format!("starting_token {after:?} is not a token of this driver");
            return Err(Status::new(Code::Aborted, why));
        }
        let mut stored = self.store.list()?;
        stored.retain(|stored| stored.name.as_str() > after);
        stored.sort_by(|a, b| a.name.cmp(&b.name));
        let is_part = most != 0 && stored.len() > most;
        if is_part {
            stored.truncate(most);
        }
        let next_token = match stored.last() {
            Some(last) if is_part => last.name.clone(),
            _ => String::new(),
        };
        let entry = |stored: &Stored| -> Result<ListedVolume> {
            Ok(ListedVolume {
                volume: Some(self.volume(stored)?),
                status: Some(self.status()),
            })
        };
        Ok(ListVolumesResponse {
            entries: stored.iter().map(entry).collect::<Result<_>>()?,
            next_token,
        })
    }

    /// One volume.
    pub(crate) fn get(
        &self,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse> {
        needed("volume_id", &request.volume_id)?;
        let (stored, _turn) = self.need(&request.volume_id)?;
        Ok(ControllerGetVolumeResponse {
            volume: Some(self.volume(&stored)?),
            status: Some(self.status()),
        })
    }

    /// How much room there is for volumes that can be used in those ways.
    pub(crate) fn capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse> {
        check_parameters(&request.parameters)?;
        let is_possible = Wanted::check_all(&request.volume_capabilities).is_ok();
        let available = match is_possible {
            true => self.store.available()?,
            false => 0,
        };
        let number = |value: u64| {
            Some(Int64Value {
                value: signed(value),
            })
        };
        Ok(GetCapacityResponse {
            available_capacity: signed(available),
            maximum_volume_size: number(available),
            minimum_volume_size: number(self.store.unit()?),
        })
    }

    fn need_room(&self, bytes: u64) -> Result {
        let available = self.store.available()?;
        match bytes <= available {
            true => Ok(()),
            false => Err(Status::new(
                Code::ResourceExhausted,
                format!("{bytes} bytes are needed, {available} bytes are free"),
            )),
        }
    }

    /// A volume that is there, and the turn of a call for it.
    fn need(&self, id: &str) -> Result<(Stored, crate::busy::Turn<'_>)> {
        let missing = || Status::not_found(format!("this server has no volume {id:?}"));
        let name = self.name_of(id).ok_or_else(missing)?;
        let turn = self.busy.turn(&name)?;
        let stored = self.store.find(&name)?.ok_or_else(missing)?;
        Ok((stored, turn))
    }

    /// The name of the volume of that id, if the id is one of this server. The folder does not
    /// count: it changes when the administrator has the module look elsewhere.
    fn name_of(&self, id: &str) -> Option<String> {
        let id = DiskId::parse(id).ok()?;
        let name = id.path().rsplit('/').next()?;
        (id.server() == self.options.server && name::is_ours(name)).then(|| name.to_owned())
    }

    fn volume(&self, stored: &Stored) -> Result<Volume> {
        Ok(Volume {
            capacity_bytes: signed(stored.bytes),
            volume_id: format!("{}:{}", self.options.server, self.disk(&stored.name)?),
            volume_context: self.options.context.clone(),
        })
    }

    fn status(&self) -> VolumeStatus {
        let abnormal = !self.is_ready();
        VolumeStatus {
            published_node_ids: Vec::new(),
            volume_condition: Some(VolumeCondition {
                abnormal,
                message: match abnormal {
                    true => "the module rnbd_server is not loaded".to_owned(),
                    false => String::new(),
                },
            }),
        }
    }

    /// The path by which nodes map the volume of that name.
    fn disk(&self, name: &str) -> Result<String> {
        let file = self.system.sys(SEARCH_PATH);
        let search = fs::read_to_string(&file).map_err(|error| {
            let why = format!("{}: {error}; load the module rnbd_server", file.display());
            Status::new(Code::Unavailable, why)
        })?;
        let path = self.store.path(name);
        below(search.trim_end_matches('\n'), &path.to_string_lossy())
    }

    /// Whether a node has the volume mapped.
    fn is_mapped(&self, stored: &Stored) -> Result<bool> {
        let path = self.store.path(&stored.name);
        // As the module names it: a block device by its name, a file by its path.
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let names = [
            real.file_name()
                .map(|name| name.to_string_lossy().into_owned()),
            Some(real.to_string_lossy().replace('/', "!")),
            Some(path.to_string_lossy().replace('/', "!")),
        ];
        let devices = self.system.server_devices()?;
        Ok(devices.iter().any(|device| {
            names.iter().flatten().any(|name| *name == device.name)
                || device.exports.iter().any(|export| {
                    export.device_path.rsplit('/').next() == Some(stored.name.as_str())
                })
        }))
    }
}

/// Parameters of a storage class that this program takes: none so far but those of the
/// orchestrator, which have a slash in their names.
fn check_parameters(parameters: &Map) -> Result {
    if let Some(servers) = parameters.get("servers") {
        return Err(Status::invalid(format!(
            "servers={servers:?}: volumes that are mirrored over several servers are not \
             supported yet; leave out servers to make the volume on the server of this driver"
        )));
    }
    let context = Context::parse(parameters)?;
    match context == Context::default() {
        true => Ok(()),
        false => Err(Status::invalid(
            "addresses, port and hold are options of rnbd-csi --server, not parameters",
        )),
    }
}

/// The part of `path` below the folder in which the module looks for disks.
fn below(search: &str, path: &str) -> Result<String> {
    if search.contains('%') {
        return Err(Status::precondition(format!(
            "dev_search_path of rnbd_server is {search:?}, with a folder for each session; \
             volumes need one folder for all sessions"
        )));
    }
    let rest = path.strip_prefix(search.trim_end_matches('/'));
    match rest.and_then(|rest| rest.strip_prefix('/')) {
        Some(disk) if !disk.is_empty() => Ok(disk.to_owned()),
        _ => Err(Status::precondition(format!(
            "{path} is not below {search}, the dev_search_path of rnbd_server; give another \
             dev_search_path, or another --folder or --volume-group"
        ))),
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
