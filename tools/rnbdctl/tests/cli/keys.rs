// SPDX-License-Identifier: GPL-2.0

//! The key files.

use std::os::unix::fs::PermissionsExt;

use crate::fake::Fake;

const FILE: &str = "etc/rnbd/keys/clients/web1";

/// The numbers of a client's keys, from the oldest to the newest.
fn numbers(fake: &Fake, file: &str) -> Vec<String> {
    let text = fake.read(file);
    let keys = text
        .lines()
        .filter_map(|line| line.strip_prefix("rnbd-key-1:"));
    keys.map(|key| key[..8].to_owned()).collect()
}

#[test]
fn a_key_is_made_for_root_alone() {
    let fake = Fake::typical();
    let said = fake.ok(&["key", "new", "web1"]);
    assert!(said.contains("as /etc/rnbd/keys/own/web1"), "{said}");
    for (path, mode) in [
        (FILE, 0o600),
        ("etc/rnbd/keys", 0o700),
        ("etc/rnbd/keys/clients", 0o700),
    ] {
        let meta = std::fs::metadata(fake.path(path)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, mode, "{path}");
    }
    let text = fake.read(FILE);
    let key = text.lines().last().unwrap();
    let secret = key.split(':').nth(2).unwrap();
    assert!(
        said.contains(&numbers(&fake, FILE)[0]) && !said.contains(secret),
        "{said}"
    );
    let listed = fake.ok(&["key", "list"]);
    assert!(
        listed.contains("web1") && !listed.contains(secret),
        "{listed}"
    );
}

#[test]
fn keys_rotate() {
    let fake = Fake::typical();
    for _ in 0..3 {
        fake.ok(&["key", "new", "web1"]);
    }
    let made = numbers(&fake, FILE);
    assert_eq!(made.len(), 3);
    fake.ok(&["key", "remove", "web1", "--key", &made[0]]);
    assert_eq!(numbers(&fake, FILE), made[1..]);
    let missing = fake.run(&["key", "remove", "web1", "--key", &made[0]]);
    assert_eq!(missing.code, 3, "{missing:?}");
    let csv = fake.ok(&["key", "list", "-o", "csv"]);
    let newest: Vec<_> = csv.lines().filter(|line| line.contains(",true,")).collect();
    assert_eq!(newest.len(), 1, "{csv}");
    assert!(
        newest[0].starts_with(&format!("web1,client,{}", made[2])),
        "{csv}"
    );
    fake.ok(&["key", "remove", "web1"]);
    assert!(!fake.path(FILE).exists());
    assert_eq!(fake.run(&["key", "remove", "web1"]).code, 3);
}

#[test]
fn own_keys_name_their_servers() {
    let fake = Fake::typical();
    let servers = ["--server", "ip:192.0.2.1", "--server", "gid:fe80::1"];
    fake.ok(&[&["key", "new", "me", "--own"], &servers[..]].concat());
    fake.ok(&["key", "new", "me", "--own", "--server", "ip:192.0.2.1"]);
    let text = fake.read("etc/rnbd/keys/own/me");
    assert_eq!(text.matches("server ip:192.0.2.1\n").count(), 1, "{text}");
    assert_eq!(text.matches("server gid:").count(), 1, "{text}");
    assert_eq!(numbers(&fake, "etc/rnbd/keys/own/me").len(), 2);
    let wrong = fake.run(&["key", "new", "me", "--server", "ip:192.0.2.1"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

#[test]
fn what_is_wrong_is_named() {
    let fake = Fake::typical();
    for (id, reason) in [
        ("a/b", "contains '/'"),
        (".a", "begins with '.'"),
        ("", "is empty"),
    ] {
        let wrong = fake.run(&["key", "new", id]);
        assert_eq!(wrong.code, 2, "{wrong:?}");
        assert!(wrong.stderr.contains(reason), "{wrong:?}");
    }
    fake.ok(&["key", "new", "web1"]);
    let good = fake.read(FILE);
    fake.write(FILE, &good.replace("rnbd-key-1:", "rnbd-key-1:0"));
    let wrong = fake.run(&["key", "list"]);
    assert_eq!(wrong.code, 9, "{wrong:?}");
    assert!(
        wrong
            .stderr
            .contains("clients/web1:2: the key is 94 bytes long"),
        "{wrong:?}"
    );
    std::fs::set_permissions(fake.path(FILE), PermissionsExt::from_mode(0o640)).unwrap();
    let wrong = fake.run(&["key", "list"]);
    assert_eq!(wrong.code, 9, "{wrong:?}");
    assert!(wrong.stderr.contains("users other than"), "{wrong:?}");
}
