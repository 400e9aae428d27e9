// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance of this server.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use super::write;
use super::write::cannot_open;
use super::write::meaning;
use super::write::Meaning;
use crate::Error;
use crate::Kind;
use crate::Result;

const REFUSED: &[Meaning] = &[
    meaning(
        Errno::INVAL,
        Kind::Usage,
        "the kernel refuses the duration",
        "a drain takes at most one day",
    ),
    meaning(
        Errno::AGAIN,
        Kind::Busy,
        "the module is being loaded or unloaded",
        "try again",
    ),
];

/// The state of a server that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The rest of the drain, in seconds.
    pub left: u32,
    /// The sessions that are to leave by themselves.
    pub leaving: u32,
    /// The sessions of clients that do not know of drains.
    pub staying: u32,
}

/// Lets the server drain for `seconds`, 0 to end the drain; `file` is the kernel's file.
pub fn set(file: &Path, seconds: u32) -> Result {
    let what = match seconds {
        0 => "ending the drain",
        _ => "draining",
    };
    write::write(what, file, &seconds.to_string(), &[REFUSED])
}

/// The state of the drain; `None` if the server does not drain.
pub fn read(file: &Path) -> Result<Option<Draining>> {
    const WHAT: &str = "reading the state of the drain";
    let text = fs::read_to_string(file).map_err(|error| cannot_open(WHAT, file, &error))?;
    if text.trim_end() == "off" {
        return Ok(None);
    }
    match parse(&text) {
        Some(draining) => Ok(Some(draining)),
        None => Err(Error::new(
            Kind::Failed,
            WHAT,
            "the kernel's file is not as expected",
        )),
    }
}

fn parse(text: &str) -> Option<Draining> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut number = || numbers.next()?.ok();
    let draining = Draining {
        left: number()?,
        leaving: number()?,
        staying: number()?,
    };
    numbers.next().is_none().then_some(draining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drain");
        let says = |text: &str| {
            fs::write(&file, text).unwrap();
            read(&file)
        };
        assert_eq!(says("off\n").unwrap(), None);
        let draining = Draining {
            left: 598,
            leaving: 2,
            staying: 1,
        };
        assert_eq!(says("598 2 1\n").unwrap(), Some(draining));
        for text in ["", "598", "598 2", "598 2 1 7", "598 2 -1", "on\n"] {
            assert_eq!(says(text).unwrap_err().kind(), Kind::Failed, "{text:?}");
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(read(&file).unwrap_err().kind(), Kind::NotFound);
    }
}
