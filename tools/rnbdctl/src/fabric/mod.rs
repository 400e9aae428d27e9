// SPDX-License-Identifier: GPL-2.0

//! The self test of a fabric: runs the test by the files of `rtrs_test_client`, and judges the
//! result.

mod conflict;
mod counters;
mod facts;
mod found;
mod run;

pub use conflict::conflicts;
pub use counters::Counters;
pub use facts::facts;
pub use found::Bandwidth;
pub use found::Case;
pub use found::Found;
pub use found::Latency;
pub use found::Outcome;
pub use run::run;
pub use run::Request;
