// SPDX-License-Identifier: GPL-2.0

//! Errors: exit codes, and messages that say what failed, why, and what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use assert_cmd::Command;

use crate::fake::client_path;
use crate::fake::Fake;
use crate::fake::Modules;
use crate::fake::Said;

/// The command fails with this code, and its message has all these parts.
fn fails(fake: &Fake, args: &[&str], code: i32, parts: &[&str]) {
    let said = fake.run(args);
    assert_eq!(said.code, code, "{args:?}: {said:?}");
    assert_eq!(said.stdout, "", "{args:?}");
    for part in parts {
        assert!(
            said.stderr.contains(part),
            "{args:?}: no {part:?} in {}",
            said.stderr
        );
    }
}

#[test]
fn wrong_usage() {
    let fake = Fake::typical();
    for args in [
        &["frobnicate"] as &[&str],
        &["map"],
        &["server", "drain", "--for", "0"],
        &["server", "drain", "--for", "86401"],
        &["server", "drain", "--for", "10min"],
        &["server", "drain", "--for", "10m", "--cancel"],
        &["map", "-s", "x"],
        &["map", "-s", "x", "y", "--port", "0"],
        &["map", "-s", "x", "y", "--access", "all"],
        &["map", "-s", "x", "y", "-p", "bo gus"],
        &["map", "-s", "x", "y", "-p", "10.0.2"],
        &["map", "s:y", "--hold", "2d"],
        &["unmap"],
        &["unmap", "rnbd0", "--all"],
        &["resize", "rnbd0", "5X"],
        &["path", "policy", "backup", "fastest"],
    ] {
        fails(&fake, args, 2, &["error: "]);
    }
}

#[test]
fn a_disk_needs_a_server() {
    let fake = Fake::typical();
    let parts = ["the server is not given", "rnbdctl map SERVER:/dev/sdb"];
    fails(&fake, &["map", "/dev/sdb"], 2, &parts);
    fails(
        &fake,
        &["map", "storage1:"],
        2,
        &["names a server, but no disk"],
    );
    fails(
        &fake,
        &["map", "a b:c"],
        2,
        &["neither an address nor a host name"],
    );
    let name = "no-such-host.invalid";
    let parts = [&format!("looking up {name}: ") as &str, "/etc/hosts"];
    fails(&fake, &["map", &format!("{name}:x")], 6, &parts);
    fails(&fake, &["discover", name], 6, &parts);
    fails(&fake, &["path", "add", "backup", name], 6, &parts);
    // The other server may have another disk with that name.
    let parts = [
        "session backup leads to another address: ",
        "10.0.0.2",
        "path add backup",
    ];
    fails(&fake, &["map", "-s", "backup", "10.9.9.9:x"], 5, &parts);
    // With the C module requests cannot wait.
    let why = ["cannot hold requests", "C module"];
    fails(&fake, &["map", "10.0.0.9:x", "--hold", "5m"], 7, &why);
    assert_eq!(fake.read("sys/class/rnbd-client/ctl/map_device"), "");
}

#[test]
fn options_that_the_kernel_would_not_take() {
    let fake = Fake::typical();
    fails(
        &fake,
        &["map", "-s", "a/b", "x"],
        2,
        &["mapping x on session a/b: sessname"],
    );
    fails(&fake, &["map", "-s", "s", "x y"], 2, &["white space"]);
    fails(&fake, &["map", "-s", "s", "../x"], 2, &["no server allows"]);
    fails(
        &fake,
        &["map", "-s", "s", &"x".repeat(300)],
        2,
        &["too long (300 bytes, at most 254)"],
    );
    let mut args = vec!["map", "-s", "s", "x"];
    args.extend(["-p", "10.0.0.1"].iter().cycle().take(14));
    fails(&fake, &args, 2, &["path"]);
    assert_eq!(fake.read("sys/class/rnbd-client/ctl/map_device"), "");
}

