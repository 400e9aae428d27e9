// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl completions`: what a shell needs to complete the command line.

use clap::Command;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::cli::Context;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints it.
pub fn run(args: &Args, context: &Context) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut visible(&Cli::command()),
        "rnbdctl",
        &mut text,
    );
    let text = String::from_utf8_lossy(&text);
    context.output.print_only("printing completions", &text)
}

/// The command without what is hidden, which not all of the generators leave out.
fn visible(command: &Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let version = command.get_version().map(str::to_owned);
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let subcommands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut shown = Command::new(command.get_name().to_owned())
        .about(about)
        .args(args)
        .subcommands(subcommands.map(visible));
    if let Some(version) = version {
        shown = shown.version(version);
    }
    shown
}
