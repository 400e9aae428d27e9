// SPDX-License-Identifier: GPL-2.0

//! Module parameters: the number of connections, and the initial settings, of new sessions. All
//! are extensions.

use kernel_ext::module_parameter;
use proto::setting;
use rtrs_core::params::Number;

module_parameter! {
    /// See [`setting::HB_INTERVAL`].
    pub(crate) static HB_INTERVAL: Number = Number::new(setting::HB_INTERVAL);
    name: "hb_interval_ms",
    description: "Time in ms between two heartbeats of a path (10-600000, default: 5000)",
}

module_parameter! {
    /// See [`setting::HB_MISSED`].
    pub(crate) static HB_MISSED: Number = Number::new(setting::HB_MISSED);
    name: "hb_missed_max",
    description:
        "Heartbeat intervals that may pass without a message of the server before a path is lost \
         (1-100, default: 5)",
}

module_parameter! {
    /// See [`setting::RECONNECT_DELAY`].
    pub(crate) static RECONNECT_DELAY: Number = Number::new(setting::RECONNECT_DELAY);
    name: "reconnect_delay_ms",
    description: "Longest time in ms between two attempts to connect a path again \
                  (100-3600000, default: 30000)",
}

module_parameter! {
    /// See [`setting::CONNECT_TIMEOUT`].
    pub(crate) static CONNECT_TIMEOUT: Number = Number::new(setting::CONNECT_TIMEOUT);
    name: "connect_timeout_ms",
    description:
        "Longest time in ms for each step of connecting a path (100-600000, default: 30000)",
}

module_parameter! {
    /// See [`setting::ACK_TIMEOUT`].
    pub(crate) static ACK_TIMEOUT: Number = Number::new(setting::ACK_TIMEOUT);
    name: "ack_timeout_ms",
    description:
        "Time in ms that the RDMA device waits for an acknowledgement before it sends again (0: \
         the RDMA CM chooses, at most 60000, default: 0)",
}

module_parameter! {
    /// See [`setting::MAX_RECONNECT_ATTEMPTS`].
    pub(crate) static MAX_RECONNECT_ATTEMPTS: Number =
        Number::new(setting::MAX_RECONNECT_ATTEMPTS);
    name: "max_reconnect_attempts",
    description: "Attempts to connect a path again that may fail in a row before it stays \
                  closed (-1: any number, at most 9999, default: -1)",
}

module_parameter! {
    /// See [`setting::HOLD_IO`].
    pub(crate) static HOLD_IO: Number = Number::new(setting::HOLD_IO);
    name: "hold_io_ms",
    description:
        "Time in ms for which requests are held while no path is up (0: they fail at once, at most \
         86400000, default: 0)",
}

module_parameter! {
    /// See [`setting::NR_CONNECTIONS`].
    pub(crate) static NR_CONNECTIONS: Number = Number::new(setting::NR_CONNECTIONS);
    name: "nr_connections",
    description:
        "Connections of a path for requests, without polled ones; CPU n uses connection n modulo \
         this number (0, or more than the CPUs: one for each CPU, at most 4095, default: 0)",
}
