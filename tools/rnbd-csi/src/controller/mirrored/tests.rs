// SPDX-License-Identifier: GPL-2.0

//! The controller of mirrored volumes, with two real controllers of servers at sockets, on files
//! that look like the kernel's.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rnbdctl::System;

use super::*;
use crate::controller::server::Options;
use crate::controller::server::Server;
use crate::controller::Controller;
use crate::driver::Driver;
use crate::grpc::server;
use crate::messages::AccessMode;
use crate::store::Files;

const MIB: i64 = 1 << 20;

struct Machines {
    root: tempfile::TempDir,
    mirrored: Mirrored,
}

/// The folders of a storage server below `root`, and its driver, which listens.
fn serve(root: &Path, name: &str, folder: &str) -> Peer {
    let root = root.join(name);
    let folder = root.join("srv").join(folder);
    fs::create_dir_all(&folder).unwrap();
    let parameters = root.join("sys/module/rnbd_server/parameters");
    fs::create_dir_all(&parameters).unwrap();
    let search = root.join("srv").canonicalize().unwrap();
    fs::write(
        parameters.join("dev_search_path"),
        format!("{}\n", search.display()),
    )
    .unwrap();
    fs::create_dir_all(root.join("sys/class/rnbd-server/ctl")).unwrap();
    let options = Options {
        server: name.into(),
        context: Map::from([
            ("addresses".into(), format!("{name}.example")),
            ("hold".into(), "1m".into()),
        ]),
    };
    let system = System::new(Some(&root), None);
    let store = Box::new(Files::open(&folder).unwrap());
    let driver = Driver {
        name: name.into(),
        node: None,
        controller: Some(Controller::Server(Server::new(system, store, options))),
    };
    let socket = root.join("run/csi.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = server::listen(&socket).unwrap();
    std::thread::spawn(move || server::serve(listener, Arc::new(driver)));
    Peer {
        name: name.into(),
        socket,
    }
}

fn machines_with(folder: &str) -> Machines {
    let root = tempfile::tempdir().unwrap();
    let peers = vec![
        serve(root.path(), "storage1", "csi"),
        serve(root.path(), "storage2", folder),
    ];
    Machines {
        mirrored: Mirrored::new(peers),
        root,
    }
}

fn machines() -> Machines {
    machines_with("csi")
}

fn request(
    name: &str,
    servers: &str,
    required_bytes: i64,
    limit_bytes: i64,
) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange {
            required_bytes,
            limit_bytes,
        }),
        volume_capabilities: vec![capability(1)],
        parameters: Map::from([(SERVERS.into(), servers.into())]),
        ..CreateVolumeRequest::default()
    }
}

fn capability(mode: i32) -> crate::messages::VolumeCapability {
    crate::messages::VolumeCapability {
        block: Some(Empty {}),
        access_mode: Some(AccessMode { mode }),
        ..Default::default()
    }
}

impl Machines {
    fn create(&self, name: &str, required: i64, limit: i64) -> Result<Volume> {
        let request = request(name, "storage2, storage1", required, limit);
        Ok(self.mirrored.create(&request)?.volume.unwrap())
    }

    fn delete(&self, id: &str) -> Result {
        let request = DeleteVolumeRequest {
            volume_id: id.into(),
        };
        self.mirrored.delete(&request).map(drop)
    }

