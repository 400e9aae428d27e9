// SPDX-License-Identifier: GPL-2.0

//! The line written to `map_device`: `name=value` options between spaces.
//!
//! As the C client takes it, except that here
//! - an option given twice is an error (in C the last one counts); only `path`
//!   may be repeated, up to [`MAX_PATHS`] times,
//! - `dest_port` is for all paths, wherever it stands (in C only for those
//!   behind it),
//! - names of 255 bytes are too long (in C they are cut to 254),
//! - so are names that make the name of the device's link in sysfs longer than
//!   a file's may be (in C it is).

use core::fmt;

use crate::{
    addr::{
        AddrError,
        PathAddress, //
    },
    name::{
        Name,
        NameError,
        SessName, //
    },
    rnbd::AccessMode,
    sysfs_name,
    text::{
        impl_message,
        write_untrusted, //
    },
    Errno,
    NAME_MAX,
    RTRS_PORT, //
};

/// The most paths of one line.
pub const MAX_PATHS: usize = 6;

/// A checked line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// `sessname=`
    pub sessname: SessName,
    /// `device_path=`
    pub device_path: Name,
    /// `access_mode=`, read-write if not given.
    pub access_mode: AccessMode,
    /// `dest_port=`, 1234 if not given.
    pub dest_port: u16,
    /// `nr_poll_queues=`, 0 if not given, at most the number of CPUs.
    pub nr_poll_queues: u32,
    paths: [Option<PathAddress>; MAX_PATHS],
}

impl MapOptions {
    /// `path=`, in the order given. May be empty; then the session must exist,
    /// or the answer is `ENXIO`.
    pub fn paths(&self) -> impl Iterator<Item = &PathAddress> + Clone + '_ {
        self.paths.iter().flatten()
    }
}

/// The options, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opt {
    /// `path`
    Path,
    /// `device_path`
    DevicePath,
    /// `dest_port`
    DestPort,
    /// `access_mode`
    AccessMode,
    /// `sessname`
    Sessname,
    /// `nr_poll_queues`
    NrPollQueues,
}

impl Opt {
    const ALL: [Self; 6] = [
        Self::Path,
        Self::DevicePath,
        Self::DestPort,
        Self::AccessMode,
        Self::Sessname,
        Self::NrPollQueues,
    ];

    /// The name, without `=`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::DevicePath => "device_path",
            Self::DestPort => "dest_port",
            Self::AccessMode => "access_mode",
            Self::Sessname => "sessname",
            Self::NrPollQueues => "nr_poll_queues",
        }
    }
}

/// What is wrong with a line; borrows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError<'a> {
    /// There is no such option; the whole word.
    Unknown(&'a [u8]),
    /// The option has no value.
    NoValue(Opt),
    /// The option is given twice.
    Doubled(Opt),
    /// A mandatory option is missing.
    Missing(Opt),
    /// More than [`MAX_PATHS`] paths.
    TooManyPaths,
    /// The session's name or the device's path is not acceptable.
    BadName(Opt, NameError),
    /// The name of the device's link in sysfs, which has both names in it,
    /// would have this many bytes.
    LongLink(usize),
    /// The value of `path` is not acceptable.
    BadPath(AddrError<'a>),
    /// The value is no number, or out of range.
    BadNumber {
        /// The option.
        opt: Opt,
        /// Its value.
        value: &'a [u8],
        /// The smallest number.
        min: i64,
        /// The largest number.
        max: i64,
    },
    /// The value of `access_mode` is none of the three.
    BadAccessMode(&'a [u8]),
}

impl MapError<'_> {
    /// What the C modules return for what they refuse.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooManyPaths => Errno::ENOMEM,
            Self::LongLink(_) => Errno::ENAMETOOLONG,
            Self::BadPath(error) => error.errno(),
            _ => Errno::EINVAL,
        }
    }

    /// Writes what was wrong, naming the option.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let quoted = |out: &mut _, bytes| write_quoted(out, bytes);
        match self {
            Self::Unknown(word) => {
                out.write_str("unknown option ")?;
                quoted(out, word)
            }
            Self::NoValue(opt) => write!(out, "{}= has no value", opt.as_str()),
            Self::Doubled(opt) => write!(out, "{}= is given twice", opt.as_str()),
            Self::Missing(opt) => write!(out, "{}= is missing", opt.as_str()),
            Self::TooManyPaths => write!(out, "more than {MAX_PATHS} path= options"),
            Self::BadName(opt, error) => {
                write!(out, "{}= ", opt.as_str())?;
                error.write_to(out)
            }
            Self::LongLink(len) => write!(
                out,
                "device_path= and sessname= make a link's name too long ({len} bytes, at most {NAME_MAX})"
            ),
            Self::BadPath(error) => {
                out.write_str("path=: ")?;
                error.write_to(out)
            }
            Self::BadNumber {
                opt,
                value,
                min,
                max,
            } => {
                write!(out, "{}= must be {min} to {max}, not ", opt.as_str())?;
                quoted(out, value)
            }
            Self::BadAccessMode(value) => {
                out.write_str("access_mode= must be ro, rw or migration, not ")?;
                quoted(out, value)
            }
        }
    }
}

