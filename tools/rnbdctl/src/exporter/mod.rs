// SPDX-License-Identifier: GPL-2.0

//! What monitoring systems read.
//!
//! - [`metrics`]: everything there is as Prometheus metrics.
//! - [`text`]: the older of the two text formats.
//! - [`server`]: answers a monitoring system's requests.

pub mod metrics;
pub mod server;
pub mod text;

pub use metrics::render;

#[cfg(test)]
mod tests;
