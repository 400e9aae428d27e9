// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl device`: the tunables of mapped devices.

use super::tunable;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::ClientDevice;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with a device.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Set tunables; all values are checked before the first is set
    #[command(after_help = tunable::help(&ClientDevice::TUNABLES, explained))]
    Set(SetArgs),
}

/// The arguments of `device set`.
#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// The device: rnbd0, /dev/rnbd0, a link to that, or the disk's path at the server, as DISK or
    /// DISK@SESSION
    #[arg(add = complete::devices())]
    pub device: String,

    /// Tunables and their values
    #[arg(required = true, value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

fn explained(name: &str) -> &'static str {
    match name {
        "io_timeout_ms" => {
            "how long a request may be in flight before it fails; 0: without a limit"
        }
        "hold_io_ms" => {
            "how long requests are held while no path is up; 0: not at all, -1: as in the session"
        }
        _ => "",
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    let Command::Set(args) = &args.command;
    let device = context.system.find_device(&args.device)?;
    let mut settings = Vec::new();
    for word in &args.settings {
        let (name, value) = tunable::split(word, "io_timeout_ms=30000")?;
        settings.push((name, control::device::check_tunable(&device, name, value)?));
    }
    for (name, value) in settings {
        control::device::set_tunable(&device, name, value)?;
        context
            .output
            .say(&format!("device {}: {name} = {value}", device.path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tunable_is_explained() {
        for setting in ClientDevice::TUNABLES {
            assert_ne!(explained(setting.name), "", "{}", setting.name);
        }
    }
}
