// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl stats`, `top --once` and `exporter` on a machine made of files.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::process::Child;
use std::process::Stdio;

use crate::machine::Machine;

fn stdout(command: &mut assert_cmd::Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn json(command: &mut assert_cmd::Command) -> serde_json::Value {
    serde_json::from_str(&stdout(command)).unwrap()
}

#[test]
fn counters() {
    let machine = Machine::new();
    let all = json(&mut machine.rnbdctl(&["stats", "-o", "json"]));
    let device = &all["devices"][1];
    assert_eq!(
        (&device["name"], &device["reads"], &device["read_bytes"]),
        (&"rnbd1".into(), &100.into(), &409_600.into())
    );
    let path = &all["paths"][0];
    assert_eq!(
        (&path["side"], &path["writes"], &path["inflight"]),
        (&"client".into(), &50.into(), &3.into())
    );
    let one = json(&mut machine.rnbdctl(&["stats", "-o", "json", "rnbd0"]));
    assert_eq!(
        (
            one["devices"].as_array().unwrap().len(),
            one["paths"].as_array().unwrap().len()
        ),
        (1, 0)
    );
    let session = json(&mut machine.rnbdctl(&["stats", "-o", "json", "storage"]));
    assert_eq!(
        (
            session["devices"].as_array().unwrap().len(),
            session["paths"].as_array().unwrap().len()
        ),
        (2, 2)
    );
    let table = stdout(&mut machine.rnbdctl(&["stats"]));
    assert!(
        table.contains("400 KiB") && table.contains("12 us"),
        "{table}"
    );
}

#[test]
fn counters_of_paths_can_be_set_back() {
    let machine = Machine::new();
    let path = "sys/class/rtrs-client/storage/paths/ip:10.0.0.1@ip:10.0.0.2/stats/reset_all";
    stdout(&mut machine.rnbdctl(&["stats", "--reset", "10.0.0.2"]));
    assert!(fs::read_to_string(machine.path().join(path))
        .unwrap()
        .starts_with('1'));
    let other = path.replace("10.0.0", "10.0.1");
    assert_eq!(
        fs::read_to_string(machine.path().join(other)).unwrap(),
        "\n"
    );
    machine
        .rnbdctl(&["stats", "--reset", "rnbd0"])
        .assert()
        .code(2);
}

#[test]
fn rates_of_a_machine_that_changes() {
    let machine = Machine::new();
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("rnbdctl"))
        .args(["top", "--once", "--interval", "2", "-o", "json"])
        .env("RNBDCTL_ROOT", machine.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Whenever the program takes its two samples, rnbd0 has done more requests, and rnbd1 is gone
    // or is going.
    let mut reads = 100;
    let mut child = Some(child);
    let output = loop {
        reads += 1000;
        machine.stat(0, reads);
        if reads == 11_100 {
            fs::remove_dir_all(machine.path().join("sys/block/rnbd1")).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        let exited = child.as_mut().unwrap().try_wait().unwrap().is_some();
        if exited {
            break child.take().unwrap().wait_with_output().unwrap();
        }
    };
    assert!(output.status.success());
    let rates: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rates["seconds"].as_f64().unwrap() >= 2.0, "{rates}");
    let device = &rates["devices"][0];
    assert_eq!(device["name"], "rnbd0");
    assert!(device["read_iops"].as_f64().unwrap() > 0.0, "{rates}");
    assert_eq!(device["read_ms"].as_f64(), Some(1.0));
    assert_eq!(device["write_iops"].as_f64(), Some(0.0));
}

#[test]
fn once_as_table_and_csv() {
    let machine = Machine::new();
    let table = stdout(&mut machine.rnbdctl(&["top", "--once", "-i", "0.1"]));
    for word in [
        "rnbd0",
        "vg/disk2",
        "ip:10.0.1.1@ip:10.0.1.2",
        "R-LAT",
        "RECONNECTS",
    ] {
        assert!(table.contains(word), "no {word} in {table}");
    }
    let csv = stdout(&mut machine.rnbdctl(&["top", "--once", "-i", "0.1", "-o", "csv"]));
    assert!(
        csv.starts_with("kind,name,session,device_path,state,read_iops,"),
        "{csv}"
    );
    assert!(
        csv.contains("\nclient-device,rnbd1,storage,vg/disk2,open,0,0,0,0,,,2,0,"),
        "{csv}"
    );
}

#[test]
fn the_screen_needs_a_terminal() {
    let machine = Machine::new();
    let assert = machine.rnbdctl(&["top"]).assert().code(2);
    let stderr = String::from_utf8_lossy(&assert.get_output().stderr);
    assert!(stderr.contains("--once"), "{stderr}");
}

struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn new(machine: &Machine) -> Self {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("rnbdctl"))
            .args(["exporter", "--listen", "127.0.0.1:0"])
            .env("RNBDCTL_ROOT", machine.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("rnbdctl: serving http://")
            .and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(
            self.child.wait().unwrap().success(),
            "ending it was a failure"
        );
    }
}

#[test]
fn the_exporter_follows_the_machine() {
    let machine = Machine::new();
    let exporter = Exporter::new(&machine);
    let text = exporter.scrape();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("rnbd_device_reads_total{device=\"rnbd1\",session=\"storage\"} 100\n"),
        "{text}"
    );
    machine.stat(0, 5000);
    fs::remove_dir_all(machine.path().join("sys/block/rnbd1")).unwrap();
    let text = exporter.scrape();
    assert!(
        text.contains("rnbd_device_reads_total{device=\"rnbd0\",session=\"storage\"} 5000\n"),
        "{text}"
    );
    assert!(!text.contains("rnbd1"), "{text}");
    fs::remove_dir_all(machine.path().join("sys/class")).unwrap();
    let text = exporter.scrape();
    assert!(
        text.contains("rnbd_module_loaded{module=\"rnbd_client\"} 0\n"),
        "{text}"
    );
}

#[test]
fn devices_that_come_and_go_break_no_scrape() {
    let machine = Machine::new();
    let exporter = Exporter::new(&machine);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for _ in 0..100 {
                fs::remove_dir_all(machine.path().join("sys/block/rnbd0")).unwrap();
                machine.device(0, "disk1", "rw");
            }
        });
        while !churn.is_finished() {
            let text = exporter.scrape();
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.contains("device=\"rnbd1\""), "{text}");
        }
    });
}

#[test]
fn a_file_for_the_node_exporter() {
    let machine = Machine::new();
    let file = machine.path().join("rnbd.prom");
    stdout(&mut machine.rnbdctl(&["exporter", "--textfile", file.to_str().unwrap()]));
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("# TYPE rnbd_device_reads_total counter\n") && text.ends_with('\n'),
        "{text}"
    );
    let mut nowhere = machine.rnbdctl(&["exporter", "--textfile", "/nowhere/rnbd.prom"]);
    nowhere.assert().code(3);
    // The file is written again and again.
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("rnbdctl"))
        .args([
            "exporter",
            "--interval",
            "1",
            "--textfile",
            file.to_str().unwrap(),
        ])
        .env("RNBDCTL_ROOT", machine.path())
        .spawn()
        .unwrap();
    machine.stat(0, 7777);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !fs::read_to_string(&file).unwrap().contains("} 7777\n") {
        assert!(std::time::Instant::now() < end, "the file does not change");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(child.wait().unwrap().success());
}
