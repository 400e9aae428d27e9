// SPDX-License-Identifier: GPL-2.0

//! The output for people and scripts: tables and CSV.

use std::fs;

use insta::assert_snapshot;

use crate::fake::client_path;
use crate::fake::Fake;
use crate::fake::Modules;

#[test]
fn tables_of_a_machine_that_is_both() {
    assert_snapshot!(Fake::typical().ok(&["list"]));
}

/// The output without modules, which is an error.
fn without(args: &[&str]) -> String {
    let said = Fake::new().run(args);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stderr.contains("loaded"), "{said:?}");
    said.stdout
}

#[test]
fn tables_of_a_machine_without_modules() {
    assert_snapshot!(without(&["list"]));
    assert_snapshot!("server_only", without(&["server", "list"]));
}

#[test]
fn one_kind_has_no_title() {
    let fake = Fake::typical();
    assert_snapshot!(fake.ok(&["list", "devices", "--client"]));
}

#[test]
fn csv_of_everything_and_of_one_kind() {
    let fake = Fake::typical();
    assert_snapshot!("csv_everything", fake.ok(&["list", "-o", "csv"]));
    assert_snapshot!(
        "csv_devices",
        fake.ok(&["list", "devices", "--client", "-o", "csv"])
    );
}

#[test]
fn csv_has_the_same_columns_whichever_modules_are_loaded() {
    for args in [
        &["list", "-o", "csv"] as &[&str],
        &["list", "devices", "-o", "csv"],
    ] {
        let both = Fake::typical().ok(args);
        let header = both.lines().next().unwrap();
        assert!(header.starts_with("kind,"), "{header}");
        let client = Fake::new();
        client.load_client();
        client.session("s", Modules::Rust, &["ip:10.0.0.1@ip:10.0.0.2"]);
        client.device("rnbd0", "s", "x", 512);
        let text = client.ok(args);
        assert_eq!(text.lines().next(), Some(header), "{args:?}");
        assert!(text.contains("\nclient-device,rnbd0,"), "{text}");
        assert_eq!(without(args), format!("{header}\n"), "{args:?}");
    }
    assert_snapshot!(
        "csv_devices_of_both_ends",
        Fake::typical().ok(&["list", "devices", "-o", "csv"])
    );
}

#[test]
fn everything_about_one_thing() {
    let fake = Fake::typical();
    fake.write("sys/block/rnbd0/rnbd/io_timeout_ms", "30000\n");
    fake.write("sys/block/rnbd0/rnbd/io_timeouts", "12\n");
    fake.write("sys/block/rnbd0/rnbd/io_unanswered", "3\n");
    assert_snapshot!("show_device", fake.ok(&["show", "/dev/rnbd0"]));
    assert_snapshot!("show_session", fake.ok(&["show", "backup"]));
    assert_snapshot!("show_path", fake.ok(&["show", "10.0.0.2"]));
    assert_snapshot!("show_server_device", fake.ok(&["show", "sda"]));
    assert_snapshot!("show_server_session", fake.ok(&["show", "web"]));
}

#[test]
fn c_modules_lack_the_tunables_and_say_so() {
    let fake = Fake::new();
    fake.load_client();
    fake.load_server();
    fake.session("old", Modules::C, &["ip:10.0.0.1@ip:10.0.0.2"]);
    fake.server_session("old", Modules::C, &["ip:10.0.0.1@ip:10.0.0.2"]);
    assert_snapshot!(fake.ok(&["show", "old"]));
    fake.device("rnbd0", "old", "x", 512);
    let shown = fake.ok(&["show", "rnbd0"]);
    for text in ["io_timeout_ms", "timed out", "unanswered"] {
        assert!(!shown.contains(text), "{shown}");
    }
    assert!(fake
        .ok(&["server", "list", "sessions"])
        .lines()
        .any(|line| line.ends_with("-          -")));
}

#[test]
fn rdma_devices() {
    let fake = Fake::typical();
    assert_snapshot!(fake.ok(&["rdma"]));
    assert_snapshot!("no_rdma", Fake::new().ok(&["rdma"]));
}

#[test]
fn a_device_goes_by_many_names() {
    let fake = Fake::typical();
    fs::create_dir_all(fake.path("dev/rnbd")).unwrap();
    std::os::unix::fs::symlink("../rnbd10", fake.path("dev/rnbd/tape")).unwrap();
    let names = [
        "rnbd10",
        "/dev/rnbd10",
        "/dev/rnbd/tape",
        "vg/tape",
        "vg/tape@backup",
    ];
    let shown: Vec<_> = names.iter().map(|name| fake.ok(&["show", name])).collect();
    assert!(shown[0].contains("vg/tape"), "{}", shown[0]);
    assert!(!shown[0].contains("stable name"), "{}", shown[0]);
    for (folder, name, up) in [
        ("dev/rnbd/by-session/backup/vg", "tape", "../../../.."),
        ("dev/disk/by-id", "rnbd-naa.5000", "../.."),
    ] {
        fs::create_dir_all(fake.path(folder)).unwrap();
        let link = fake.path(&format!("{folder}/{name}"));
        std::os::unix::fs::symlink(format!("{up}/rnbd10"), link).unwrap();
        let wanted = format!("/{folder}/{name}");
        let text = fake.ok(&["show", "rnbd10"]);
        assert!(text.contains(&wanted), "no {wanted} in {text}");
    }
    for (name, text) in names.iter().zip(&shown) {
        assert_eq!(text, &shown[0], "{name}");
    }
}

#[test]
fn a_path_goes_by_its_addresses() {
    let fake = Fake::typical();
    let full = fake.ok(&["show", "ip:10.0.1.1@ip:10.0.1.2"]);
    for name in [
        "10.0.1.1@10.0.1.2",
        "10.0.1.1,ip:10.0.1.2",
        "ip:10.0.1.2",
        "10.0.1.2",
    ] {
        assert_eq!(fake.ok(&["show", name]), full, "{name}");
    }
}

#[test]
fn what_vanishes_or_makes_no_sense_is_left_out() {
    let fake = Fake::typical();
    fs::remove_file(fake.path("sys/block/rnbd0/rnbd/state")).unwrap();
    fake.write("sys/block/rnbd2/size", "-5\n");
    fake.write("sys/block/rnbd2/rnbd/state", "\x1b[2Jopen\n");
    fake.write("sys/block/rnbd2/rnbd/access_mode", "all\n");
    fake.write("sys/block/rnbdx/size", "1\n");
    fake.write(
        &client_path("backup", "ip:10.0.0.1@ip:10.0.0.2", "stats/rdma"),
        "\u{0}\u{1} x\n",
    );
    let text = fake.ok(&["list", "-o", "csv"]);
    assert!(!text.contains('\x1b'), "{text:?}");
    let devices: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("client-device,"))
        .collect();
    assert_eq!(devices.len(), 2, "{text}");
    assert!(
        devices[0].starts_with("client-device,rnbd2,/dev/rnbd2,,unknown,,backup,"),
        "{text}"
    );
}

#[test]
fn no_colours_where_there_is_no_terminal() {
    assert!(!Fake::typical().ok(&["list"]).contains('\x1b'));
}
