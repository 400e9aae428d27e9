// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl server drain`: the server goes away on purpose.

use std::path::Path;
use std::thread;
use std::time::Duration;

use proto::drain::MAX_SECONDS;

use crate::cli::Context;
use crate::control::drain;
use crate::control::drain::Draining;
use crate::output;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The kernel's file.
const FILE: &str = "class/rnbd-server/ctl/drain";

/// How often to look whether clients have left.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long clients wait for this server to be back: 90s, 10m, 2h; up to 1d
    #[arg(long = "for", value_name = "DURATION", default_value = "10m")]
    #[arg(value_parser = parse_duration)]
    pub duration: u32,

    /// End it: let clients in again
    #[arg(long, conflicts_with = "duration")]
    pub cancel: bool,
}

fn parse_duration(text: &str) -> std::result::Result<u32, String> {
    match output::parse_duration(text)? {
        seconds @ 1..=MAX_SECONDS => Ok(seconds),
        _ => Err("it must be between 1s and 1d".to_owned()),
    }
}

/// Does it, and waits until those clients have left that can.
pub fn run(args: &Args, context: &Context) -> Result {
    let kernel = context.system.sys(FILE);
    present(context, &kernel)?;
    if args.cancel {
        drain::set(&kernel, 0)?;
        return context.output.say("clients are let in again");
    }
    drain::set(&kernel, args.duration)?;
    let Some(draining) = wait(&kernel)? else {
        let why = "it ended before all clients had left";
        return Err(Error::new(Kind::Failed, "draining", why).hint(
            "give it more time with --for; what the clients wait for is in their kernel logs",
        ));
    };
    say(&draining, context)
}

/// Waits until no client is about to leave any more; `None` if the drain ended before.
fn wait(kernel: &Path) -> Result<Option<Draining>> {
    loop {
        match drain::read(kernel)? {
            Some(draining) if draining.leaving != 0 => thread::sleep(LOOK_AGAIN),
            state => return Ok(state),
        }
    }
}

/// An error unless the server can drain.
fn present(context: &Context, kernel: &Path) -> Result {
    if kernel.exists() {
        return Ok(());
    }
    let error = |why| Error::new(Kind::Unsupported, "draining", why);
    Err(if context.system.server_loaded() {
        error("the loaded rnbd_server cannot do that")
            .hint("it is older than 0.2.0, or the C module; unload it, and its clients are cut off")
    } else {
        error("the module rnbd_server is not loaded").hint("there is nothing to drain")
    })
}

/// Says who stays, and what to do next.
fn say(draining: &Draining, context: &Context) -> Result {
    let output = &context.output;
    if draining.staying == 0 {
        output.say("all clients have left")?;
    } else {
        let sessions = context.system.server_sessions()?;
        let names: Vec<_> = sessions
            .iter()
            .map(|session| session.name.as_str())
            .collect();
        output.say(&format!(
            "all clients have left but those that do not know of this, which will be cut off: {}",
            names.join(", ")
        ))?;
    }
    output.say(&format!(
        "they wait for {} s: unload the modules (modprobe -r rnbd_server) or shut down, or let \
         clients in again with: rnbdctl server drain --cancel",
        draining.left
    ))
}
