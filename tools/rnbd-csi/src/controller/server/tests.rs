// SPDX-License-Identifier: GPL-2.0

//! The controller of a server, on files that look like the kernel's.

use super::*;
use crate::messages::AccessMode;
use crate::messages::CapacityRange;
use crate::messages::VolumeCapability;
use crate::store::Files;

const MIB: i64 = 1 << 20;

struct Machine {
    root: tempfile::TempDir,
    server: Server,
}

fn machine() -> Machine {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap().join("srv/csi");
    fs::create_dir_all(&folder).unwrap();
    let parameters = root.path().join("sys/module/rnbd_server/parameters");
    fs::create_dir_all(&parameters).unwrap();
    let search = folder.parent().unwrap().to_string_lossy().into_owned();
    fs::write(parameters.join("dev_search_path"), format!("{search}\n")).unwrap();
    let system = System::new(Some(root.path()), None);
    let options = Options {
        server: "storage1".into(),
        context: Map::from([("addresses".into(), "192.0.2.1".into())]),
    };
    let store = Box::new(Files::open(&folder).unwrap());
    Machine {
        server: Server::new(system, store, options),
        root,
    }
}

fn request(name: &str, required: i64, limit: i64) -> CreateVolumeRequest {
    let capability = VolumeCapability {
        block: Some(Empty {}),
        access_mode: Some(AccessMode { mode: 1 }),
        ..VolumeCapability::default()
    };
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange {
            required_bytes: required,
            limit_bytes: limit,
        }),
        volume_capabilities: vec![capability],
        ..CreateVolumeRequest::default()
    }
}

impl Machine {
    fn create(&self, name: &str, required: i64, limit: i64) -> Result<Volume> {
        let made = self.server.create(&request(name, required, limit))?;
        Ok(made.volume.unwrap())
    }

    fn delete(&self, id: &str) -> Result {
        let request = DeleteVolumeRequest {
            volume_id: id.into(),
        };
        self.server.delete(&request).map(|_| ())
    }

    /// A node has mapped the disk.
    fn map(&self, disk: &str) {
        let folder = "sys/class/rnbd-server/ctl/devices/!srv!x/sessions/node";
        let folder = self.root.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mapping_path"), format!("{disk}\n")).unwrap();
    }

    fn files(&self) -> usize {
        fs::read_dir(self.root.path().join("srv/csi"))
            .unwrap()
            .count()
    }
}

#[test]
fn a_volume_is_made_once() {
    let machine = machine();
    let volume = machine.create("pvc-1", MIB + 1, 0).unwrap();
    assert_eq!(volume.volume_id, "storage1:csi/csi-pvc-1");
    assert_eq!(volume.capacity_bytes, 2 * MIB);
    assert_eq!(volume.volume_context["addresses"], "192.0.2.1");
    assert_eq!(machine.create("pvc-1", MIB + 1, 0), Ok(volume.clone()));
    assert_eq!(machine.create("pvc-1", 0, 2 * MIB), Ok(volume.clone()));
    assert_eq!(machine.files(), 1);
    for (required, limit) in [(3 * MIB, 0), (0, MIB)] {
        let error = machine.create("pvc-1", required, limit).unwrap_err();
        assert_eq!(error.code, Code::AlreadyExists);
    }
    assert_eq!(machine.delete(&volume.volume_id), Ok(()));
    assert_eq!(machine.delete(&volume.volume_id), Ok(()));
    assert_eq!(machine.files(), 0);
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_done() {
    let machine = machine();
    let good = request("a", MIB, 0);
    let with = |change: &dyn Fn(&mut CreateVolumeRequest)| {
        let mut request = good.clone();
        change(&mut request);
        machine.server.create(&request).unwrap_err().code
    };
    let invalid = Code::InvalidArgument;
    assert_eq!(with(&|request| request.name.clear()), invalid);
    assert_eq!(
        with(&|request| request.volume_capabilities.clear()),
        invalid
    );
    assert_eq!(
        with(&|request| request.volume_content_source = Some(Empty {})),
        invalid
    );
    assert_eq!(
        with(&|request| request.volume_capabilities[0].access_mode = None),
        invalid
    );
    for (key, value) in [("servers", "a,b"), ("hold", "1m"), ("size", "1")] {
        let code = with(&|request| {
            request.parameters.insert(key.into(), value.into());
        });
        assert_eq!(code, invalid, "{key}");
    }
    assert_eq!(machine.create("a", -1, 0).unwrap_err().code, invalid);
    let error = machine.create("a", MIB + 1, MIB + 2).unwrap_err();
    assert_eq!(error.code, Code::OutOfRange);
    let error = machine.create("a", i64::MAX / 2, 0).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    assert_eq!(machine.files(), 0);
}

#[test]
fn a_volume_that_a_node_has_is_not_deleted() {
    let machine = machine();
    let volume = machine.create("pvc-1", MIB, 0).unwrap();
    machine.map("csi/csi-pvc-1");
    let error = machine.delete(&volume.volume_id).unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert_eq!(machine.files(), 1);
}

#[test]
fn parameters_are_confirmed_only_if_a_volume_can_be_made_with_them() {
    let machine = machine();
    let volume = machine.create("pvc-1", MIB, 0).unwrap();
    let validate = |key: &str, value: &str| {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume.volume_id.clone(),
            volume_capabilities: request("a", MIB, 0).volume_capabilities,
            parameters: Map::from([(key.to_owned(), value.to_owned())]),
            ..ValidateVolumeCapabilitiesRequest::default()
        };
        machine.server.validate(&request).unwrap()
    };
    let response = validate("csi.storage.k8s.io/fstype", "ext4");
    assert!(response.confirmed.is_some(), "{response:?}");
    for (key, value, why) in [("servers", "a,b", "--mirrors"), ("size", "1", "unknown")] {
        let response = validate(key, value);
        assert!(response.confirmed.is_none(), "{key}");
        assert!(response.message.contains(why), "{response:?}");
    }
}

