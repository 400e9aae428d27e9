// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::path::PathBuf;

use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;

use crate::commands;
use crate::error;
use crate::examples;
use crate::kernel_log;
use crate::output::Format;
use crate::output::Output;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// Maps remote disks over RDMA (RNBD), shows and controls them.
#[derive(Debug, Parser)]
#[command(name = "rnbdctl", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// How to print what is asked for: as a table, as json or as csv
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    #[arg(value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,

    /// Where the kernel's files are, for tests: a folder with sys, dev, proc, etc, lib.
    #[arg(
        long,
        global = true,
        hide = true,
        env = "RNBDCTL_ROOT",
        hide_env = true
    )]
    pub root: Option<PathBuf>,

    /// Where sysfs is, for tests.
    #[arg(
        long,
        global = true,
        hide = true,
        env = "RNBDCTL_SYSFS",
        hide_env = true
    )]
    pub sysfs: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the kernel refused, or something else failed
  2  wrong usage
  3  no such device, session, path or remote disk
  4  not permitted, here or by the server
  5  in use, exists already, or not in a state for that
  6  the server cannot be reached or does not answer
  7  a kernel module is not loaded or cannot do that
  8  a check found a problem
  9  a configuration file is wrong";

/// The subcommands, each in its file below `src/commands`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Map remote disks: each becomes a /dev/rnbd<N>
    Map(commands::map::Args),
    /// List the disks of a server that this machine could map
    Discover(commands::discover::Args),
    /// Unmap devices
    Unmap(commands::unmap::Args),
    /// Have the server open the disks of closed devices again
    Remap(commands::remap::Args),
    /// Tell this machine that a disk was resized at the server
    Resize(commands::resize::Args),
    /// List devices, sessions and paths, of client and server
    List(commands::list::Args),
    /// Show everything about one device, session or path
    Show(commands::show::Args),
    /// Add, remove, disconnect and reconnect paths, and choose among them
    Path(commands::path::Args),
    /// Set tunables of devices
    Device(commands::device::Args),
    /// Set tunables of sessions
    Session(commands::session::Args),
    /// List what this machine exports; disconnect clients
    Server(commands::server::Args),
    /// Make, list, load and remove the keys by which clients prove who they are
    Key(commands::key::Args),
    /// Show the RDMA devices, their ports and addresses
    Rdma(commands::rdma::Args),
    /// Say what is wrong now with mapped disks, since when, and what to do
    Why(commands::why::Args),
    /// Check that everything is there to map disks or to export them
    Check(commands::check::Args),
    /// Test the way to a server before it is trusted with data
    Fabric(commands::fabric::Args),
    /// Print the completions for a shell
    Completions(commands::completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(commands::man::Args),
    /// Bring the machine to what the configuration file says
    Apply(commands::apply::Args),
    /// Check the configuration file, or write one from what is mapped
    Config(commands::config::Args),
    /// Show what devices and paths have counted
    Stats(commands::stats::Args),
    /// Measure where the time of requests goes: waiting here, network, server, disk
    Latency(commands::latency::Args),
    /// Show what devices and paths are doing now, on the whole screen
    Top(commands::top::Args),
    /// Print what changes as it does: disks, sessions, paths; one JSON object a line
    Events(commands::events::Args),
    /// What the udev rules ask
    #[command(hide = true)]
    Udev(commands::udev::Args),
    /// Serve Prometheus metrics
    Exporter(commands::exporter::Args),
}

/// The environment of a subcommand.
#[derive(Debug)]
pub struct Context {
    /// The machine.
    pub system: System,
    /// The place and the format of results.
    pub output: Output,
}

/// The command line as clap knows it, with examples in the help.
pub fn command() -> clap::Command {
    examples::add(Cli::command())
}

/// The command line of this process.
pub fn parse() -> std::result::Result<Cli, clap::Error> {
    let mut matches = command().try_get_matches()?;
    Cli::from_arg_matches_mut(&mut matches)
}

/// Whether an invalid command line asks for JSON.
pub fn wants_json() -> bool {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let is_pair = |pair: &[String]| match pair {
        [option, value] => matches!(option.as_str(), "-o" | "--output") && value == "json",
        _ => false,
    };
    words.windows(2).any(is_pair)
        || words
            .iter()
            .any(|word| matches!(word.as_str(), "-ojson" | "--output=json"))
}

/// The error of a command line, to be printed as JSON.
pub fn usage_error(error: &clap::Error) -> Error {
    error::print_as_json();
    let text = error.render().to_string();
    let mut parts = text.trim().splitn(2, "\n\n");
    let why = parts.next().unwrap_or_default();
    let why = why.strip_prefix("error: ").unwrap_or(why);
    let error = Error::new(Kind::Usage, "reading the command line", why);
    match parts.next() {
        Some(usage) => error.hint(usage),
        None => error,
    }
}

/// Runs the subcommand of the command line.
pub fn run(cli: &Cli) -> Result {
    if cli.output == Format::Json {
        error::print_as_json();
    }
    let context = Context {
        system: System::new(cli.root.as_deref(), cli.sysfs.as_deref()),
        output: Output::new(cli.output),
    };
    kernel_log::use_file(context.system.file("dev/kmsg"));
    match &cli.command {
        Command::Map(args) => commands::map::run(args, &context),
        Command::Discover(args) => commands::discover::run(args, &context),
        Command::Unmap(args) => commands::unmap::run(args, &context),
        Command::Remap(args) => commands::remap::run(args, &context),
        Command::Resize(args) => commands::resize::run(args, &context),
        Command::List(args) => commands::list::run(args, &context),
        Command::Show(args) => commands::show::run(args, &context),
        Command::Path(args) => commands::path::run(args, &context),
        Command::Device(args) => commands::device::run(args, &context),
        Command::Session(args) => commands::session::run(args, &context),
        Command::Server(args) => commands::server::run(args, &context),
        Command::Key(args) => commands::key::run(args, &context),
        Command::Rdma(args) => commands::rdma::run(args, &context),
        Command::Why(args) => commands::why::run(args, &context),
        Command::Check(args) => commands::check::run(args, &context),
        Command::Fabric(args) => commands::fabric::run(args, &context),
        Command::Completions(args) => commands::completions::run(args, &context),
        Command::Man(args) => commands::man::run(args, &context),
        Command::Apply(args) => commands::apply::run(args, &context),
        Command::Config(args) => commands::config::run(args, &context),
        Command::Stats(args) => commands::stats::run(args, &context),
        Command::Latency(args) => commands::latency::run(args, &context),
        Command::Top(args) => commands::top::run(args, &context),
        Command::Events(args) => commands::events::run(args, &context),
        Command::Udev(args) => commands::udev::run(args, &context),
        Command::Exporter(args) => commands::exporter::run(args, &context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_has_every_exit_code() {
        for (kind, text) in Kind::ALL {
            let line = format!("  {}  {text}", kind as u8);
            assert!(
                EXIT_CODES.lines().any(|have| have == line),
                "no line {line:?}"
            );
        }
    }
}
