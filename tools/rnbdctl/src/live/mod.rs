// SPDX-License-Identifier: GPL-2.0

//! What devices and paths are doing now.
//!
//! - [`sample`]: all counters at one moment.
//! - [`rates`]: what two samples say of the time between them.
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
