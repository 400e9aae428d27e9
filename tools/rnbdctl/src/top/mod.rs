// SPDX-License-Identifier: GPL-2.0

//! The full-screen view of `rnbdctl top`.
//!
//! - [`app`]: what is shown and how, changed by keys and new rates.
//! - [`view`]: draws that.

pub mod app;
pub mod view;

pub use app::App;

#[cfg(test)]
mod tests;
