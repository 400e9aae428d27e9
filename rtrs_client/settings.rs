// SPDX-License-Identifier: GPL-2.0

//! The settings of a session that an administrator may change.

use kernel::{
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    rdma::cm::ConnectionParameters, //
};
use proto::{
    reconnect,
    setting::Setting, //
};
use rtrs_core::{
    error::from_errno,
    heartbeat,
    params::Number, //
};

use crate::params;

/// A setting and its number. Not for a number that each request reads: see
/// `bindings/sync/atomic.rs`.
pub(crate) struct Value {
    setting: Setting,
    value: Atomic<i32>,
}

impl Value {
    fn new(parameter: &Number) -> Self {
        Self {
            setting: parameter.setting(),
            value: Atomic::new(parameter.value()),
        }
    }

    /// The number.
    pub(crate) fn get(&self) -> i32 {
        self.value.load(ordering::Relaxed)
    }

    /// The number, for a setting without negative numbers.
    fn get_u32(&self) -> u32 {
        self.get().unsigned_abs()
    }

    /// Takes `value`, or the number in the setting's range that is next to it.
    fn set_near(&self, value: i32) {
        let value = value.clamp(self.setting.min, self.setting.max);
        self.value.store(value, ordering::Relaxed);
    }

    /// Takes the number in `text`. Returns whether it differs from the number before. `EINVAL` if
    /// `text` is no number or the number is out of range, `ERANGE` if the number does not fit into
    /// an integer. `whose` names the session in the log.
    pub(crate) fn set(&self, whose: &str, text: &[u8]) -> Result<bool> {
        let value = self.setting.parse(text).map_err(|error| {
            pr_err!("{}: {}\n", whose, error.message().as_str());
            from_errno(error.errno())
        })?;
        Ok(self.value.xchg(value, ordering::Relaxed) != value)
    }
}

/// The way in which the paths of a session are connected again, as a user in the kernel asks for
/// it.
#[derive(Clone, Copy)]
pub struct Reconnect {
    /// The longest wait before an attempt, in ms. Less than 100 counts as 100.
    pub delay_ms: u32,
    /// How many attempts may fail in a row. Below 0: any number.
    pub max_attempts: i32,
}

/// The settings of a session.
pub(crate) struct Settings {
    pub(crate) hb_interval_ms: Value,
    pub(crate) hb_missed_max: Value,
    pub(crate) reconnect_delay_ms: Value,
    pub(crate) connect_timeout_ms: Value,
    pub(crate) ack_timeout_ms: Value,
    pub(crate) max_reconnect_attempts: Value,
    pub(crate) hold_io_ms: Value,
}

impl Settings {
    /// Takes the settings from the module parameters.
    pub(crate) fn new() -> Self {
        Self {
            hb_interval_ms: Value::new(params::HB_INTERVAL.get()),
            hb_missed_max: Value::new(params::HB_MISSED.get()),
            reconnect_delay_ms: Value::new(params::RECONNECT_DELAY.get()),
            connect_timeout_ms: Value::new(params::CONNECT_TIMEOUT.get()),
            ack_timeout_ms: Value::new(params::ACK_TIMEOUT.get()),
            max_reconnect_attempts: Value::new(params::MAX_RECONNECT_ATTEMPTS.get()),
            hold_io_ms: Value::new(params::HOLD_IO.get()),
        }
    }

    /// Takes the user's numbers in place of those of the module parameters.
    pub(crate) fn set_reconnect(&self, reconnect: &Reconnect) {
        let delay_ms = i32::try_from(reconnect.delay_ms).unwrap_or(i32::MAX);
        self.reconnect_delay_ms.set_near(delay_ms);
        self.max_reconnect_attempts.set_near(reconnect.max_attempts);
    }

    /// The interval of heartbeats, and how many may be missed.
    pub(crate) fn heartbeat(&self) -> heartbeat::Settings {
        heartbeat::Settings {
            interval_ms: self.hb_interval_ms.get_u32(),
            missed_max: self.hb_missed_max.get_u32(),
        }
    }

    /// The longest wait before an attempt to reconnect, in ms.
    pub(crate) fn reconnect_delay_ms(&self) -> u32 {
        self.reconnect_delay_ms.get_u32()
    }

    /// How long a step of an attempt to connect may take, in ms.
    pub(crate) fn connect_timeout_ms(&self) -> u32 {
        self.connect_timeout_ms.get_u32()
    }

    /// How long requests wait for a path, in ms. 0: they do not wait.
    pub(crate) fn hold_io_ms(&self) -> u32 {
        self.hold_io_ms.get_u32()
    }

    /// The parameters of connections that are made from now on.
    pub(crate) fn connection_parameters(&self) -> ConnectionParameters {
        ConnectionParameters {
            ack_timeout_ms: self.ack_timeout_ms.get_u32(),
            ..ConnectionParameters::default()
        }
    }

    /// Whether a path is closed when `failed` attempts to reconnect have failed in a row.
    pub(crate) fn gives_up_after(&self, failed: u32) -> bool {
        reconnect::gives_up(failed, self.max_reconnect_attempts.get())
    }
}
