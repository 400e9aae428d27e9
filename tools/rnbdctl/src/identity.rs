// SPDX-License-Identifier: GPL-2.0

//! The names that this machine gives to its sessions.
//!
//! A server knows a client by the names of its sessions, and refuses a session whose name another
//! client uses. A name that works on each client therefore contains the host's name. Machines that
//! were copied, or that never got a name, have the same host name, so the name also contains a
//! number that is made of the machine's id.

use std::fs;

use crate::System;

/// Stands for the host name of a machine without one.
const NO_NAME: &str = "host";

/// The most bytes of the host's and of the server's name in a session's name. With the path of the
/// disk, a session's name becomes the name of a link, which has at most 255 bytes.
const MAX_PART: usize = 48;

/// The files that may have a machine's id. The id that lasts longest comes first.
const IDS: [&str; 3] = [
    "etc/machine-id",
    "sys/module/rnbd_client/parameters/host_uuid",
    "proc/sys/kernel/random/boot_id",
];

/// The name of this machine's session with `server`, as `web1-3fa2c1-storage1`.
///
/// The name is the same each time, and differs between machines. `purpose` tells sessions with the
/// same server apart; it may be empty.
pub fn session_name(system: &System, server: &str, purpose: &str) -> String {
    let host = read(system, "proc/sys/kernel/hostname");
    name(host.trim(), id(system).as_deref(), server, purpose)
}

/// Returns the key by which this machine reserves disks: a number of 63 bits that is made of its
/// id, and is not 0.
///
/// The key is the same each time, and differs between machines that have an id. All machines
/// without an id have the same key.
pub fn key(system: &System) -> u64 {
    let id = id(system).unwrap_or_default();
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // blkpr parses a key as a size, which has 63 bits.
    (hash >> 1).max(1)
}

/// Returns this machine's id; `None` if it has none.
fn id(system: &System) -> Option<String> {
    let ids = IDS.iter().map(|file| read(system, file));
    ids.map(|id| id.trim().to_owned()).find(|id| is_id(id))
}

fn read(system: &System, file: &str) -> String {
    fs::read_to_string(system.file(file)).unwrap_or_default()
}

/// The purpose of a session, which tells it from other sessions with the same server: a port other
/// than the usual port, and the disk that has a session of its own for polled IO.
pub fn purpose(port: Option<u16>, polled: Option<&str>) -> String {
    let port = port.map(|port| port.to_string());
    let words = [port.as_deref(), polled];
    words.into_iter().flatten().collect::<Vec<_>>().join("-")
}

/// Whether the text is an id. These files have other words while there is no id.
fn is_id(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().any(|byte| byte != b'0' && byte != b'-')
}

fn name(host: &str, id: Option<&str>, server: &str, purpose: &str) -> String {
    let host = part(host.split('.').next().unwrap_or_default());
    let mut name = match host.as_str() {
        "" => NO_NAME.to_owned(),
        _ => host,
    };
    if let Some(id) = id {
        name.push_str(&format!("-{:06x}", number(id)));
    }
    for more in [server, purpose].map(part) {
        if !more.is_empty() {
            name.push('-');
            name.push_str(&more);
        }
    }
    name
}

/// The part of a name that goes into a session's name: letters and digits, with `-` for everything
/// between them.
fn part(text: &str) -> String {
    let mut part = String::new();
    for c in text.chars() {
        match c {
            _ if part.len() >= MAX_PART => break,
            'A'..='Z' | 'a'..='z' | '0'..='9' | '_' => part.push(c.to_ascii_lowercase()),
            _ if part.is_empty() || part.ends_with('-') => (),
            _ => part.push('-'),
        }
    }
    part.trim_end_matches('-').to_owned()
}

/// A number of 24 bits made of an id (FNV-1a). Servers do not get the id itself, since programs
/// treat it as a secret.
fn number(id: &str) -> u32 {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash >> 24) ^ (hash & 0x00ff_ffff)
}

#[cfg(test)]
mod tests {
    use proto::name::SessName;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_of_the_host_and_the_server() {
        for (host, server, purpose, expected) in [
            ("web1", "storage1", "", "web1-NUMBER-storage1"),
            (
                "Web1.example.com",
                "192.0.2.10",
                "",
                "web1-NUMBER-192-0-2-10",
            ),
            ("web1", "fe80::1%eth0", "", "web1-NUMBER-fe80-1-eth0"),
            ("", "storage1", "4321", "host-NUMBER-storage1-4321"),
            ("(none)", "s", "", "none-NUMBER-s"),
        ] {
            let made = name(host, Some(ID), server, purpose);
            let same = expected.replace("NUMBER", &format!("{:06x}", number(ID)));
            assert_eq!(made, same);
            assert!(SessName::new(made.as_bytes()).is_ok(), "{made}");
        }
        assert_eq!(name("web1", None, "storage1", ""), "web1-storage1");
        let long = name(
            &"h".repeat(300),
            Some(ID),
            &"s".repeat(300),
            &"p".repeat(300),
        );
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn machines_of_one_name_have_other_numbers() {
        let other = ID.replace('7', "8");
        assert_ne!(number(ID), number(&other));
        assert!(number(ID) < 1 << 24 && number(&other) < 1 << 24);
    }

    #[test]
    fn the_id_that_lasts_longest_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let system = System::new(Some(root.path()), None);
        assert_eq!(session_name(&system, "s", ""), "host-s");
        write("proc/sys/kernel/hostname", "web1\n");
        write(
            "proc/sys/kernel/random/boot_id",
            "01234567-89ab-cdef-0123-456789abcde0\n",
        );
        let by_boot = session_name(&system, "s", "");
        assert!(
            by_boot.starts_with("web1-") && by_boot.ends_with("-s"),
            "{by_boot}"
        );
        write("etc/machine-id", "uninitialized\n");
        assert_eq!(session_name(&system, "s", ""), by_boot);
        write("etc/machine-id", &format!("{ID}\n"));
        let lasting = session_name(&system, "s", "");
        assert_eq!(lasting, format!("web1-{:06x}-s", number(ID)));
        assert_ne!(lasting, by_boot);
    }

    #[test]
    fn each_machine_has_a_key_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let none = key(&system);
        let file = root.path().join("etc/machine-id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("{ID}\n")).unwrap();
        let first = key(&system);
        assert_eq!(key(&system), first);
        fs::write(&file, format!("{}\n", ID.replace('7', "8"))).unwrap();
        let second = key(&system);
        assert!(first != second && first != none, "{first} {second} {none}");
        assert!([none, first, second]
            .iter()
            .all(|&key| key > 0 && key >> 63 == 0));
    }
}
