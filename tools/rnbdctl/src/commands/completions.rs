// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl completions`: what a shell needs to complete the command line.

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
    clap_complete::generate(args.shell, &mut Cli::command(), "rnbdctl", &mut text);
    context.output.print_text(&String::from_utf8_lossy(&text))
}
