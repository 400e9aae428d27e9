// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl path`: the paths of this client's sessions.

use proto::addr::PathAddress;
use serde::Serialize;

use super::each;
use crate::address::parse_path;
use crate::address::path_text;
use crate::cli::Context;
use crate::control;
use crate::model::Path;
use crate::model::Policy;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Report;
use crate::output::Table;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with paths.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Connect to one more address of the server
    Add(AddArgs),
    /// Disconnect paths and forget them
    Remove(PathArgs),
    /// Disconnect paths; they stay so until reconnected by hand
    Disconnect(PathArgs),
    /// Reconnect paths immediately
    Reconnect(PathArgs),
    /// Show or set how the path of a request is chosen
    Policy(PolicyArgs),
}

/// The arguments of `path add`.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// The session
    pub session: String,

    /// The server's address: an IP address, or gid:GID; optionally preceded by SOURCE@
    #[arg(required = true, value_name = "[SOURCE@]ADDRESS", value_parser = parse_path)]
    pub paths: Vec<PathAddress>,
}

/// The arguments that name paths.
#[derive(Debug, clap::Args)]
pub struct PathArgs {
    /// The paths: SOURCE@ADDRESS, or ADDRESS where that is enough
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,

    /// The session that has them
    #[arg(short, long)]
    pub session: Option<String>,
}

/// The arguments of `path policy`.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// The session
    pub session: String,

    /// The policy; what it is now if not given
    #[arg(value_enum)]
    pub policy: Option<Policy>,
}

/// Does it.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.command {
        Command::Add(args) => add(args, context),
        Command::Remove(args) => change(
            args,
            context,
            ("removing", "removed"),
            control::path::remove,
        ),
        Command::Disconnect(args) => {
            let words = ("disconnecting", "disconnected");
            change(args, context, words, control::path::disconnect)
        }
        Command::Reconnect(args) => {
            let words = ("reconnecting", "reconnected");
            change(args, context, words, control::path::reconnect)
        }
        Command::Policy(args) => policy(args, context),
    }
}

fn add(args: &AddArgs, context: &Context) -> Result {
    let session = context.system.find_session(&args.session)?;
    let name = |path: &PathAddress| format!("connecting {}", path_text(path));
    let done = each(&args.paths, name, |path| {
        control::session::add_path(&session, path)?;
        Ok(path_text(path))
    });
    done.finish(context, |path| {
        format!("added {path} to session {}", session.name)
    })
}

fn change(
    args: &PathArgs,
    context: &Context,
    (doing, done): (&str, &str),
    run: fn(&Path) -> Result,
) -> Result {
    let name = |name: &String| format!("{doing} {name}");
    let result = each(&args.paths, name, |name| {
        let path = context.system.find_path(name, args.session.as_deref())?;
        run(&path)?;
        Ok(path)
    });
    result.finish(context, |path| {
        format!("{done} {} of session {}", path.name, path.session)
    })
}

fn policy(args: &PolicyArgs, context: &Context) -> Result {
    let session = context.system.find_session(&args.session)?;
    let name = &session.name;
    match args.policy {
        Some(policy) => {
            control::session::set_policy(&session, policy)?;
            context
                .output
                .say(&format!("session {name}: {}", policy.as_str()))
        }
        None => {
            let chosen = Chosen {
                version: JSON_VERSION,
                session: name.clone(),
                policy: session.policy,
            };
            match context.output.format() {
                Format::Table => context.output.say(chosen.word()),
                _ => context.output.print(&chosen),
            }
        }
    }
}

/// The policy of a session.
#[derive(Debug, Serialize)]
struct Chosen {
    version: u32,
    session: String,
    policy: Option<Policy>,
}

impl Chosen {
    fn word(&self) -> &'static str {
        self.policy.map_or("unknown", Policy::as_str)
    }
}

const POLICY: &[Column] = &[
    Column::text("session", "SESSION"),
    Column::text("policy", "POLICY"),
];

impl Report for Chosen {
    fn tables(&self) -> Vec<Table> {
        vec![Table {
            kind: "policy",
            title: "Policy".to_owned(),
            columns: POLICY,
            rows: vec![vec![Cell::new(&self.session), Cell::new(self.word())]],
            empty: String::new(),
        }]
    }
}
