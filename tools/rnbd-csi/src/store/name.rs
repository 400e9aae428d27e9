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
/// The same of the leg of a mirrored volume. It is no volume of its server.
const LEG: &str = "csim-";
const LEG_DIGITS: &str = "csimh-";
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

/// What a leg of the mirrored volume of that name is called, at each server.
pub(crate) fn of_leg(name: &str) -> String {
    with(LEG, LEG_DIGITS, name)
}

fn with(plain: &str, digits: &str, name: &str) -> String {
    match is_plain(name) {
        true => format!("{plain}{name}"),
        false => {
            let digest = Sha256::digest(name.as_bytes());
            let bytes = digest.iter().take(DIGEST_BYTES);
            bytes.fold(digits.to_owned(), |text, byte| format!("{text}{byte:02x}"))
        }
    }
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
    is_with(LEG, LEG_DIGITS, stored)
}

fn is_with(plain: &str, digits: &str, stored: &str) -> bool {
    match (stored.strip_prefix(plain), stored.strip_prefix(digits)) {
        (Some(name), _) => is_plain(name),
        (None, Some(digits)) => {
            digits.len() == 2 * DIGEST_BYTES
                && digits
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        }
        (None, None) => false,
    }
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
            let leg = of_leg(name);
            assert!(is_ours(&leg) && is_leg(&leg) && !is_leg(&of(name)), "{leg}");
            assert_ne!(leg, of(name));
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
