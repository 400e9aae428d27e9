// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl`: maps remote disks over RDMA, shows and controls them.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap_complete::CompleteEnv;
use rnbdctl::cli;
use rnbdctl::commands::completions::VARIABLE;

fn main() -> ExitCode {
    // If a shell asks for completions, this prints them and ends the program.
    CompleteEnv::with_factory(cli::command)
        .var(VARIABLE)
        .complete();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        // `exit` also prints the help; it ends the program with 0 or 2.
        Err(error) if !error.use_stderr() || !cli::wants_json() => error.exit(),
        Err(error) => {
            let error = cli::usage_error(&error);
            error.print();
            return ExitCode::from(error.exit_code());
        }
    };
    match cli::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
