// SPDX-License-Identifier: GPL-2.0

//! The full-screen view of `rnbdctl top`.
//!
//! - [`app`]: the state of the view, which keys and new rates change.
//! - [`view`]: draws that state.

pub mod app;
pub mod view;

pub use app::App;

#[cfg(test)]
mod tests;
