// SPDX-License-Identifier: GPL-2.0

//! The server's export policy: the clients that may map devices.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::Path;

use proto::export_policy;
use proto::export_policy::Start;
use rustix::io::Errno;

use super::write::cannot_open;
use super::write::explain;
use super::write::meaning;
use super::write::write;
use super::write::Meaning;
use crate::kernel_log::KernelLog;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The number of attempts to read a policy while another process replaces it.
const READS: usize = 10;

const REFUSED: &[Meaning] = &[
    meaning(
        Errno::PERM,
        Kind::NotPermitted,
        "rnbd_server was loaded with require_export_policy, and needs a policy",
        "to refuse all clients, load a policy without rules",
    ),
    meaning(
        Errno::INVAL,
        Kind::Failed,
        "the kernel refuses the policy, or another process is loading a policy",
        "see the kernel log: dmesg | tail",
    ),
    meaning(
        Errno::ADDRINUSE,
        Kind::Busy,
        "the policy is in force, but the server cannot listen: its port is in use",
        "load rnbd_server with another port_nr=, or end the program that uses the port",
    ),
];

/// Checks a policy; `name` is its file, for the error. Returns the number of its rules.
pub fn check(name: &Path, text: &[u8]) -> Result<usize> {
    export_policy::check(text).map_err(|error| {
        let place = format!("{}:{}", name.display(), error.line);
        Error::new(Kind::BadConfig, place, error.kind.to_string()).hint(
            "the old policy, if there is one, stays in force; server.md, which the package has \
                 in /usr/share/doc/rnbdctl, explains the rules",
        )
    })
}

/// Puts a policy in force, in place of the old policy; `file` is the kernel's file.
pub fn load(file: &Path, text: &[u8]) -> Result {
    const WHAT: &str = "loading the export policy";
    let whole = [
        format!("{} {}\n", Start::POLICY, text.len()).as_bytes(),
        text,
    ]
    .concat();
    let mut handle = match OpenOptions::new().write(true).open(file) {
        Ok(handle) => handle,
        Err(error) => return Err(cannot_open(WHAT, file, &error)),
    };
    // The kernel takes a page at a time.
    let log = KernelLog::begin();
    handle
        .write_all(&whole)
        .map_err(|error| explain(WHAT, &error, &[REFUSED]).kernel(log.lines()))
}

/// Removes the policy.
pub fn clear(file: &Path) -> Result {
    write("clearing the export policy", file, "clear", &[REFUSED])
}

/// The policy in force, if there is one.
pub fn read(file: &Path) -> Result<Option<Vec<u8>>> {
    const WHAT: &str = "reading the export policy";
    for _ in 0..READS {
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(cannot_open(WHAT, file, &error));
            }
            Err(error) => return Err(Error::io(WHAT, &error)),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        // Otherwise another process is replacing the policy.
        if let Ok(Start::Policy { len, text }) = Start::parse(&bytes) {
            if text.len() == len {
                return Ok(Some(text.to_vec()));
            }
        }
    }
    Err(Error::new(
        Kind::Failed,
        WHAT,
        "the kernel's file is not as expected",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_line() {
        let text = b"# x\nallow session=* client=ip:10.0.0.1/8 device=/dev/sda mode=ro\n";
        let error = check(Path::new("/etc/x"), text).unwrap_err();
        assert_eq!(error.kind(), Kind::BadConfig);
        assert_eq!(
            error.to_string(),
            "/etc/x:2: client=\"ip:10.0.0.1/8\" has bits set behind its prefix"
        );
    }

    #[test]
    fn what_is_loaded_is_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("export_policy");
        fs::write(&file, "").unwrap();
        assert_eq!(read(&file).unwrap(), None);
        let text = b"allow session=* client=* device=/** mode=ro\n".repeat(500);
        assert_eq!(check(&file, &text).unwrap(), 500);
        load(&file, &text).unwrap();
        assert!(fs::read(&file).unwrap().starts_with(b"policy 22000\nallow"));
        assert_eq!(read(&file).unwrap(), Some(text));
    }

    #[test]
    fn a_server_without_policies_says_so() {
        let missing = Path::new("/nonexistent/export_policy");
        for error in [
            read(missing).unwrap_err(),
            load(missing, b"").unwrap_err(),
            clear(missing).unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::NotFound);
        }
    }
}
