// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl udev`: facts that the udev rules cannot find out themselves.

use crate::cli::Context;
use crate::link_name;
use crate::Result;

/// The property in which udev has the disk's path at the server.
const DISK: &str = "RNBD_DEVICE";

/// The arguments: there are none.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints the name of the disk's link as a property, for `IMPORT{program}`.
pub fn run(_: &Args, context: &Context) -> Result {
    let disk = std::env::var(DISK).unwrap_or_default();
    match link_name::of(&disk) {
        Some(name) => context.output.print_text(&format!("RNBD_LINK={name}\n")),
        None => Ok(()),
    }
}
