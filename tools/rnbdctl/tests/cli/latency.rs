// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl latency`, with histograms that change while it measures.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::fake::Fake;
use crate::fake::Said;
use crate::schema::Schema;

const CLIENT: &str = "sys/block/rnbd0/rnbd/latency";
const SERVER: &str = "sys/class/rnbd-server/ctl/devices/sda/sessions/web/latency";
const CLIENT_STAGES: [&str; 3] = ["wait", "remote", "whole"];
const SERVER_STAGES: [&str; 4] = ["queue", "disk", "response", "whole"];

/// Writes the histograms of a device: the same reads in each stage, and no other requests.
fn histograms(fake: &Fake, folder: &str, stages: &[&str], reads: &str) {
    for stage in stages {
        fake.write(&format!("{folder}/read_{stage}"), reads);
        for kind in ["write", "other"] {
            fake.write(&format!("{folder}/{kind}_{stage}"), "requests 0\nns 0\n");
        }
    }
}

/// A machine with a mapped and an exported device that can time requests.
fn machine() -> Fake {
    let fake = Fake::typical();
    for (folder, stages) in [(CLIENT, &CLIENT_STAGES[..]), (SERVER, &SERVER_STAGES[..])] {
        fake.write(&format!("{folder}/seconds"), "");
        // Requests that were counted for another program.
        histograms(&fake, folder, stages, "requests 1\nns 5000\n4096 1\n");
    }
    fake
}

/// Runs the program for a second, during which requests end.
fn measured(fake: &Fake, args: &[&str]) -> Said {
    let all = [&["latency", "--seconds", "1"][..], args].concat();
    thread::scope(|scope| {
        scope.spawn(|| {
            // The files change after the first read and before the last. The test does not see the
            // reads, so it waits.
            thread::sleep(Duration::from_millis(500));
            let text = "requests 4\nns 11000\n1280 2\n2048 1\n4096 1\n";
            histograms(fake, CLIENT, &CLIENT_STAGES, text);
            histograms(fake, SERVER, &SERVER_STAGES, text);
        });
        fake.run(&all)
    })
}

fn json(said: &Said) -> Value {
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn what_came_meanwhile_is_counted() {
    let fake = machine();
    let found = json(&measured(&fake, &["-o", "json"]));
    Schema::load().check("latency", &found).unwrap();
    let devices = found["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2, "{found}");
    let reads = &devices[0]["kinds"][0];
    assert_eq!(reads["kind"], "read");
    let whole = &reads["stages"][2];
    assert_eq!(whole["stage"], "whole");
    assert_eq!(
        (&whole["requests"], &whole["mean_ns"]),
        (&Value::from(3), &Value::from(2000))
    );
    assert_eq!(
        (&whole["p50_ns"], &whole["max_ns"]),
        (&Value::from(1536), &Value::from(2560))
    );
    assert_eq!(devices[1]["side"], "server");
    for folder in [CLIENT, SERVER] {
        assert_eq!(fake.read(&format!("{folder}/seconds")), "2", "{folder}");
    }
}

#[test]
fn a_table_fits_and_says_what_to_do_next() {
    let said = measured(&machine(), &["rnbd0", "--histogram"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    for part in [
        "read",
        "remote",
        "2 us",
        "rnbd0 of backup, read whole:",
        "####",
        "--server-json -",
    ] {
        assert!(said.stdout.contains(part), "no {part:?} in {}", said.stdout);
    }
    assert!(
        !said.stdout.contains("write"),
        "kinds without requests: {}",
        said.stdout
    );
}

#[test]
fn the_server_tells_the_network() {
    let fake = machine();
    let stage = |name: &str, mean: u64| {
        format!(
            r#"{{"stage": "{name}", "requests": 3, "mean_ns": {mean}, "p50_ns": 1, "p90_ns": 1,
                "p99_ns": 1, "p999_ns": 1, "max_ns": 1, "buckets": []}}"#
        )
    };
    let server = format!(
        r#"{{"version": 1, "seconds": 1, "devices": [{{"name": "sdz", "side": "server",
            "session": "backup", "device_path": "/dev/sdb", "kinds": [{{"kind": "read",
            "network_mean_ns": null, "stages": [{}, {}]}}]}}]}}"#,
        stage("disk", 700),
        stage("whole", 1200)
    );
    fake.write("server.json", &server);
    let file = fake.path("server.json").display().to_string();
    let found = json(&measured(
        &fake,
        &["rnbd0", "--server-json", &file, "-o", "json"],
    ));
    assert_eq!(
        found["devices"][0]["kinds"][0]["network_mean_ns"], 800,
        "{found}"
    );
    let fake = machine();
    let said = measured(&fake, &["rnbd0", "--server-json", &file]);
    for part in ["network", "800 ns", "disk", "700 ns"] {
        assert!(said.stdout.contains(part), "no {part:?} in {}", said.stdout);
    }
    assert!(!said.stdout.contains("ssh"), "{}", said.stdout);
}

#[test]
fn what_cannot_be_measured_is_told() {
    let fake = machine();
    fake.write("no.json", "{}");
    fake.write(
        "other.json",
        r#"{"version": 2, "seconds": 1, "devices": []}"#,
    );
    let path = |name: &str| fake.path(name).display().to_string();
    for (args, code, part) in [
        (vec!["rnbd2".to_owned()], 7, "does not time requests"),
        (vec!["backup".to_owned()], 2, "not of a device"),
        (vec!["rnbd9".to_owned()], 3, "no device"),
        (
            vec!["--server-json".to_owned(), path("no.json")],
            2,
            "rnbdctl latency -o json",
        ),
        (
            vec!["--server-json".to_owned(), path("other.json")],
            2,
            "the version is 2",
        ),
        (
            vec!["--server-json".to_owned(), path("missing.json")],
            3,
            "missing.json",
        ),
    ] {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let said = fake.run(&[&["latency", "--seconds", "1"][..], &args[..]].concat());
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        assert!(said.stderr.contains(part), "{args:?}: {said:?}");
    }
    let said = Fake::new().run(&["latency"]);
    assert_eq!(said.code, 7, "{said:?}");
}
