// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl session`: the tunables of this client's sessions.

use super::tunable;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::Settings;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with a session.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Set tunables; all values are checked before the first is set
    #[command(after_help = tunable::help(&Settings::ALL, explained))]
    Set(SetArgs),
}

/// The arguments of `session set`.
#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// The session
    #[arg(add = complete::sessions())]
    pub session: String,

    /// Tunables and their values
    #[arg(required = true, value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

fn explained(name: &str) -> &'static str {
    match name {
        "hb_interval_ms" => "time between two heartbeats of a path",
        "hb_missed_max" => {
            "heartbeat intervals without a message of the server after which a path is lost"
        }
        "reconnect_delay_ms" => "longest wait before an attempt to connect a path again",
        "connect_timeout_ms" => "how long each step of connecting a path may take",
        "ack_timeout_ms" => "how long the RDMA device waits before it resends; 0: its own choice",
        "max_reconnect_attempts" => {
            "failed attempts in a row before a path stays closed; -1: any number"
        }
        "hold_io_ms" => "how long requests are held while no path is up; 0: they fail at once",
        _ => "",
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    let Command::Set(args) = &args.command;
    let session = context.system.find_session(&args.session)?;
    let mut settings = Vec::new();
    for word in &args.settings {
        let (name, value) = tunable::split(word, "hold_io_ms=30000")?;
        settings.push((
            name,
            control::session::check_setting(&session, name, value)?,
        ));
    }
    for (name, value) in settings {
        control::session::set(&session, name, &value.to_string())?;
        context
            .output
            .say(&format!("session {}: {name} = {value}", session.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tunable_is_explained() {
        for setting in Settings::ALL {
            assert_ne!(explained(setting.name), "", "{}", setting.name);
        }
    }
}
