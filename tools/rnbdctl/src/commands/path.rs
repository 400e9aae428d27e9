// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl path`: the paths of this client's sessions.

use proto::addr::PathAddress;
use schemars::JsonSchema;
use serde::Serialize;

use super::each;
use crate::address::path_text;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::ClientDevice;
use crate::model::Path;
use crate::model::Policy;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Report;
use crate::output::Table;
use crate::server_name::ServerName;
use crate::ways::Ways;
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
    /// Connect paths to further addresses of the server
    Add(AddArgs),
    /// Disconnect paths and remove them from their session
    Remove(DangerArgs),
    /// Disconnect paths; they stay disconnected until rnbdctl path reconnect
    Disconnect(DangerArgs),
    /// Reconnect paths immediately
    Reconnect(PathArgs),
    /// Show or set the policy that chooses the path of a request
    Policy(PolicyArgs),
}

/// The arguments of `path add`.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// The session
    #[arg(add = complete::sessions())]
    pub session: String,

    /// The server's address: an IP address, a host name (all its addresses are connected), or
    /// gid:GID; optionally preceded by SOURCE@
    #[arg(required = true, value_name = "[SOURCE@]SERVER", value_parser = ServerName::parse)]
    pub paths: Vec<ServerName>,
}

/// The arguments that name paths.
#[derive(Debug, clap::Args)]
pub struct PathArgs {
    /// The paths: SOURCE@ADDRESS, or ADDRESS if only one path has it
    #[arg(required = true, value_name = "PATH", add = complete::paths())]
    pub paths: Vec<String>,

    /// The session of the paths
    #[arg(short, long, add = complete::sessions())]
    pub session: Option<String>,
}

/// The arguments that name paths which are to go.
#[derive(Debug, clap::Args)]
pub struct DangerArgs {
    /// Which paths.
    #[command(flatten)]
    pub paths: PathArgs,

    /// Do not ask if a path is the last that is up; the session's requests are then held, or fail
    #[arg(short, long)]
    pub force: bool,
}

/// The arguments of `path policy`.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// The session
    #[arg(add = complete::sessions())]
    pub session: String,

    /// The new policy [default: show the present policy]
    #[arg(value_enum)]
    pub policy: Option<Policy>,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.command {
        Command::Add(args) => add(args, context),
        Command::Remove(args) => {
            let words = ("removing", "removed");
            change(&args.paths, context, words, |path| {
                agree(args.force, words.0, path, context)?;
                control::path::remove(path)
            })
        }
        Command::Disconnect(args) => {
            let words = ("disconnecting", "disconnected");
            change(&args.paths, context, words, |path| {
                agree(args.force, words.0, path, context)?;
                control::path::disconnect(path)
            })
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
    let ways = Ways::to(&context.system, &args.paths)?;
    let paths: Vec<PathAddress> = ways.all().copied().collect();
    let done = each(&paths, name, |path| {
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
    run: impl Fn(&Path) -> Result,
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

/// Asks before devices lose the last path that is up.
fn agree(is_forced: bool, doing: &str, path: &Path, context: &Context) -> Result {
    let Some(session) = context.system.client_session(&path.session)? else {
        return Ok(());
    };
    let others = session.paths.iter().filter(|have| have.name != path.name);
    if !path.is_up() || others.into_iter().any(Path::is_up) {
        return Ok(());
    }
    let mut devices = context.system.client_devices()?;
    devices.retain(|device| device.session == session.name);
    if devices.is_empty() {
        return Ok(());
    }
    let groups = session.by_hold_ms(&devices);
    let fates: Vec<_> = groups.iter().map(|(ms, group)| fate(*ms, group)).collect();
    let what = format!("{doing} path {} of session {}", path.name, session.name);
    let danger = format!("no other path of the session is up: {}", fates.join("; "));
    output::confirm(is_forced, &what, &danger)
}

/// What would become of the requests of devices that wait for `hold_ms`.
fn fate(hold_ms: i64, devices: &[&ClientDevice]) -> String {
    let names = output::names(devices.iter().map(|device| device.path.as_str()));
    match hold_ms {
        0 => format!("requests of {names} would fail at once"),
        ms => format!(
            "requests of {names} would be held, and fail after {} s",
            ms.div_euclid(1000)
        ),
    }
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
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Chosen {
    version: Version,
    /// The session.
    session: String,
    /// The path policy; `None` if the module gives an unknown value.
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
