// SPDX-License-Identifier: GPL-2.0

//! What volumes are called where they are kept.
//!
//! An orchestrator gives a name of up to 128 bytes of nearly any characters. Files and logical
//! volumes, and the ids of volumes, can have less. So a name that is not short and plain is
//! replaced by its SHA-256. The same name gives the same result each time: that is what makes the
//! creation of a volume idempotent.

use sha2::Digest;
use sha2::Sha256;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::volume::needed;

/// The most bytes of a name (the specification's limit of a string).
const MAX_NAME: usize = 128;
/// The most bytes of a name that is taken as it is. The device mapper doubles each hyphen, and has
/// 127 bytes for the names of a volume and of its group.
const MAX_PLAIN: usize = 40;
/// Before a name that is taken as it is.
const PLAIN: &str = "csi-";
/// Before the digits in place of another one. No name of the other kind begins so.
const DIGITS: &str = "csih-";
/// The same of the leg of a mirrored volume. The leg is no volume of its server. Behind this come
/// the digits of the volume's servers, and a hyphen.
const LEG: &str = "csim-";
const LEG_DIGITS: &str = "csimh-";
/// How many bytes of the SHA-256 of the servers' names are taken.
const SERVERS_BYTES: usize = 4;
/// How many bytes of the SHA-256 are taken.
const DIGEST_BYTES: usize = 20;

/// An error if no volume can have that name.
pub(crate) fn check(name: &str) -> Result {
    needed("name", name)?;
    if name.len() > MAX_NAME {
        let why = format!("name has {} bytes, at most {MAX_NAME}", name.len());
        return Err(Status::invalid(why));
    }
    match name.chars().any(is_banned) {
        true => Err(Status::invalid("name has control characters")),
        false => Ok(()),
    }
}

fn is_banned(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// What the volume of that name is called.
pub(crate) fn of(name: &str) -> String {
    with(PLAIN, DIGITS, name)
}

/// What a leg of the mirrored volume of that name is called, at each of its servers. `servers` are
/// their names, as the volume's id has them. So two volumes of one name that differ in a server
/// share no leg: the deletion of one volume would delete a leg of the other volume.
pub(crate) fn of_leg(name: &str, servers: &str) -> String {
    let servers = digits(servers, SERVERS_BYTES);
    with(
        &format!("{LEG}{servers}-"),
        &format!("{LEG_DIGITS}{servers}-"),
        name,
    )
}

fn with(plain: &str, hashed: &str, name: &str) -> String {
    match is_plain(name) {
        true => format!("{plain}{name}"),
        false => format!("{hashed}{}", digits(name, DIGEST_BYTES)),
    }
}

/// The first bytes of the SHA-256 of a text, as digits.
fn digits(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().take(bytes).map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn is_plain(name: &str) -> bool {
    (1..=MAX_PLAIN).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Whether [`of`] or [`of_leg`] can give that.
pub(crate) fn is_ours(stored: &str) -> bool {
    is_with(PLAIN, DIGITS, stored) || is_leg(stored)
}

/// Whether [`of_leg`] can give that.
pub(crate) fn is_leg(stored: &str) -> bool {
    let rest = [LEG, LEG_DIGITS].map(|beginning| {
        let (servers, name) = stored.strip_prefix(beginning)?.split_once('-')?;
        is_digits(servers, SERVERS_BYTES).then_some(name)
    });
    match rest {
        [Some(name), _] => is_plain(name),
        [None, Some(digits)] => is_digits(digits, DIGEST_BYTES),
        [None, None] => false,
    }
}

/// Whether [`of_leg`] can give that for a volume on these servers.
pub(crate) fn is_leg_of(stored: &str, servers: &str) -> bool {
    let servers = digits(servers, SERVERS_BYTES);
    let own = [LEG, LEG_DIGITS].map(|beginning| format!("{beginning}{servers}-"));
    is_leg(stored) && own.iter().any(|own| stored.starts_with(own))
}

fn is_with(plain: &str, hashed: &str, stored: &str) -> bool {
    match (stored.strip_prefix(plain), stored.strip_prefix(hashed)) {
        (Some(name), _) => is_plain(name),
        (None, Some(digits)) => is_digits(digits, DIGEST_BYTES),
        (None, None) => false,
    }
}

/// Whether a text is so many bytes as [`digits`] gives them.
fn is_digits(text: &str, bytes: usize) -> bool {
    Some(text.len()) == bytes.checked_mul(2)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_each_time_and_different() {
        let pvc = "pvc-7e2f9f3c-8d6f-4c39-9a55-2f1de2f8f9b1";
        assert_eq!(of(pvc), format!("csi-{pvc}"));
        let names = [
            "a",
            "A",
            "a b",
            "a/b",
            "../a",
            ".",
            "\u{e4}",
            &"x".repeat(128),
            "a\n",
        ];
        let mut stored: Vec<_> = names.iter().map(|name| of(name)).collect();
        for stored in &stored {
            assert!(is_ours(stored) && stored.len() < 50, "{stored}");
            assert!(!stored.contains(['/', ' ']), "{stored}");
        }
        stored.sort();
        stored.dedup();
        assert_eq!(stored.len(), names.len());
        for name in names {
            let leg = of_leg(name, "a+b");
            assert!(is_ours(&leg) && is_leg(&leg) && !is_leg(&of(name)), "{leg}");
            assert!(leg.len() < 60 && leg != of(name), "{leg}");
            assert!(is_leg_of(&leg, "a+b") && !is_leg_of(&leg, "a+c"), "{leg}");
            assert_ne!(leg, of_leg(name, "a+c"));
        }
        // A name that looks like the result of another one has a result of its own.
        assert_ne!(of(&of("a b")), of("a b"));
    }

    #[test]
    fn others_are_not_ours() {
        for name in [
            "",
            "www",
            "csi-",
            "csi-a.new",
            "csih-12",
            "csi-A",
            "csim-a",
            "csim-0123456-a",
            "csimh-01234567-a",
            ".csi-a.new",
        ] {
            assert!(!is_ours(name), "{name:?}");
        }
    }

    #[test]
    fn names_that_no_volume_can_have() {
        assert!(check("pvc-1").is_ok() && check(&"x".repeat(128)).is_ok());
        assert!(check("tab\tis fine").is_ok());
        for bad in ["", "a\0", "a\u{7f}", "a\u{85}", &"x".repeat(129)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}
