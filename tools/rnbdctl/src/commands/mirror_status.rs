// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl mirror status`: shows mirrors, their legs, and the progress of copying.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::complete;
use crate::mirror::act;
use crate::mirror::record::Records;
use crate::mirror::start;
use crate::mirror::start::Decision;
use crate::mirror::tend::LegState;
use crate::mirror::view::State;
use crate::mirror::MirrorName;
use crate::mirror::View;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::Result;
use crate::System;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this mirror
    #[arg(value_parser = MirrorName::new, add = complete::mirrors())]
    pub name: Option<MirrorName>,
}

/// The mirrors of this machine.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listing {
    version: Version,
    /// The mirrors, by name.
    mirrors: Vec<Mirror>,
}

/// A mirror.
#[derive(Debug, Serialize, JsonSchema)]
struct Mirror {
    /// The name.
    name: String,
    /// The UUID, which is on all legs: 32 hexadecimal digits.
    uuid: String,
    /// The state.
    state: State,
    /// The device node, `/dev/md/NAME`; `None` if the mirror does not run.
    path: Option<String>,
    /// The kernel's name, as `md127`; `None` if the mirror does not run.
    md: Option<String>,
    /// The size in bytes; `None` if the mirror does not run.
    size_bytes: Option<u64>,
    /// Whether the legs are reserved for this machine.
    reserved: bool,
    /// What md does to the legs: `idle`, `recover`, `resync` or `check`; `None` if the mirror does
    /// not run.
    action: Option<String>,
    /// The bytes of a leg that md has copied or compared; `None` if md does neither.
    done_bytes: Option<u64>,
    /// The bytes of a leg that md has to copy or compare in all.
    total_bytes: Option<u64>,
    /// The speed of that.
    bytes_per_second: Option<u64>,
    /// The reason why the mirror does not run; `None` if it runs.
    why: Option<String>,
    /// The legs.
    legs: Vec<Leg>,
}

/// A leg of a mirror.
#[derive(Debug, Serialize, JsonSchema)]
struct Leg {
    /// The name: `DISK@SESSION`.
    name: String,
    /// The disk's path at the server.
    disk: String,
    /// The session.
    session: String,
    /// The kernel's name of the disk, `rnbd0`; `None` if the disk is not mapped.
    device: Option<String>,
    /// The state.
    state: LegState,
    /// Whether reads avoid the leg.
    write_mostly: bool,
    /// Whether md marks requests to the leg to fail fast.
    failfast: bool,
    /// When the leg got all data, or began to lack data, in seconds since 1970.
    since: u64,
}

/// Shows the mirrors.
pub fn run(args: &Args, context: &Context) -> Result {
    let records = Records::of(&context.system);
    let names = match &args.name {
        Some(name) => vec![records.need(name)?.name],
        None => records.names()?,
    };
    let mut mirrors = Vec::new();
    let mut damaged = Ok(());
    for name in names {
        match records.load(&name) {
            Ok(Some(record)) => {
                let mut view = View::load(&context.system, record)?;
                view.read_legs(&context.system);
                mirrors.push(mirror(&context.system, &view));
            }
            // The mirror was removed meanwhile.
            Ok(None) => (),
            // The other mirrors are shown all the same.
            Err(error) => damaged = damaged.and(Err(error)),
        }
    }
    context.output.print(&Listing {
        version: JSON_VERSION,
        mirrors,
    })?;
    damaged
}

fn mirror(system: &System, view: &View) -> Mirror {
    let states = view.states();
    let array = view.array.as_ref();
    let progress = array.and_then(|array| array.progress);
    let legs = view.record.legs.iter().zip(&view.legs).zip(&states);
    Mirror {
        name: view.record.name.to_string(),
        uuid: view.record.uuid.clone(),
        state: view.state(&states),
        path: array.map(|_| view.record.name.node()),
        md: array.map(|array| array.md.clone()),
        size_bytes: array.and_then(|array| array.size),
        reserved: view.record.reserve,
        action: array.map(|array| array.action.clone()),
        done_bytes: progress.map(|(done, _)| done),
        total_bytes: progress.map(|(_, all)| all),
        bytes_per_second: progress.and_then(|_| array?.speed),
        why: why(system, view),
        legs: legs
            .map(|((record, leg), &state)| Leg {
                name: record.name.to_string(),
                disk: record.name.disk.clone(),
                session: record.name.session.clone(),
                device: leg.device.as_ref().map(|device| device.name.clone()),
                state,
                write_mostly: record.write_mostly,
                failfast: record.failfast,
                since: record.since,
            })
            .collect(),
    }
}

