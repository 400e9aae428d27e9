// SPDX-License-Identifier: GPL-2.0

//! The subcommands.
//!
//! Each has a file with its arguments (`Args`) and a function `run`, and is named in
//! [`crate::cli::Command`].

pub mod list;
pub mod map;
pub mod unmap;

use crate::Error;

/// The end of a command that did something to several things, and failed for some: with the exit
/// code of the first failure, which was printed before.
fn not_all(first: Error, wanted: usize, done: usize) -> Error {
    Error::new(
        first.kind(),
        format!("{done} of {wanted} done"),
        format!("the first failure was: {first}"),
    )
}
