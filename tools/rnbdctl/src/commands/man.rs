// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl man`: the manual pages, for packages.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::Context;
use crate::Error;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write them; made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Writes a page for the program and one for each subcommand, also of subcommands.
pub fn run(args: &Args, _: &Context) -> Result {
    let fail = |error: std::io::Error| Error::io(args.folder.display(), &error);
    fs::create_dir_all(&args.folder).map_err(fail)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.folder)
        .map_err(fail)
}
