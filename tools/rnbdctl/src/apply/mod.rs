// SPDX-License-Identifier: GPL-2.0

//! Brings the machine to what a configuration file says.
//!
//! - [`plan`]: the difference between the file and the machine, as plain data.
//! - [`machine`]: what changes the machine; the tests have one of their own.
//! - [`session`]: carries out the plan of one session.
//! - [`run`]: all sessions side by side, again and again until everything is there.
//! - [`report`], [`progress`]: what the user sees.

pub mod change;
pub mod kernel;
pub mod machine;
pub mod plan;
pub mod progress;
pub mod report;
pub mod run;
pub mod session;

pub use change::Change;
pub use machine::Machine;
pub use machine::State;
pub use plan::Plan;

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
pub(crate) mod model;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
