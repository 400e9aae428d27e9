// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl resize`: tells this machine that a disk has another size now.

use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::output;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The device: rnbd0, /dev/rnbd0, a link to that, or the disk's path at the server, as DISK or
    /// DISK@SESSION
    #[arg(add = complete::devices())]
    pub device: String,

    /// The new size of the device: bytes, with K, M, G or T, or sectors with s
    #[arg(value_parser = output::parse_size)]
    pub size: u64,
}

/// Resizes the device. The disk must have been resized at the server before.
pub fn run(args: &Args, context: &Context) -> Result {
    let device = context.system.find_device(&args.device)?;
    control::device::resize(&device, args.size)?;
    let size = output::bytes(args.size);
    context
        .output
        .say(&format!("resized {} to {size}", device.path))
}
