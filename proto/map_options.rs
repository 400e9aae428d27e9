// SPDX-License-Identifier: GPL-2.0

//! The line written to `map_device`: `name=value` options between spaces.
//!
//! The line is as for the C client, with these differences:
//! - an option given twice is an error (in C the last counts), except that `path` may be repeated,
//!   up to [`MAX_PATHS`] times,
//! - `dest_port` applies to all paths, wherever it stands (in C only to paths behind it),
//! - `io_mode` says how the server reads and writes the disk (C does not have this option),
//! - names of 255 bytes are too long (C cuts them to 254),
//! - so are names for which the name of the device's link in sysfs would be longer than a file name
//!   (C accepts them).
//!
//! Documentation/changing.md lists the other files that a new option touches.

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
    number::{
        self,
        Base, //
    },
    numbered::numbered,
    rnbd::{
        AccessMode,
        IoMode, //
    },
    sysfs_name,
    text::{
        impl_error,
        Untrusted, //
    },
    Errno,
    NAME_MAX,
    RTRS_PORT, //
};

/// The most paths of one line.
pub const MAX_PATHS: usize = 6;

/// The part of a checked line that is about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// `sessname=`
    pub sessname: SessName,
    /// `dest_port=`, 1234 if not given.
    pub dest_port: u16,
    /// `nr_poll_queues=`, 0 if not given, at most the number of CPUs.
    pub nr_poll_queues: u32,
    paths: [Option<PathAddress>; MAX_PATHS],
}

/// A checked line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// The options of the session.
    pub session: SessionOptions,
    /// `device_path=`
    pub device_path: Name,
    /// `access_mode=`, read-write if not given.
    pub access_mode: AccessMode,
    /// `io_mode=`, an extension. If it is not given, the server chooses; see
    /// [`Open::io_mode`](crate::rnbd::Open::io_mode).
    pub io_mode: Option<IoMode>,
}

impl core::ops::Deref for MapOptions {
    type Target = SessionOptions;

    fn deref(&self) -> &SessionOptions {
        &self.session
    }
}

impl SessionOptions {
    /// `path=`, in the order given. Without a path the session must exist, or mapping fails with
    /// `ENXIO`.
    pub fn paths(&self) -> impl Iterator<Item = &PathAddress> + Clone + '_ {
        self.paths.iter().flatten()
    }
}

numbered! {
    /// The options; the names are those before `=`.
    pub enum Opt: u8 {
        /// A path of the session.
        Path = 0, "path";
        /// The path of the device at the server.
        DevicePath = 1, "device_path";
        /// The port of the server.
        DestPort = 2, "dest_port";
        /// How the device is opened.
        AccessMode = 3, "access_mode";
        /// The name of the session.
        Sessname = 4, "sessname";
        /// The number of connections that are polled.
        NrPollQueues = 5, "nr_poll_queues";
        /// How the server reads and writes the disk.
        IoMode = 6, "io_mode";
    }
}

/// Why a line is refused; borrows from the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError<'a> {
    /// There is no option with this name; holds the whole word.
    Unknown(&'a [u8]),
    /// The option has no value.
    NoValue(Opt),
    /// The option is given twice.
    Doubled(Opt),
    /// A mandatory option is missing.
    Missing(Opt),
    /// The option is about a device, but the line may only be about a session.
    NotHere(Opt),
    /// The line has more than [`MAX_PATHS`] paths.
    TooManyPaths,
    /// The session's name or the device's path is not acceptable.
    BadName(Opt, NameError),
    /// The name of the device's link in sysfs, which contains both names, would have this many
    /// bytes.
    LongLink(usize),
    /// The value of `path` is not acceptable.
    BadPath(AddrError<'a>),
    /// The value is not a number, or is out of range.
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
    /// The value of `access_mode` is not `ro`, `rw` or `migration`.
    BadAccessMode(&'a [u8]),
    /// The value of `io_mode` is neither `direct` nor `buffered`.
    BadIoMode(&'a [u8]),
}

impl MapError<'_> {
    /// The error number, as in the C modules where they refuse the same.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooManyPaths => Errno::ENOMEM,
            Self::LongLink(_) => Errno::ENAMETOOLONG,
            Self::BadPath(error) => error.errno(),
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for MapError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "unknown option \"{}\"", Untrusted(word)),
            Self::NoValue(opt) => write!(f, "{}= has no value", opt.as_str()),
            Self::Doubled(opt) => write!(f, "{}= is given twice", opt.as_str()),
            Self::Missing(opt) => write!(f, "{}= is missing", opt.as_str()),
            Self::NotHere(opt) => write!(f, "{}= is not an option here", opt.as_str()),
            Self::TooManyPaths => write!(f, "more than {MAX_PATHS} path= options"),
            Self::BadName(opt, error) => write!(f, "{}= {error}", opt.as_str()),
            Self::LongLink(len) => write!(
                f,
                "device_path= and sessname= make a link's name too long ({len} bytes, at most \
                 {NAME_MAX})"
            ),
            Self::BadPath(error) => write!(f, "path=: {error}"),
            Self::BadNumber {
                opt,
                value,
                min,
                max,
            } => {
                let (opt, value) = (opt.as_str(), Untrusted(value));
                write!(f, "{opt}= must be {min} to {max}, not \"{value}\"")
            }
            Self::BadAccessMode(value) => write!(
                f,
                "access_mode= must be ro, rw or migration, not \"{}\"",
                Untrusted(value)
            ),
            Self::BadIoMode(value) => write!(
                f,
                "io_mode= must be direct or buffered, not \"{}\"",
                Untrusted(value)
            ),
        }
    }
}

