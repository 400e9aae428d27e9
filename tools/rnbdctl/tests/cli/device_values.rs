// SPDX-License-Identifier: GPL-2.0

//! The time limit of a device's requests: set by hand, and by the configuration file.

use crate::fake::client_path;
use crate::fake::Fake;
use crate::fake::Modules;

const FILE: &str = "sys/block/rnbd0/rnbd/io_timeout_ms";
const CONFIG: &str = "etc/rnbd/rnbd.toml";

/// The command fails with this code, and prints exactly this on standard error.
fn fails(fake: &Fake, args: &[&str], code: i32, message: &str) {
    let said = fake.run(args);
    assert_eq!(
        (said.code, said.stderr.as_str(), said.stdout.as_str()),
        (code, message, ""),
        "{args:?}"
    );
}

/// All paths are connected, and the file has `rnbd0` with `device` as its element.
fn configured(device: &str) -> Fake {
    let fake = Fake::typical();
    let state = client_path("backup", "ip:10.0.1.1@ip:10.0.1.2", "state");
    fake.write(&state, "connected\n");
    configure(&fake, device);
    fake
}

fn configure(fake: &Fake, device: &str) {
    fake.write(
        CONFIG,
        &format!(
            "[[session]]\nname = \"backup\"\npaths = [\"10.0.0.2\", \"10.0.1.2\"]\n\
             devices = [{device}, \"/dev/sdc\", \"vg/tape\"]\nhold_io_ms = 0\n"
        ),
    );
    // The device is mapped as the file says.
    fake.write("sys/block/rnbd2/rnbd/access_mode", "rw\n");
    fake.write("sys/block/rnbd2/rnbd/state", "open\n");
}

#[test]
fn it_is_set_by_any_name_of_the_device() {
    let fake = Fake::typical();
    for name in ["rnbd0", "/dev/rnbd0", "/dev/sdb", "/dev/sdb@backup"] {
        fake.write(FILE, "0\n");
        assert_eq!(
            fake.ok(&["device", "set", name, "io_timeout_ms=30000"]),
            "device /dev/rnbd0: io_timeout_ms = 30000\n"
        );
        assert_eq!(fake.read(FILE), "30000", "{name}");
    }
    for value in ["0", "1000", "86400000"] {
        fake.write(FILE, "0\n");
        fake.ok(&["device", "set", "rnbd0", &format!("io_timeout_ms={value}")]);
        assert_eq!(fake.read(FILE).trim_end(), value);
    }
    assert_eq!(fake.read("sys/block/rnbd2/rnbd/io_timeout_ms"), "0\n");
}

