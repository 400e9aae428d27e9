// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl mirror`: mirrors over disks of several servers.

use super::config;
use super::mirror_status;
use super::mirror_watch;
use crate::cli::Context;
use crate::complete;
use crate::mirror::act;
use crate::mirror::act::StartOptions;
use crate::mirror::create;
use crate::mirror::create::Plan;
use crate::mirror::create::PlannedLeg;
use crate::mirror::record::Records;
use crate::mirror::replace;
use crate::mirror::stop;
use crate::mirror::stop::Left;
use crate::mirror::stop::StopOptions;
use crate::mirror::LegName;
use crate::mirror::MirrorName;
use crate::output::confirm;
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

/// What to do with mirrors.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a mirror of mapped disks of several servers, and start it
    Create(CreateArgs),
    /// Show mirrors, their legs, and the progress of copying
    Status(mirror_status::Args),
    /// Start a mirror from the legs that have all data
    Assemble(AssembleArgs),
    /// Stop a mirror; the mirror stays stopped until it is started or, without --release, until the
    /// machine boots
    Stop(StopArgs),
    /// Replace a leg by a mapped disk, which md fills
    Replace(ReplaceArgs),
    /// Stop a mirror for good, and take md's superblocks off its legs
    Remove(RemoveArgs),
    /// Start mirrors whose legs are there, and bring legs back; runs until it is ended
    Watch(mirror_watch::Args),
}

/// The arguments of `mirror create`.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Name of the mirror; its device is /dev/md/NAME
    #[arg(value_parser = MirrorName::new)]
    pub name: MirrorName,

    /// Mapped disks of two or more servers: each the disk's path at the server, and its session
    /// [default: those of rnbd.toml]
    #[arg(value_name = "DISK@SESSION", value_parser = leg)]
    pub legs: Vec<LegName>,

    /// A leg that reads avoid, as it is far away
    #[arg(long, value_name = "DISK@SESSION", value_parser = leg, requires = "legs")]
    pub write_mostly: Vec<LegName>,

    /// Do not have md mark requests to fail fast
    #[arg(long, requires = "legs")]
    pub no_failfast: bool,

    /// Do not reserve the legs: a second machine can then write to them
    #[arg(long, requires = "legs")]
    pub no_reserve: bool,

    /// Copy nothing now: all disks have the same data, as new disks of zeroes have
    #[arg(long)]
    pub assume_clean: bool,

    /// Take disks with data, which is lost, and disks of different sizes
    #[arg(short, long)]
    pub force: bool,
}

/// The arguments of `mirror assemble`.
#[derive(Debug, clap::Args)]
pub struct AssembleArgs {
    /// The mirror
    #[arg(value_parser = MirrorName::new, add = complete::mirrors())]
    pub name: MirrorName,

    /// Its legs, if this machine has no record of it [default: those of rnbd.toml]
    #[arg(value_name = "DISK@SESSION", value_parser = leg)]
    pub legs: Vec<LegName>,

    /// Start even if missing legs may have newer data; that data is lost
    #[arg(long)]
    pub force_stale: bool,

    /// Start from this leg only
    #[arg(long, value_name = "DISK@SESSION", value_parser = leg)]
    pub from: Option<LegName>,

    /// Take the legs over if another machine has reserved them; its writes then fail
    #[arg(long)]
    pub take_over: bool,
}

/// The arguments of `mirror stop`.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// The mirror
    #[arg(value_parser = MirrorName::new, add = complete::mirrors())]
    #[arg(required_unless_present = "all")]
    pub name: Option<MirrorName>,

    /// Stop all mirrors
    #[arg(long, conflicts_with = "name")]
    pub all: bool,

    /// Give up the reservations, so that another machine can start the mirror; this machine then
    /// does not start the mirror at boot
    #[arg(long)]
    pub release: bool,

    /// With --all: the service may start the mirrors again, as the machine only stops its services
    #[arg(long, requires = "all", conflicts_with = "release")]
    pub for_shutdown: bool,
}

/// The arguments of `mirror replace`.
#[derive(Debug, clap::Args)]
pub struct ReplaceArgs {
    /// The mirror
    #[arg(value_parser = MirrorName::new, add = complete::mirrors())]
    pub name: MirrorName,

    /// The leg to replace
    #[arg(value_name = "OLD-DISK@SESSION", value_parser = leg)]
    pub old: LegName,

    /// The mapped disk that replaces the leg [default: the same name, for a disk that was
    /// exchanged at the server]
    #[arg(value_name = "NEW-DISK@SESSION", value_parser = leg)]
    pub new: Option<LegName>,

    /// Reads avoid the new leg, as it is far away
    #[arg(long)]
    pub write_mostly: bool,

    /// Do not have md mark requests to the new leg to fail fast
    #[arg(long)]
    pub no_failfast: bool,

    /// Take a disk with data, which is lost; fill a leg anew that has all data
    #[arg(short, long)]
    pub force: bool,
}

