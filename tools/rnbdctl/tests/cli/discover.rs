// SPDX-License-Identifier: GPL-2.0

//! The request to a server, and the list of its disks.

use serde_json::json;
use serde_json::Value;

use crate::fake::Fake;
use crate::schema::Schema;

const FILE: &str = "dev/rnbd-discover";
const MAP_DEVICE: &str = "sys/class/rnbd-client/ctl/map_device";

const DISKS: &str = "\
2147483648 4096 ro,rw,migration 0 - naa.5000c500 /dev/sdb
8192 512 ro 2 file file.ab.1 images/a b.img
16 512 ro,rw,migration 0 used - nvme0n1
16 512 ro,rw,migration 0 - - vg/new
";

/// A machine whose server answers `line` with these disks. The program writes the line over the
/// beginning of the file, and reads the text behind it.
fn machine(line: &str, disks: &str) -> Fake {
    let fake = Fake::typical();
    fake.write(FILE, &format!("{}{disks}", "?".repeat(line.len())));
    fake
}

#[test]
fn disks_are_a_table() {
    let line = "sessname=backup dest_port=99 path=ip:10.0.0.2";
    let fake = machine(line, DISKS);
    let said = fake.ok(&[
        "discover",
        "10.0.0.2",
        "--session",
        "backup",
        "--port",
        "99",
    ]);
    assert!(fake.read(FILE).starts_with(line), "{}", fake.read(FILE));
    let rows: Vec<Vec<_>> = said
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 5, "{said}");
    assert_eq!(rows[1][0], "/dev/sdb");
    assert!(rows[1].contains(&"rnbd0"), "mapped here: {said}");
    assert!(rows[1].contains(&"ro,rw,migration"), "{said}");
    assert!(said.lines().nth(3).unwrap().contains("in use"), "{said}");
}

#[test]
fn json_keeps_to_the_schema() {
    let fake = machine("sessname=backup", DISKS);
    let said = fake.ok(&["discover", "--session", "backup", "-o", "json"]);
    let mut value: Value = serde_json::from_str(&said).unwrap();
    let schema = Schema::load();
    assert_eq!(schema.check("discover", &value), Ok(()));
    let disks = value["disks"].as_array().unwrap();
    assert_eq!(disks[1]["device_path"], "images/a b.img");
    assert_eq!(disks[1]["size_bytes"], 8192 * 512);
    assert_eq!(disks[2]["wwid"], Value::Null);
    assert_eq!(disks[0]["modes"], json!(["ro", "rw", "migration"]));
    value["disks"][1]["modes"] = json!(["ro", "read"]);
    let error = schema.check("discover", &value).unwrap_err();
    assert!(error.contains("/disks/1/modes/1"), "{error}");
}

#[test]
fn the_session_is_that_by_which_disks_would_be_mapped() {
    let fake = Fake::typical();
    fake.write("proc/sys/kernel/hostname", "web1\n");
    fake.write(FILE, "");
    let said = fake.run(&["discover", "10.0.0.9"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("no disk for this client"), "{said:?}");
    assert_eq!(fake.read(FILE), "sessname=web1-10-0-0-9 path=ip:10.0.0.9");
    fake.write(FILE, "");
    assert_eq!(fake.run(&["discover", "10.0.1.2"]).code, 0);
    assert_eq!(fake.read(FILE), "sessname=backup path=ip:10.0.1.2");
}

#[test]
fn map_all_maps_what_is_free() {
    let line = "sessname=backup";
    let fake = machine(line, DISKS);
    let said = fake.run(&["map", "--all", "-s", "backup"]);
    // The disk is free, but the kernel's link is missing here.
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(
        fake.read(MAP_DEVICE),
        "sessname=backup device_path=vg/new",
        "neither what is mapped, nor what the server uses, nor what can only be read"
    );
    let fake = machine(line, "16 512 ro 0 - - x\n");
    let said = fake.ok(&["map", "--all", "-s", "backup"]);
    assert_eq!(said, "nothing to map: see rnbdctl discover\n");
    assert_eq!(fake.read(MAP_DEVICE), "");
    let line = "sessname=backup path=ip:10.0.0.2";
    let fake = machine(line, DISKS);
    assert_eq!(fake.run(&["map", "--all", "10.0.0.2"]).code, 3);
    assert!(fake.read(FILE).starts_with(line), "{}", fake.read(FILE));
    assert_eq!(
        fake.read(MAP_DEVICE),
        "sessname=backup device_path=vg/new path=ip:10.0.0.2"
    );
}

#[test]
fn what_is_wrong_is_said() {
    let fake = Fake::typical();
    let said = fake.run(&["discover", "10.0.0.9"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stderr.contains("older than 0.2.0"), "{said:?}");
    assert_eq!(Fake::new().run(&["discover", "10.0.0.9"]).code, 7);
    assert_eq!(fake.run(&["discover"]).code, 2);
    assert_eq!(fake.run(&["discover", "-s", "a b"]).code, 2);
    assert_eq!(fake.run(&["map", "-s", "backup"]).code, 2);
    assert_eq!(fake.run(&["map", "--all"]).code, 2);
    assert_eq!(fake.run(&["map", "--all", "a b"]).code, 2);
    let fake = machine("sessname=backup", "nonsense\n");
    let said = fake.run(&["discover", "-s", "backup"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("not as expected"), "{said:?}");
}