    fn files(&self, server: &str) -> Vec<String> {
        let folder = self.root.path().join(server).join("srv/csi");
        let names = fs::read_dir(folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// A node has mapped the disk of that server.
    fn map(&self, server: &str, disk: &str) {
        let folder = "sys/class/rnbd-server/ctl/devices/!srv!x/sessions/node";
        let folder = self.root.path().join(server).join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mapping_path"), format!("{disk}\n")).unwrap();
    }
}

#[test]
fn a_volume_has_a_leg_on_each_server() {
    let machines = machines();
    let volume = machines.create("pvc-1", 8 * MIB, 0).unwrap();
    assert_eq!(
        volume.volume_id,
        "storage1+storage2:csi/csim-ea8d58be-pvc-1"
    );
    assert!(
        (8 * MIB..10 * MIB).contains(&volume.capacity_bytes),
        "{volume:?}"
    );
    let context = Map::from([
        ("addresses.storage1".into(), "storage1.example".into()),
        ("addresses.storage2".into(), "storage2.example".into()),
        ("zeroes".into(), "true".into()),
    ]);
    assert_eq!(volume.volume_context, context);
    assert_eq!(machines.create("pvc-1", 8 * MIB, 0), Ok(volume.clone()));
    let servers = ["storage1", "storage2"];
    for server in servers {
        assert_eq!(machines.files(server), ["csim-ea8d58be-pvc-1"], "{server}");
    }
    let error = machines.create("pvc-1", 20 * MIB, 0).unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    // A leg is no volume of its server, which would be made under that name.
    let get = |id: &str| {
        let request = ControllerGetVolumeRequest {
            volume_id: id.into(),
        };
        machines.mirrored.get(&request)
    };
    let shown = get("storage2+storage1:csi/csim-ea8d58be-pvc-1").unwrap();
    assert_eq!(shown.volume, Some(volume.clone()));
    assert!(!shown.status.unwrap().volume_condition.unwrap().abnormal);
    for id in [
        "storage1:csi/csim-ea8d58be-pvc-1",
        "storage1+storage2:vg0/www",
        "x",
    ] {
        assert_eq!(get(id).unwrap_err().code, Code::NotFound, "{id}");
        assert_eq!(machines.delete(id), Ok(()), "{id}");
    }
    assert_eq!(machines.delete(&volume.volume_id), Ok(()));
    assert_eq!(machines.delete(&volume.volume_id), Ok(()));
    for server in servers {
        assert!(machines.files(server).is_empty(), "{server}");
    }
}

#[test]
fn a_leg_that_is_half_made_is_found_again() {
    let machines = machines();
    let volume = machines.create("pvc-1", 8 * MIB, 0).unwrap();
    let lost = machines
        .root
        .path()
        .join("storage2/srv/csi/csim-ea8d58be-pvc-1");
    fs::remove_file(&lost).unwrap();
    let request = ControllerGetVolumeRequest {
        volume_id: volume.volume_id.clone(),
    };
    let shown = machines.mirrored.get(&request).unwrap();
    assert_eq!(shown.volume.unwrap().volume_id, volume.volume_id);
    let condition = shown.status.unwrap().volume_condition.unwrap();
    assert!(condition.abnormal && condition.message.contains("storage2"));
    let expand = ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(CapacityRange::default()),
        ..ControllerExpandVolumeRequest::default()
    };
    let error = machines.mirrored.expand(&expand).unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("server storage2"), "{error:?}");
    // It may be the leg of a volume of another size.
    let error = machines.create("pvc-1", 20 * MIB, 0).unwrap_err();
    assert_eq!(error.code, Code::AlreadyExists);
    assert_eq!(machines.create("pvc-1", 8 * MIB, 0), Ok(volume.clone()));
    assert!(lost.exists());
    // A deletion that was cut off goes on.
    fs::remove_file(&lost).unwrap();
    assert_eq!(machines.delete(&volume.volume_id), Ok(()));
    assert!(machines.files("storage1").is_empty());
}

#[test]
fn volumes_of_one_name_on_other_servers_share_no_leg() {
    let mut machines = machines();
    let third = serve(machines.root.path(), "storage3", "csi");
    machines.mirrored.peers.push(third);
    let make = |servers: &str| {
        let made = machines.mirrored.create(&request("pvc-1", servers, MIB, 0));
        made.unwrap().volume.unwrap().volume_id
    };
    let first = make("storage1,storage2");
    let others = [
        make("storage1,storage3"),
        make("storage1,storage2,storage3"),
    ];
    assert_eq!(machines.files("storage1").len(), 3);
    // An id that names a server less, or one more, is the id of no volume.
    for id in [
        first.replace("storage1+", "storage3+"),
        first.replace(":", "+storage3:"),
    ] {
        assert_eq!(machines.delete(&id), Ok(()));
    }
    for id in others {
        assert_eq!(machines.delete(&id), Ok(()));
    }
    for server in ["storage1", "storage2"] {
        assert_eq!(machines.files(server).len(), 1, "{server}");
    }
    assert!(machines.files("storage3").is_empty());
}

