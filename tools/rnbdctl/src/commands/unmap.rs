// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl unmap`: unmaps devices.

use schemars::JsonSchema;
use serde::Serialize;

use super::each;
use super::list;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::ClientDevice;
use crate::model::DeviceState;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Devices: rnbd0, /dev/rnbd0, a link to that, or the disk's path at the server, as DISK or
    /// DISK@SESSION
    #[arg(required_unless_present = "all", value_name = "DEVICE")]
    #[arg(add = complete::devices())]
    pub devices: Vec<String>,

    /// Also devices that are in use; their requests fail
    #[arg(short, long)]
    pub force: bool,

    /// All devices, or with --session all devices of a session
    #[arg(long, conflicts_with = "devices")]
    pub all: bool,

    /// With --all: only devices of this session
    #[arg(short, long, requires = "all", add = complete::sessions())]
    pub session: Option<String>,
}

/// The unmapped devices as they were before, except for their states.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Unmapped<'a> {
    version: Version,
    /// The devices.
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

/// Unmaps the devices.
pub fn run(args: &Args, context: &Context) -> Result {
    let names = match args.all {
        true => all(args, context)?,
        false => args.devices.clone(),
    };
    let name = |name: &String| format!("unmapping {name}");
    let done = each(&names, name, |name| {
        let device = context.system.find_device(name)?;
        control::device::unmap(&device, args.force)?;
        Ok(ClientDevice {
            state: DeviceState::Unmapped,
            ..device
        })
    });
    if !done.done.is_empty() || args.all {
        context.output.print(&Unmapped {
            version: JSON_VERSION,
            unmapped: &done.done,
        })?;
    }
    done.end()
}

/// The names of all devices, or of those of one session.
fn all(args: &Args, context: &Context) -> Result<Vec<String>> {
    let system = &context.system;
    system.need_client("unmapping all devices")?;
    let mut devices = system.client_devices()?;
    if let Some(session) = &args.session {
        system.find_session(session)?;
        devices.retain(|device| device.session == *session);
    }
    Ok(devices.into_iter().map(|device| device.name).collect())
}