/// Returns the reason why the mirror does not run, as far as the superblocks and the record say.
/// Only a start finds out whether another machine has reserved the legs.
fn why(system: &System, view: &View) -> Option<String> {
    if view.array.is_some() {
        return None;
    }
    if Records::of(system).is_held(&view.record.name) {
        return Some("an administrator stopped the mirror".to_owned());
    }
    if view.record.released {
        return Some("this machine gave the mirror up for another machine".to_owned());
    }
    let kept = vec![true; view.legs.len()];
    let stopped = view.record.stopped.map(|stopped| stopped.events);
    match start::decide(&view.for_start(&kept), stopped) {
        Decision::Start(_) => Some(format!(
            "the legs that are here allow a start, unless another machine has reserved them: \
             rnbdctl mirror assemble {}",
            view.record.name
        )),
        Decision::Refuse(reason) => Some(act::refusal(view, &reason)),
    }
}

const MIRRORS: &[Column] = &[
    Column::text("name", "MIRROR"),
    Column::text("path", "DEVICE"),
    Column::text("state", "STATE"),
    Column::number("size_bytes", "SIZE").rank(2),
    Column::text("action", ""),
    Column::number("done_bytes", "COPIED").rank(1),
    Column::number("total_bytes", "OF").rank(1),
    Column::number("bytes_per_second", "A SECOND").rank(3),
    Column::text("why", "").wraps(),
];

const LEGS: &[Column] = &[
    Column::text("mirror", "MIRROR"),
    Column::text("leg", "LEG"),
    Column::text("device", "DEVICE"),
    Column::text("state", "STATE"),
    Column::text("write_mostly", "WRITE-MOSTLY").rank(1),
    Column::text("failfast", "FAILFAST").rank(2),
    Column::number("since", "SINCE"),
];

impl Report for Listing {
    fn tables(&self) -> Vec<Table> {
        let empty = "no mirror: make one with rnbdctl mirror create".to_owned();
        let mirrors = Table {
            kind: "mirror",
            title: "Mirrors".to_owned(),
            columns: MIRRORS,
            rows: self.mirrors.iter().map(mirror_row).collect(),
            empty: empty.clone(),
        };
        let legs = self.mirrors.iter().flat_map(|mirror| {
            mirror
                .legs
                .iter()
                .map(move |leg| leg_row(&mirror.name, leg))
        });
        let legs = Table {
            kind: "leg",
            title: "Legs".to_owned(),
            columns: LEGS,
            rows: legs.collect(),
            empty,
        };
        vec![mirrors, legs]
    }

    fn notes(&self) -> Vec<String> {
        let why = |mirror: &Mirror| Some(format!("{}: {}", mirror.name, mirror.why.as_ref()?));
        self.mirrors.iter().filter_map(why).collect()
    }
}

fn mirror_row(mirror: &Mirror) -> Vec<Cell> {
    let tone = match mirror.state {
        State::Whole => Tone::Good,
        State::Recovering | State::Degraded => Tone::Warning,
        State::Broken | State::Stopped => Tone::Bad,
    };
    let size = |bytes: Option<u64>| Cell::value(bytes, |bytes| output::bytes(*bytes));
    vec![
        Cell::new(&mirror.name),
        Cell::option(mirror.path.as_ref()),
        Cell::new(mirror.state.as_str()).tone(tone),
        size(mirror.size_bytes),
        Cell::option(mirror.action.as_ref()),
        size(mirror.done_bytes),
        size(mirror.total_bytes),
        size(mirror.bytes_per_second),
        Cell::option(mirror.why.as_ref()),
    ]
}

fn leg_row(mirror: &str, leg: &Leg) -> Vec<Cell> {
    let tone = match leg.state {
        LegState::InSync => Tone::Good,
        LegState::Filling | LegState::Behind | LegState::ToFill | LegState::Replaced => {
            Tone::Warning
        }
        _ => Tone::Bad,
    };
    vec![
        Cell::new(mirror),
        Cell::new(&leg.name),
        Cell::option(leg.device.as_ref()),
        Cell::new(leg.state.as_str()).tone(tone),
        Cell::new(leg.write_mostly),
        Cell::new(leg.failfast),
        Cell::new(leg.since),
    ]
}
