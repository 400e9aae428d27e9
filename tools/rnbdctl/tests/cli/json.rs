// SPDX-License-Identifier: GPL-2.0

//! The JSON output, checked with its schema.

use serde_json::Value;

use crate::fake::Fake;
use crate::fake::Modules;
use crate::schema::Schema;

fn json(fake: &Fake, args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.extend(["-o", "json"]);
    let said = fake.run(&args);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {said:?}"))
}

fn old_modules() -> Fake {
    let fake = Fake::new();
    fake.load_client();
    fake.load_server();
    fake.session("old", Modules::C, &["ip:10.0.0.1@ip:10.0.0.2"]);
    fake.device("rnbd0", "old", "x", 512);
    fake.server_session("old server", Modules::C, &["ip:10.0.0.1@ip:10.0.0.2"]);
    fake
}

#[test]
fn every_command_keeps_to_the_schema() {
    let schema = Schema::load();
    let fake = Fake::typical();
    fake.write("wrong.toml", "[[session]]\nname = 5\n");
    let wrong = fake.path("wrong.toml").display().to_string();
    let commands: &[(&str, &[&str])] = &[
        ("list", &["list"]),
        ("list", &["list", "devices", "--client"]),
        ("list", &["list", "paths"]),
        ("list", &["server", "list", "sessions"]),
        ("map", &["map", "-s", "backup", "/dev/sdb", "vg/tape"]),
        ("unmap", &["unmap", "rnbd0", "rnbd2"]),
        ("show", &["show", "rnbd0"]),
        ("show", &["show", "backup"]),
        ("show", &["show", "10.0.1.2"]),
        ("show", &["show", "10.0.0.7@10.0.0.1"]),
        ("show", &["show", "sda"]),
        ("show", &["show", "web"]),
        ("path policy", &["path", "policy", "backup"]),
        ("rdma", &["rdma"]),
        ("check", &["check", "127.0.0.1"]),
        ("stats", &["stats"]),
        ("top", &["top", "--once", "--interval", "0.2"]),
        ("apply", &["apply", "--dry-run", "--prune"]),
        ("config check", &["config", "check"]),
        ("config check", &["config", "check", &wrong]),
        ("server policy show", &["server", "policy", "show"]),
        ("key list", &["key", "list"]),
        ("why", &["why"]),
    ];
    fake.ok(&["key", "new", "web1"]);
    let file = "[[session]]\nname = \"new\"\npaths = [\"10.0.0.9\"]\ndevices = [\"x\"]\n";
    fake.write("etc/rnbd/rnbd.toml", file);
    fake.write(
        "sys/class/rnbd-server/ctl/export_policy",
        "policy 7\n# none\n",
    );
    for (command, args) in commands {
        schema
            .check(command, &json(&fake, args))
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
    }
}

#[test]
fn other_machines_keep_to_the_schema() {
    let schema = Schema::load();
    for fake in [Fake::new(), old_modules()] {
        for command in ["list", "rdma", "check"] {
            schema.check(command, &json(&fake, &[command])).unwrap();
        }
    }
    let fake = old_modules();
    schema
        .check("show", &json(&fake, &["show", "rnbd0"]))
        .unwrap();
    schema
        .check("show", &json(&fake, &["show", "old"]))
        .unwrap();
    schema
        .check("show", &json(&fake, &["show", "old server"]))
        .unwrap();
}

#[test]
fn values_are_those_of_the_files() {
    let fake = Fake::typical();
    fake.write("sys/block/rnbd0/rnbd/io_mode", "buffered\n");
    fake.write("sys/block/rnbd10/rnbd/io_mode", "direct\n");
    fake.write("sys/block/rnbd0/rnbd/io_timeout_ms", "30000\n");
    fake.write("sys/block/rnbd0/rnbd/io_timeouts", "12\n");
    fake.write("sys/block/rnbd0/rnbd/io_unanswered", "3\n");
    let list = json(&fake, &["list"]);
    let devices = list["client"]["devices"].as_array().unwrap();
    let names: Vec<_> = devices
        .iter()
        .map(|device| device["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rnbd0", "rnbd2", "rnbd10"]);
    assert_eq!(devices[0]["size_bytes"], 2_u64 << 30);
    let modes: Vec<_> = devices.iter().map(|device| &device["io_mode"]).collect();
    assert_eq!(modes, ["buffered", "any", "direct"]);
    assert_eq!(devices[1]["state"], "closed");
    assert_eq!(devices[0]["io_timeout_ms"], 30000);
    assert_eq!(
        (&devices[0]["io_timeouts"], &devices[0]["io_unanswered"]),
        (&Value::from(12), &Value::from(3))
    );
    assert_eq!(devices[1]["io_timeout_ms"], 0);
    let session = &list["client"]["sessions"][0];
    assert_eq!(session["state"], "degraded");
    assert_eq!(session["settings"]["reconnect_delay_ms"], 30000);
    let stats = &session["paths"][0]["stats"];
    assert_eq!(
        (&stats["reads"], &stats["failed_reconnects"]),
        (&Value::from(10), &Value::from(5))
    );
    assert_eq!(list["server"]["sessions"][0]["memory_bytes"], 67_145_728);
    assert_eq!(
        list["server"]["devices"][0]["exports"][0]["session"],
        "mail"
    );
}

#[test]
fn c_modules_count_from_zero_too() {
    let list = json(&old_modules(), &["list", "paths", "--client"]);
    let stats = &list["client"]["sessions"][0]["paths"][0]["stats"];
    assert_eq!(stats["reconnects"], 0, "{list}");
}

#[test]
fn what_the_module_does_not_say_is_null() {
    let old = json(&old_modules(), &["show", "rnbd0"]);
    for field in ["io_mode", "io_timeout_ms", "io_timeouts", "io_unanswered"] {
        assert_eq!(old["device"][field], Value::Null, "{field}: {old}");
    }
    let fake = Fake::typical();
    for text in ["fileio\n", "Direct\n", "\n"] {
        fake.write("sys/block/rnbd0/rnbd/io_mode", text);
        let shown = json(&fake, &["show", "rnbd0"]);
        assert_eq!(shown["device"]["io_mode"], Value::Null, "{text:?}");
        Schema::load().check("show", &shown).unwrap();
    }
    // These are not valid limits.
    for text in ["-1\n", "999\n", "86400001\n", "x\n", "\n"] {
        fake.write("sys/block/rnbd0/rnbd/io_timeout_ms", text);
        fake.write("sys/block/rnbd0/rnbd/io_timeouts", "-1\n");
        let shown = json(&fake, &["show", "rnbd0"]);
        assert_eq!(shown["device"]["io_timeout_ms"], Value::Null, "{text:?}");
        assert_eq!(shown["device"]["io_timeouts"], Value::Null);
        Schema::load().check("show", &shown).unwrap();
    }
}

#[test]
fn parts_that_were_not_asked_for_are_absent() {
    let list = json(&Fake::typical(), &["list", "devices", "--client"]);
    assert!(list.get("server").is_none(), "{list}");
    assert!(list["client"].get("sessions").is_none(), "{list}");
}

#[test]
fn a_change_prints_no_document() {
    let said = Fake::typical().run(&["remap", "rnbd2", "-o", "json"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
}

#[test]
fn what_has_a_form_of_its_own_takes_no_other() {
    for args in [&["config", "show"] as &[&str], &["completions", "bash"]] {
        for format in ["json", "csv"] {
            let said = Fake::typical().run(&[args, &["-o", format]].concat());
            assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
            assert!(said.stderr.contains("neither JSON nor CSV"), "{said:?}");
        }
    }
}
