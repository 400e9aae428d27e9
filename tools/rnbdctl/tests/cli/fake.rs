// SPDX-License-Identifier: GPL-2.0

//! A tree of files like the kernel's, on which the program runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use assert_cmd::Command;
use rnbdctl::System;
use tempfile::TempDir;

/// The tree. Its files are ordinary: they keep the text that is written to them, and nothing else
/// happens.
pub(crate) struct Fake {
    root: TempDir,
}

/// The output of the program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The modules of a session: in Rust or in C.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modules {
    Rust,
    C,
}

impl Fake {
    /// A machine without any of the modules and without RDMA.
    pub(crate) fn new() -> Self {
        let fake = Self {
            root: tempfile::tempdir().expect("a folder"),
        };
        for folder in ["sys/block", "sys/class", "dev"] {
            fs::create_dir_all(fake.path(folder)).expect("a folder");
        }
        fake
    }

    /// A machine with a mapped device, an exported device and an RDMA device, as an administrator
    /// has it who tries RNBD on one machine.
    pub(crate) fn typical() -> Self {
        let fake = Self::new();
        fake.load_client();
        fake.load_server();
        fake.session(
            "backup",
            Modules::Rust,
            &["ip:10.0.0.1@ip:10.0.0.2", "ip:10.0.1.1@ip:10.0.1.2"],
        );
        fake.write(
            &client_path("backup", "ip:10.0.1.1@ip:10.0.1.2", "state"),
            "disconnected\n",
        );
        fake.device("rnbd0", "backup", "/dev/sdb", 2 << 30);
        fake.device("rnbd10", "backup", "vg/tape", 1536 << 10);
        fake.device("rnbd2", "backup", "/dev/sdc", 1 << 40);
        for name in ["rnbd0", "rnbd10", "rnbd2"] {
            fake.extend_device(name);
        }
        fake.write("sys/block/rnbd2/rnbd/state", "closed\n");
        fake.write("sys/block/rnbd2/rnbd/access_mode", "ro\n");
        fake.server_session("web", Modules::Rust, &["ip:10.0.0.7@ip:10.0.0.1"]);
        fake.export("sda", "web", "/dev/sda", "rw");
        fake.export("sda", "mail", "sda", "ro");
        fake.rdma("rxe0", "eth0", "10.0.0.1", 1500);
        fake
    }

