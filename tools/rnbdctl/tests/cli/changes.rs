// SPDX-License-Identifier: GPL-2.0

//! The texts that are written to the kernel's files.

use crate::fake::client_path;
use crate::fake::Fake;
use crate::fake::Modules;

const MAP_DEVICE: &str = "sys/class/rnbd-client/ctl/map_device";
const UP: &str = "ip:10.0.0.1@ip:10.0.0.2";
const DOWN: &str = "ip:10.0.1.1@ip:10.0.1.2";

#[test]
fn map_writes_all_options() {
    let fake = Fake::typical();
    let args = [
        "map",
        "/dev/sdb",
        "-s",
        "backup",
        "-p",
        "10.0.0.2",
        "--path",
        "10.0.1.1@10.0.1.2",
        "--path",
        "gid:fe80::1",
        "--port",
        "99",
        "--access",
        "migration",
        "--io-mode",
        "buffered",
        "--poll-queues",
        "-1",
    ];
    let said = fake.ok(&args);
    assert_eq!(
        fake.read(MAP_DEVICE),
        "sessname=backup device_path=/dev/sdb dest_port=99 path=ip:10.0.0.2 \
         path=ip:10.0.1.1@ip:10.0.1.2 path=gid:fe80:0000:0000:0000:0000:0000:0000:0001 \
         access_mode=migration io_mode=buffered nr_poll_queues=-1"
    );
    assert_eq!(
        said,
        "DEVICE      SESSION  DISK\n/dev/rnbd0  backup   /dev/sdb\n"
    );
}

#[test]
fn map_finds_the_session_of_the_server_or_names_one() {
    let fake = Fake::typical();
    fake.write("proc/sys/kernel/hostname", "Web1.example.com\n");
    fake.write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    let said = fake.ok(&["map", "10.0.0.2:/dev/sdb"]);
    assert_eq!(
        fake.read(MAP_DEVICE),
        "sessname=backup device_path=/dev/sdb path=ip:10.0.0.2"
    );
    assert!(said.contains("/dev/rnbd0  backup"), "{said}");
    // The session exists already, and keeps its value.
    assert_eq!(fake.read("sys/class/rtrs-client/backup/hold_io_ms"), "0\n");
    fake.write(MAP_DEVICE, "");
    fake.run(&["map", "[2001:db8::2]:vg/a", "-a", "ro"]);
    let line = fake.read(MAP_DEVICE);
    let name = line
        .strip_prefix("sessname=")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert_eq!(
        line,
        format!("sessname={name} device_path=vg/a path=ip:2001:db8::2 access_mode=ro")
    );
    assert!(
        name.starts_with("web1-") && name.ends_with("-2001-db8-2"),
        "{name}"
    );
    fake.write(MAP_DEVICE, "");
    fake.run(&["map", "localhost:x", "--port", "99"]);
    let line = fake.read(MAP_DEVICE);
    assert!(
        line.contains("-localhost-99 device_path=x dest_port=99 path=ip:"),
        "{line}"
    );
    fake.write(MAP_DEVICE, "");
    fake.write("sys/module/rtrs_client/parameters/hold_io_ms", "0\n");
    fake.ok(&["map", "10.0.0.2:/dev/sdb", "--hold", "90s"]);
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/hold_io_ms"), "90000");
    // Modules that have that time only for the session.
    std::fs::remove_file(fake.path("sys/block/rnbd0/rnbd/hold_io_ms")).unwrap();
    fake.ok(&["map", "10.0.0.2:/dev/sdb", "--hold", "1m"]);
    assert_eq!(
        fake.read("sys/class/rtrs-client/backup/hold_io_ms"),
        "60000"
    );
}

