// SPDX-License-Identifier: GPL-2.0

//! The options of a test, as the text that is written to the file `run`.

use super::PORT;
use crate::{
    addr::PathAddress,
    number, //
};

/// The most requests by which the latency of a size is measured.
pub const MAX_REQUESTS: u32 = 100_000;

/// The most MiB that are transferred for the bandwidth.
pub const MAX_MIB: u32 = 1 << 20;

/// The options of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The way to the server.
    pub path: PathAddress,
    /// The port of the transport part.
    pub port: u16,
    /// Requests by which the latency of each size and direction is measured, 1 to
    /// [`MAX_REQUESTS`].
    pub requests: u32,
    /// MiB that are transferred in each direction for the bandwidth, 1 to [`MAX_MIB`].
    pub mib: u32,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// There is no `path=`.
    NoPath,
    /// The address is malformed.
    BadPath,
    /// A number is malformed or out of range.
    BadNumber,
    /// A word is no option.
    Unknown,
}

impl OptionsError {
    /// The reason, in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoPath => "there is no path=ADDRESS",
            Self::BadPath => "path= is not followed by an address such as ip:192.0.2.10",
            Self::BadNumber => "a number is out of range (port, requests, mib)",
            Self::Unknown => "a word is none of path=, port=, requests=, mib=",
        }
    }
}

fn ranged(text: &[u8], most: u32) -> Result<u32, OptionsError> {
    let value = number::from_digits::<u32>(text).ok_or(OptionsError::BadNumber)?;
    match value {
        0 => Err(OptionsError::BadNumber),
        _ if value > most => Err(OptionsError::BadNumber),
        _ => Ok(value),
    }
}

impl Options {
    /// Parses words with spaces between them: `path=[SOURCE@]ADDRESS`, and perhaps `port=`,
    /// `requests=` and `mib=`. Of two words with the same name the last counts.
    pub fn parse(text: &[u8]) -> Result<Self, OptionsError> {
        let (mut path, mut port, mut requests, mut mib) = (None, PORT, 1000, 32);
        for word in text.split(u8::is_ascii_whitespace) {
            if word.is_empty() {
                continue;
            }
            if let Some(value) = word.strip_prefix(b"path=") {
                path = Some(PathAddress::parse(value).map_err(|_| OptionsError::BadPath)?);
            } else if let Some(value) = word.strip_prefix(b"port=") {
                let value = ranged(value, u32::from(u16::MAX))?;
                port = u16::try_from(value).map_err(|_| OptionsError::BadNumber)?;
            } else if let Some(value) = word.strip_prefix(b"requests=") {
                requests = ranged(value, MAX_REQUESTS)?;
            } else if let Some(value) = word.strip_prefix(b"mib=") {
                mib = ranged(value, MAX_MIB)?;
            } else {
                return Err(OptionsError::Unknown);
            }
        }
        Ok(Self {
            path: path.ok_or(OptionsError::NoPath)?,
            port,
            requests,
            mib,
        })
    }
}
