// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl check` on machines that lack something.

use insta::assert_snapshot;

use crate::fake::Fake;

/// A machine that has everything it needs.
fn ready() -> Fake {
    let fake = Fake::typical();
    fake.write("proc/sys/kernel/osrelease", "7.3.4+deb13-amd64\n");
    fake.write(
        "lib/modules/7.3.4+deb13-amd64/modules.dep",
        "updates/dkms/rnbd_client.ko.xz: updates/dkms/rtrs_core.ko.xz\nkernel/rnbd-server.ko:\n",
    );
    // The machine that runs the test can be reached.
    fake.rdma("rxe1", "lo", "127.0.0.1", 9000);
    fake
}

/// The lines of a check.
fn finding(fake: &Fake, args: &[&str], check: &str) -> Vec<String> {
    let said = fake.run(args);
    let mut lines = said.stdout.lines();
    let found = lines
        .by_ref()
        .filter(|line| line.contains(&format!(",{check},")));
    let found: Vec<_> = found.map(str::to_owned).collect();
    assert!(!found.is_empty(), "{check}: {said:?}");
    found
}

#[test]
fn a_machine_that_has_everything() {
    let fake = ready();
    let said = fake.run(&["check"]);
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (0, ""),
        "{}",
        said.stdout
    );
    assert_snapshot!(said.stdout.replace(&fake.root().display().to_string(), ""));
}

#[test]
fn a_machine_that_has_nothing() {
    let fake = Fake::new();
    let said = fake.run(&["check"]);
    assert_eq!(said.code, 8, "{said:?}");
    assert!(said.stderr.contains("failed checks: "), "{}", said.stderr);
    for part in [
        "no modules of the running kernel",
        "rnbd-dkms",
        "rdma link add",
        "What to do:",
    ] {
        assert!(said.stdout.contains(part), "no {part:?} in {}", said.stdout);
    }
}

#[test]
fn a_server_that_is_there() {
    let fake = ready();
    for name in ["127.0.0.1", "ip:127.0.0.1", "127.0.0.1@127.0.0.1"] {
        let said = fake.run(&["check", name, "--port", "1"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(
            said.stdout.contains("127.0.0.1 responds"),
            "{}",
            said.stdout
        );
        assert!(
            said.stdout.contains("from 127.0.0.1, by rxe1 port 1"),
            "{}",
            said.stdout
        );
    }
}

/// A machine whose only RDMA device does not speak RoCE and belongs to the interface to 127.0.0.0.
fn with_interface(link_layer: &str, node_type: &str) -> Fake {
    let fake = Fake::new();
    fake.load_client();
    fake.write("proc/sys/kernel/osrelease", "7.3.4\n");
    fake.write("lib/modules/7.3.4/modules.dep", "");
    fake.rdma("ib7", "x", "10.0.0.1", 1500);
    let device = "sys/class/infiniband/ib7";
    std::fs::remove_dir_all(fake.path(&format!("{device}/ports/1/gid_attrs"))).unwrap();
    fake.write(
        &format!("{device}/ports/1/link_layer"),
        &format!("{link_layer}\n"),
    );
    fake.write(&format!("{device}/node_type"), &format!("{node_type}\n"));
    fake.write(
        "proc/net/route",
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
         net7 0000007F 00000000 0001 0 0 0 000000FF 0 0 0\n",
    );
    fake
}

const TO_MYSELF: [&str; 6] = ["check", "127.0.0.1", "--port", "1", "-o", "csv"];

#[test]
#[cfg(target_endian = "little")]
fn infiniband_and_iwarp_are_told_by_their_interface() {
    for (link_layer, node_type) in [("InfiniBand", "1: CA"), ("Ethernet", "4: RNIC")] {
        let fake = with_interface(link_layer, node_type);
        let found = finding(&fake, &TO_MYSELF, "route");
        assert!(
            found[0].starts_with("failed,")
                && found[0].contains("not an address of an RDMA device"),
            "{found:?}"
        );
        fake.write("sys/class/net/net7/device/infiniband/ib7/uevent", "");
        fake.write("sys/class/net/net7/dev_port", "0\n");
        let said = fake.run(&TO_MYSELF);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.stdout.contains("by ib7 port 1"), "{said:?}");
        assert!(!said.stdout.contains("has no RoCE v2 address"), "{said:?}");
    }
}

#[test]
#[cfg(target_endian = "little")]
fn a_bond_of_infiniband_is_told_by_what_is_below() {
    let fake = with_interface("InfiniBand", "1: CA");
    fake.write(
        "sys/class/net/net7/lower_ib0/device/infiniband/ib7/uevent",
        "",
    );
    let found = finding(&fake, &TO_MYSELF, "route");
    assert!(found[0].starts_with("ok,"), "{found:?}");
}

#[test]
#[cfg(target_endian = "little")]
fn soft_iwarp_is_told_by_its_interface() {
    let fake = with_interface("Ethernet", "4: RNIC");
    fake.write(
        "sys/class/infiniband/ib7/ports/1/gid_attrs/ndevs/0",
        "net7\n",
    );
    let found = finding(&fake, &TO_MYSELF, "route");
    assert!(found[0].starts_with("ok,"), "{found:?}");
}

#[test]
fn an_interface_that_is_not_known_is_no_failure_with_infiniband() {
    let fake = with_interface("InfiniBand", "1: CA");
    fake.write("proc/net/route", "Iface\n");
    let found = finding(&fake, &TO_MYSELF, "route");
    assert!(found[0].starts_with("warning,"), "{found:?}");
}

#[test]
fn a_server_that_no_rdma_device_leads_to() {
    let fake = Fake::typical();
    let args = ["check", "127.0.0.1", "--port", "1", "-o", "csv"];
    assert_eq!(fake.run(&args).code, 8);
    let found = finding(&fake, &args, "route");
    assert!(
        found[0].starts_with("failed,") && found[0].contains("not an address of an RDMA device"),
        "{found:?}"
    );
}

#[test]
fn a_server_that_is_no_address() {
    let found = finding(&ready(), &["check", "no such name", "-o", "csv"], "server");
    assert!(found[0].starts_with("failed,"), "{found:?}");
    let found = finding(&ready(), &["check", "gid:fe80::1", "-o", "csv"], "server");
    assert!(found[0].starts_with("warning,"), "{found:?}");
}

#[test]
fn modules_that_are_only_installed() {
    let fake = ready();
    for class in ["rnbd-client", "rnbd-server"] {
        std::fs::remove_dir_all(fake.path(&format!("sys/class/{class}"))).unwrap();
    }
    let client = finding(&fake, &["check", "-o", "csv"], "client module");
    assert!(
        client[0].starts_with("warning,") && client[0].contains("modprobe"),
        "{client:?}"
    );
    let server = finding(&fake, &["check", "-o", "csv"], "server module");
    assert!(
        server[0].starts_with("ok,") && server[0].contains("not loaded"),
        "{server:?}"
    );
}

#[test]
fn a_port_that_is_down() {
    let fake = ready();
    fake.write("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n");
    let found = finding(&fake, &["check", "-o", "csv"], "RDMA port");
    assert!(
        found[0].starts_with("warning,") && found[0].contains("ip link set eth0 up"),
        "{found:?}"
    );
    assert!(found[1].starts_with("ok,"), "{found:?}");
}

#[test]
fn c_modules_are_told_apart() {
    let fake = ready();
    std::fs::remove_dir_all(fake.path("sys/module/rtrs_client")).unwrap();
    let found = finding(&fake, &["check", "-o", "csv"], "modules");
    assert!(found[0].contains("the C modules"), "{found:?}");
}
