// SPDX-License-Identifier: GPL-2.0

//! A thousand devices.

#![expect(clippy::arithmetic_side_effects, reason = "sums of a few calls")]

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::time::Instant;

use rustix::fs::inotify;
use rustix::io::Errno;

use crate::fake::Fake;
use crate::fake::Modules;
use crate::shell::offered;

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

/// The number of reads that a function takes.
fn cost<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = reads();
    let result = run();
    (result, reads() - before)
}

#[test]
fn a_device_costs_eleven_reads_and_a_row_five() {
    let fake = thousand();
    let (client, whole) = cost(|| fake.system().client().unwrap());
    assert_eq!(client.devices.len(), DEVICES);
    assert_eq!(client.devices[999].name, "rnbd999");
    // Some more reads are for the session, and for counting.
    assert!(whole <= 11 * DEVICES + 60, "{whole} reads");
    let (rows, row) = cost(|| fake.system().client_device_rows().unwrap());
    assert_eq!(rows.len(), DEVICES);
    assert!(row <= 5 * DEVICES + 10, "{row} reads");
}

/// The calls on a file, as the kernel tells them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls {
    opens: usize,
    reads: usize,
    closes: usize,
}

/// The files of a device that the program opens in `run`, whichever thread does so, with their
/// calls.
fn files_of(fake: &Fake, device: &str, run: impl FnOnce()) -> BTreeMap<String, Calls> {
    let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let calls = inotify::WatchFlags::OPEN
        | inotify::WatchFlags::ACCESS
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::CLOSE_NOWRITE;
    for folder in ["", "/rnbd"] {
        let folder = fake.path(&format!("sys/block/{device}{folder}"));
        inotify::add_watch(&events, folder, calls).unwrap();
    }
    run();
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    let mut files: BTreeMap<String, Calls> = BTreeMap::new();
    loop {
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN) => break,
            Err(error) => panic!("{error}"),
        };
        let kind = event.events();
        assert!(!kind.contains(inotify::ReadFlags::QUEUE_OVERFLOW));
        // An event of the folder itself has no name.
        let Some(name) = event.file_name() else {
            continue;
        };
        let calls = files.entry(name.to_str().unwrap().to_owned()).or_default();
        calls.opens += usize::from(kind.contains(inotify::ReadFlags::OPEN));
        calls.reads += usize::from(kind.contains(inotify::ReadFlags::ACCESS));
        let close = inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::CLOSE_NOWRITE;
        calls.closes += usize::from(kind.intersects(close));
    }
    files
}

#[test]
fn a_list_opens_each_file_once_and_tables_and_completions_only_their_own() {
    let fake = thousand();
    let row = ["access_mode", "mapping_path", "session", "size", "state"];
    let more = [
        "hold_io_ms",
        "io_mode",
        "io_timeout_ms",
        "io_timeouts",
        "io_unanswered",
        "nr_poll_queues",
    ];
    let whole: Vec<_> = row.into_iter().chain(more).collect();
    let list: &dyn Fn(&[&str]) = &|args| drop(fake.ok(args));
    let complete: &dyn Fn(&[&str]) = &|words| {
        let offered = offered(&fake, words);
        assert!(offered.iter().any(|name| name == "rnbd999"), "{words:?}");
    };
    for (run, args, expected) in [
        (list, &["list"] as &[&str], row.as_slice()),
        (list, &["list", "devices", "-o", "csv"], &row),
        (list, &["list", "-o", "json"], &whole),
        (complete, &["rnbdctl", "unmap", ""], &row),
        (complete, &["rnbdctl", "show", ""], &row),
        (complete, &["rnbdctl", "latency", ""], &row),
    ] {
        for device in ["rnbd0", "rnbd500", "rnbd999"] {
            let mut files = files_of(&fake, device, || run(args));
            for name in expected {
                let once = Calls {
                    opens: 1,
                    reads: 1,
                    closes: 1,
                };
                assert_eq!(
                    files.remove(*name),
                    Some(once),
                    "{args:?}, {device}: {name}"
                );
            }
            assert!(files.is_empty(), "{args:?}, {device} also: {files:?}");
        }
    }
}

#[test]
fn a_list_has_a_line_for_each() {
    let text = thousand().ok(&["list", "devices"]);
    assert_eq!(text.lines().count(), DEVICES + 1);
}

/// Run it with `cargo test --release -- --ignored --nocapture`.
///
/// The files are of the temporary folder, so the time that the modules take for a file of sysfs is
/// not in it.
#[test]
#[ignore = "measures, and only a release build is worth it"]
fn time_of_a_list() {
    let fake = thousand();
    let runs: [(&str, &dyn Fn()); 3] = [
        ("list", &|| drop(fake.ok(&["list"]))),
        ("list -o json", &|| drop(fake.ok(&["list", "-o", "json"]))),
        ("the completions of unmap", &|| {
            drop(offered(&fake, &["rnbdctl", "unmap", ""]));
        }),
    ];
    for (what, run) in runs {
        let mut times: Vec<_> = (0..20)
            .map(|_| {
                let begin = Instant::now();
                run();
                begin.elapsed()
            })
            .collect();
        times.sort();
        println!(
            "{what}, {DEVICES} devices: median {:?}, best {:?}",
            times[10], times[0]
        );
    }
}
