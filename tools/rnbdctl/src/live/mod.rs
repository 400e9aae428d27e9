// SPDX-License-Identifier: GPL-2.0

//! The present rates of devices and paths.
//!
//! - [`sample`]: all counters at one moment.
//! - [`rates`]: the rates between two samples.
//! - [`history`]: rates of the last minutes, for sparklines.

pub mod history;
pub mod rates;
pub mod report;
pub mod sample;

pub use history::History;
pub use rates::DeviceRates;
pub use rates::PathRates;
pub use rates::Rates;
pub use report::RatesReport;
pub use sample::Sample;

#[cfg(test)]
mod tests;
