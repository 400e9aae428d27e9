// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl`: maps remote disks over RDMA, shows and controls them.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rnbdctl::cli::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // It prints the help, too, and ends the program with 0 or 2.
        Err(error) if !error.use_stderr() || !rnbdctl::cli::wants_json() => error.exit(),
        Err(error) => {
            let error = rnbdctl::cli::usage_error(&error);
            error.print();
            return ExitCode::from(error.exit_code());
        }
    };
    match rnbdctl::cli::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
