// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl apply` and `rnbdctl config` on a machine made of files.

use std::fs;

use crate::machine::Machine;
use crate::machine::CONFIG;

fn stdout(command: &mut assert_cmd::Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn failure(command: &mut assert_cmd::Command, code: i32) -> String {
    let assert = command.assert().code(code);
    let output = assert.get_output();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_machine_as_the_file_says_is_left_alone() {
    let machine = Machine::new();
    machine.config(CONFIG);
    let before = machine.files();
    for args in [
        &["apply"][..],
        &["apply", "--dry-run"],
        &["apply", "--prune"],
        &["apply", "--wait"],
    ] {
        assert_eq!(
            stdout(&mut machine.rnbdctl(args)),
            "nothing to do\n",
            "{args:?}"
        );
    }
    assert_eq!(machine.files(), before);
}

#[test]
fn a_difference_is_shown_and_then_made_once() {
    let machine = Machine::new();
    machine.config(
        &CONFIG
            .replace("5000", "1000")
            .replace("min-inflight", "round-robin"),
    );
    let before = machine.files();
    assert_eq!(
        stdout(&mut machine.rnbdctl(&["apply", "-n"])),
        "storage:\n  ~ hb_interval_ms: 5000 -> 1000\n  ~ policy: min-inflight -> round-robin\n\
         2 changes to make\n"
    );
    let json: serde_json::Value = serde_json::from_str(&stdout(
        &mut machine.rnbdctl(&["apply", "-n", "-o", "json"]),
    ))
    .unwrap();
    assert_eq!(
        (&json["version"], &json["dry_run"]),
        (&1.into(), &true.into())
    );
    let change = serde_json::json!({
        "session": "storage", "operation": "change", "kind": "hb_interval_ms", "name": null,
        "from": "5000", "to": "1000", "result": "planned", "node": null, "error": null,
    });
    assert_eq!(json["changes"][0], change);
    let csv = stdout(&mut machine.rnbdctl(&["apply", "-n", "-o", "csv"]));
    assert_eq!(
        csv.lines().nth(2),
        Some("storage,change,policy,,min-inflight,round-robin,planned,,")
    );
    assert_eq!(machine.files(), before);

    assert_eq!(
        stdout(&mut machine.rnbdctl(&["apply"])),
        "storage: ~ hb_interval_ms: 5000 -> 1000\nstorage: ~ policy: min-inflight -> round-robin\n"
    );
    let session = machine.path().join("sys/class/rtrs-client/storage");
    assert!(fs::read_to_string(session.join("hb_interval_ms"))
        .unwrap()
        .starts_with("1000"));
    let after = machine.files();
    // These files keep the end of a longer old text; the kernel's files do not.
    machine.write(
        "sys/class/rtrs-client/storage/mpath_policy",
        "round-robin (RR: 0)\n",
    );
    assert_eq!(stdout(&mut machine.rnbdctl(&["apply"])), "nothing to do\n");
    assert_eq!(machine.files().len(), after.len());
}

#[test]
fn what_the_file_does_not_have_is_told() {
    let machine = Machine::new();
    machine.config(&CONFIG.replace("\"disk1\", ", ""));
    machine.device(2, "other", "rw");
    machine.write("sys/block/rnbd2/rnbd/session", "elsewhere\n");
    assert_eq!(
        stdout(&mut machine.rnbdctl(&["apply", "--dry-run"])),
        "storage:\n  ! device disk1 (/dev/rnbd0) is not in the file: left alone\n\
         elsewhere:\n  ! device other (/dev/rnbd2) is not in the file: left alone\nnothing to do\n"
    );
    assert_eq!(
        stdout(&mut machine.rnbdctl(&["apply", "--dry-run", "--prune"])),
        "storage:\n  - device disk1 (/dev/rnbd0)\nelsewhere:\n  - device other (/dev/rnbd2)\n\
         2 changes to make\n"
    );
}

#[test]
fn a_broken_file_changes_nothing_and_says_where() {
    let machine = Machine::new();
    for (text, told) in [
        (
            CONFIG.replace("hb_interval_ms", "hb_interval"),
            ":6:1: session \"storage\": hb_interval: unknown key",
        ),
        (
            CONFIG.replace("5000", "5"),
            ":6:18: session \"storage\": hb_interval_ms: 5 is not between 10 and 600000",
        ),
        (
            CONFIG.replace("policy =", "name ="),
            ":5:1: name: duplicate key",
        ),
        (
            CONFIG.replace("\"10.0.1.2\"", "\"10.0.0.2\""),
            ":4:22: session \"storage\": paths: the path ip:10.0.0.2 repeats an earlier path",
        ),
        (
            CONFIG.replace("\"ro\"", "\"r\""),
            ":7:56: session \"storage\": devices: access_mode: \"r\" is not one of",
        ),
        (
            format!("{CONFIG}{CONFIG}"),
            ":10:8: session \"storage\": name: there is a session of this name in line 3 already",
        ),
        (CONFIG.replace(']', ""), ""),
        ("[session".to_owned(), ":1:9: "),
    ] {
        // A valid file would change this.
        let file = machine.config(&text.replace("min-inflight", "round-robin"));
        let before = machine.files();
        let told = format!("{}{told}", file.display());
        for args in [
            &["apply"][..],
            &["apply", "-n"],
            &["apply", "--prune", "--wait"],
            &["config", "check"],
        ] {
            let stderr = failure(&mut machine.rnbdctl(args), 9);
            assert!(stderr.contains(&told), "{args:?}: no {told:?} in {stderr}");
        }
        assert_eq!(machine.files(), before);
        let mut check = machine.rnbdctl(&["config", "check", "-o", "json"]);
        let output = check.assert().code(9).get_output().stdout.clone();
        let json: serde_json::Value = serde_json::from_slice(&output).unwrap();
        assert!(json["errors"][0]["line"].is_u64(), "{json}");
    }
}

#[test]
fn files_that_are_not_there() {
    let machine = Machine::new();
    let stderr = failure(&mut machine.rnbdctl(&["apply"]), 9);
    assert!(
        stderr.contains("etc/rnbd/rnbd.toml: there is no such file"),
        "{stderr}"
    );
    let stderr = failure(&mut machine.rnbdctl(&["apply", "/nowhere/x.toml"]), 9);
    assert!(
        stderr.contains("/nowhere/x.toml: there is no such file"),
        "{stderr}"
    );
}

#[test]
fn a_good_file_is_said_to_be_good() {
    let machine = Machine::new();
    let file = machine.config(CONFIG);
    let expected = format!("{}: fine; sessions: 1, devices: 2\n", file.display());
    assert_eq!(stdout(&mut machine.rnbdctl(&["config", "check"])), expected);
}

#[test]
fn without_the_module_nothing_can_be_mapped() {
    let machine = Machine::new();
    machine.config(&CONFIG.replace("storage", "new"));
    fs::remove_dir_all(machine.path().join("sys/class")).unwrap();
    fs::remove_dir_all(machine.path().join("sys/block")).unwrap();
    let stderr = failure(&mut machine.rnbdctl(&["apply"]), 7);
    assert!(
        stderr.contains("rnbd_client is not loaded") && stderr.contains("modprobe rnbd_client"),
        "{stderr}"
    );
}

#[test]
fn what_is_mapped_can_be_saved_and_applied() {
    let machine = Machine::new();
    let shown = stdout(&mut machine.rnbdctl(&["config", "show"]));
    assert!(
        shown.contains("{ src = \"ip:10.0.0.1\", dst = \"ip:10.0.0.2\" }"),
        "{shown}"
    );
    assert!(
        !shown.contains("hb_interval_ms"),
        "it is as by default: {shown}"
    );
    machine.config("# mine\n");
    let stderr = failure(&mut machine.rnbdctl(&["config", "save"]), 5);
    assert!(
        stderr.contains("the file exists already") && stderr.contains("--force"),
        "{stderr}"
    );
    stdout(&mut machine.rnbdctl(&["config", "save", "--force"]));
    assert_eq!(
        fs::read_to_string(machine.path().join("etc/rnbd/rnbd.toml")).unwrap(),
        shown
    );
    let entries = fs::read_dir(machine.path().join("etc/rnbd"))
        .unwrap()
        .count();
    assert_eq!(entries, 1, "something is left beside the file");
    assert_eq!(
        stdout(&mut machine.rnbdctl(&["apply", "--prune"])),
        "nothing to do\n"
    );
}

#[test]
fn a_signal_ends_the_waiting() {
    let machine = Machine::new();
    machine.config(&CONFIG.replace("storage", "new"));
    fs::remove_dir_all(machine.path().join("sys/class")).unwrap();
    fs::remove_dir_all(machine.path().join("sys/block")).unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("rnbdctl"))
        .args(["apply", "--wait"])
        .env("RNBDCTL_ROOT", machine.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let waiting = lines.find(|line| {
        line.as_ref()
            .unwrap()
            .contains("new: not complete yet, trying again")
    });
    assert!(waiting.is_some());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(15)
    );
    assert!(lines.any(|line| line
        .unwrap()
        .contains("ended by SIGTERM before all changes were made")));
}
