// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl remap`: lets the server open closed devices again.

use super::each;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::DeviceState;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Devices: rnbd0, /dev/rnbd0, a link to that, or the disk's path at the server, as DISK or
    /// DISK@SESSION
    #[arg(required_unless_present = "all", value_name = "DEVICE")]
    #[arg(add = complete::devices())]
    pub devices: Vec<String>,

    /// All closed devices, except those that the server's administrator has closed
    #[arg(long, conflicts_with = "devices")]
    pub all: bool,
}

/// Remaps the devices.
pub fn run(args: &Args, context: &Context) -> Result {
    let names = match args.all {
        true => closed(context)?,
        false => args.devices.clone(),
    };
    let name = |name: &String| format!("remapping {name}");
    let done = each(&names, name, |name| {
        let device = context.system.find_device(name)?;
        control::device::remap(&device)?;
        Ok(device)
    });
    done.finish(context, |device| format!("remapped {}", device.path))
}

/// The names of all closed devices, except those that the server's administrator has closed.
fn closed(context: &Context) -> Result<Vec<String>> {
    context.system.need_client("remapping all closed devices")?;
    let mut devices = context.system.client_devices()?;
    devices.retain(|device| device.state == DeviceState::Closed && !device.closed_by_server);
    Ok(devices.into_iter().map(|device| device.name).collect())
}
