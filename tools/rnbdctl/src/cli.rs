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

/// Maps disks of servers over RDMA (RNBD), and shows and controls them.
#[derive(Debug, Parser)]
#[command(name = "rnbdctl", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// The format of the output: table, json or csv
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
  1  the kernel refused the command, or another failure
  2  wrong usage
  3  no such device, session, path or remote disk
  4  not permitted, by this machine or by the server
  5  the object is in use, exists already, or has the wrong state
  6  the server cannot be reached or does not respond
  7  a kernel module is not loaded, or lacks the function
  8  a check found a problem
  9  a configuration file is wrong";

/// The subcommands, each in its file below `src/commands`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Map disks of a server: each disk becomes a device /dev/rnbd<N>
    Map(commands::map::Args),
    /// List the disks of a server that this machine can map
    Discover(commands::discover::Args),
    /// Unmap devices
    Unmap(commands::unmap::Args),
    /// Open closed devices again: the server opens their disks again
    Remap(commands::remap::Args),
    /// Set the size of a device after its disk was resized at the server
    Resize(commands::resize::Args),
    /// List devices, sessions and paths, of this machine as a client and as a server
    List(commands::list::Args),
    /// Show all values of a device, session or path
    Show(commands::show::Args),
    /// Add, remove, disconnect and reconnect paths; set the path policy
    Path(commands::path::Args),
    /// Set tunables of devices
    Device(commands::device::Args),
    /// Set tunables of sessions
    Session(commands::session::Args),
    /// Control this machine as a server: exports, clients, export policy, drain
    Server(commands::server::Args),
    /// Make, list, load and remove the keys by which clients prove their identity
    Key(commands::key::Args),
    /// Show the RDMA devices, their ports and addresses
    Rdma(commands::rdma::Args),
    /// Show the present troubles of mapped disks: problem, duration, and what to do
    Why(commands::why::Args),
    /// Check whether this machine can map or export disks
    Check(commands::check::Args),
    /// Test the network to a server before disks use it
    Fabric(commands::fabric::Args),
    /// Print the JSON schema of the output with --output json
    Schema(commands::schema::Args),
    /// Print the completion script of a shell
    Completions(commands::completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(commands::man::Args),
    /// Apply the configuration file: map its disks, connect its paths, set its tunables
    Apply(commands::apply::Args),
    /// Check the configuration file, or write a file from the mapped devices
    Config(commands::config::Args),
    /// Make, show, start and repair mirrors over disks of several servers
    Mirror(commands::mirror::Args),
    /// Show the counters of devices and paths
    Stats(commands::stats::Args),
    /// Measure the time of requests in each stage: client, network, server, disk
    Latency(commands::latency::Args),
    /// Show the present rates of devices and paths, on the whole screen
    #[cfg(feature = "top")]
    Top(commands::top::Args),
    /// Print each change of devices, sessions and paths as it happens, as a line of JSON
    Events(commands::events::Args),
    /// Print facts for the udev rules
    #[command(hide = true)]
    Udev(commands::udev::Args),
    /// Serve Prometheus metrics
    #[cfg(feature = "exporter")]
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
        Command::Schema(args) => commands::schema::run(args, &context),
        Command::Completions(args) => commands::completions::run(args, &context),
        Command::Man(args) => commands::man::run(args, &context),
        Command::Apply(args) => commands::apply::run(args, &context),
        Command::Config(args) => commands::config::run(args, &context),
        Command::Mirror(args) => commands::mirror::run(args, &context),
        Command::Stats(args) => commands::stats::run(args, &context),
        Command::Latency(args) => commands::latency::run(args, &context),
        #[cfg(feature = "top")]
        Command::Top(args) => commands::top::run(args, &context),
        Command::Events(args) => commands::events::run(args, &context),
        Command::Udev(args) => commands::udev::run(args, &context),
        #[cfg(feature = "exporter")]
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