#[test]
fn names_of_nothing() {
    let fake = Fake::typical();
    fails(
        &fake,
        &["unmap", "rnbd7"],
        3,
        &["device rnbd7: no such device is mapped", "hint: "],
    );
    fails(
        &fake,
        &["show", "nothing"],
        3,
        &["nothing: there is no device, session or path"],
    );
    fails(
        &fake,
        &["path", "remove", "10.9.9.9"],
        3,
        &["path 10.9.9.9: there is no such path"],
    );
    fails(
        &fake,
        &["path", "add", "nowhere", "10.0.0.1"],
        3,
        &["session nowhere: there is no"],
    );
    fails(
        &fake,
        &["server", "force-close", "sdx"],
        3,
        &["closing sdx: no client has mapped the device"],
    );
    fails(&fake, &["server", "disconnect", "nobody"], 3, &["nobody"]);
    for name in [
        "",
        ".",
        "..",
        "../../etc",
        "rnbd0/../rnbd2",
        "/dev/../dev/rnbd77",
    ] {
        fails(&fake, &["show", name], 3, &["there is no device"]);
    }
}

#[test]
fn configuration_files() {
    let fake = Fake::typical();
    for args in [&["config", "check"] as &[&str], &["apply"]] {
        let said = fake.run(args);
        assert_eq!(said.code, 9, "{said:?}");
        let file = fake.path("etc/rnbd/rnbd.toml").display().to_string();
        let wanted = format!("rnbdctl: {file}: there is no such file\n");
        assert_eq!(said.stderr, wanted);
    }
    fake.write("etc/rnbd/rnbd.toml", "speed = 5\n");
    fails(&fake, &["config", "check"], 9, &["rnbd.toml: 1 mistake:\n"]);
    let parts = [
        "1 mistake, nothing was changed:\n",
        "hint: rnbdctl config check",
    ];
    fails(&fake, &["apply"], 9, &parts);
}

#[test]
fn a_policy_that_is_wrong() {
    let fake = Fake::typical();
    fake.write("wrong.policy", "frobnicate\n");
    let policy = fake.path("wrong.policy").display().to_string();
    // A name that begins with a slash is below the root of the test.
    fake.write(&policy[1..], "frobnicate\n");
    fails(
        &fake,
        &["server", "policy", "check", &policy],
        9,
        &["server.md", "/usr/share/doc/rnbdctl"],
    );
}

#[test]
fn modules_that_are_not_loaded() {
    let fake = Fake::new();
    let hint = "modprobe rnbd_client";
    fails(
        &fake,
        &["map", "-s", "s", "x"],
        7,
        &["rnbd_client is not loaded", hint],
    );
    fails(
        &fake,
        &["unmap", "rnbd0"],
        7,
        &["rnbd_client is not loaded", hint],
    );
    fails(
        &fake,
        &["remap", "--all"],
        7,
        &["rnbd_client is not loaded", hint],
    );
    fails(
        &fake,
        &["path", "policy", "s"],
        7,
        &["rtrs_client is not loaded", hint],
    );
    fails(
        &fake,
        &["server", "disconnect", "s"],
        7,
        &["modprobe rnbd_server"],
    );
    fails(
        &fake,
        &["server", "force-close", "sda"],
        7,
        &["modprobe rnbd_server"],
    );
    fails(
        &fake,
        &["server", "drain"],
        7,
        &["rnbd_server is not loaded"],
    );
    for args in [
        &["unmap", "--all"] as &[&str],
        &["show", "x"],
        &["config", "show"],
        &["config", "save"],
        &["stats", "--reset"],
        &["path", "remove", "10.0.0.1"],
        &["discover", "10.0.0.1"],
        &["why"],
    ] {
        fails(&fake, args, 7, &["loaded"]);
    }
    // These commands also print that there is nothing.
    for args in [&["list"] as &[&str], &["stats"], &["list", "--client"]] {
        assert_eq!(fake.run(args).code, 7, "{args:?}");
    }
    let server = Fake::new();
    server.load_server();
    server.ok(&["list"]);
    server.ok(&["stats"]);
    assert_eq!(server.run(&["list", "--client"]).code, 7);
}

