// SPDX-License-Identifier: GPL-2.0

//! Brings the machine to the state in a configuration file.
//!
//! - [`plan`]: the difference between the file and the machine, as plain data.
//! - [`machine`]: changes the machine; the tests have a machine of their own.
//! - [`session`]: carries out the plan of one session.
//! - [`run`]: works on all sessions side by side, again and again until everything is there.
//! - [`report`], [`progress`]: show the changes to the user.

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