    /// The tree's folder.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// A file below the tree's root.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file, and makes the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect(name);
    }

    /// The content of a file.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// Makes a file refuse writes, with ENOSPC.
    pub(crate) fn refuse(&self, name: &str) {
        let path = self.path(name);
        fs::remove_file(&path).expect(name);
        symlink("/dev/full", path).expect(name);
    }

    pub(crate) fn load_client(&self) {
        self.write("sys/class/rnbd-client/ctl/map_device", "");
        fs::create_dir_all(self.path("sys/class/rnbd-client/ctl/devices")).expect("a folder");
        fs::create_dir_all(self.path("sys/class/rtrs-client")).expect("a folder");
        self.write("sys/module/rtrs_client/parameters/hb_interval_ms", "5000\n");
    }

    pub(crate) fn load_server(&self) {
        fs::create_dir_all(self.path("sys/class/rnbd-server/ctl/devices")).expect("a folder");
        fs::create_dir_all(self.path("sys/class/rtrs-server")).expect("a folder");
    }

    /// A session of the client.
    pub(crate) fn session(&self, name: &str, modules: Modules, paths: &[&str]) {
        let write = |file: &str, text: &str| {
            self.write(&format!("sys/class/rtrs-client/{name}/{file}"), text)
        };
        write("mpath_policy", "min-inflight (MI: 1)\n");
        write("add_path", "Usage: echo\n");
        write("max_reconnect_attempts", "-1\n");
        if modules == Modules::Rust {
            write("hb_interval_ms", "5000\n");
            write("hb_missed_max", "5\n");
            write("reconnect_delay_ms", "30000\n");
            write("connect_timeout_ms", "30000\n");
            write("ack_timeout_ms", "0\n");
            write("hold_io_ms", "0\n");
        }
        for path in paths {
            let write = |file: &str, text: &str| self.write(&client_path(name, path, file), text);
            self.both_ends(&client_path(name, path, ""), path);
            write("state", "connected\n");
            write("cur_latency", "12345 ns\n");
            write("reconnect", "");
            write("remove_path", "");
            write("stats/rdma", "10 40960 20 81920 3 1\n");
            // The C module begins to count at -1.
            let reconnects = match modules {
                Modules::Rust => "2 5\n",
                Modules::C => "-1 5\n",
            };
            write("stats/reconnects", reconnects);
        }
    }

    /// A session of a client at this server.
    pub(crate) fn server_session(&self, name: &str, modules: Modules, paths: &[&str]) {
        let folder = format!("sys/class/rtrs-server/{name}");
        fs::create_dir_all(self.path(&format!("{folder}/paths"))).expect("a folder");
        if modules == Modules::Rust {
            self.write(&format!("{folder}/memory_bytes"), "67145728\n");
            self.write(&format!("{folder}/pooled_memory_bytes"), "0\n");
        }
        for path in paths {
            let folder = format!("{folder}/paths/{path}/");
            self.both_ends(&folder, path);
            self.write(&format!("{folder}stats/rdma"), "7 28672 8 32768\n");
        }
    }

    fn both_ends(&self, folder: &str, path: &str) {
        let (source, destination) = path.split_once('@').expect("a path");
        for (file, text) in [
            ("hca_name", "rxe0"),
            ("hca_port", "1"),
            ("src_addr", source),
            ("dst_addr", destination),
            ("disconnect", ""),
        ] {
            self.write(&format!("{folder}{file}"), &format!("{text}\n"));
        }
    }

    /// A mapped device, with the files that it has with all modules.
    pub(crate) fn device(&self, name: &str, session: &str, device_path: &str, bytes: u64) {
        let write = |file: &str, text: &str| self.write(&format!("sys/block/{name}/{file}"), text);
        write("size", &format!("{}\n", bytes / 512));
        write("stat", " 1 0 8 2 3 0 24 4 0 5 6 7 0 8 0 9 1\n");
        write("rnbd/state", "open\n");
        write("rnbd/session", &format!("{session}\n"));
        write("rnbd/mapping_path", &format!("{device_path}\n"));
        write("rnbd/access_mode", "rw\n");
        write("rnbd/nr_poll_queues", "0\n");
        write("rnbd/unmap_device", "");
        write("rnbd/remap_device", "");
        write("rnbd/resize", "");
        self.write(&format!("dev/{name}"), "");
        self.link(name, session, device_path);
    }

    /// The files of a mapped device that the C module does not have.
    pub(crate) fn extend_device(&self, name: &str) {
        for (file, text) in [
            ("io_mode", "any\n"),
            ("closed_by", "\n"),
            ("io_timeout_ms", "0\n"),
            ("hold_io_ms", "-1\n"),
            ("io_timeouts", "0\n"),
            ("io_unanswered", "0\n"),
        ] {
            self.write(&format!("sys/block/{name}/rnbd/{file}"), text);
        }
    }

    /// The link to a device that is mapped.
    pub(crate) fn link(&self, name: &str, session: &str, device_path: &str) {
        let link = format!("{}@{session}", device_path.replace('/', "!"));
        let link = self.path(&format!("sys/class/rnbd-client/ctl/devices/{link}"));
        symlink(format!("../../../../block/{name}"), link).expect("a link");
    }

    /// A device that a client has mapped.
    pub(crate) fn export(&self, disk: &str, session: &str, device_path: &str, mode: &str) {
        let folder = format!("sys/class/rnbd-server/ctl/devices/{disk}/sessions/{session}");
        self.write(
            &format!("{folder}/mapping_path"),
            &format!("{device_path}\n"),
        );
        self.write(&format!("{folder}/access_mode"), &format!("{mode}\n"));
        self.write(&format!("{folder}/force_close"), "");
    }

    /// An RDMA device on Ethernet.
    pub(crate) fn rdma(&self, name: &str, netdev: &str, address: &str, mtu: u32) {
        let write = |file: &str, text: &str| {
            self.write(&format!("sys/class/infiniband/{name}/ports/1/{file}"), text);
        };
        let octets: Vec<u8> = address
            .split('.')
            .map(|octet| octet.parse().expect("an octet"))
            .collect();
        write("state", "4: ACTIVE\n");
        write("phys_state", "5: LinkUp\n");
        write("link_layer", "Ethernet\n");
        write("rate", "2.5 Gb/sec (1X SDR)\n");
        write("gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n");
        let (high, low) = (octets[0..2].to_vec(), octets[2..4].to_vec());
        let word = |bytes: Vec<u8>| format!("{:02x}{:02x}", bytes[0], bytes[1]);
        write(
            "gids/1",
            &format!(
                "0000:0000:0000:0000:0000:ffff:{}:{}\n",
                word(high),
                word(low)
            ),
        );
        write("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        for index in ["0", "1"] {
            write(&format!("gid_attrs/types/{index}"), "RoCE v2\n");
            write(&format!("gid_attrs/ndevs/{index}"), &format!("{netdev}\n"));
        }
        self.write(&format!("sys/class/infiniband/{name}/fw_ver"), "\n");
        self.write(&format!("sys/class/net/{netdev}/mtu"), &format!("{mtu}\n"));
    }

    /// Runs the program on the tree.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rnbdctl"));
        command
            .env_clear()
            .env("RNBDCTL_ROOT", self.root.path())
            .args(args);
        Said::of(&mut command)
    }

    /// Runs the program, which must succeed without output on standard error. Returns its standard
    /// output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (0, ""),
            "{args:?}: {}",
            said.stdout
        );
        said.stdout
    }

    /// The tree as the library sees it.
    pub(crate) fn system(&self) -> System {
        System::new(Some(self.root.path()), None)
    }
}

impl Said {
    /// The output of a command.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        Self {
            code: output.status.code().expect("an exit code"),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// A file of a client's path.
pub(crate) fn client_path(session: &str, path: &str, file: &str) -> String {
    format!("sys/class/rtrs-client/{session}/paths/{path}/{file}")
}
