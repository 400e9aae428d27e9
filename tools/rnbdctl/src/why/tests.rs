// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::kernel_log::Record;
use crate::model::BlockStat;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::DeviceState;
use crate::model::Path;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Policy;
use crate::model::RdmaDevice;
use crate::model::RdmaPort;
use crate::model::SessionState;
use crate::model::Settings;
use crate::model::Side;

const FIRST: &str = "ip:10.0.0.1@ip:10.0.0.2";
const SECOND: &str = "ip:10.0.1.1@ip:10.0.1.2";

fn path(name: &str) -> Path {
    let (source, destination) = name.split_once('@').unwrap();
    Path {
        name: name.to_owned(),
        session: "s".to_owned(),
        side: Side::Client,
        state: PathState::Connected,
        hca_name: Some("rxe0".to_owned()),
        hca_port: Some(1),
        source: source.to_owned(),
        destination: destination.to_owned(),
        latency_ns: None,
        stats: PathStats::default(),
        folder: PathBuf::new(),
    }
}

fn device(name: &str, disk: &str) -> ClientDevice {
    ClientDevice {
        name: name.to_owned(),
        path: format!("/dev/{name}"),
        session: "s".to_owned(),
        device_path: disk.to_owned(),
        access_mode: None,
        io_mode: None,
        state: DeviceState::Open,
        closed_by_server: false,
        size_bytes: None,
        poll_queues: None,
        io_timeout_ms: Some(0),
        hold_io_ms: None,
        io_timeouts: Some(0),
        io_unanswered: Some(0),
        folder: PathBuf::new(),
    }
}

/// A machine without troubles: a session with two paths and two devices.
fn well() -> Facts {
    let mut facts = Facts {
        now_us: 1_000_000_000,
        ..Facts::default()
    };
    facts.client.loaded = true;
    let mut settings = Settings::default();
    settings.0.insert("hold_io_ms", 600_000);
    facts.client.sessions.push(ClientSession {
        name: "s".to_owned(),
        state: SessionState::Connected,
        policy: Some(Policy::MinInflight),
        settings,
        paths: vec![path(FIRST), path(SECOND)],
        folder: PathBuf::new(),
    });
    facts.client.devices = vec![device("rnbd0", "a"), device("rnbd1", "b")];
    facts.rdma_devices.push(RdmaDevice {
        name: "rxe0".to_owned(),
        driver: None,
        firmware: None,
        ports: vec![RdmaPort {
            number: 1,
            state: "ACTIVE".to_owned(),
            physical_state: "LinkUp".to_owned(),
            link_layer: "Ethernet".to_owned(),
            is_roce: true,
            rate: String::new(),
            netdev: Some("eth0".to_owned()),
            netdev_mtu: None,
            rdma_mtu: None,
            gids: Vec::new(),
        }],
    });
    facts
}

impl Facts {
    /// Adds a line that the kernel has logged `seconds` ago.
    fn said(mut self, seconds: u64, message: &str) -> Self {
        self.log.push(Record {
            time_us: self
                .now_us
                .saturating_sub(seconds.saturating_mul(1_000_000)),
            message: message.to_owned(),
        });
        self
    }

    fn down(mut self, paths: &[&str]) -> Self {
        for path in &mut self.client.sessions[0].paths {
            if paths.contains(&path.name.as_str()) {
                path.state = PathState::Disconnected;
            }
        }
        self
    }

    fn closed(mut self, device: usize) -> Self {
        self.client.devices[device].state = DeviceState::Closed;
        self
    }
}

/// The names of the troubles.
fn names(facts: &Facts) -> Vec<&'static str> {
    let found = troubles(facts);
    found
        .iter()
        .map(|trouble| trouble.trouble.as_str())
        .collect()
}

