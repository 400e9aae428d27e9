// SPDX-License-Identifier: GPL-2.0

//! Numbers that an administrator may set, as a module parameter or in sysfs.

use core::fmt;

use crate::{
    number::{
        self,
        Base,
        NumberError, //
    },
    rtrs::{
        CONNECT_TIMEOUT_MS,
        HB_INTERVAL_MS,
        HB_MISSED_MAX,
        MAX_CON_NUM,
        RECONNECT_DELAY_MS, //
    },
    text::{
        impl_error,
        Untrusted, //
    },
    Errno, //
};

/// A number with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name in sysfs and as a module parameter.
    pub name: &'static str,
    /// The smallest value.
    pub min: i32,
    /// The smallest value other than `min`; values between `min` and this are out of range. Equal
    /// to `min` if there are no such values.
    pub least: i32,
    /// The largest value.
    pub max: i32,
    /// The default value.
    pub default: i32,
}

/// The time between two heartbeats in ms; each end has its own.
pub const HB_INTERVAL: Setting = Setting::new("hb_interval_ms", 10, 600_000, HB_INTERVAL_MS as i64);

/// A path is lost when more intervals than this have passed without a message of the peer.
pub const HB_MISSED: Setting = Setting::new("hb_missed_max", 1, 100, HB_MISSED_MAX as i64);

/// The longest time between two attempts of a client to connect a path again, in ms.
pub const RECONNECT_DELAY: Setting = Setting::new(
    "reconnect_delay_ms",
    100,
    3_600_000,
    RECONNECT_DELAY_MS as i64,
);

/// The seconds for which the times of requests are counted; 0 ends the count.
pub const LATENCY_SECONDS: Setting = Setting::new("seconds", 0, 3600, 0);

/// The time that a client waits for each step of an attempt to connect, in ms.
pub const CONNECT_TIMEOUT: Setting = Setting::new(
    "connect_timeout_ms",
    100,
    600_000,
    CONNECT_TIMEOUT_MS as i64,
);

/// The number of attempts in a row to connect a path again that may fail; -1: any number.
pub const MAX_RECONNECT_ATTEMPTS: Setting = Setting::new("max_reconnect_attempts", -1, 9999, -1);

/// The time that a device waits for an acknowledgement before it sends again, in ms; 0: the RDMA CM
/// chooses the time.
pub const ACK_TIMEOUT: Setting = Setting::new("ack_timeout_ms", 0, 60_000, 0);

/// The connections of a path for requests, beside the service connection and the polled
/// connections; 0, or more than the client's CPUs: one for each CPU.
pub const NR_CONNECTIONS: Setting = Setting::new("nr_connections", 0, (MAX_CON_NUM - 1) as i32, 0);

/// The time that a client keeps requests while no path is up, in ms; 0: requests are not kept.
pub const HOLD_IO: Setting = Setting::new("hold_io_ms", 0, 86_400_000, 0);

/// The time that a client keeps the requests of a disk while no path is up, in ms; 0: requests are
/// not kept, -1: as [`HOLD_IO`] of the session says.
pub const HOLD_DISK_IO: Setting = Setting::new("hold_io_ms", -1, 86_400_000, -1);

/// The time that a request of a disk may be in flight before the client ends it, in ms; 0: as long
/// as it takes. Other times are at least a second, as the block layer looks once a second.
pub const IO_TIMEOUT: Setting = Setting::new("io_timeout_ms", 0, 86_400_000, 0).with_least(1000);

/// Why a text is not a value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError<'a> {
    /// The text is not a decimal number.
    NotANumber {
        /// The setting's name.
        name: &'static str,
        /// The text.
        text: &'a [u8],
    },
    /// The number is too small or too large.
    OutOfRange {
        /// The setting.
        setting: Setting,
        /// The text.
        text: &'a [u8],
        /// `ERANGE` if the number does not fit an `i32`, as in C, otherwise `EINVAL`.
        errno: Errno,
    },
}

impl SettingError<'_> {
    /// The error number, as in C for the settings that C has.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NotANumber { .. } => Errno::EINVAL,
            Self::OutOfRange { errno, .. } => *errno,
        }
    }
}

impl fmt::Display for SettingError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { name, text } => {
                write!(f, "{name}: not a number: \"{}\"", Untrusted(text))
            }
            Self::OutOfRange { setting, text, .. } => {
                write!(
                    f,
                    "{}: {} is {}",
                    setting.name,
                    Untrusted(text),
                    Outside(*setting)
                )
            }
        }
    }
}

impl_error!(SettingError<'a>);

/// Displays what a number out of a setting's range is, as the end of a sentence: "not between 1 and
/// 100".
#[derive(Clone, Copy, Debug)]
pub struct Outside(pub Setting);

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            min, least, max, ..
        } = self.0;
        match min == least {
            true => write!(f, "not between {min} and {max}"),
            false => write!(f, "neither {min} nor between {least} and {max}"),
        }
    }
}

impl Setting {
    /// A setting. A default out of range does not compile.
    pub(crate) const fn new(name: &'static str, min: i32, max: i32, default: i64) -> Self {
        assert!(min as i64 <= default && default <= max as i64);
        Self {
            name,
            min,
            least: min,
            max,
            default: default as i32,
        }
    }

    /// The setting without the values between `min` and `least`. A default between them does not
    /// compile.
    const fn with_least(self, least: i32) -> Self {
        let setting = Self { least, ..self };
        assert!(self.min < least && least <= self.max && setting.contains(self.default));
        setting
    }

    /// Whether `value` is in range.
    pub const fn contains(&self, value: i32) -> bool {
        value == self.min || (self.least <= value && value <= self.max)
    }

    /// Parses a value: decimal, perhaps with a newline behind it.
    pub fn parse<'a>(&self, text: &'a [u8]) -> Result<i32, SettingError<'a>> {
        let number = number::parse_i32(text, Base::Decimal);
        let text = text.trim_ascii();
        let out_of_range = |errno| SettingError::OutOfRange {
            setting: *self,
            text,
            errno,
        };
        match number {
            Ok(value) if self.contains(value) => Ok(value),
            Ok(_) => Err(out_of_range(Errno::EINVAL)),
            Err(NumberError::Overflow) => Err(out_of_range(NumberError::Overflow.errno())),
            Err(NumberError::Malformed) => Err(SettingError::NotANumber {
                name: self.name,
                text,
            }),
        }
    }
}
