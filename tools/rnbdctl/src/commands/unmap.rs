// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl unmap`: devices go.

use serde::Serialize;

use crate::cli::Context;
use crate::control;
use crate::model::ClientDevice;
use crate::model::JSON_VERSION;
use crate::output::Progress;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

use super::list;

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

/// What was unmapped.
#[derive(Debug, Serialize)]
struct Done {
    version: u32,
    unmapped: Vec<ClientDevice>,
}

impl Report for Done {
    fn tables(&self) -> Vec<Table> {
        vec![list::client_devices(
            &self.unmapped,
            "nothing was unmapped".to_owned(),
        )]
    }
}

/// Unmaps. A device that cannot be unmapped does not keep the others from it; the first failure is
/// what the program ends with.
pub fn run(args: &Args, context: &Context) -> Result {
    let devices = chosen(args, context)?;
    let mut done = Done {
        version: JSON_VERSION,
        unmapped: Vec::new(),
    };
    let mut failed = None;
    let count = devices.len();
    let progress = Progress::new(count);
    for device in devices {
        progress.begin(&format!("unmapping {}", device.path));
        match control::unmap(&device, args.force) {
            Ok(()) => done.unmapped.push(device),
            Err(error) if count == 1 => return Err(error),
            Err(error) => {
                progress.suspend(|| error.print());
                failed.get_or_insert(error);
            }
        }
        progress.end();
    }
    drop(progress);
    context.output.print(&done)?;
    match failed {
        None => Ok(()),
        Some(error) => Err(super::not_all(error, count, done.unmapped.len())),
    }
}

fn chosen(args: &Args, context: &Context) -> Result<Vec<ClientDevice>> {
    if !args.all {
        return args
            .devices
            .iter()
            .map(|name| context.system.find_device(name))
            .collect();
    }
    let mut devices = context.system.client_devices()?;
    if let Some(session) = &args.session {
        context.system.find_session(session)?;
        devices.retain(|device| device.session == *session);
    }
    Ok(devices)
}