impl_message!(MapError<'a>);

fn write_quoted(out: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    out.write_str("\"")?;
    write_untrusted(out, bytes)?;
    out.write_str("\"")
}

/// Checks a line; `nr_cpus` is the kernel's `nr_cpu_ids`.
///
/// White space around the line, such as its newline, does not count; between
/// options only spaces do.
pub fn parse(line: &[u8], nr_cpus: u32) -> Result<MapOptions, MapError<'_>> {
    // The text ends at a NUL, as a C string does.
    let line = line.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let mut given = Given::default();
    let words = line.trim_ascii().split(|&byte| byte == b' ');
    for word in words.filter(|word| !word.is_empty()) {
        let (opt, value) = split_option(word)?;
        given.add(opt, value, nr_cpus)?;
    }
    given.finish()
}

/// The options of a line so far, their values checked.
///
/// Names are copied at the end only, and the steps are functions of their own:
/// the values are large for a kernel's stack.
#[derive(Default)]
struct Given<'a> {
    sessname: Option<&'a [u8]>,
    device_path: Option<&'a [u8]>,
    access_mode: Option<AccessMode>,
    dest_port: Option<u16>,
    nr_poll_queues: Option<u32>,
    paths: [Option<PathAddress>; MAX_PATHS],
}

impl<'a> Given<'a> {
    #[inline(never)]
    fn add(&mut self, opt: Opt, value: &'a [u8], nr_cpus: u32) -> Result<(), MapError<'a>> {
        if value.is_empty() {
            return Err(MapError::NoValue(opt));
        }
        let doubled = match opt {
            Opt::Path => {
                let slot = self.paths.iter_mut().find(|slot| slot.is_none());
                let slot = slot.ok_or(MapError::TooManyPaths)?;
                *slot = Some(PathAddress::parse(value).map_err(MapError::BadPath)?);
                false
            }
            Opt::Sessname => {
                SessName::check(value).map_err(|e| MapError::BadName(opt, e))?;
                self.sessname.replace(value).is_some()
            }
            Opt::DevicePath => {
                Name::check(value).map_err(|e| MapError::BadName(opt, e))?;
                self.device_path.replace(value).is_some()
            }
            Opt::AccessMode => {
                let mode = AccessMode::from_name(value).ok_or(MapError::BadAccessMode(value))?;
                self.access_mode.replace(mode).is_some()
            }
            Opt::DestPort => {
                let port = parse_number(value).and_then(|port| u16::try_from(port).ok());
                let port = port.ok_or(MapError::BadNumber {
                    opt,
                    value,
                    min: 0,
                    max: u16::MAX.into(),
                })?;
                self.dest_port.replace(port).is_some()
            }
            Opt::NrPollQueues => {
                let nr = match parse_number(value) {
                    Some(-1) => Some(nr_cpus),
                    Some(nr) => u32::try_from(nr).ok().filter(|&nr| nr <= nr_cpus),
                    None => None,
                };
                let nr = nr.ok_or(MapError::BadNumber {
                    opt,
                    value,
                    min: -1,
                    max: nr_cpus.into(),
                })?;
                self.nr_poll_queues.replace(nr).is_some()
            }
        };
        if doubled {
            return Err(MapError::Doubled(opt));
        }
        Ok(())
    }

    #[inline(never)]
    fn finish(&self) -> Result<MapOptions, MapError<'a>> {
        let missing = MapError::Missing;
        let device_path = self.device_path.ok_or(missing(Opt::DevicePath))?;
        let sessname = self.sessname.ok_or(missing(Opt::Sessname))?;
        let link = sysfs_name::device_link_len(device_path, sessname);
        if link > NAME_MAX {
            return Err(MapError::LongLink(link));
        }
        Ok(MapOptions {
            device_path: Name::from_checked(device_path),
            sessname: SessName::from_checked(sessname),
            access_mode: self.access_mode.unwrap_or(AccessMode::Rw),
            dest_port: self.dest_port.unwrap_or(RTRS_PORT),
            nr_poll_queues: self.nr_poll_queues.unwrap_or(0),
            paths: self.paths,
        })
    }
}

/// The option of a word, and its value.
fn split_option(word: &[u8]) -> Result<(Opt, &[u8]), MapError<'_>> {
    for opt in Opt::ALL {
        let Some(rest) = word.strip_prefix(opt.as_str().as_bytes()) else {
            continue;
        };
        if rest.is_empty() {
            return Err(MapError::NoValue(opt));
        }
        if let Some(value) = rest.strip_prefix(b"=") {
            return Ok((opt, value));
        }
    }
    Err(MapError::Unknown(word))
}

/// A number as C takes it here (`simple_strtol` with base 0): decimal, `0x` and
/// hexadecimal, or `0` and octal, with at most one `-` in front.
fn parse_number(text: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // `from_str_radix` takes a sign of its own.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let number = i64::from(u32::from_str_radix(digits, radix).ok()?);
    Some(if negative {
        number.checked_neg()?
    } else {
        number
    })
}
