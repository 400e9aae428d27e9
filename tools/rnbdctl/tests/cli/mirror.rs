// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl mirror` on a tree of files: the programs that it runs, and its output.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use assert_cmd::Command;
use serde_json::Value;

use crate::fake::Fake;
use crate::fake::Modules;
use crate::fake::Said;
use crate::schema::Schema;

const UUID: &str = "abababababababababababababababab";

/// A machine that has mapped a disk of each of two servers.
pub(crate) fn two_servers() -> Fake {
    let fake = Fake::new();
    fake.load_client();
    for (number, session) in ["near", "far"].into_iter().enumerate() {
        let path = format!("ip:10.0.{number}.1@ip:10.0.{number}.2");
        fake.session(session, Modules::Rust, &[&path]);
        let name = format!("rnbd{number}");
        fake.device(&name, session, "vg/db", 1 << 20);
        fake.extend_device(&name);
    }
    fake
}

/// Writes programs that note their arguments in `log`. A program then runs its line of shell in
/// `answers`, or succeeds if it has no line.
pub(crate) fn programs(fake: &Fake, answers: &[(&str, &str)]) {
    for name in ["mdadm", "blkpr", "blkid", "modprobe"] {
        let answer = answers.iter().find(|(program, _)| *program == name);
        let answer = answer.map_or("exit 0", |(_, answer)| answer);
        let log = fake.path("log").display().to_string();
        let text = format!("#!/bin/sh\necho {name} \"$@\" >> {log}\n{answer}\n");
        fake.write(&format!("bin/{name}"), &text);
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(fake.path(&format!("bin/{name}")), all).unwrap();
    }
}

pub(crate) fn run(fake: &Fake, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnbdctl"));
    command
        .env_clear()
        .env("PATH", path(fake))
        .env("RNBDCTL_ROOT", fake.root())
        .args(args);
    Said::of(&mut command)
}

/// Returns the search path with the programs of [`programs`].
pub(crate) fn path(fake: &Fake) -> String {
    format!("{}:/usr/bin:/bin", fake.path("bin").display())
}

/// Returns the command lines of the programs that were run, without keys and UUIDs, which differ
/// each time.
pub(crate) fn lines(fake: &Fake) -> Vec<String> {
    let lines = fake.read("log");
    let plain = |line: &str| {
        let words = line.split(' ').map(|word| match word.split_once("0x") {
            Some(("", _)) => "KEY".to_owned(),
            _ => match word.starts_with("--uuid=") {
                true => "--uuid=UUID".to_owned(),
                false => word.to_owned(),
            },
        });
        words.collect::<Vec<_>>().join(" ")
    };
    lines.lines().map(plain).collect()
}

pub(crate) const BLANK: (&str, &str) = ("blkid", "exit 2");

#[test]
fn a_mirror_is_created_by_these_commands() {
    let fake = two_servers();
    let conflict = "[ \"$2\" != reserve ] || [ -e $0.registered ] || \
                    { echo 'blkpr: error code 0x18, for more' >&2; exit 1; }\n\
                    [ \"$2\" != register ] || touch $0.registered";
    programs(&fake, &[BLANK, ("blkpr", conflict)]);
    let args = [
        "mirror",
        "create",
        "db",
        "vg/db@far",
        "vg/db@near",
        "--write-mostly",
        "vg/db@far",
    ];
    let said = run(&fake, &args);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "created /dev/md/db\n"),
        "{said:?}"
    );
    let ran = lines(&fake);
    assert_eq!(
        ran[0],
        "blkid --probe --output value --match-tag TYPE /dev/rnbd0"
    );
    assert_eq!(
        ran[1],
        "blkid --probe --output value --match-tag TYPE /dev/rnbd1"
    );
    assert_eq!(
        ran[2],
        "blkpr -c reserve -k KEY -t write-exclusive /dev/rnbd0"
    );
    assert_eq!(ran[3], "blkpr -c register -k KEY -f ignore-key /dev/rnbd0");
    assert_eq!(
        ran[4],
        "blkpr -c reserve -k KEY -t write-exclusive /dev/rnbd0"
    );
    assert_eq!(
        ran.last().unwrap(),
        "mdadm --create /dev/md/db --config=none --homehost=rnbd-mirror --name=db --uuid=UUID \
         --metadata=1.2 --level=1 --bitmap=internal --raid-devices=2 --bitmap-chunk=1M \
         --failfast /dev/rnbd0 --write-mostly /dev/rnbd1"
    );
    // Requests of a leg are not held.
    assert!(fake
        .read("sys/block/rnbd0/rnbd/hold_io_ms")
        .starts_with('0'));
    let record: Value = serde_json::from_str(&fake.read("var/lib/rnbd/mirrors/db.json")).unwrap();
    assert_eq!(record["legs"][0]["session"], "near");
    assert_eq!(record["legs"][1]["write_mostly"], true);
    assert_eq!(record["legs"][1]["in_sync"], true);
    let again = run(&fake, &args);
    assert_eq!(again.code, 5, "{again:?}");
}

#[test]
fn what_fails_leaves_nothing() {
    let fake = two_servers();
    programs(&fake, &[BLANK, ("mdadm", "echo 'mdadm: no' >&2; exit 1")]);
    let args = ["mirror", "create", "db", "vg/db@far", "vg/db@near"];
    let said = run(&fake, &args);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("creating mirror db: mdadm: no"),
        "{said:?}"
    );
    assert!(!fake.path("var/lib/rnbd/mirrors/db.json").exists());
    let taken = "[ \"$2\" != reserve ] || { echo 'blkpr: error code 0x18, for' >&2; exit 1; }";
    programs(&fake, &[BLANK, ("blkpr", taken)]);
    let said = run(&fake, &args);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        ": another machine has reserved the disk\n",
        "hint: choose another disk; or, if the disk is a leg",
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    programs(&fake, &[("blkid", "echo xfs; exit 0")]);
    let said = run(&fake, &args);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("has xfs on it"), "{said:?}");
    fake.write("sys/block/rnbd1/rnbd/state", "closed\n");
    let said = run(&fake, &args);
    assert!(said.stderr.contains("(/dev/rnbd1) is closed"), "{said:?}");
    assert!(!run(&fake, &["mirror", "create", "0", "a@b", "c@d"])
        .stderr
        .is_empty());
}

