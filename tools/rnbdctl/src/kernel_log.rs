// SPDX-License-Identifier: GPL-2.0

//! The kernel's messages about a failure that has just happened.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::OFlags;

use crate::sysfs::printable;

/// The modules whose lines are shown: the modules in Rust and those of mainline Linux.
pub const MODULES: [&str; 10] = [
    "rnbd_client",
    "rnbd_server",
    "rtrs_client",
    "rtrs_server",
    "rtrs_core",
    "rtrs_test",
    "rtrs_test_client",
    "rtrs_test_server",
    "rnbd",
    "rtrs",
];

/// The most lines that are shown with an error.
const MAX_LINES: usize = 5;

/// The most records that are read. More come only if the log is flooded.
const MAX_RECORDS: usize = 1000;

/// The longest record in bytes (the kernel's `PRINTK_MESSAGE_MAX`).
const RECORD_SIZE: usize = 8192;

static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file of the kernel's log: `/dev/kmsg`. Without it nothing is read.
pub fn use_file(file: PathBuf) {
    // The program calls this once, when it begins.
    let _ = FILE.set(file);
}

/// The log from a certain moment on.
#[derive(Debug, Default)]
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    /// The log from now on; empty for users who may not read the log.
    pub fn begin() -> Self {
        Self {
            file: FILE.get().and_then(|path| at_its_end(path)),
        }
    }

    /// The last lines of RNBD's modules since then, without their times.
    pub fn lines(self) -> Vec<String> {
        let Some(mut file) = self.file else {
            return Vec::new();
        };
        let mut lines: Vec<String> = records(&mut file)
            .iter()
            .filter_map(|record| parse(record))
            .map(|record| record.message)
            .filter(|message| is_ours(message))
            .collect();
        // Several connections that fail write the same line.
        lines.dedup();
        let first = lines.len().saturating_sub(MAX_LINES);
        lines.split_off(first)
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time of the line, in microseconds since the machine was started.
    pub time_us: u64,
    /// The text.
    pub message: String,
}

/// All lines of RNBD's modules that the kernel still has, the oldest first; none if this user may
/// not read the log.
pub fn all(file: &Path) -> Vec<Record> {
    let Some(mut file) = open(file) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    loop {
        let records = records(&mut file);
        if records.is_empty() {
            return found;
        }
        let parsed = records.iter().filter_map(|record| parse(record));
        found.extend(parsed.filter(|record| is_ours(&record.message)));
    }
}

fn open(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).open(path).ok()
}

fn at_its_end(path: &Path) -> Option<File> {
    let mut file = open(path)?;
    file.seek(SeekFrom::End(0)).ok()?;
    Some(file)
}

/// The next records. The kernel returns one record for each read.
fn records(file: &mut File) -> Vec<String> {
    let mut records = Vec::new();
    let mut buffer = vec![0; RECORD_SIZE];
    while records.len() < MAX_RECORDS {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                let text = printable(buffer.get(..len).unwrap_or(&[]));
                records.extend(text.lines().map(str::to_owned));
            }
            // EPIPE: records were overwritten before they were read.
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::BrokenPipe) => {}
            Err(_) => break,
        }
    }
    records
}

/// Parses `4,1234,5678901,-;rnbd_client: the message`. Lines that begin with a space belong to the
/// record before them, and are for programs.
fn parse(line: &str) -> Option<Record> {
    let (head, message) = line.split_once(';')?;
    if head.starts_with(' ') {
        return None;
    }
    Some(Record {
        time_us: head.split(',').nth(2)?.parse().ok()?,
        message: message.trim_end().to_owned(),
    })
}

fn is_ours(message: &str) -> bool {
    let is_of = |module: &str| {
        let rest = message.strip_prefix(module);
        // The C modules have the number of the source line there: `rnbd_client L123: `.
        rest.is_some_and(|rest| rest.starts_with(": ") || rest.starts_with(" L"))
    };
    MODULES.into_iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn only_new_lines_of_our_modules_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        fs::write(&path, "4,1,5,-;rnbd_client: old\n").unwrap();
        let log = KernelLog {
            file: at_its_end(&path),
        };
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(
            b"4,2,6,-;usb 1-1: new device\n SUBSYSTEM=usb\n\
              4,3,7,-;rtrs_client: s: cannot connect\n4,4,8,-;rtrs_client: s: cannot connect\n\
              rubbish\n4,5,9,-;rnbd_client L123: mapping failed \n\
              4,6,9,-;rnbd_clientele: not ours\n",
        )
        .unwrap();
        assert_eq!(
            log.lines(),
            [
                "rtrs_client: s: cannot connect",
                "rnbd_client L123: mapping failed"
            ]
        );
        let all = all(&path);
        assert_eq!(all.len(), 4);
        assert_eq!(
            (all[0].time_us, all[0].message.as_str()),
            (5, "rnbd_client: old")
        );
    }

    #[test]
    fn of_many_lines_the_last_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        let lines = (0..50).map(|n| format!("4,{n},{n},-;rnbd_server: line {n}\n"));
        fs::write(&path, lines.collect::<String>()).unwrap();
        let log = KernelLog { file: open(&path) };
        let lines = log.lines();
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines.last().unwrap(), "rnbd_server: line 49");
    }

    #[test]
    fn who_may_not_read_it_sees_nothing() {
        assert_eq!(KernelLog::default().lines(), [""; 0]);
        assert!(all(Path::new("/nonexistent/kmsg")).is_empty());
    }
}