#[test]
fn what_cannot_be_made_leaves_no_leg() {
    let machines = machines();
    let code = |servers: &str| {
        let request = request("a", servers, MIB, 0);
        machines.mirrored.create(&request).unwrap_err().code
    };
    for servers in ["", "storage1", "storage1,storage1", "storage1,storage3"] {
        assert_eq!(code(servers), Code::InvalidArgument, "{servers:?}");
    }
    let mut unknown = request("a", "storage1,storage2", MIB, 0);
    unknown.parameters.insert("size".into(), "1".into());
    let mut reader = request("a", "storage1,storage2", MIB, 0);
    reader.volume_capabilities = vec![capability(3)];
    for bad in [unknown, reader] {
        let error = machines.mirrored.create(&bad).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{error:?}");
    }
    let error = machines.create("a", 8 * MIB, 8 * MIB).unwrap_err();
    assert_eq!(error.code, Code::OutOfRange);
    let error = machines.create("a", i64::MAX / 4, 0).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    // A server that is away is noticed before a leg is made.
    let mut peers = machines.mirrored.peers.clone();
    peers[1].socket = machines.root.path().join("nowhere");
    let error = Mirrored::new(peers)
        .create(&request("a", "storage1,storage2", MIB, 0))
        .unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    for server in ["storage1", "storage2"] {
        assert!(machines.files(server).is_empty(), "{server}");
    }
    // The id would be longer than an orchestrator has to take.
    let long = "a".repeat(60);
    let root = tempfile::tempdir().unwrap();
    let names = [format!("{long}.b"), format!("{long}.c")];
    let peers = names.clone().map(|name| serve(root.path(), &name, "csi"));
    let machines = Machines {
        mirrored: Mirrored::new(peers.to_vec()),
        root,
    };
    let made = machines
        .mirrored
        .create(&request("a", &names.join(","), MIB, 0));
    let error = made.unwrap_err();
    assert!(error.message.contains("128"), "{error:?}");
    for server in names {
        assert!(machines.files(&server).is_empty(), "{server}");
    }
    // The second leg would have another path.
    let machines = machines_with("other");
    let error = machines.create("a", MIB, 0).unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("the same path"), "{error:?}");
    assert!(machines.files("storage1").is_empty());
}

#[test]
fn a_volume_is_deleted_only_if_no_leg_is_mapped() {
    let machines = machines();
    let volume = machines.create("pvc-1", MIB, 0).unwrap();
    machines.map("storage2", "csi/csim-ea8d58be-pvc-1");
    let error = machines.delete(&volume.volume_id).unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    for server in ["storage1", "storage2"] {
        assert_eq!(machines.files(server).len(), 1, "{server}");
    }
}

#[test]
fn a_volume_grows_by_its_legs() {
    let machines = machines();
    let volume = machines.create("pvc-1", 8 * MIB, 0).unwrap();
    let expand = |required_bytes, limit_bytes| {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            volume_capability: None,
        };
        machines.mirrored.expand(&request)
    };
    let done = expand(16 * MIB, 0).unwrap();
    assert!(done.capacity_bytes >= 16 * MIB && done.node_expansion_required);
    assert_eq!(expand(16 * MIB, 0), Ok(done.clone()));
    // The limit is below the size of the legs that there are, or that the volume would need.
    for (required, limit) in [(MIB, 8 * MIB), (20 * MIB, 20 * MIB)] {
        let error = expand(required, limit).unwrap_err();
        assert_eq!(error.code, Code::OutOfRange);
        let asked = format!("at most {limit} bytes are asked for");
        assert!(error.message.contains(&asked), "{error:?}");
        assert!(error.message.contains("the volume has "), "{error:?}");
    }
    let error = expand(20 * MIB, 20 * MIB).unwrap_err();
    let have = format!("the volume has {} bytes", done.capacity_bytes);
    assert!(error.message.ends_with(&have), "{error:?}");
    let error = expand(i64::MAX / 4, 0).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
}

#[test]
fn the_room_is_that_of_the_servers_that_are_named() {
    let machines = machines();
    let room = |servers: &str| {
        let request = GetCapacityRequest {
            parameters: Map::from([(SERVERS.into(), servers.into())]),
            ..GetCapacityRequest::default()
        };
        machines.mirrored.capacity(&request)
    };
    let have = room("storage1,storage2").unwrap();
    assert!(have.available_capacity > 0);
    assert_eq!(room("storage1").unwrap_err().code, Code::InvalidArgument);
    let request = GetCapacityRequest {
        volume_capabilities: vec![capability(5)],
        parameters: Map::from([(SERVERS.into(), "storage1,storage2".into())]),
    };
    let none = machines.mirrored.capacity(&request).unwrap();
    assert_eq!(none.available_capacity, 0);
}

#[test]
fn capabilities_are_confirmed_for_one_node_that_writes() {
    let machines = machines();
    let volume = machines.create("pvc-1", MIB, 0).unwrap();
    let validate = |mode, key: &str, value: &str| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume.volume_id.clone(),
            volume_capabilities: vec![capability(mode)],
            volume_context: Map::from([(key.to_owned(), value.to_owned())]),
            ..ValidateVolumeCapabilitiesRequest::default()
        };
        let response = machines.mirrored.validate(&request).unwrap();
        response.confirmed.is_some()
    };
    assert!(validate(1, "zeroes", "true"));
    assert!(!validate(5, "zeroes", "true"));
    assert!(!validate(1, "addresses.storage1", "192.0.2.1"));
}
