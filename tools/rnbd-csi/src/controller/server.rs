// SPDX-License-Identifier: GPL-2.0

//! The controller of a storage server: it makes volumes where the server's module finds them.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;

use rnbdctl::System;

use super::fixed;
use super::mirrored::SERVERS;
use super::peer::LEG;
use super::range;
use super::signed;
use super::Maker;
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
use crate::volume::context;
use crate::volume::id::AND;
use crate::volume::needed;
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
/// The file to which the name of a closed disk is written to drop its reservations.
const KEPT_RESERVATIONS: &str = "class/rnbd-server/ctl/kept_reservations";
/// A longer list in that file may have been cut at the end of a page, before some disks.
const LIST_BYTES: usize = 3 << 10;

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
}

impl Maker for Server {
    /// Nodes can map volumes when the module is loaded.
    fn is_ready(&self) -> bool {
        self.system.server_loaded()
    }

    fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse> {
        let range = range::of_new(request)?;
        let name = match self.check_parameters(&request.parameters)? {
            None => name::of(&request.name),
            Some(servers) => name::of_leg(&request.name, servers),
        };
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

    fn delete(&self, request: &DeleteVolumeRequest) -> Result<Empty> {
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
            self.drop_reservations(&stored);
            if !self
                .store
                .delete(&stored, &|stored| self.is_mapped(stored))?
            {
                return Err(in_use());
            }
        }
        Ok(Empty {})
    }

    fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse> {
        needed("volume_id", &request.volume_id)?;
        let range = range::of_growth(request)?;
        let (stored, _turn) = self.need(&request.volume_id)?;
        let mut bytes = stored.bytes;
        if bytes < range.required {
            let wanted = range.choose(DEFAULT_BYTES, self.store.unit()?);
            let wanted = wanted.map_err(|status| {
                let why = format!("{}; the volume has {bytes} bytes", status.message);
                Status::new(status.code, why)
            })?;
            self.need_room(wanted.saturating_sub(bytes))?;
            bytes = self.store.grow(&stored, wanted)?;
        } else {
            range.need(bytes)?;
        }
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(bytes),
            node_expansion_required: true,
        })
    }

    fn validate(
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
        if let Err(status) = self.check_parameters(&request.parameters) {
            return Ok(ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: status.message,
            });
        }
        Ok(fixed::answer(request, Wanted::check_all))
    }

    /// The volumes, in the order of their names, or a part of them. A token is the last name of the
    /// part before: so volumes that come and go do no harm. Legs of mirrored volumes are none.
    fn list(&self, request: &ListVolumesRequest) -> Result<ListVolumesResponse> {
        let most = usize::try_from(request.max_entries)
            .map_err(|_| Status::invalid("max_entries is negative"))?;
        let after = request.starting_token.as_str();
        if !after.is_empty() && !name::is_ours(after) {
            let why = format!("starting_token {after:?} is not a token of this driver");
            return Err(Status::new(Code::Aborted, why));
        }
        let mut stored = self.store.list()?;
        stored.retain(|stored| !name::is_leg(&stored.name) && stored.name.as_str() > after);
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
                status: Some(self.status(stored)?),
            })
        };
        Ok(ListVolumesResponse {
            entries: stored.iter().map(entry).collect::<Result<_>>()?,
            next_token,
        })
    }

    fn get(&self, request: &ControllerGetVolumeRequest) -> Result<ControllerGetVolumeResponse> {
        needed("volume_id", &request.volume_id)?;
        let (stored, _turn) = self.need(&request.volume_id)?;
        Ok(ControllerGetVolumeResponse {
            volume: Some(self.volume(&stored)?),
            status: Some(self.status(&stored)?),
        })
    }

    fn capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse> {
        self.check_parameters(&request.parameters)?;
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
}

impl Server {
    /// The servers of the mirrored volume of which a leg is to be made; `None` if a volume of this
    /// server is to be made.
    ///
    /// No parameter but [`LEG`] is known here. Those of the orchestrator have a slash in their
    /// names.
    fn check_parameters<'m>(&self, parameters: &'m Map) -> Result<Option<&'m str>> {
        let mut leg = None;
        for (key, value) in parameters {
            let wrong = |why: &str| Err(Status::invalid(format!("{key}={value:?}: {why}")));
            match key.as_str() {
                LEG if value.split(AND).any(|name| name == self.options.server) => {
                    leg = Some(value.as_str());
                }
                LEG => return wrong("this server is not one of these servers"),
                SERVERS => {
                    return wrong(
                        "this driver makes volumes on its own server; volumes that are mirrored \
                         over several servers are made by rnbd-csi --mirrors",
                    )
                }
                context::ADDRESSES | context::PORT | context::HOLD => {
                    return wrong("an option of rnbd-csi --server, and not a parameter")
                }
                _ if key.contains('/') => (),
                _ => return wrong("unknown parameter"),
            }
        }
        Ok(leg)
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

    fn status(&self, stored: &Stored) -> Result<VolumeStatus> {
        let abnormal = !self.is_ready();
        Ok(VolumeStatus {
            published_node_ids: Vec::new(),
            volume_condition: Some(VolumeCondition {
                abnormal,
                message: match abnormal {
                    true => "the module rnbd_server is not loaded".to_owned(),
                    false => String::new(),
                },
            }),
            is_mapped: self.is_mapped(stored)?,
        })
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

    /// The names by which the module may know the volume: a block device by its name, a file by its
    /// path.
    fn names(&self, stored: &Stored) -> Vec<String> {
        let path = self.store.path(&stored.name);
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let name = real.file_name().map(|name| name.to_string_lossy());
        let mut names = vec![
            real.to_string_lossy().replace('/', "!"),
            path.to_string_lossy().replace('/', "!"),
        ];
        names.extend(name.map(|name| name.into_owned()));
        names
    }

    /// Has the module drop the reservations of a volume that is about to be deleted. Nodes reserve
    /// the legs of mirrored volumes, and a server has room for the reservations of so many disks.
    fn drop_reservations(&self, stored: &Stored) {
        let file = self.system.sys(KEPT_RESERVATIONS);
        let stay = |name: &str, error: io::Error| {
            eprintln!(
                "rnbd-csi: the reservations of {name} may stay: {}: {error}; a server has room for \
                 those of 256 disks: if the file lists {name}, write {name} to the file",
                file.display()
            );
        };
        let names = self.names(stored);
        let kept = match fs::read_to_string(&file) {
            Ok(kept) => kept,
            // The module is another one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return stay(&names.join(" or "), error),
        };
        for name in names.iter().filter(|name| may_be_kept(&kept, name)) {
            let opened = OpenOptions::new().write(true).open(&file);
            match opened.and_then(|mut file| file.write_all(name.as_bytes())) {
                // The disk has none any more.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => stay(name, error),
                Ok(()) => (),
            }
        }
    }

    /// Whether a node has the volume mapped.
    fn is_mapped(&self, stored: &Stored) -> Result<bool> {
        let names = self.names(stored);
        let devices = self.system.server_devices()?;
        Ok(devices.iter().any(|device| {
            names.contains(&device.name)
                || device.exports.iter().any(|export| {
                    export.device_path.rsplit('/').next() == Some(stored.name.as_str())
                })
        }))
    }
}

/// Whether the module may have reservations of the closed disk `name`, by its list. The kernel log
/// has an error for each name that is written and is not listed.
fn may_be_kept(list: &str, name: &str) -> bool {
    let names = list.lines().filter_map(|line| line.rsplit_once(" type "));
    list.len() > LIST_BYTES || names.into_iter().any(|(listed, _)| listed == name)
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

#[cfg(test)]
mod tests;
