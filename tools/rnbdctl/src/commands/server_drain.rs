// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl server drain`: the server goes away on purpose.

use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

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

/// The time between two looks whether clients have left.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long clients hold their requests until this server is back: 90s, 10m, 2h; up to 1d
    #[arg(long = "for", value_name = "DURATION", default_value = "10m")]
    #[arg(value_parser = parse_duration)]
    pub duration: u32,

    /// How long to wait until the clients have left
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = parse_duration)]
    pub wait: u32,

    /// End the drain: let clients in again
    #[arg(long, conflicts_with_all = ["duration", "wait"])]
    pub cancel: bool,
}

fn parse_duration(text: &str) -> std::result::Result<u32, String> {
    match output::parse_duration(text)? {
        seconds @ 1..=MAX_SECONDS => Ok(seconds),
        _ => Err("give a time between 1s and 1d".to_owned()),
    }
}

/// Begins or ends the drain. A drain waits until all clients have left that can leave.
pub fn run(args: &Args, context: &Context) -> Result {
    let kernel = context.system.sys(FILE);
    present(context, &kernel)?;
    if args.cancel {
        drain::set(&kernel, 0)?;
        return context.output.say("clients are let in again");
    }
    drain::set(&kernel, args.duration)?;
    let draining = wait(args, context, &kernel)?;
    check_all_left(&draining, context)?;
    context.output.say(&format!(
        "unload the modules (modprobe -r rnbd_server) or shut down within {} s, or let clients in \
         again with: rnbdctl server drain --cancel",
        draining.left
    ))
}

/// Waits until no client is about to leave any more, or for as long as the arguments say. Fails if
/// the drain ended before.
fn wait(args: &Args, context: &Context, kernel: &Path) -> Result<Draining> {
    let began = Instant::now();
    let mut is_first = true;
    loop {
        let Some(draining) = drain::read(kernel)? else {
            let why = "the drain ended before all clients had left";
            return Err(Error::new(Kind::Failed, "draining", why)
                .hint("the drain was cancelled or its time is over; clients are let in again"));
        };
        if draining.leaving == 0 || began.elapsed().as_secs() >= u64::from(args.wait) {
            return Ok(draining);
        }
        if is_first {
            let text = format!("waiting for {} to leave", sessions(draining.leaving));
            context.output.say(&text)?;
            is_first = false;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// `number` sessions, in words.
fn sessions(number: u32) -> String {
    match number {
        1 => "1 session".to_owned(),
        _ => format!("{number} sessions"),
    }
}

/// Fails if the server cannot drain.
fn present(context: &Context, kernel: &Path) -> Result {
    if kernel.exists() {
        return Ok(());
    }
    let error = |why| Error::new(Kind::Unsupported, "draining", why);
    Err(if context.system.server_loaded() {
        error("the loaded rnbd_server cannot drain")
            .hint("rnbd_server is older than 0.2.0 or the C module; unloading cuts off its clients")
    } else {
        error("the module rnbd_server is not loaded").hint("there is nothing to drain")
    })
}

/// Says that all clients have left, or fails with the names of the sessions that have not.
fn check_all_left(draining: &Draining, context: &Context) -> Result {
    let (leaving, staying) = (draining.leaving, draining.staying);
    if leaving == 0 && staying == 0 {
        return context.output.say("all clients have left");
    }
    let mut why = Vec::new();
    if leaving != 0 {
        why.push(format!(
            "{} that should have left by now",
            sessions(leaving)
        ));
    }
    if staying != 0 {
        let text = format!(
            "{} of clients that do not know of drains",
            sessions(staying)
        );
        why.push(text);
    }
    let names: Vec<_> = (context.system.server_sessions()?.into_iter())
        .map(|session| session.name.as_str().to_owned())
        .collect();
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(": {}", names.join(", "))
    };
    let why = format!("still connected: {}{names}", why.join(" and "));
    Err(Error::new(Kind::Busy, "draining", why).hint(
        "these sessions are cut off when the modules are unloaded (modprobe -r rnbd_server), and \
         clients that have left wait; or let clients in again with: rnbdctl server drain --cancel",
    ))
}
