// SPDX-License-Identifier: GPL-2.0

//! The names of mirrors and of their legs.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// The home host that md writes on every leg, in front of the mirror's name.
///
/// No machine has this name, so `mdadm` takes a leg for part of another machine's array, on every
/// machine. For such an array `mdadm` never starts its timer that assembles incomplete arrays. The
/// udev rules recognise a leg by this name.
pub const HOME_HOST: &str = "rnbd-mirror";

/// The longest name of a mirror, in bytes. md has 32 bytes for home host, colon and name, and
/// `mdadm` leaves the home host out if no byte is to spare.
pub const MAX_NAME: usize = 19;

/// The name of a mirror.
///
/// # Invariants
///
/// The name has 1 to [`MAX_NAME`] ASCII letters, digits, `-` and `_`, and begins with a letter. So
/// the name can be a file's name and an md name, and is not the number of an md device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MirrorName(String);

impl MirrorName {
    /// Returns the name `text`. The error is a message that states the rule for names.
    pub fn new(text: &str) -> Result<Self, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if begins && text.len() <= MAX_NAME && text.chars().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "\"{}\" is no name of a mirror: a name has 1 to {MAX_NAME} ASCII letters, digits, - \
             and _, and begins with a letter",
            text.escape_debug()
        ))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the mirror's device node, `/dev/md/NAME`, which exists while the mirror runs.
    pub fn node(&self) -> String {
        format!("/dev/md/{}", self.0)
    }
}

impl fmt::Display for MirrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for MirrorName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::new(&text)
    }
}

impl From<MirrorName> for String {
    fn from(name: MirrorName) -> Self {
        name.0
    }
}

/// The name of a leg: the disk's path at the server, and the session that has mapped the disk.
///
/// The name stays the same when the mapped device gets another number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegName {
    /// The disk's path at the server, as the mapping gives it.
    pub disk: String,
    /// The session's name.
    pub session: String,
}

impl LegName {
    /// Parses `DISK@SESSION`, split at the last `@`. `None` if a part is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (disk, session) = text.rsplit_once('@')?;
        (!disk.is_empty() && !session.is_empty()).then(|| Self {
            disk: disk.to_owned(),
            session: session.to_owned(),
        })
    }
}

impl fmt::Display for LegName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.disk, self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_md_and_files_take() {
        for (text, is_name) in [
            ("db", true),
            ("Db-1_x", true),
            ("a234567890123456789", true),
            ("a2345678901234567890", false),
            ("", false),
            ("0", false),
            ("127", false),
            ("-a", false),
            ("a.b", false),
            ("a/b", false),
            ("a b", false),
            ("ä", false),
        ] {
            let name = MirrorName::new(text);
            assert_eq!(name.is_ok(), is_name, "{text:?}: {name:?}");
        }
        let longest = "a".repeat(MAX_NAME);
        assert!(HOME_HOST.len() + 1 + longest.len() < 32);
    }

    #[test]
    fn a_leg_is_a_disk_of_a_session() {
        let leg = LegName::parse("/dev/x@y@storage1").unwrap();
        assert_eq!(
            (leg.disk.as_str(), leg.session.as_str()),
            ("/dev/x@y", "storage1")
        );
        assert_eq!(leg.to_string(), "/dev/x@y@storage1");
        for text in ["", "a", "@a", "a@", "@"] {
            assert_eq!(LegName::parse(text), None, "{text:?}");
        }
    }
}
