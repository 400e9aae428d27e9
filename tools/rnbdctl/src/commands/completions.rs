// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl completions`: the code with which a shell completes the command line.

use clap::ValueEnum;
use clap_complete::env::Bash;
use clap_complete::env::EnvCompleter;
use clap_complete::env::Fish;
use clap_complete::env::Zsh;

use crate::cli::Context;
use crate::Error;
use crate::Result;

/// The variable by which the shell asks this program for completions.
pub const VARIABLE: &str = "RNBDCTL_COMPLETE";

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// The shells.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// fish
    Fish,
    /// zsh
    Zsh,
}

/// Prints the code. With it the shell runs this program for completions.
pub fn run(args: &Args, context: &Context) -> Result {
    const WHAT: &str = "printing completions";
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Fish => &Fish,
        Shell::Zsh => &Zsh,
    };
    let mut text = Vec::new();
    let name = "rnbdctl";
    shell
        .write_registration(VARIABLE, name, name, name, &mut text)
        .map_err(|error| Error::io(WHAT, &error))?;
    context
        .output
        .print_only(WHAT, &String::from_utf8_lossy(&text))
}
