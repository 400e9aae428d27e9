// SPDX-License-Identifier: GPL-2.0

//! What monitoring systems read.
//!
//! - [`metrics`]: everything there is as Prometheus metrics.
//! - `served`: those of a server.
//! - [`text`]: the older of the two text formats.
//! - [`server`]: answers a monitoring system's requests.

pub mod metrics;
mod served;
pub mod server;
pub mod text;

pub use metrics::render;

#[cfg(test)]
mod tests;