#[test]
fn values_that_are_none_are_refused_before_anything_is_set() {
    let fake = Fake::typical();
    let range = "is neither 0 nor between 1000 and 86400000";
    for (value, why) in [
        ("1", format!("1 {range}")),
        ("999", format!("999 {range}")),
        ("-1", format!("-1 {range}")),
        ("86400001", format!("86400001 {range}")),
        ("99999999999", format!("99999999999 {range}")),
        ("30s", "not a number: \"30s\"".to_owned()),
        ("", "not a number: \"\"".to_owned()),
    ] {
        let word = format!("io_timeout_ms={value}");
        let args = ["device", "set", "rnbd0", "io_timeout_ms=5000", &word];
        let message = format!("rnbdctl: setting io_timeout_ms of /dev/rnbd0: {why}\n");
        fails(&fake, &args, 2, &message);
    }
    fails(
        &fake,
        &["device", "set", "rnbd0", "io_timeout_ms=5000", "speed=1"],
        2,
        "rnbdctl: setting speed of /dev/rnbd0: there is no tunable of this name\n  \
         hint: the tunables are io_timeout_ms, hold_io_ms\n",
    );
    fails(
        &fake,
        &["device", "set", "rnbd0", "io_timeout_ms"],
        2,
        "rnbdctl: setting \"io_timeout_ms\": no value given\n  \
         hint: write NAME=VALUE, as in io_timeout_ms=30000\n",
    );
    assert_eq!(fake.read(FILE), "0\n");
    let said = fake.run(&["device", "set", "rnbd0"]);
    assert_eq!(said.code, 2, "{said:?}");
    let said = fake.run(&["device", "set", "rnbd7", "io_timeout_ms=5000"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("no such device"), "{said:?}");
}

#[test]
fn a_module_that_does_not_have_it_is_told_of() {
    let fake = Fake::new();
    fake.load_client();
    fake.session("old", Modules::C, &["ip:10.0.0.1@ip:10.0.0.2"]);
    fake.device("rnbd0", "old", "x", 512);
    fails(
        &fake,
        &["device", "set", "rnbd0", "io_timeout_ms=30000"],
        7,
        "rnbdctl: setting io_timeout_ms of /dev/rnbd0: the loaded rnbd_client lacks this \
         tunable\n  hint: rnbd_client is older than 0.2.0, or the C module without tunables of \
         devices\n",
    );
    fake.write(
        CONFIG,
        "[[session]]\nname = \"old\"\npaths = [\"10.0.0.2\"]\n\
         devices = [{ path = \"x\", io_timeout_ms = 30000 }]\n",
    );
    let said = fake.run(&["apply"]);
    assert_eq!(
        (said.code, said.stdout.as_str(), said.stderr.as_str()),
        (
            0,
            "nothing to do\n",
            "rnbdctl: old: io_timeout_ms of device x (/dev/rnbd0): \
             the loaded modules lack this tunable\n"
        )
    );
    assert!(!fake.path(FILE).exists());
}

#[test]
fn apply_writes_the_file_and_maps_nothing_again() {
    let fake = configured("{ path = \"/dev/sdb\", io_timeout_ms = 30000 }");
    assert_eq!(
        fake.ok(&["apply", "--dry-run"]),
        "backup:\n  ~ io_timeout_ms /dev/sdb: 0 -> 30000\n1 change to make\n"
    );
    assert_eq!(fake.read(FILE), "0\n");
    assert_eq!(
        fake.ok(&["apply"]),
        "backup: ~ io_timeout_ms /dev/sdb: 0 -> 30000\n"
    );
    assert_eq!(fake.read(FILE), "30000");
    assert_eq!(fake.read("sys/block/rnbd0/rnbd/unmap_device"), "");
    assert_eq!(fake.read("sys/class/rnbd-client/ctl/map_device"), "");
    assert_eq!(fake.ok(&["apply"]), "nothing to do\n");
    // A file that does not name the number leaves it as it is.
    configure(&fake, "\"/dev/sdb\"");
    assert_eq!(fake.ok(&["apply"]), "nothing to do\n");
    assert_eq!(fake.read(FILE), "30000");
}

#[test]
fn the_file_of_what_is_mapped_has_it() {
    let fake = Fake::typical();
    assert!(!fake.ok(&["config", "show"]).contains("io_timeout_ms"));
    fake.write(FILE, "30000\n");
    let shown = fake.ok(&["config", "show"]);
    let line = "    { path = \"/dev/sdb\", io_timeout_ms = 30000 },\n";
    assert!(shown.contains(line), "{shown}");
    fake.write(CONFIG, "");
    fake.ok(&["config", "save", "--force"]);
    assert!(fake.read(CONFIG).contains(line));
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_place() {
    let fake = configured("{ path = \"/dev/sdb\", io_timeout_ms = 500 }");
    let said = fake.run(&["config", "check"]);
    assert_eq!(said.code, 9, "{said:?}");
    let part = "rnbd.toml:4:49: session \"backup\": devices: io_timeout_ms: \
                500 is neither 0 nor between 1000 and 86400000";
    assert!(said.stderr.contains(part), "{said:?}");
    assert_eq!(fake.run(&["apply"]).code, 9);
    assert_eq!(fake.read(FILE), "0\n");
}