fn only(facts: &Facts) -> Trouble {
    let mut found = troubles(facts);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn where_all_is_well_nothing_is_wrong() {
    assert_eq!(troubles(&well()), []);
    // A trouble that is over is not reported.
    let facts = well()
        .said(
            900,
            "rtrs_client: ip:10.0.0.1@ip:10.0.0.2: the server does not respond to heartbeats",
        )
        .said(
            800,
            "rnbd_client: <a@s> The server's disk was removed, requests fail",
        )
        .said(700, "rnbd_client: <a@s> The server's disk is back now")
        .said(700, "rnbd_client: <a@s> write I/O failed with err: -5");
    assert_eq!(troubles(&facts), []);
    assert_eq!(troubles(&Facts::default()), []);
}

#[test]
fn a_path_that_is_down_has_a_reason() {
    for (line, trouble, remedy) in [
        (
            "the server does not respond to heartbeats",
            "silent",
            "rnbdctl check 10.0.0.2",
        ),
        (
            "no way to the server: no machine responds at the address",
            "silent",
            "rnbdctl check 10.0.0.2",
        ),
        (
            "connection 0: connecting took more than 30000 ms or was interrupted",
            "silent",
            "check",
        ),
        (
            "no way to the server for connection 0: status -113",
            "no-route",
            "ip route get 10.0.0.2",
        ),
        (
            "the server refused connection 0: status 8, Ok(ENXIO)",
            "refused",
            "rnbd_server",
        ),
        (
            "the server is draining for maintenance and takes no new session",
            "maintenance",
            "wait",
        ),
        (
            "the previous session still exists on the server",
            "old-session",
            "wait",
        ),
        (
            "the RDMA device is being removed",
            "rdma-device-gone",
            "driver",
        ),
        (
            "connecting to the server failed: ECONNRESET",
            "not-connected",
            "check",
        ),
        (
            "the server's queue depth changed from 512 to 64",
            "server-changed",
            "as before",
        ),
    ] {
        let facts = well()
            .down(&[FIRST])
            .said(50, &format!("rtrs_client: {FIRST}: {line}"));
        let found = only(&facts);
        assert_eq!(found.trouble.as_str(), trouble, "{line}");
        assert!(found.remedy.contains(remedy), "{line}: {}", found.remedy);
        assert!(!found.is_fatal, "the other path is up");
        assert_eq!(found.for_seconds, Some(50));
        assert_eq!(found.kernel.len(), 1);
    }
    let unknown = only(&well().down(&[SECOND]));
    assert_eq!(
        (unknown.trouble.as_str(), unknown.for_seconds),
        ("disconnected", None)
    );
    assert!(unknown
        .remedy
        .ends_with(&format!("path reconnect {SECOND}")));
}

#[test]
fn giving_up_counts_more_than_why() {
    let facts = well()
        .down(&[FIRST])
        .said(
            90,
            &format!("rtrs_client: {FIRST}: the server does not respond to heartbeats"),
        )
        .said(
            10,
            &format!(
                "rtrs_client: {FIRST}: no more attempts to reconnect (max_reconnect_attempts): \
                 when the server is back, write 1 to the path's file reconnect"
            ),
        );
    let found = only(&facts);
    assert_eq!(
        (found.trouble.as_str(), found.for_seconds),
        ("given-up", Some(10))
    );
    assert!(
        found.remedy.ends_with(&format!("path reconnect {FIRST}")),
        "{}",
        found.remedy
    );
    assert_eq!(found.kernel.len(), 2);
}

#[test]
fn what_is_wrong_at_this_end_counts_most() {
    let silent = format!("rtrs_client: {FIRST}: the server does not respond to heartbeats");
    let mut facts = well().down(&[FIRST]).said(50, &silent);
    facts.rdma_devices[0].ports[0].state = "DOWN".to_owned();
    let found = only(&facts);
    assert_eq!(
        (found.trouble.as_str(), found.for_seconds),
        ("port-down", Some(50))
    );
    assert!(
        found.problem.contains("port 1 of rxe0 is DOWN"),
        "{}",
        found.problem
    );
    facts.rdma_devices.clear();
    assert_eq!(only(&facts).trouble.as_str(), "rdma-device-gone");
}

#[test]
fn without_a_path_the_session_is_the_trouble() {
    let facts = well()
        .down(&[FIRST, SECOND])
        .closed(0)
        .closed(1)
        .said(40, "rnbd_client: <a@s> Device disconnected.")
        .said(30, "rnbd_client: <b@s> Device disconnected.");
    assert_eq!(names(&facts), ["no-path", "disconnected", "disconnected"]);
    let found = &troubles(&facts)[0];
    assert_eq!(found.for_seconds, Some(40));
    for part in ["/dev/rnbd0 and /dev/rnbd1", "held, and fail 600 s after"] {
        assert!(found.problem.contains(part), "{}", found.problem);
    }
    let mut at_once = facts;
    at_once.client.sessions[0]
        .settings
        .0
        .insert("hold_io_ms", 0);
    assert!(troubles(&at_once)[0].problem.ends_with("fail at once"));
    at_once.client.sessions[0].paths.clear();
    assert!(troubles(&at_once)[0]
        .remedy
        .contains("rnbdctl path add s SERVER"));
}

#[test]
fn without_a_path_the_hold_time_of_a_device_counts() {
    let mut facts = well().down(&[FIRST, SECOND]).closed(0).closed(1);
    let problem = |facts: &Facts| troubles(facts)[0].problem.clone();
    // A leg of a mirror, and a disk that does as its session says.
    facts.client.devices[0].hold_io_ms = Some(0);
    facts.client.devices[1].hold_io_ms = Some(-1);
    assert_eq!(
        problem(&facts),
        "no path to the server is up: requests of /dev/rnbd0 fail at once; requests of /dev/rnbd1 \
         are held, and fail 600 s after the last path was lost"
    );
    // As of `rnbdctl map --hold` in a session without a hold time.
    facts.client.sessions[0].settings.0.insert("hold_io_ms", 0);
    facts.client.devices[0].hold_io_ms = Some(30_000);
    facts.client.devices[1].hold_io_ms = Some(30_000);
    assert_eq!(
        problem(&facts),
        "no path to the server is up: requests of /dev/rnbd0 and /dev/rnbd1 are held, and fail \
         30 s after the last path was lost"
    );
}

#[test]
fn a_device_that_was_not_opened_again_has_a_reason() {
    for (number, part) in [
        (-2, "no such disk any more (ENOENT)"),
        (-13, "export policy refuses the disk"),
        (-1, "another client has mapped the disk"),
        (-16, "another io_mode (EBUSY)"),
        (-95, "does not know an option"),
        (-5, "could not open the disk again (EIO)"),
    ] {
        let line = format!("rnbd_client: <b@s> Opening failed, server responded: {number}");
        let found = only(&well().closed(1).said(20, &line));
        assert_eq!(
            (found.trouble.as_str(), found.for_seconds),
            ("not-opened", Some(20))
        );
        assert!(found.problem.contains(part), "{number}: {}", found.problem);
        assert!(
            found.remedy.ends_with("rnbdctl remap rnbd1"),
            "{}",
            found.remedy
        );
        assert_eq!(found.device.as_deref(), Some("rnbd1"));
    }
    assert_eq!(only(&well().closed(1)).trouble.as_str(), "not-opened");
    let mut facts = well().closed(0);
    facts.client.devices[0].closed_by_server = true;
    assert_eq!(only(&facts).trouble.as_str(), "closed-by-server");
}

#[test]
fn a_disk_that_hangs_or_is_gone_or_fails() {
    let mut facts = well();
    facts.client.devices[0].io_unanswered = Some(3);
    assert_eq!(only(&facts).trouble.as_str(), "disk-hangs");
    let mut facts = well();
    facts.stuck.insert("rnbd1".to_owned(), 7);
    let found = only(&facts);
    assert_eq!(found.trouble.as_str(), "requests-stuck");
    assert!(
        found.problem.starts_with("7 requests are in flight"),
        "{}",
        found.problem
    );
    let gone = "rnbd_client: <a@s> The server's disk was removed, requests fail";
    assert_eq!(only(&well().said(5, gone)).trouble.as_str(), "disk-removed");
    for (line, part) in [
        (
            "rnbd_client: <a@s> read I/O failed with err: -61",
            "smartctl",
        ),
        (
            "rnbd_client: <a@s> write I/O failed with err: -52",
            "reserved",
        ),
    ] {
        let found = only(&well().said(5, line));
        assert_eq!(
            (found.trouble.as_str(), found.is_fatal),
            ("io-errors", false)
        );
        assert!(found.remedy.contains(part), "{}", found.remedy);
    }
    let lost = "rnbd_client: <a@s> read I/O failed with err: -103";
    assert_eq!(troubles(&well().said(5, lost)), []);
}

#[test]
fn errors_of_an_earlier_device_of_the_same_disk_are_over() {
    let failed = "rnbd_client: <a@s> write I/O failed with err: -5";
    let mapped = "rnbd_client: <a@s> map_device: Device mapped as rnbd1 (nsectors: 8)";
    assert_eq!(troubles(&well().said(9, failed).said(5, mapped)), []);
    let facts = well().said(9, failed).said(5, mapped).said(3, failed);
    let found = only(&facts);
    assert_eq!(found.trouble.as_str(), "io-errors");
    assert_eq!(found.kernel.len(), 2, "{:?}", found.kernel);
}

#[test]
fn what_the_file_has_and_the_machine_does_not() {
    let text = "[[session]]\nname = \"s\"\npaths = [\"10.0.0.2\"]\ndevices = [\"a\", \"new\"]\n";
    let config = crate::config::parse("f", text, &|_, _| String::new()).unwrap();
    let mut facts = well();
    facts.config = Some(config);
    let found = only(&facts);
    assert_eq!(found.trouble.as_str(), "not-mapped");
    assert!(
        found.subject.contains("disk new of session s"),
        "{}",
        found.subject
    );
    facts.client = Default::default();
    assert_eq!(names(&facts), ["no-module"]);
}

#[test]
fn requests_that_end_are_not_stuck() {
    let stat = |reads, inflight| BlockStat {
        reads,
        inflight,
        ..BlockStat::default()
    };
    let before = BTreeMap::from([
        ("ends".to_owned(), stat(5, 2)),
        ("idle".to_owned(), stat(5, 0)),
        ("stuck".to_owned(), stat(5, 2)),
        ("gone".to_owned(), stat(5, 2)),
    ]);
    let after = BTreeMap::from([
        ("ends".to_owned(), stat(6, 2)),
        ("idle".to_owned(), stat(5, 1)),
        ("stuck".to_owned(), stat(5, 3)),
        ("new".to_owned(), stat(0, 1)),
    ]);
    let stuck = super::facts::stuck(&before, &after);
    assert_eq!(stuck, BTreeMap::from([("stuck".to_owned(), 3)]));
}