#[test]
fn errors_are_json_where_output_is() {
    let schema = crate::schema::Schema::load();
    let fake = Fake::typical();
    for (args, kind, code) in [
        (&["unmap", "rnbd7"] as &[&str], "not-found", 3),
        (&["path", "remove", "10.0.0.2"], "busy", 5),
        (&["unmap", "rnbd7", "--sideways"], "usage", 2),
        (&["map", "x"], "usage", 2),
    ] {
        let said = fake.run(&[args, &["-o", "json"]].concat());
        assert_eq!(said.code, code, "{said:?}");
        let value: serde_json::Value = serde_json::from_str(&said.stderr).expect(&said.stderr);
        assert_eq!(value["error"]["kind"], kind, "{value}");
        assert_eq!(value["error"]["exit_code"], code, "{value}");
        assert_eq!(schema.check("error", &value), Ok(()));
    }
}

#[test]
fn a_server_that_cannot_drain() {
    let fake = Fake::typical();
    for args in [
        &["server", "drain"] as &[&str],
        &["server", "drain", "--cancel"],
    ] {
        fails(&fake, args, 7, &["rnbd_server cannot drain", "0.2.0"]);
    }
    let file = "sys/class/rnbd-server/ctl/drain";
    fake.write(file, "off\n");
    fake.refuse(file);
    fails(&fake, &["server", "drain"], 1, &["draining: no room left"]);
}

#[test]
fn tunables_that_the_c_module_lacks() {
    let fake = Fake::new();
    fake.load_client();
    fake.session("old", Modules::C, &[]);
    fails(
        &fake,
        &["session", "set", "old", "hold_io_ms=1"],
        7,
        &["lacks this tunable", "C module"],
    );
    fails(
        &fake,
        &["session", "set", "old", "speed=1"],
        2,
        &["no tunable of this name", "hb_interval_ms"],
    );
    fails(
        &fake,
        &["session", "set", "old", "hold_io_ms"],
        2,
        &["NAME=VALUE"],
    );
    fake.ok(&["session", "set", "old", "max_reconnect_attempts=5"]);
}

#[test]
fn what_the_kernel_refuses_is_explained() {
    let fake = Fake::typical();
    fake.refuse("sys/class/rtrs-client/backup/add_path");
    let why = "the session has the highest possible number of paths (ENOSPC)";
    fails(&fake, &["path", "add", "backup", "10.0.0.9"], 5, &[why]);
    fake.refuse("sys/block/rnbd0/rnbd/unmap_device");
    fails(
        &fake,
        &["unmap", "rnbd0"],
        1,
        &["unmapping /dev/rnbd0: ", "(ENOSPC)", "dmesg"],
    );
}

#[test]
fn a_file_that_is_gone_is_named() {
    let fake = Fake::typical();
    let path = client_path("backup", "ip:10.0.0.1@ip:10.0.0.2", "reconnect");
    fs::remove_file(fake.path(&path)).unwrap();
    fails(
        &fake,
        &["path", "reconnect", "10.0.0.2"],
        3,
        &[&path, "the kernel has no file"],
    );
}

#[test]
fn who_is_not_root_is_told() {
    let fake = Fake::typical();
    // Every user may enter the folder, and run the program.
    let open = |path: &str, mode: u32| {
        fs::set_permissions(fake.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    open("", 0o755);
    let program = fake.path("rnbdctl");
    // Another process copies the program: a child of another test would keep the file open for
    // writing.
    let mut copy = std::process::Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_rnbdctl")).arg(&program);
    assert!(copy.status().unwrap().success());
    open("rnbdctl", 0o755);
    open("sys/block/rnbd0/rnbd/unmap_device", 0o444);
    let mut command = std::process::Command::new(&program);
    command
        .env_clear()
        .env("RNBDCTL_ROOT", fake.root())
        .args(["unmap", "rnbd0"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let said = Said::of(&mut Command::from_std(command));
    assert_eq!(said.code, 4, "{said:?}");
    assert!(
        said.stderr.contains("may not be written by this user"),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.contains("hint: run rnbdctl as root"),
        "{}",
        said.stderr
    );
}
