// SPDX-License-Identifier: GPL-2.0

//! Metrics for monitoring systems.
//!
//! - [`metrics`]: all values as Prometheus metrics.
//! - `mirrors`: the metrics of mirrors.
//! - `served`: the metrics of a server.
//! - [`text`]: the older of the two text formats.
//! - [`server`]: answers a monitoring system's requests.

pub mod metrics;
mod mirrors;
mod served;
pub mod server;
pub mod text;

pub use metrics::render;

#[cfg(test)]
mod tests;