#[test]
fn a_leg_is_no_volume_of_the_server() {
    let machine = machine();
    let mut wanted = request("pvc-1", MIB, 0);
    wanted
        .parameters
        .insert("leg".into(), "storage1+storage2".into());
    let leg = machine.server.create(&wanted).unwrap().volume.unwrap();
    assert_eq!(leg.volume_id, "storage1:csi/csim-ea8d58be-pvc-1");
    let volume = machine.create("pvc-1", 2 * MIB, 0).unwrap();
    let listed = machine.server.list(&ListVolumesRequest::default()).unwrap();
    let listed: Vec<_> = listed
        .entries
        .into_iter()
        .map(|entry| entry.volume)
        .collect();
    assert_eq!(listed, [Some(volume)]);
    // Whoever knows its id can ask for it, and whether a node has it.
    let is_mapped = || {
        let request = ControllerGetVolumeRequest {
            volume_id: "storage1:csim-ea8d58be-pvc-1".into(),
        };
        machine
            .server
            .get(&request)
            .unwrap()
            .status
            .unwrap()
            .is_mapped
    };
    assert!(!is_mapped());
    machine.map("csi/csim-ea8d58be-pvc-1");
    assert!(is_mapped());
    assert!(machine.delete(&leg.volume_id).is_err());
    for value in ["true", "storage", "storage2+storage3", ""] {
        wanted.parameters.insert("leg".into(), value.into());
        let error = machine.server.create(&wanted).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument, "{value}");
    }
}

#[test]
fn volumes_of_others_are_not_there() {
    let machine = machine();
    machine.create("pvc-1", MIB, 0).unwrap();
    for id in [
        "storage2:csi/csi-pvc-1",
        "storage1:csi/www",
        "storage1:../csi-pvc-1",
        "csi-pvc-1",
        "nonsense",
    ] {
        assert_eq!(machine.delete(id), Ok(()), "{id}");
        let request = ControllerGetVolumeRequest {
            volume_id: id.into(),
        };
        let error = machine.server.get(&request).unwrap_err();
        assert_eq!(error.code, Code::NotFound, "{id}");
    }
    assert_eq!(machine.delete("").unwrap_err().code, Code::InvalidArgument);
    assert_eq!(machine.files(), 1);
}

