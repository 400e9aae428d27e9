// SPDX-License-Identifier: GPL-2.0

//! A machine made of files, with one session: two paths and two devices.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use assert_cmd::Command;

pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

pub(crate) const CONFIG: &str = r#"
[[session]]
name = "storage"
paths = ["10.0.0.2", "10.0.1.2"]
policy = "min-inflight"
hb_interval_ms = 5000
devices = ["disk1", { path = "vg/disk2", access_mode = "ro" }]
"#;

impl Machine {
    pub(crate) fn new() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        machine.write("sys/class/rnbd-client/ctl/map_device", "");
        machine.write("sys/devices/system/cpu/possible", "0-1\n");
        machine.device(0, "disk1", "rw");
        machine.device(1, "vg/disk2", "ro");
        let session = "sys/class/rtrs-client/storage";
        machine.write(&format!("{session}/mpath_policy"), "min-inflight (MI: 1)\n");
        machine.write(&format!("{session}/hb_interval_ms"), "5000\n");
        machine.write(&format!("{session}/max_reconnect_attempts"), "-1\n");
        for net in 0..2 {
            let (src, dst) = (format!("ip:10.0.{net}.1"), format!("ip:10.0.{net}.2"));
            let path = format!("{session}/paths/{src}@{dst}");
            for (file, text) in [
                ("state", "connected"),
                ("src_addr", &src),
                ("dst_addr", &dst),
                ("hca_name", "rxe0"),
                ("hca_port", "1"),
                ("cur_latency", "12000 ns"),
                ("stats/rdma", "100 409600 50 204800 3 0"),
                ("stats/reconnects", "0 0"),
                ("stats/reset_all", ""),
            ] {
                machine.write(&format!("{path}/{file}"), &format!("{text}\n"));
            }
        }
        machine
    }

    pub(crate) fn device(&self, number: u32, path: &str, mode: &str) {
        let disk = format!("sys/block/rnbd{number}");
        self.write(&format!("{disk}/size"), "2048\n");
        self.stat(number, 100);
        for (file, text) in [
            ("state", "open"),
            ("session", "storage"),
            ("mapping_path", path),
            ("access_mode", mode),
            ("nr_poll_queues", "0"),
            ("unmap_device", ""),
        ] {
            self.write(&format!("{disk}/rnbd/{file}"), &format!("{text}\n"));
        }
    }

    /// Sets the counters to this many reads of 4 KiB, each of which took a millisecond.
    pub(crate) fn stat(&self, number: u32, reads: u64) {
        let text = format!(
            "{reads} 0 {} {reads} 0 0 0 0 2 {reads} {reads} 0 0 0 0 0 0\n",
            reads * 8
        );
        self.write(&format!("sys/block/rnbd{number}/stat"), &text);
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // The file is whole at any time, for programs that read it meanwhile.
        let new = file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
        file
    }

    pub(crate) fn config(&self, text: &str) -> PathBuf {
        self.write("etc/rnbd/rnbd.toml", text)
    }

    pub(crate) fn rnbdctl(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("rnbdctl").unwrap();
        command.args(args).env("RNBDCTL_ROOT", self.path());
        command
    }

    /// Every file and its content.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        found.insert(path.clone(), fs::read(&path).unwrap());
                    }
                }
            }
        }
        found
    }
}
