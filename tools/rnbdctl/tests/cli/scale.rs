// SPDX-License-Identifier: GPL-2.0

//! A thousand devices.

use std::fs;
use std::time::Duration;
use std::time::Instant;

use crate::fake::Fake;
use crate::fake::Modules;

const DEVICES: usize = 1000;

fn thousand() -> Fake {
    let fake = Fake::new();
    fake.load_client();
    fake.session("big", Modules::Rust, &["ip:10.0.0.1@ip:10.0.0.2"]);
    for number in 0..DEVICES {
        let name = format!("rnbd{number}");
        fake.device(&name, "big", &format!("disk{number}"), 1 << 30);
        fake.extend_device(&name);
    }
    fake
}

/// The number of read() calls of this thread so far.
fn reads() -> usize {
    let text = fs::read_to_string("/proc/thread-self/io").expect("the kernel counts");
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.expect("a count").parse().expect("a number")
}

#[test]
fn a_device_costs_twelve_reads() {
    let fake = thousand();
    let before = reads();
    let client = fake.system().client().unwrap();
    let cost = reads() - before;
    assert_eq!(client.devices.len(), DEVICES);
    assert_eq!(client.devices[999].name, "rnbd999");
    // Some more reads are for the session, and for counting.
    assert!(cost <= 12 * DEVICES + 60, "{cost} reads");
}

#[test]
fn a_list_does_not_take_seconds() {
    let fake = thousand();
    let begin = Instant::now();
    let text = fake.ok(&["list", "devices"]);
    let took = begin.elapsed();
    assert_eq!(text.lines().count(), DEVICES + 1);
    // The list takes a tenth of a second when nothing else runs. This only notices extreme times.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Run it with `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "measures, and only a release build is worth it"]
fn time_of_a_list() {
    let fake = thousand();
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            fake.ok(&["list"]);
            begin.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "list of {DEVICES} devices: median {:?}, best {:?}",
        times[10], times[0]
    );
}