#[test]
fn map_of_several_goes_on_after_a_failure() {
    let fake = Fake::typical();
    // A real kernel would have made the link.
    let said = fake.run(&[
        "map", "-s", "backup", "/dev/sdb", "/dev/new", "vg/tape", "-o", "csv",
    ]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(
        said.stdout,
        "name,path,session,device_path\nrnbd0,/dev/rnbd0,backup,/dev/sdb\n\
         rnbd10,/dev/rnbd10,backup,vg/tape\n"
    );
    assert!(
        said.stderr
            .contains("rnbdctl: mapping /dev/new on session backup: "),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.ends_with("rnbdctl: 1 of 3 failed\n"),
        "{}",
        said.stderr
    );
}

#[test]
fn map_waits_for_the_node() {
    let fake = Fake::typical();
    std::fs::remove_file(fake.path("dev/rnbd0")).unwrap();
    let said = fake.run(&["map", "/dev/sdb", "-s", "backup", "--timeout", "0"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("did not appear"), "{}", said.stderr);
}

#[test]
fn unmap_one_and_all() {
    let fake = Fake::typical();
    fake.ok(&["unmap", "/dev/rnbd0"]);
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/unmap_device"), "normal");
    assert_eq!(fake.read("sys/block/rnbd2/rnbd/unmap_device"), "");
    fake.session("other", Modules::Rust, &[]);
    fake.device("rnbd3", "other", "x", 512);
    let said = fake.ok(&["unmap", "--all", "--session", "backup", "--force"]);
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(
        said.contains("unmapped") && !said.contains("open"),
        "{said}"
    );
    for device in ["rnbd0", "rnbd2", "rnbd10"] {
        // The text is written over the old content, as nothing makes the file empty.
        let written = fake.read(&format!("sys/block/{device}/rnbd/unmap_device"));
        assert!(written.starts_with("force"), "{device}: {written}");
    }
    assert_eq!(fake.read("sys/block/rnbd3/rnbd/unmap_device"), "");
}

#[test]
fn remap_all_are_those_that_are_closed() {
    let fake = Fake::typical();
    assert_eq!(fake.ok(&["remap", "--all"]), "remapped /dev/rnbd2\n");
    assert_eq!(fake.read("sys/block/rnbd2/rnbd/remap_device"), "1");
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/remap_device"), "");
    fake.ok(&["remap", "rnbd0"]);
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/remap_device"), "1");
}

#[test]
fn remap_all_leaves_out_what_the_server_has_closed() {
    let fake = Fake::typical();
    fake.write("sys/block/rnbd0/rnbd/state", "closed\n");
    fake.write("sys/block/rnbd0/rnbd/closed_by", "server\n");
    fake.write("sys/block/rnbd2/rnbd/closed_by", "\n");
    assert_eq!(fake.ok(&["remap", "--all"]), "remapped /dev/rnbd2\n");
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/remap_device"), "");
    fake.ok(&["remap", "rnbd0"]);
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/remap_device"), "1");
}

#[test]
fn a_name_of_nothing_does_not_keep_the_others_from_it() {
    let fake = Fake::typical();
    let state = |name: &str| fake.read(name);
    let fails_once = |args: &[&str], what: &str| {
        let said = fake.run(args);
        assert_eq!(said.code, 3, "{said:?}");
        assert!(
            said.stderr.ends_with("rnbdctl: 1 of 2 failed\n"),
            "{said:?}"
        );
        assert_eq!(said.stderr.matches(what).count(), 1, "{said:?}");
    };
    fails_once(&["remap", "rnbd7", "rnbd2"], "no such device");
    assert_eq!(state("sys/block/rnbd2/rnbd/remap_device"), "1");
    fails_once(
        &["path", "disconnect", "10.9.9.9", UP, "-f"],
        "no such path",
    );
    assert!(state(&client_path("backup", UP, "disconnect")).starts_with('1'));
    fails_once(&["unmap", "rnbd7", "rnbd0"], "no such device");
    assert_eq!(state("sys/block/rnbd0/rnbd/unmap_device"), "normal");
    let reset = client_path("backup", UP, "stats/reset_all");
    fake.write(&reset, "");
    fails_once(&["stats", "--reset", "nothing", UP], "nothing");
    assert_eq!(state(&reset), "1");
}

#[test]
fn each_failure_is_told_once() {
    let fake = Fake::typical();
    let said = fake.run(&["stats", "--reset", UP]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(
        said.stderr.matches("stats/reset_all").count(),
        1,
        "{said:?}"
    );
}

#[test]
fn resize_is_in_sectors() {
    let fake = Fake::typical();
    assert_eq!(
        fake.ok(&["resize", "rnbd0", "3G"]),
        "resized /dev/rnbd0 to 3 GiB\n"
    );
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/resize"), "6291456");
    let said = fake.run(&["resize", "rnbd0", "1000"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("multiple of 512"), "{}", said.stderr);
}

#[test]
fn paths() {
    let fake = Fake::typical();
    fake.ok(&["path", "add", "backup", "10.0.2.2"]);
    assert!(fake
        .read("sys/class/rtrs-client/backup/add_path")
        .starts_with("ip:10.0.2.2"));
    let said = fake.run(&["path", "disconnect", "10.0.0.2"]);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "no other path of the session is up",
        "/dev/rnbd0, /dev/rnbd2 and /dev/rnbd10",
        "would fail at once",
        "--force",
    ] {
        assert!(said.stderr.contains(part), "no {part} in {said:?}");
    }
    assert!(!fake
        .read(&client_path("backup", UP, "disconnect"))
        .starts_with('1'));
    // A device's own time counts, not that of its session.
    fake.write("sys/block/rnbd2/rnbd/hold_io_ms", "30000\n");
    let said = fake.run(&["path", "disconnect", "10.0.0.2"]);
    for part in [
        "requests of /dev/rnbd0 and /dev/rnbd10 would fail at once",
        "requests of /dev/rnbd2 would be held, and fail after 30 s",
    ] {
        assert!(said.stderr.contains(part), "no {part} in {said:?}");
    }
    fake.ok(&["path", "disconnect", "10.0.0.2", "--force"]);
    assert!(fake
        .read(&client_path("backup", UP, "disconnect"))
        .starts_with('1'));
    assert_eq!(
        fake.ok(&["path", "reconnect", DOWN, "--session", "backup"]),
        format!("reconnected {DOWN} of session backup\n")
    );
    assert_eq!(fake.read(&client_path("backup", DOWN, "reconnect")), "1");
    fake.ok(&["path", "remove", DOWN]);
    assert_eq!(fake.run(&["path", "remove", UP]).code, 5);
    fake.ok(&["path", "remove", UP, "-f"]);
    assert_eq!(fake.read(&client_path("backup", UP, "remove_path")), "1");
    assert_eq!(fake.read(&client_path("backup", DOWN, "remove_path")), "1");
}

#[test]
fn a_path_of_two_sessions_is_ambiguous() {
    let fake = Fake::typical();
    fake.session("second", Modules::Rust, &[UP]);
    let said = fake.run(&["path", "disconnect", "10.0.0.2"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.stderr.contains("of backup") && said.stderr.contains("of second"),
        "{}",
        said.stderr
    );
    // The session carries no device.
    fake.ok(&["path", "disconnect", "10.0.0.2", "-s", "second"]);
    assert!(fake
        .read(&client_path("second", UP, "disconnect"))
        .starts_with('1'));
    assert!(!fake
        .read(&client_path("backup", UP, "disconnect"))
        .starts_with('1'));
}

#[test]
fn policy_is_shown_and_set() {
    let fake = Fake::typical();
    assert_eq!(fake.ok(&["path", "policy", "backup"]), "min-inflight\n");
    for word in ["round-robin", "rr"] {
        fake.write("sys/class/rtrs-client/backup/mpath_policy", "");
        fake.ok(&["path", "policy", "backup", word]);
        assert_eq!(
            fake.read("sys/class/rtrs-client/backup/mpath_policy"),
            "round-robin"
        );
    }
}

#[test]
fn link_local_addresses_keep_their_interface() {
    let fake = Fake::typical();
    fake.write(
        "etc/rnbd/rnbd.toml",
        "[[session]]\nname = \"backup\"\npaths = [\"10.0.0.2\", \"[fe80::1%eth0]\"]\n\
         devices = [\"/dev/sdb\"]\n\
         [[session]]\nname = \"new\"\npaths = [\"fe80::9%eth1@fe80::2%eth1\"]\ndevices = [\"x\"]\n",
    );
    // The written text has no effect in this tree, so the command fails.
    assert_eq!(fake.run(&["apply"]).code, 3);
    let written = fake.read("sys/class/rtrs-client/backup/add_path");
    assert!(written.starts_with("ip:fe80::1%eth0"), "{written}");
    let written = fake.read(MAP_DEVICE);
    let path = " path=ip:fe80::9%eth1@ip:fe80::2%eth1 ";
    assert!(written.contains(path), "{written}");
}

#[test]
fn interfaces_that_cannot_be_saved_are_asked_for() {
    let fake = Fake::typical();
    let note = "# The kernel does not show the interface of a link-local address";
    assert!(!fake.ok(&["config", "show"]).contains(note));
    fake.session("near", Modules::Rust, &["ip:fe80::9@ip:fe80::2"]);
    fake.device("rnbd3", "near", "x", 512);
    let shown = fake.ok(&["config", "show"]);
    assert!(shown.contains(note), "{shown}");
}

#[test]
fn tunables_are_set_all_or_none() {
    let fake = Fake::typical();
    let file = |name: &str| format!("sys/class/rtrs-client/backup/{name}");
    fake.ok(&[
        "session",
        "set",
        "backup",
        "hold_io_ms=60000",
        "max_reconnect_attempts=1234",
    ]);
    assert_eq!(fake.read(&file("hold_io_ms")), "60000");
    assert_eq!(fake.read(&file("max_reconnect_attempts")), "1234");
    let said = fake.run(&[
        "session",
        "set",
        "backup",
        "hb_missed_max=6",
        "hb_interval_ms=5",
    ]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.stderr.contains("5 is not between 10 and 600000"),
        "{}",
        said.stderr
    );
    assert_eq!(fake.read(&file("hb_missed_max")), "5\n");
}

#[test]
fn clients_are_disconnected() {
    let fake = Fake::typical();
    let path = "sys/class/rtrs-server/web/paths/ip:10.0.0.7@ip:10.0.0.1/disconnect";
    for name in ["web", "10.0.0.1", "10.0.0.7@10.0.0.1"] {
        fake.write(path, "");
        let said = fake.run(&["server", "disconnect", name]);
        assert_eq!(said.code, 5, "{said:?}");
        assert!(
            said.stderr.contains("the client has sda mapped"),
            "{said:?}"
        );
        assert_eq!(fake.read(path), "");
        fake.ok(&["server", "disconnect", name, "--force"]);
        assert_eq!(fake.read(path), "1", "{name}");
    }
}

#[test]
fn an_exported_device_is_closed_for_one_session() {
    let fake = Fake::typical();
    let file = |session: &str| {
        format!("sys/class/rnbd-server/ctl/devices/sda/sessions/{session}/force_close")
    };
    let said = fake.run(&["server", "force-close", "sda", "mail"]);
    assert_eq!(said.code, 5, "{said:?}");
    let said = fake.run(&["server", "force-close", "/dev/sda"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("mail, web"), "{}", said.stderr);
    assert_eq!(
        fake.ok(&["server", "force-close", "sda", "mail", "--force"]),
        "closed sda of session mail\n"
    );
    assert_eq!(
        (fake.read(&file("mail")), fake.read(&file("web"))),
        ("1".into(), String::new())
    );
}

const DRAIN: &str = "sys/class/rnbd-server/ctl/drain";

#[test]
fn server_drain_writes_seconds_and_says_what_is_next() {
    let fake = Fake::typical();
    // The kernel would write the numbers.
    fake.write(DRAIN, "--- 0 0\n");
    let said = fake.ok(&["server", "drain"]);
    assert_eq!(fake.read(DRAIN), "600 0 0\n");
    for part in [
        "all clients have left\n",
        "within 600 s",
        "modprobe -r rnbd_server",
        "rnbdctl server drain --cancel",
    ] {
        assert!(said.contains(part), "{said}");
    }
    fake.write(DRAIN, "---- 0 0\n");
    fake.ok(&["server", "drain", "--for", "2h"]);
    assert_eq!(fake.read(DRAIN), "7200 0 0\n");
    fake.ok(&["server", "drain", "--cancel"]);
    assert_eq!(fake.read(DRAIN), "0200 0 0\n");
    assert_eq!(fake.ok(&["server", "drain", "-o", "json"]), "");
}

#[test]
fn server_drain_names_the_sessions_that_stay() {
    let fake = Fake::typical();
    fake.write(DRAIN, "-- 0 1\n");
    let said = fake.run(&["server", "drain", "--for", "45"]);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "still connected: 1 session of clients that do not know of drains: web\n",
        "modprobe -r rnbd_server",
        "rnbdctl server drain --cancel",
    ] {
        assert!(said.stderr.contains(part), "{}", said.stderr);
    }
}

#[test]
fn server_drain_does_not_wait_for_ever_for_a_client_that_does_not_leave() {
    let fake = Fake::typical();
    fake.write(DRAIN, "-- 2 1\n");
    let said = fake.run(&["server", "drain", "--for", "45", "--wait", "1s"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(said.stdout, "waiting for 2 sessions to leave\n");
    assert!(
        said.stderr
            .contains("2 sessions that should have left by now and 1 session of"),
        "{}",
        said.stderr
    );
}

#[test]
fn server_drain_says_that_it_ended_before() {
    let fake = Fake::typical();
    fake.write(DRAIN, "-- 1 0\n");
    let file = fake.path(DRAIN);
    let ended = std::thread::spawn(move || {
        while std::fs::read_to_string(&file).unwrap() != "45 1 0\n" {
            std::thread::yield_now();
        }
        // As with the kernel's file, the text is always complete.
        let new = file.with_extension("new");
        std::fs::write(&new, "off\n").unwrap();
        std::fs::rename(new, file).unwrap();
    });
    let said = fake.run(&["server", "drain", "--for", "45s"]);
    ended.join().unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("ended before all clients had left"),
        "{}",
        said.stderr
    );
}
