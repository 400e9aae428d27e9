// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl`: maps remote disks over RDMA, shows and controls them.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rnbdctl::cli::Cli;

fn main() -> ExitCode {
    match rnbdctl::cli::run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
