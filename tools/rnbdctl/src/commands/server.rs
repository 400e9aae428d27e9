// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl server`: what this machine exports.

use super::each;
use super::list;
use super::server_apply;
use super::server_drain;
use super::server_policy;
use crate::cli::Context;
use crate::complete;
use crate::control;
use crate::model::Export;
use crate::model::Path;
use crate::output;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do as a server.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List exported devices, and the sessions and paths of clients
    List(ListArgs),
    /// Disconnect a client's session or one of its paths; the client may connect again
    Disconnect(DisconnectArgs),
    /// Close a device that a client has mapped; requests fail until the client remaps the device
    ForceClose(ForceCloseArgs),
    /// Drain this server: clients leave, and hold their requests until the server is back
    Drain(server_drain::Args),
    /// Apply /etc/rnbd/server.toml: load the modules, the keys and the export policy
    Apply(server_apply::Args),
    /// Load, check, show or clear the export policy: which client may map which disk
    Policy(server_policy::Args),
}

/// The arguments of `server list`.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Only objects of this kind
    #[arg(value_enum)]
    pub what: Option<list::What>,
}

/// The arguments of `server disconnect`.
#[derive(Debug, clap::Args)]
pub struct DisconnectArgs {
    /// A client's session, or one of its paths: SOURCE@ADDRESS, or ADDRESS if only one path has it
    #[arg(value_name = "SESSION|PATH", add = complete::server_sessions())]
    pub name: String,

    /// The session of the path
    #[arg(short, long)]
    pub session: Option<String>,

    /// Also if the client has mapped devices
    #[arg(short, long)]
    pub force: bool,
}

/// The arguments of `server force-close`.
#[derive(Debug, clap::Args)]
pub struct ForceCloseArgs {
    /// The exported device: sda, or /dev/sda
    #[arg(add = complete::exports())]
    pub device: String,

    /// The client's session; may be left out if only one session has mapped the device
    pub session: Option<String>,

    /// Do not ask for confirmation
    #[arg(short, long)]
    pub force: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.command {
        Command::List(args) => {
            let args = list::Args {
                what: args.what,
                client: false,
                server: true,
            };
            list::run(&args, context)
        }
        Command::Disconnect(args) => disconnect(args, context),
        Command::ForceClose(args) => force_close(args, context),
        Command::Drain(args) => server_drain::run(args, context),
        Command::Apply(args) => server_apply::run(args, context),
        Command::Policy(args) => server_policy::run(args, context),
    }
}

fn disconnect(args: &DisconnectArgs, context: &Context) -> Result {
    let system = &context.system;
    system.need_server(&format!("disconnecting {}", args.name))?;
    let session = match args.session {
        None => system.server_session(&args.name)?,
        Some(_) => None,
    };
    let paths = match session {
        Some(session) => {
            let what = format!("disconnecting session {}", session.name);
            agree(args.force, &what, &session.name, context)?;
            session.paths
        }
        None => {
            let path = server_path(args, context)?;
            if is_only_path(&path, context)? {
                let what = format!("disconnecting {}", path.name);
                agree(args.force, &what, &path.session, context)?;
            }
            vec![path]
        }
    };
    let name = |path: &Path| format!("disconnecting {}", path.name);
    let done = each(&paths, name, |path| {
        control::path::disconnect(path)?;
        Ok(path.clone())
    });
    done.finish(context, |path| {
        format!("disconnected {} of session {}", path.name, path.session)
    })
}

/// The client's path that the user means. The error also speaks of sessions, as the user may have
/// meant a session.
fn server_path(args: &DisconnectArgs, context: &Context) -> Result<Path> {
    let found = context
        .system
        .find_server_path(&args.name, args.session.as_deref());
    found.map_err(|error| match error.kind() {
        Kind::NotFound => Error::new(
            Kind::NotFound,
            format!("disconnecting {}", args.name),
            "no client has a session or a path of that name",
        )
        .hint("list sessions and paths with: rnbdctl server list"),
        _ => error,
    })
}

fn is_only_path(path: &Path, context: &Context) -> Result<bool> {
    let session = context.system.server_session(&path.session)?;
    Ok(session.is_none_or(|session| session.paths.len() <= 1))
}

/// Asks before a client loses the devices that it has mapped.
fn agree(is_forced: bool, what: &str, session: &str, context: &Context) -> Result {
    let mut devices = context.system.server_devices()?;
    devices.retain(|device| {
        device
            .exports
            .iter()
            .any(|export| export.session == session)
    });
    if devices.is_empty() {
        return Ok(());
    }
    let names = output::names(devices.iter().map(|device| device.name.as_str()));
    let danger = format!("the client has {names} mapped, and is cut off until it connects again");
    output::confirm(is_forced, what, &danger)
}

fn force_close(args: &ForceCloseArgs, context: &Context) -> Result {
    let name = args.device.strip_prefix("/dev/").unwrap_or(&args.device);
    let what = format!("closing {name}");
    context.system.need_server(&what)?;
    let devices = context.system.server_devices()?;
    let mut exports: Vec<Export> = match devices.into_iter().find(|device| device.name == name) {
        Some(device) => device.exports,
        None => {
            let error = Error::new(Kind::NotFound, what, "no client has mapped the device");
            return Err(error.hint("list the mapped devices with: rnbdctl server list devices"));
        }
    };
    if let Some(session) = &args.session {
        exports.retain(|export| export.session == *session);
    }
    match exports.as_slice() {
        [export] => {
            let danger = format!(
                "requests of session {} for {name} fail until the client remaps the device",
                export.session
            );
            output::confirm(args.force, &what, &danger)?;
            control::export::force_close(name, export)?;
            context
                .output
                .say(&format!("closed {name} of session {}", export.session))
        }
        [] => Err(
            Error::new(Kind::NotFound, what, "the session has not mapped the disk")
                .hint("list its sessions with: rnbdctl server list devices"),
        ),
        several => {
            let sessions: Vec<_> = several
                .iter()
                .map(|export| export.session.as_str())
                .collect();
            let why = format!(
                "several sessions have mapped the device: {}",
                sessions.join(", ")
            );
            Err(Error::new(Kind::Usage, what, why).hint("give the session, too"))
        }
    }
}
