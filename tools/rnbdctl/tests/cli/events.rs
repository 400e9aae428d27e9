// SPDX-License-Identifier: GPL-2.0

//! Changes as they happen.

use std::io::BufRead;
use std::io::BufReader;
use std::process::Stdio;

use serde_json::Value;

use crate::fake::client_path;
use crate::fake::Fake;
use crate::schema::Schema;

fn parse(line: &str) -> Value {
    let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(Schema::load().check("events", &value), Ok(()));
    value
}

#[test]
fn what_there_is_comes_first_if_asked_for() {
    let fake = Fake::typical();
    let said = fake.ok(&["events", "--initial", "--for", "0"]);
    let events: Vec<_> = said.lines().map(parse).collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!(
        (
            count("session-made"),
            count("path-added"),
            count("device-mapped")
        ),
        (1, 2, 3)
    );
    assert_eq!(events.len(), 6, "{said}");
    assert_eq!(events[0]["session"], "backup");
    assert_eq!(
        (&events[0]["to"], events[0].get("device")),
        (&"degraded".into(), None)
    );
    assert_eq!(fake.ok(&["events", "--for", "0"]), "");
    assert_eq!(fake.run(&["events", "-o", "csv"]).code, 2);
    // Devices that are mapped later are reported later.
    assert_eq!(Fake::new().ok(&["events", "--for", "0", "-o", "json"]), "");
}

#[test]
fn changes_are_told_as_they_come() {
    let fake = Fake::typical();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rnbdctl"))
        .env_clear()
        .env("RNBDCTL_ROOT", fake.root())
        .args(["events", "--initial", "--for", "2m"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || parse(&lines.next().unwrap().unwrap());
    for _ in 0..6 {
        next();
    }
    let path = "ip:10.0.1.1@ip:10.0.1.2";
    fake.write(&client_path("backup", path, "state"), "connected\n");
    let event = next();
    assert_eq!(
        (&event["event"], &event["path"]),
        (&"path-state".into(), &path.into())
    );
    assert_eq!(
        (&event["from"], &event["to"]),
        (&"disconnected".into(), &"connected".into())
    );
    let event = next();
    assert_eq!(
        (&event["event"], &event["to"]),
        (&"session-state".into(), &"connected".into())
    );
    fake.write("sys/block/rnbd0/size", "8\n");
    let event = next();
    assert_eq!(
        (&event["event"], &event["to"]),
        (&"device-size".into(), &"4096".into())
    );
    std::fs::remove_dir_all(fake.path("sys/block/rnbd10")).unwrap();
    let event = next();
    assert_eq!(
        (&event["event"], &event["device"]),
        (&"device-unmapped".into(), &"rnbd10".into())
    );
    assert_eq!(event["disk"], "vg/tape");
    child.kill().unwrap();
    child.wait().unwrap();
}
