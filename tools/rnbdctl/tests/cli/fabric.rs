// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl fabric test` with findings of a module.

use serde_json::Value;

use crate::fake::Fake;
use crate::schema::Schema;

const FOLDER: &str = "sys/class/rtrs-test/fabric";
const GOOD: &str = "step 1 7 connect\ndevice rxe0\nmtu 1024 1024\nserver-cpus 2\n\
    step 2 7 work-requests\ncase write 0 ok 12\ncase write 1024 ok 20\ncase write 65536 ok 900\n\
    case wrong-key 0 ok 30\nsession 126976 2 63\nlatency write 1 1000 100 200 300 4000\n\
    latency read 1 1000 110 210 310 4000\nbandwidth write 4096 1048576 2000000\n";

/// A machine whose module has these findings.
fn found(result: &str) -> Fake {
    let fake = Fake::new();
    fake.write(&format!("{FOLDER}/run"), "");
    fake.write(&format!("{FOLDER}/stop"), "");
    fake.write(&format!("{FOLDER}/result"), result);
    fake
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_good_fabric() {
    let fake = found(&format!("{GOOD}end 0\n"));
    let options = [
        "fabric",
        "test",
        "10.0.0.2",
        "--mib",
        "5",
        "--requests",
        "7",
    ];
    let said = fake.run(&options);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    for part in ["65536", "900 us", "300 ns", "500 MiB", "Faults", "none"] {
        assert!(said.stdout.contains(part), "no {part:?} in {}", said.stdout);
    }
    let line = "path=ip:10.0.0.2 port=1236 requests=7 mib=5";
    assert_eq!(fake.read(&format!("{FOLDER}/run")), line);
}

#[test]
fn each_result_has_its_exit_code_and_keeps_to_the_schema() {
    for (more, code, fault) in [
        ("end 0\n", 0, None),
        ("latency read 0 5 3000000 1 1 1\nend 0\n", 8, Some("delay")),
        (
            "case write 4096 wrong 5 byte 3\nend 0\n",
            8,
            Some("corruption"),
        ),
        (
            "case write 4096 failed 5 errno -110\nend -110\n",
            8,
            Some("large-packets"),
        ),
        ("end -12\n", 8, Some("broken")),
        ("end -4\n", 1, None),
    ] {
        let fake = found(&format!("{GOOD}{more}"));
        let said = fake.run(&["fabric", "test", "10.0.0.2", "-o", "json"]);
        assert_eq!(said.code, code, "{more:?}: {said:?}");
        let value = json(&said.stdout);
        Schema::load().check("fabric test", &value).unwrap();
        let first = value["faults"][0]["fault"].as_str();
        assert_eq!(first, fault, "{more:?}: {value}");
    }
}

#[test]
fn no_server_is_unreachable() {
    let fake = found("step 1 7 connect\nno-connection no-listener -104 8\nend -104\n");
    let said = fake.run(&["fabric", "test", "127.0.0.1"]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(
        said.stdout.contains("modprobe rtrs_test_server"),
        "{said:?}"
    );
    assert!(said.stderr.contains("no-listener"), "{said:?}");
}

#[test]
fn without_the_module_it_says_what_to_load() {
    let said = Fake::new().run(&["fabric", "test", "10.0.0.2"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(
        said.stderr.contains("modprobe rtrs_test_client"),
        "{said:?}"
    );
}

#[test]
fn mapped_disks_are_not_disturbed() {
    let fake = Fake::typical();
    fake.write(&format!("{FOLDER}/run"), "");
    fake.write(&format!("{FOLDER}/result"), &format!("{GOOD}end 0\n"));
    // This is the server of the session "backup".
    let said = fake.run(&["fabric", "test", "10.0.1.2"]);
    assert_eq!(said.code, 5, "{said:?}");
    let says =
        said.stderr.contains("session backup") && said.stderr.contains("--with-mapped-disks");
    assert!(says, "{said:?}");
    assert_eq!(fake.read(&format!("{FOLDER}/run")), "");
    fake.ok(&["fabric", "test", "10.0.1.2", "--with-mapped-disks"]);
    // No disk is mapped from that server.
    fake.ok(&["fabric", "test", "192.0.2.77"]);
}