impl_error!(MapError<'a>);

/// Checks a line; `nr_cpus` is the kernel's `nr_cpu_ids`.
///
/// White space around the line, such as its newline, is ignored. Options are separated by spaces
/// only.
pub fn parse(line: &[u8], nr_cpus: u32) -> Result<MapOptions, MapError<'_>> {
    given(line, nr_cpus)?.finish()
}

/// Checks a line that is about a session alone: `sessname`, `path` and `dest_port`, as in
/// [`parse`]. The session has no polled queues.
pub fn parse_session(line: &[u8]) -> Result<SessionOptions, MapError<'_>> {
    let given = given(line, 0)?;
    let others = [
        (given.device_path.is_some(), Opt::DevicePath),
        (given.access_mode.is_some(), Opt::AccessMode),
        (given.io_mode.is_some(), Opt::IoMode),
        (given.nr_poll_queues.is_some(), Opt::NrPollQueues),
    ];
    match others.iter().find(|(is_given, _)| *is_given) {
        Some(&(_, opt)) => Err(MapError::NotHere(opt)),
        None => given.session(),
    }
}

/// The options of a line.
fn given(line: &[u8], nr_cpus: u32) -> Result<Given<'_>, MapError<'_>> {
    // The text ends at a NUL, as a C string does.
    let line = line.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let mut given = Given::default();
    let words = line.trim_ascii().split(|&byte| byte == b' ');
    for word in words.filter(|word| !word.is_empty()) {
        let (opt, value) = split_option(word)?;
        given.add(opt, value, nr_cpus)?;
    }
    Ok(given)
}

/// The options of a line so far, their values checked.
///
/// The values are large for a kernel's stack. So names are copied only at the end, and the steps
/// are functions of their own.
#[derive(Default)]
struct Given<'a> {
    sessname: Option<&'a [u8]>,
    device_path: Option<&'a [u8]>,
    access_mode: Option<AccessMode>,
    io_mode: Option<IoMode>,
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
            Opt::IoMode => {
                let mode = IoMode::from_name(value).ok_or(MapError::BadIoMode(value))?;
                self.io_mode.replace(mode).is_some()
            }
            Opt::DestPort => {
                let port = parse_number(opt, value, 0, u16::MAX.into())?;
                self.dest_port.replace(port).is_some()
            }
            Opt::NrPollQueues => {
                let nr: i64 = parse_number(opt, value, -1, nr_cpus.into())?;
                // Only -1, which stands for all CPUs, is not a `u32`.
                let nr = u32::try_from(nr).unwrap_or(nr_cpus);
                self.nr_poll_queues.replace(nr).is_some()
            }
        };
        if doubled {
            return Err(MapError::Doubled(opt));
        }
        Ok(())
    }

    #[inline(never)]
    fn session(&self) -> Result<SessionOptions, MapError<'a>> {
        let sessname = self.sessname.ok_or(MapError::Missing(Opt::Sessname))?;
        Ok(SessionOptions {
            sessname: SessName::from_checked(sessname),
            dest_port: self.dest_port.unwrap_or(RTRS_PORT),
            // There are no poll queues unless the option asks for them.
            nr_poll_queues: self.nr_poll_queues.unwrap_or(0),
            paths: self.paths,
        })
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
            session: self.session()?,
            device_path: Name::from_checked(device_path),
            access_mode: self.access_mode.unwrap_or(AccessMode::Rw),
            io_mode: self.io_mode,
        })
    }
}

/// The option of a word, and its value.
fn split_option(word: &[u8]) -> Result<(Opt, &[u8]), MapError<'_>> {
    for &opt in Opt::ALL {
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

/// Parses the value of `opt`, a number from `min` to `max`, as C does (`simple_strtol` with base
/// 0): decimal, `0x` and hexadecimal, or `0` and octal, with at most one `-` in front.
fn parse_number<T: TryFrom<i64>>(
    opt: Opt,
    value: &[u8],
    min: i64,
    max: i64,
) -> Result<T, MapError<'_>> {
    let (digits, sign) = match value.strip_prefix(b"-") {
        Some(digits) => (digits, -1),
        None => (value, 1),
    };
    let number = match number::split_number(digits, Base::ByPrefix) {
        Ok((number, b"")) => i64::try_from(number).ok(),
        _ => None,
    };
    number
        .and_then(|number| number.checked_mul(sign))
        .filter(|number| (min..=max).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or(MapError::BadNumber {
            opt,
            value,
            min,
            max,
        })
}
