// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl unmap`: devices go.

use serde::Serialize;

use super::each;
use super::list;
use crate::cli::Context;
use crate::control;
use crate::model::ClientDevice;
use crate::model::JSON_VERSION;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Devices: rnbd0, /dev/rnbd0, a link to that, or the remote path (@SESSION)
    #[arg(required_unless_present = "all", value_name = "DEVICE")]
    pub devices: Vec<String>,

    /// Also if they are in use; their requests fail
    #[arg(short, long)]
    pub force: bool,

    /// All of them, or all of one session
    #[arg(long, conflicts_with = "devices")]
    pub all: bool,

    /// With --all: only those of this session
    #[arg(short, long, requires = "all")]
    pub session: Option<String>,
}

/// What was unmapped, as it was before.
#[derive(Debug, Serialize)]
struct Unmapped<'a> {
    version: u32,
    unmapped: &'a [ClientDevice],
}

impl Report for Unmapped<'_> {
    fn tables(&self) -> Vec<Table> {
        vec![list::client_devices(
            self.unmapped,
            "nothing was unmapped".to_owned(),
        )]
    }
}

/// Unmaps.
pub fn run(args: &Args, context: &Context) -> Result {
    let devices = chosen(args, context)?;
    let name = |device: &ClientDevice| format!("unmapping {}", device.path);
    let done = each(devices, name, |device| {
        control::device::unmap(device, args.force)
    });
    if !done.done.is_empty() || args.all {
        context.output.print(&Unmapped {
            version: JSON_VERSION,
            unmapped: &done.done,
        })?;
    }
    done.end()
}

fn chosen(args: &Args, context: &Context) -> Result<Vec<ClientDevice>> {
    let system = &context.system;
    if !args.all {
        return args
            .devices
            .iter()
            .map(|name| system.find_device(name))
            .collect();
    }
    let mut devices = system.client_devices()?;
    if let Some(session) = &args.session {
        system.find_session(session)?;
        devices.retain(|device| device.session == *session);
    }
    Ok(devices)
}
