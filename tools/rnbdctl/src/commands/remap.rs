// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl remap`: disconnected devices are opened at the server again.

use super::each;
use crate::cli::Context;
use crate::control;
use crate::model::DeviceState;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Devices: rnbd0, /dev/rnbd0, a link to that, or the remote path (@SESSION)
    #[arg(required_unless_present = "all", value_name = "DEVICE")]
    pub devices: Vec<String>,

    /// All that are disconnected
    #[arg(long, conflicts_with = "devices")]
    pub all: bool,
}

/// Remaps.
pub fn run(args: &Args, context: &Context) -> Result {
    let mut devices = Vec::new();
    for name in &args.devices {
        devices.push(context.system.find_device(name)?);
    }
    if args.all {
        devices = context.system.client_devices()?;
        devices.retain(|device| device.state == DeviceState::Closed);
    }
    let name = |device: &crate::model::ClientDevice| format!("remapping {}", device.path);
    let done = each(devices, name, control::device::remap);
    done.finish(context, |device| format!("remapped {}", device.path))
}
