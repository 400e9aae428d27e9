// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl config`: checks the configuration file, or writes one from the mapped devices.

use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::config;
use crate::config::running;
use crate::config::Config;
use crate::config::ConfigError;
use crate::config::ConfigErrors;
use crate::identity;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the mistakes in a file, each with its line and key; change nothing
    Check {
        /// The file [default: /etc/rnbd/rnbd.toml]
        file: Option<PathBuf>,
    },
    /// Print the mapped devices as a configuration file
    Show,
    /// Write the mapped devices to a configuration file
    Save {
        /// The file [default: /etc/rnbd/rnbd.toml]
        file: Option<PathBuf>,
        /// Overwrite a file that exists
        #[arg(short, long)]
        force: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.command {
        Command::Check { file } => check(file.as_deref(), context),
        Command::Show => {
            context
                .system
                .need_client("printing a configuration file")?;
            let text = running::file_text(&context.system.client()?);
            context
                .output
                .print_only("printing a configuration file", &text)
        }
        Command::Save { file, force } => {
            save(&file_or_default(file.as_deref(), context), *force, context)
        }
    }
}

/// The user's file, or else the usual file.
pub fn file_or_default(file: Option<&Path>, context: &Context) -> PathBuf {
    match file {
        Some(file) => file.to_path_buf(),
        None => context
            .system
            .file(config::DEFAULT_FILE.trim_start_matches('/')),
    }
}

/// Reads the file. The error lists all mistakes in the file.
pub fn load(file: Option<&Path>, context: &Context) -> Result<Config> {
    let file = file_or_default(file, context);
    load_named(&file, context).map_err(|errors| match unreadable(&file, &errors) {
        Some(error) => error,
        None => wrong(&file, &errors, ", nothing was changed")
            .hint("rnbdctl config check FILE checks a file without changing anything"),
    })
}

/// Reads the file. A session without a name gets the name of this machine's session with the
/// server.
fn load_named(file: &Path, context: &Context) -> std::result::Result<Config, ConfigErrors> {
    let namer =
        |server: &str, purpose: &str| identity::session_name(&context.system, server, purpose);
    Config::load(file, &namer)
}

/// The error of a file that could not be read at all.
fn unreadable(file: &Path, errors: &ConfigErrors) -> Option<Error> {
    let error = errors.0.first().filter(|error| error.position.is_none())?;
    let name = file.display().to_string();
    Some(Error::new(Kind::BadConfig, name, error.message.as_str()))
}

fn wrong(file: &Path, errors: &ConfigErrors, more: &str) -> Error {
    let lines: Vec<_> = errors
        .0
        .iter()
        .map(|error| format!("\n  {error}"))
        .collect();
    let count = match lines.len() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let why = format!("{count}{more}:{}", lines.concat());
    Error::new(Kind::BadConfig, file.display().to_string(), why)
}

/// The content of a file in numbers, or its mistakes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checked {
    version: Version,
    /// The file's name.
    file: String,
    /// The number of sessions; 0 if the file is wrong.
    sessions: usize,
    /// The number of devices; 0 if the file is wrong.
    devices: usize,
    /// The mistakes.
    errors: Vec<Mistake>,
}

/// A mistake in a file.
#[derive(Debug, Serialize, JsonSchema)]
struct Mistake {
    /// The line, from 1; `None` if the file could not be read.
    line: Option<usize>,
    /// The column, from 1.
    column: Option<usize>,
    /// The key of the file.
    key: String,
    /// The mistake.
    message: String,
}

impl Mistake {
    fn new(error: &ConfigError) -> Self {
        Self {
            line: error.position.map(|(line, _)| line),
            column: error.position.map(|(_, column)| column),
            key: error.key.clone(),
            message: error.message.clone(),
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::number("line", "LINE"),
    Column::number("column", "COLUMN"),
    Column::text("key", "KEY"),
    Column::text("message", "MISTAKE").wraps(),
];

impl Report for Checked {
    fn tables(&self) -> Vec<Table> {
        let row = |mistake: &Mistake| {
            vec![
                Cell::option(mistake.line),
                Cell::option(mistake.column),
                Cell::new(&mistake.key),
                Cell::new(&mistake.message),
            ]
        };
        vec![Table {
            kind: "mistake",
            title: "Mistakes".to_owned(),
            columns: COLUMNS,
            rows: self.errors.iter().map(row).collect(),
            empty: format!(
                "{}: fine; sessions: {}, devices: {}",
                self.file, self.sessions, self.devices
            ),
        }]
    }
}

fn check(file: Option<&Path>, context: &Context) -> Result {
    let file = file_or_default(file, context);
    let result = load_named(&file, context);
    let config = result.as_ref().ok();
    let report = Checked {
        version: JSON_VERSION,
        file: file.display().to_string(),
        sessions: config.map_or(0, |config| config.sessions.len()),
        devices: config.map_or(0, Config::device_count),
        errors: match &result {
            Ok(_) => Vec::new(),
            Err(errors) => errors.0.iter().map(Mistake::new).collect(),
        },
    };
    let is_for_people = context.output.format() == crate::output::Format::Table;
    if result.is_ok() || !is_for_people {
        context.output.print(&report)?;
    }
    result
        .map(drop)
        .map_err(|errors| unreadable(&file, &errors).unwrap_or_else(|| wrong(&file, &errors, "")))
}

fn save(file: &Path, force: bool, context: &Context) -> Result {
    let what = format!("saving to {}", file.display());
    // Without the module no device is mapped, and an empty file would replace the user's.
    context.system.need_client(&what)?;
    let client = context.system.client()?;
    let text = running::file_text(&client);
    let exists = file.symlink_metadata().is_ok();
    if exists && !force {
        return Err(Error::new(Kind::Busy, what, "the file exists already")
            .hint("overwrite the file with --force"));
    }
    write_whole(file, &text).map_err(|error| Error::io(what, &error))?;
    context.output.say(&format!(
        "{}: sessions: {}, devices: {}",
        file.display(),
        client.sessions.len(),
        client.devices.len()
    ))
}

/// Writes a file so that at any time there is the whole old file or the whole new file.
pub(crate) fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = folder.join(name);
    let write = || {
        let mut handle = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        handle.write_all(text.as_bytes())?;
        handle.sync_all()?;
        fs::rename(&temporary, file)
    };
    write().inspect_err(|_| {
        // The caller gets the first error; this one does not matter.
        let _ = fs::remove_file(&temporary);
    })
}
