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
        RECONNECT_DELAY_SEC, //
    },
    text::{
        impl_message,
        write_untrusted, //
    },
    Errno, //
};

/// A number with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name in sysfs and as a module parameter.
    pub name: &'static str,
    /// The smallest value.
    pub min: i32,
    /// The largest value.
    pub max: i32,
    /// The value of who does not care.
    pub default: i32,
}

/// The time between two heartbeats in ms; both ends have one of their own.
pub const HB_INTERVAL: Setting = Setting {
    name: "hb_interval_ms",
    min: 10,
    max: 600_000,
    default: HB_INTERVAL_MS as i32,
};

/// A path is given up when more intervals than this have passed without a sign of life.
pub const HB_MISSED: Setting = Setting {
    name: "hb_missed_max",
    min: 1,
    max: 100,
    default: HB_MISSED_MAX as i32,
};

/// The longest time between two attempts of a client to connect a path again, in ms.
pub const RECONNECT_DELAY: Setting = Setting {
    name: "reconnect_delay_ms",
    min: 100,
    max: 3_600_000,
    default: (RECONNECT_DELAY_SEC * 1000) as i32,
};

/// How long a client waits for each step of an attempt to connect, in ms.
pub const CONNECT_TIMEOUT: Setting = Setting {
    name: "connect_timeout_ms",
    min: 100,
    max: 600_000,
    default: CONNECT_TIMEOUT_MS as i32,
};

/// How many attempts to connect a path again may fail in a row; -1: any number.
pub const MAX_RECONNECT_ATTEMPTS: Setting = Setting {
    name: "max_reconnect_attempts",
    min: -1,
    max: 9999,
    default: -1,
};

/// How long a device waits for an acknowledgement before it sends again, in ms; 0: what the RDMA
/// CM finds right.
pub const ACK_TIMEOUT: Setting = Setting {
    name: "ack_timeout_ms",
    min: 0,
    max: 60_000,
    default: 0,
};

/// How long a client keeps requests while no path is up, in ms; 0: not at all.
pub const HOLD_IO: Setting = Setting {
    name: "hold_io_ms",
    min: 0,
    max: 86_400_000,
    default: 0,
};

/// Why a text is no value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError<'a> {
    /// It is not a decimal number.
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
        /// `ERANGE` for what no integer can be, as in C, otherwise `EINVAL`.
        errno: Errno,
    },
}

impl SettingError<'_> {
    /// What C returns for a setting that it has, too.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NotANumber { .. } => Errno::EINVAL,
            Self::OutOfRange { errno, .. } => *errno,
        }
    }

    /// Writes what is wrong.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::NotANumber { name, text } => {
                write!(out, "{name}: not a number: \"")?;
                write_untrusted(out, text)?;
                write!(out, "\"")
            }
            Self::OutOfRange { setting, text, .. } => {
                write!(out, "{}: ", setting.name)?;
                write_untrusted(out, text)?;
                write!(out, " is not between {} and {}", setting.min, setting.max)
            }
        }
    }
}

impl_message!(SettingError<'a>);

impl Setting {
    /// The value that `text` says, in decimal and perhaps with a newline behind it.
    pub fn parse<'a>(&self, text: &'a [u8]) -> Result<i32, SettingError<'a>> {
        let number = number::parse_i32(text, Base::Decimal);
        let text = text.trim_ascii();
        let out_of_range = |errno| SettingError::OutOfRange {
            setting: *self,
            text,
            errno,
        };
        match number {
            Ok(value) if self.min <= value && value <= self.max => Ok(value),
            Ok(_) => Err(out_of_range(Errno::EINVAL)),
            Err(NumberError::Overflow) => Err(out_of_range(NumberError::Overflow.errno())),
            Err(NumberError::Malformed) => Err(SettingError::NotANumber {
                name: self.name,
                text,
            }),
        }
    }
}
