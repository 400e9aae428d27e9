// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl server policy`: the clients that may map devices.

use std::fs;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::control::policy;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Report;
use crate::output::Table;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The kernel's file.
const FILE: &str = "class/rnbd-server/ctl/export_policy";

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with the export policy.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Load a policy in place of the old policy; if a line is wrong, the old policy stays
    Load(FileArgs),
    /// Check a policy without loading it
    Check(FileArgs),
    /// Print the policy in force
    Show,
    /// Remove the policy: all clients may map all disks again
    Clear,
}

/// The arguments of `server policy load` and `check`.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// The file with the policy; - for standard input
    #[arg(default_value = "/etc/rnbd/export.policy")]
    pub file: PathBuf,
}

/// The policy in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    version: Version,
    /// Whether a policy is in force.
    loaded: bool,
    /// The rules of the policy.
    rules: Vec<String>,
}

const COLUMNS: &[Column] = &[Column::text("rule", "RULE")];

impl Report for Shown {
    fn tables(&self) -> Vec<Table> {
        vec![Table {
            kind: "rule",
            title: "Rules".to_owned(),
            columns: COLUMNS,
            rows: self
                .rules
                .iter()
                .map(|rule| vec![Cell::new(rule)])
                .collect(),
            empty: String::new(),
        }]
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    let kernel = context.system.sys(FILE);
    match &args.command {
        Command::Load(args) => {
            let (text, rules) = read_checked(&args.file, context)?;
            present(context, &kernel)?;
            policy::load(&kernel, &text)?;
            context
                .output
                .say(&format!("loaded a policy of {rules} rules"))
        }
        Command::Check(args) => {
            let (_, rules) = read_checked(&args.file, context)?;
            context.output.say(&format!("{rules} rules, no mistake"))
        }
        Command::Show => {
            present(context, &kernel)?;
            show(context, policy::read(&kernel)?)
        }
        Command::Clear => {
            present(context, &kernel)?;
            policy::clear(&kernel)?;
            context.output.say("the policy is removed")
        }
    }
}

/// A policy with a newline at its end, and the number of its rules.
fn read_checked(file: &Path, context: &Context) -> Result<(Vec<u8>, usize)> {
    let (name, read) = if file == Path::new("-") {
        let mut text = Vec::new();
        let read = io::stdin().read_to_end(&mut text).map(|_| text);
        (Path::new("standard input"), read)
    } else {
        let path = match file.strip_prefix("/") {
            Ok(below) => context.system.file(&below.to_string_lossy()),
            Err(_) => file.to_path_buf(),
        };
        (file, fs::read(path))
    };
    let mut text = read.map_err(|error| Error::io(name.display(), &error))?;
    if text.last().is_some_and(|&last| last != b'\n') {
        text.push(b'\n');
    }
    let rules = policy::check(name, &text)?;
    Ok((text, rules))
}

/// Fails if the server has no policies.
fn present(context: &Context, kernel: &Path) -> Result {
    if kernel.exists() {
        return Ok(());
    }
    let what = "export policy";
    Err(if context.system.is_loaded("rnbd_server") {
        Error::new(
            Kind::Unsupported,
            what,
            "the loaded rnbd_server has no policies: the C module exports to all clients",
        )
    } else {
        Error::new(
            Kind::Unsupported,
            what,
            "the module rnbd_server is not loaded",
        )
        .hint("load it with: modprobe rnbd_server")
    })
}

fn show(context: &Context, text: Option<Vec<u8>>) -> Result {
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    if context.output.format() == Format::Table {
        // The text as it was loaded, with its comments.
        return context.output.print_text(match &text {
            Some(text) => text,
            None => "# There is no policy: every client may map everything.\n",
        });
    }
    let rules = text.iter().flat_map(|text| text.lines());
    context.output.print(&Shown {
        version: JSON_VERSION,
        loaded: text.is_some(),
        rules: rules
            .map(str::trim)
            .filter(|line| line.starts_with("allow"))
            .map(str::to_owned)
            .collect(),
    })
}