/// Writes the record of a mirror of both disks.
pub(crate) fn record(fake: &Fake) {
    let leg = |session: &str, in_sync: bool| {
        format!(
            "{{\"disk\": \"vg/db\", \"session\": \"{session}\", \"write_mostly\": false, \
             \"failfast\": true, \"in_sync\": {in_sync}, \"fill\": false, \"since\": 5}}"
        )
    };
    let text = format!(
        "{{\"version\": 1, \"name\": \"db\", \"uuid\": \"{UUID}\", \"reserve\": true, \
         \"legs\": [{}, {}], \"stopped\": null}}",
        leg("near", true),
        leg("far", false)
    );
    fake.write("var/lib/rnbd/mirrors/db.json", &text);
}

pub(crate) fn running(fake: &Fake) {
    let write = |file: &str, text: &str| fake.write(&format!("sys/block/md127/{file}"), text);
    write("size", "2000\n");
    write("md/uuid", "abababab-abab-abab-abab-abababababab\n");
    write("md/array_state", "clean\n");
    write("md/sync_action", "recover\n");
    write("md/sync_completed", "100 / 1000\n");
    write("md/sync_speed", "5\n");
    write("md/dev-rnbd0/state", "in_sync,failfast\n");
    write("md/dev-rnbd1/state", "spare\n");
}

fn json(fake: &Fake, args: &[&str]) -> Value {
    let said = fake.ok(args);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn the_state_of_mirrors_is_told() {
    let schema = Schema::load();
    let fake = two_servers();
    let status = ["mirror", "status", "-o", "json"];
    let none = json(&fake, &status);
    assert_eq!(schema.check("mirror status", &none), Ok(()));
    assert_eq!(none["mirrors"], Value::Array(Vec::new()));
    record(&fake);
    let stopped = json(&fake, &status);
    assert_eq!(schema.check("mirror status", &stopped), Ok(()));
    assert_eq!(stopped["mirrors"][0]["state"], "stopped");
    running(&fake);
    let found = json(&fake, &status);
    assert_eq!(schema.check("mirror status", &found), Ok(()));
    let mirror = &found["mirrors"][0];
    assert_eq!(
        (&mirror["state"], &mirror["md"]),
        (&"recovering".into(), &"md127".into())
    );
    assert_eq!(
        (&mirror["done_bytes"], &mirror["total_bytes"]),
        (&51200.into(), &512_000.into())
    );
    assert_eq!(mirror["legs"][0]["state"], "in-sync");
    assert_eq!(mirror["legs"][1]["state"], "filling");
    let text = fake.ok(&["mirror", "status", "db"]);
    assert!(
        text.contains("/dev/md/db") && text.contains("vg/db@far"),
        "{text}"
    );
    fake.ok(&["mirror", "status", "-o", "csv"]);
    assert_eq!(fake.run(&["mirror", "status", "other"]).code, 3);
}

#[test]
fn events_and_metrics_tell_of_mirrors() {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    let said = fake.ok(&["events", "--initial", "--for", "0"]);
    let schema = Schema::load();
    let events: Vec<Value> = (said.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for event in &events {
        assert_eq!(schema.check("events", event), Ok(()), "{event}");
    }
    let find = |name: &'static str| events.iter().filter(move |event| event["event"] == name);
    let mirror = find("mirror-state").next().unwrap();
    assert_eq!(
        (&mirror["mirror"], &mirror["to"]),
        (&"db".into(), &"recovering".into())
    );
    assert_eq!(mirror.get("session"), None);
    let progress = find("mirror-progress").next().unwrap();
    assert_eq!(
        (progress.get("from"), &progress["to"]),
        (None, &"10".into())
    );
    assert_eq!(find("mirror-leg").count(), 2, "{said}");
    let file = fake.path("metrics").display().to_string();
    fake.ok(&["exporter", "--textfile", &file]);
    let metrics = fake.read("metrics");
    for line in [
        "rnbd_mirror_running{mirror=\"db\"} 1",
        "rnbd_mirror_broken{mirror=\"db\"} 0",
        "rnbd_mirror_legs{mirror=\"db\"} 2",
        "rnbd_mirror_leg_in_sync{mirror=\"db\",session=\"near\",device_path=\"vg/db\"} 1",
        "rnbd_mirror_leg_in_sync{mirror=\"db\",session=\"far\",device_path=\"vg/db\"} 0",
        "rnbd_mirror_copy_done_bytes{mirror=\"db\"} 51200",
        "rnbd_mirror_copy_total_bytes{mirror=\"db\"} 512000",
    ] {
        assert!(
            metrics.lines().any(|have| have == line),
            "{line}: {metrics}"
        );
    }
}

#[test]
fn a_mirror_without_legs_is_not_started() {
    let fake = two_servers();
    record(&fake);
    programs(&fake, &[]);
    // The disks have no superblock.
    let said = run(&fake, &["mirror", "assemble", "db"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("no leg is mapped, open"), "{said:?}");
    // No program was run.
    assert!(!fake.path("log").exists(), "{:?}", lines(&fake));
}