/// The arguments of `mirror remove`.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// The mirror
    #[arg(value_parser = MirrorName::new, add = complete::mirrors())]
    pub name: MirrorName,

    /// Do not ask for confirmation
    #[arg(short, long)]
    pub force: bool,
}

fn leg(text: &str) -> std::result::Result<LegName, String> {
    LegName::parse(text).ok_or_else(|| {
        "a leg is DISK@SESSION: the disk's path at the server, and the session".to_owned()
    })
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.command {
        Command::Create(args) => create(args, context),
        Command::Status(args) => mirror_status::run(args, context),
        Command::Assemble(args) => assemble(args, context),
        Command::Stop(args) => stop(args, context),
        Command::Replace(args) => replace(args, context),
        Command::Remove(args) => remove(args, context),
        Command::Watch(args) => mirror_watch::run(args, context),
    }
}

fn create(args: &CreateArgs, context: &Context) -> Result {
    let planned = |name: &LegName| PlannedLeg {
        name: name.clone(),
        write_mostly: args.write_mostly.contains(name),
        failfast: !args.no_failfast,
    };
    let what = format!("creating mirror {}", args.name);
    if let Some(other) = args
        .write_mostly
        .iter()
        .find(|leg| !args.legs.contains(leg))
    {
        return Err(Error::new(
            Kind::Usage,
            what,
            format!("--write-mostly {other}: not among the given legs"),
        ));
    }
    let (legs, reserve) = match args.legs.is_empty() {
        false => (args.legs.iter().map(planned).collect(), !args.no_reserve),
        true => from_file(&args.name, &what, context)?,
    };
    let plan = Plan {
        name: args.name.clone(),
        legs,
        reserve,
        assume_clean: args.assume_clean,
        force: args.force,
    };
    let node = create::create(&context.system, &plan)?;
    context.output.say(&format!("created {node}"))
}

/// Returns the legs of a mirror from rnbd.toml, and whether they are reserved.
fn from_file(name: &MirrorName, what: &str, context: &Context) -> Result<(Vec<PlannedLeg>, bool)> {
    let config = config::load(None, context)?;
    let found = config
        .mirrors
        .into_iter()
        .find(|mirror| mirror.name == *name);
    found
        .map(|mirror| (mirror.legs, mirror.reserve))
        .ok_or_else(|| {
            Error::new(
                Kind::NotFound,
                what,
                "rnbd.toml has no [[mirror]] of that name",
            )
            .hint("give the legs on the command line, as DISK@SESSION")
        })
}

fn assemble(args: &AssembleArgs, context: &Context) -> Result {
    let options = StartOptions {
        force_stale: args.force_stale,
        take_over: args.take_over,
        advice: None,
        only: args.from.clone(),
    };
    let is_known = Records::of(&context.system).load(&args.name)?.is_some();
    let node = match is_known && args.legs.is_empty() {
        true => act::start(&context.system, &args.name, &options)?,
        false => {
            let what = format!("starting mirror {}", args.name);
            let (legs, reserve) = match args.legs.is_empty() {
                true => from_file(&args.name, &what, context)?,
                false => {
                    let named = args.legs.iter().cloned();
                    let planned = named.map(|name| PlannedLeg {
                        name,
                        write_mostly: false,
                        failfast: true,
                    });
                    (planned.collect(), true)
                }
            };
            let legs = legs.iter().map(|leg| leg.record(false)).collect();
            act::adopt(&context.system, &args.name, legs, reserve, &options)?
        }
    };
    context.output.say(&format!("started {node}"))
}

fn stop(args: &StopArgs, context: &Context) -> Result {
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => Records::of(&context.system).names()?,
    };
    let options = StopOptions {
        release: args.release,
        for_shutdown: args.for_shutdown,
    };
    let name = |name: &MirrorName| format!("stopping mirror {name}");
    // A mirror whose disk hangs holds up no other mirror.
    let done = super::each_at_once(&names, name, |name| {
        let left = stop::stop(&context.system, name, options)?;
        Ok((name.clone(), left))
    });
    done.finish(context, |(name, left)| {
        let left = left
            .iter()
            .map(|Left { leg, why }| format!("; {leg} stays reserved: {why}"));
        format!("stopped mirror {name}{}", left.collect::<String>())
    })
}

fn replace(args: &ReplaceArgs, context: &Context) -> Result {
    let new = PlannedLeg {
        name: args.new.as_ref().unwrap_or(&args.old).clone(),
        write_mostly: args.write_mostly,
        failfast: !args.no_failfast,
    };
    let said = replace::replace(&context.system, &args.name, &args.old, &new, args.force)?;
    context.output.say(&said)
}

fn remove(args: &RemoveArgs, context: &Context) -> Result {
    let what = format!("removing mirror {}", args.name);
    Records::of(&context.system).need(&args.name)?;
    confirm(args.force, &what, "its data cannot be read any more")?;
    let left = stop::remove(&context.system, &args.name)?;
    context
        .output
        .say(&format!("removed mirror {}", args.name))?;
    for Left { leg, why } in left {
        context.output.say(&format!("left {leg} alone: {why}"))?;
    }
    Ok(())
}