#[test]
fn a_volume_grows_and_does_not_shrink() {
    let machine = machine();
    let volume = machine.create("pvc-1", MIB, 0).unwrap();
    let expand = |required_bytes, limit_bytes| {
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            volume_capability: None,
        };
        let done = machine.server.expand(&request)?;
        Ok::<_, Status>((done.capacity_bytes, done.node_expansion_required))
    };
    assert_eq!(expand(3 * MIB, 0), Ok((3 * MIB, true)));
    assert_eq!(expand(3 * MIB, 0), Ok((3 * MIB, true)));
    assert_eq!(expand(2 * MIB, 0), Ok((3 * MIB, true)));
    let error = expand(MIB, 2 * MIB).unwrap_err();
    assert_eq!(error.code, Code::OutOfRange);
    for number in [MIB, 2 * MIB, 3 * MIB] {
        let number = number.to_string();
        assert!(error.message.contains(&number), "{number}: {error:?}");
    }
    let error = expand(3 * MIB + 1, 3 * MIB + 2).unwrap_err();
    let have = format!("the volume has {} bytes", 3 * MIB);
    assert!(error.message.ends_with(&have), "{error:?}");
    assert_eq!(
        expand(i64::MAX / 2, 0).unwrap_err().code,
        Code::ResourceExhausted
    );
}

#[test]
fn volumes_are_listed_in_parts() {
    let machine = machine();
    for name in ["c", "a", "b"] {
        machine.create(name, MIB, 0).unwrap();
    }
    let list = |max_entries, token: &str| {
        let request = ListVolumesRequest {
            max_entries,
            starting_token: token.into(),
        };
        let listed = machine.server.list(&request)?;
        let id = |entry: ListedVolume| entry.volume.unwrap().volume_id;
        let ids: Vec<_> = listed.entries.into_iter().map(id).collect();
        Ok::<_, Status>((ids.len(), ids.first().cloned(), listed.next_token))
    };
    let first = Some("storage1:csi/csi-a".to_owned());
    assert_eq!(list(0, ""), Ok((3, first.clone(), String::new())));
    assert_eq!(list(3, ""), Ok((3, first.clone(), String::new())));
    let (len, _, token) = list(2, "").unwrap();
    assert_eq!(len, 2);
    let third = Some("storage1:csi/csi-c".to_owned());
    assert_eq!(list(2, &token), Ok((1, third, String::new())));
    assert_eq!(list(-1, "").unwrap_err().code, Code::InvalidArgument);
    assert_eq!(list(0, "nonsense").unwrap_err().code, Code::Aborted);
}

#[test]
fn a_folder_that_the_module_does_not_see_is_said() {
    assert_eq!(below("/srv", "/srv/csi/csi-a"), Ok("csi/csi-a".to_owned()));
    assert_eq!(below("/srv/", "/srv/csi-a"), Ok("csi-a".to_owned()));
    assert_eq!(below("/", "/dev/vg0/csi-a"), Ok("dev/vg0/csi-a".to_owned()));
    for (search, path) in [
        ("/srv", "/srv2/csi-a"),
        ("/srv/x", "/srv/csi-a"),
        ("/srv/%SESSNAME%", "/srv/csi-a"),
    ] {
        let error = below(search, path).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition, "{search}");
    }
    let machine = machine();
    fs::remove_dir_all(machine.root.path().join("sys/module")).unwrap();
    let error = machine.create("a", MIB, 0).unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert_eq!(machine.files(), 0);
}

#[test]
fn only_names_that_are_listed_are_written() {
    let machine = machine();
    let file = machine.root.path().join("sys").join(KEPT_RESERVATIONS);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let folder = machine.root.path().canonicalize().unwrap();
    let path = folder.join("srv/csi/csi-a").to_string_lossy().into_owned();
    let name = path.replace('/', "!");
    for (listed, written) in [("csi-b", false), (name.as_str(), true)] {
        let list = format!("x type 5 registrants 1\n{listed} type 5 registrants 1\n");
        fs::write(&file, list).unwrap();
        let id = machine.create("a", MIB, 0).unwrap().volume_id;
        assert_eq!(machine.delete(&id), Ok(()));
        let found = fs::read_to_string(&file).unwrap();
        assert_eq!(found.starts_with(&name), written, "{found}");
    }
    assert!(may_be_kept(&"x\n".repeat(2000), "a") && !may_be_kept("", "a"));
}
