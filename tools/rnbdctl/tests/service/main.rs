// SPDX-License-Identifier: GPL-2.0

//! Configuration, rates and metrics by the program as a user runs it, on a machine made of files.

#![forbid(unsafe_code)]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that fails panics"
)]

mod apply;
mod live;
mod machine;
