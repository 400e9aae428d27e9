// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl mirror watch`: starts mirrors whose legs are there, and brings legs back.
//!
//! The main thread looks at all mirrors once a second, and whenever md or RNBD announces a change.
//! It reads the kernel's files and the records only, so it does not hang with a disk. A mirror that
//! needs something gets a thread for that work, so that a disk that hangs holds up no other mirror.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use crate::cli::Context;
use crate::events::Wake;
use crate::mirror::array::MemberState;
use crate::mirror::record::Records;
use crate::mirror::repair;
use crate::mirror::repair::TendOptions;
use crate::mirror::repair::Tended;
use crate::mirror::MirrorName;
use crate::mirror::View;
use crate::Error;
use crate::Result;
use crate::System;

/// The delay of a mirror that looks different than before. Each failure of its thread doubles the
/// delay: a thread that fails begins again 2 s after it began, then 4 s, and so on.
const SOON: Duration = Duration::from_secs(1);

/// The longest delay, and the delay after a thread without a failure.
const LATE: Duration = Duration::from_secs(30);

/// The time that a mirror waits for all its legs before it starts from fewer legs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two reservations of the legs of a running mirror. A leg that was away is also
/// reserved when it is back.
const RESERVE: Duration = Duration::from_secs(60);

/// The longest wait before a leg is added that was added a short time ago and has failed since.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The time between two looks if the kernel announces nothing.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that the threads have for their work after SIGTERM. A disk that hangs would
/// keep its thread from ending.
const LAST_WORK: Duration = Duration::from_secs(20);

/// The time between two looks at the threads after SIGTERM.
const SHORT: Duration = Duration::from_millis(50);

/// The arguments: there are none.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The main thread's notes about a mirror.
#[derive(Debug, Default)]
struct Watched {
    /// The mirror's looks when its thread last began; `None` if the thread has done something, as
    /// there may be more to do.
    seen: Option<Looks>,
    /// When the mirror's thread last began.
    begun: Option<Instant>,
    /// The time after `begun` at which the thread begins again though the looks are the same.
    delay: Duration,
    /// Whether the mirror's thread is at work.
    is_busy: bool,
    /// The errors that were printed last. They are not printed again.
    said: Vec<String>,
    /// Since when the mirror does not run, and could be started; `None` if it runs.
    startable: Option<Instant>,
    /// When the legs in the array were last reserved.
    reserved: Option<Instant>,
    /// Whether a leg in the array was away since then.
    was_away: bool,
    /// When a leg was last added, if not all legs had all data since.
    added: Option<Instant>,
    /// The time after `added` in which no leg is added. A leg that fails again and again would
    /// otherwise keep md busy.
    pause: Duration,
    /// Whether the mirror's thread was told to add no leg when it last began.
    paused: bool,
}

impl Watched {
    /// Notes that a leg was added.
    fn note_added(&mut self) {
        self.pause = match self.added {
            Some(_) => self.pause.saturating_mul(2).clamp(SOON, LONGEST_PAUSE),
            None => Duration::ZERO,
        };
        self.added = Some(Instant::now());
    }

    /// Returns whether no leg is to be added now.
    fn pauses(&self) -> bool {
        self.added.is_some_and(|added| added.elapsed() < self.pause)
    }

    /// Notes how the mirror looks, and returns how to tend it; `None` if it needs nothing now.
    fn need(&mut self, looks: &Looks) -> Option<TendOptions> {
        if looks.is_whole() {
            (self.added, self.pause) = (None, Duration::ZERO);
        }
        self.startable = match looks.is_startable() {
            true => self.startable.or_else(|| Some(Instant::now())),
            false => None,
        };
        self.was_away |= looks.is_away();
        let is_due = self.reserved.is_none_or(|last| last.elapsed() >= RESERVE);
        let reserve = looks.runs && (is_due || (self.was_away && !looks.is_away()));
        let begun = self.begun;
        let is_late = begun.is_none_or(|begun| begun.elapsed() >= self.delay);
        let pauses = self.pauses();
        let is_new = self.seen.as_ref() != Some(looks) || (self.paused && !pauses);
        let acts = looks.needs(pauses) && (is_new || is_late);
        if self.is_busy || !(acts || reserve) {
            return None;
        }
        if is_new {
            self.delay = SOON;
        }
        if reserve {
            // A leg that is away is reserved when it is back.
            (self.reserved, self.was_away) = (Some(Instant::now()), looks.is_away());
        }
        self.paused = pauses;
        let patient = self
            .startable
            .is_some_and(|since| since.elapsed() < PATIENCE);
        Some(TendOptions {
            patient,
            reserve,
            pauses,
        })
    }
}

/// The facts that decide whether a mirror may need something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Looks {
    runs: bool,
    /// Whether an administrator has stopped the mirror, or has given it up.
    held: bool,
    broken: bool,
    /// Whether md waits for a program to write before it does anything.
    read_auto: bool,
    /// The number of failed disks, and of spare disks that are no legs.
    useless: usize,
    /// Whether the replacement of a leg is to go on, or has ended.
    replaces: bool,
    legs: Vec<LegLooks>,
}

/// The same of a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LegLooks {
    member: Option<MemberState>,
    /// Whether the disk takes requests.
    is_open: bool,
    /// The number of requests that the server has not responded to in time.
    unanswered: Option<u32>,
    fill: bool,
    leaving: bool,
}

impl Looks {
    fn of(view: &View, held: bool) -> Self {
        let legs = view.legs.iter().zip(&view.record.legs);
        let legs = legs.map(|(leg, record)| LegLooks {
            member: leg.member,
            is_open: leg.open().is_some(),
            unanswered: leg.open().and_then(|device| device.io_unanswered),
            fill: record.fill,
            leaving: record.leaving,
        });
        let array = view.array.as_ref();
        let members = array.into_iter().flat_map(|array| &array.members);
        let faulty = members.filter(|member| member.state == MemberState::Faulty);
        let spares = view.orphans(MemberState::Filling);
        Self {
            runs: array.is_some(),
            held: held || view.record.released,
            broken: array.is_some_and(|array| array.is_broken()),
            read_auto: array.is_some_and(|array| array.is_read_auto()),
            useless: faulty.count().saturating_add(spares.len()),
            replaces: view.stalled_replacement().is_some() || !view.replaced().is_empty(),
            legs: legs.collect(),
        }
    }

    /// Returns whether the mirror does not run, and may be started.
    fn is_startable(&self) -> bool {
        !self.runs && !self.held && self.legs.iter().any(|leg| leg.is_open)
    }

    /// Returns whether all legs have all data.
    fn is_whole(&self) -> bool {
        let mut legs = self.legs.iter();
        self.runs && legs.all(|leg| leg.leaving || leg.member == Some(MemberState::InSync))
    }

    /// Returns whether a leg in the array takes no requests. md need not have noticed that.
    fn is_away(&self) -> bool {
        let mut legs = self.legs.iter();
        legs.any(|leg| leg.member.is_some() && !leg.is_open)
    }

    /// Returns whether the mirror may need something. With `pauses` no leg is added.
    fn needs(&self, pauses: bool) -> bool {
        if !self.runs {
            return self.is_startable();
        }
        let is_outside = |leg: &LegLooks| leg.member.is_none() && leg.is_open && !leg.leaving;
        let has_holes = |leg: &LegLooks| leg.member == Some(MemberState::BadBlocks) && !leg.leaving;
        self.broken
            || self.read_auto
            || self.useless > 0
            || self.replaces
            || (!pauses
                && self
                    .legs
                    .iter()
                    .any(|leg| is_outside(leg) || has_holes(leg)))
    }
}

/// The mirror whose thread has ended, and the thread's result.
type Ended = (MirrorName, Result<Tended>);

/// Watches over all mirrors until the process is ended. After SIGTERM it begins no work, and ends
/// when its threads have ended: a program that they run would go on without the mirror's lock.
pub fn run(_: &Args, context: &Context) -> Result {
    let ends = Arc::new(AtomicBool::new(false));
    flag::register(SIGTERM, Arc::clone(&ends))
        .map_err(|error| Error::io("handling signals", &error))?;
    watch_until(context, |_| true, &ends)
}

/// Watches over the mirrors whose names `is_wanted` takes, until the process is ended. Another
/// process may watch over the same mirrors: one of them works on a mirror at a time.
pub fn watch(context: &Context, is_wanted: fn(&MirrorName) -> bool) -> Result {
    watch_until(context, is_wanted, &AtomicBool::new(false))
}

/// As [`watch`], until `ends` is set, and the threads have ended, or [`LAST_WORK`] is over.
fn watch_until(context: &Context, is_wanted: fn(&MirrorName) -> bool, ends: &AtomicBool) -> Result {
    let system = &context.system;
    // Made before the first look, so that no change is missed.
    let mut wake = Wake::with_mirrors();
    let (sender, ended) = mpsc::channel();
    let mut all: BTreeMap<MirrorName, Watched> = BTreeMap::new();
    let mut failed = None;
    let mut damaged: BTreeMap<MirrorName, Error> = BTreeMap::new();
    let mut ending = None;
    loop {
        for (name, result) in ended.try_iter() {
            report(&name, result, all.entry(name.clone()).or_default(), context)?;
        }
        if ends.load(Ordering::Relaxed) {
            let since = *ending.get_or_insert_with(Instant::now);
            let is_busy = all.values().any(|watched| watched.is_busy);
            if !is_busy || since.elapsed() >= LAST_WORK {
                return Ok(());
            }
            thread::sleep(SHORT);
            continue;
        }
        match look(system, is_wanted, &mut all, &mut damaged, &sender) {
            Ok(news) => {
                failed = None;
                for line in news {
                    context.output.say(&line)?;
                }
            }
            // An error that stays the same is printed once.
            Err(error) if failed.as_ref() == Some(&error) => (),
            Err(error) => {
                error.print();
                failed = Some(error);
            }
        }
        wake.wait(INTERVAL)
            .map_err(|error| Error::io("waiting for events", &error))?;
    }
}

/// Looks at all mirrors once: notes which legs are in sync, and begins a thread for each mirror
/// that may need something. Returns a line for each mirror whose legs in sync have changed.
fn look(
    system: &System,
    is_wanted: fn(&MirrorName) -> bool,
    all: &mut BTreeMap<MirrorName, Watched>,
    damaged: &mut BTreeMap<MirrorName, Error>,
    sender: &mpsc::Sender<Ended>,
) -> Result<Vec<String>> {
    let records = Records::of(system);
    let mut names = records.names()?;
    names.retain(is_wanted);
    all.retain(|name, watched| watched.is_busy || names.contains(name));
    damaged.retain(|name, _| names.contains(name));
    let mut news = Vec::new();
    for name in names {
        // A record that cannot be read does not keep the other mirrors from being tended.
        let (view, is_news) = match repair::note(system, &name) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                if damaged.get(&name) != Some(&error) {
                    error.print();
                    damaged.insert(name, error);
                }
                continue;
            }
        };
        damaged.remove(&name);
        if is_news {
            news.push(in_sync(&view));
        }
        let watched = all.entry(name.clone()).or_default();
        let looks = Looks::of(&view, records.is_held(&name));
        let Some(options) = watched.need(&looks) else {
            continue;
        };
        watched.seen = Some(looks);
        watched.begun = Some(Instant::now());
        let (system, sender) = (system.clone(), sender.clone());
        let work = move || {
            let result = repair::tend(&system, &name, options);
            // Sending fails only if the main thread has stopped: then the program is about to end.
            let _ = sender.send((name, result));
        };
        thread::Builder::new()
            .spawn(work)
            .map_err(|error| Error::io("making a thread", &error))?;
        watched.is_busy = true;
    }
    Ok(news)
}

fn in_sync(view: &View) -> String {
    let legs = view.record.legs.iter();
    let (whole, lacking): (Vec<_>, Vec<_>) = legs.partition(|leg| leg.in_sync);
    let names = |legs: Vec<&crate::mirror::record::Leg>| match legs.is_empty() {
        true => "none".to_owned(),
        false => legs
            .iter()
            .map(|leg| leg.name.to_string())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let name = &view.record.name;
    format!(
        "mirror {name}: in sync: {}; not in sync: {}",
        names(whole),
        names(lacking)
    )
}

/// Prints what a mirror's thread has done, and its errors unless they were printed before.
fn report(
    name: &MirrorName,
    result: Result<Tended>,
    watched: &mut Watched,
    context: &Context,
) -> Result {
    watched.is_busy = false;
    let tended = result.unwrap_or_else(|error| Tended {
        failed: vec![error],
        ..Tended::default()
    });
    if tended.has_added {
        watched.note_added();
    }
    watched.delay = match tended.failed.is_empty() {
        true => LATE,
        false => watched.delay.saturating_mul(2).min(LATE),
    };
    if !tended.done.is_empty() {
        // There may be more to do.
        watched.seen = None;
    }
    for done in &tended.done {
        context.output.say(&format!("mirror {name}: {done}"))?;
    }
    let failed: Vec<_> = tended.failed.iter().map(ToString::to_string).collect();
    if failed != watched.said {
        for error in &tended.failed {
            error.print();
        }
        watched.said = failed;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(runs: bool, legs: &[(Option<MemberState>, bool)]) -> Looks {
        let legs = legs.iter().map(|&(member, is_open)| LegLooks {
            member,
            is_open,
            ..LegLooks::default()
        });
        Looks {
            runs,
            legs: legs.collect(),
            ..Looks::default()
        }
    }

    #[test]
    fn what_may_need_something() {
        use MemberState::*;
        for (looks, needs) in [
            (
                looks(true, &[(Some(InSync), true), (Some(InSync), true)]),
                false,
            ),
            (
                looks(true, &[(Some(InSync), true), (Some(Filling), true)]),
                false,
            ),
            (looks(true, &[(Some(InSync), true), (None, false)]), false),
            (looks(true, &[(Some(InSync), true), (None, true)]), true),
            (
                looks(true, &[(Some(InSync), true), (Some(BadBlocks), true)]),
                true,
            ),
            (looks(false, &[(None, true), (None, false)]), true),
            (looks(false, &[(None, false), (None, false)]), false),
        ] {
            assert_eq!(looks.needs(false), needs, "{looks:?}");
        }
        let held = Looks {
            held: true,
            ..looks(false, &[(None, true)])
        };
        assert!(!held.needs(false));
        let one = || looks(true, &[(Some(InSync), true)]);
        for looks in [
            Looks {
                useless: 1,
                ..one()
            },
            Looks {
                read_auto: true,
                ..one()
            },
            Looks {
                replaces: true,
                ..one()
            },
        ] {
            assert!(looks.needs(true), "{looks:?}");
        }
    }

    #[test]
    fn a_leg_that_fails_again_and_again_is_added_more_and_more_seldom() {
        use MemberState::*;
        let outside = looks(true, &[(Some(InSync), true), (None, true)]);
        let mut watched = Watched::default();
        assert!(watched.need(&outside).is_some());
        watched.note_added();
        assert!(!watched.pauses());
        watched.note_added();
        assert_eq!(watched.pause, SOON);
        assert!(watched.pauses() && !outside.needs(watched.pauses()));
        for _ in 0..20 {
            watched.note_added();
        }
        assert_eq!(watched.pause, LONGEST_PAUSE);
        // The pause counts, too, if the mirror needs something else.
        let useless = Looks {
            useless: 1,
            ..outside.clone()
        };
        assert!(watched.need(&useless).is_some_and(|options| options.pauses));
        watched.seen = Some(useless.clone());
        watched.begun = Some(Instant::now());
        watched.delay = LATE;
        assert!(watched.need(&useless).is_none());
        // When the pause is over, the leg is added at once.
        watched.pause = Duration::ZERO;
        assert!(watched
            .need(&useless)
            .is_some_and(|options| !options.pauses));
        let whole = looks(true, &[(Some(InSync), true), (Some(InSync), true)]);
        watched.need(&whole);
        assert!(!watched.pauses());
    }

    #[test]
    fn legs_are_reserved_again_after_they_were_away() {
        use MemberState::*;
        let whole = looks(true, &[(Some(InSync), true), (Some(InSync), true)]);
        let away = looks(true, &[(Some(InSync), true), (Some(InSync), false)]);
        let mut watched = Watched::default();
        assert!(watched.need(&whole).is_some_and(|options| options.reserve));
        assert_eq!(watched.need(&whole).map(|options| options.reserve), None);
        assert_eq!(watched.need(&away).map(|options| options.reserve), None);
        assert!(watched.need(&whole).is_some_and(|options| options.reserve));
        // The other legs are reserved each minute also while a leg is away.
        assert_eq!(watched.need(&away).map(|options| options.reserve), None);
        watched.reserved = Instant::now().checked_sub(RESERVE);
        assert!(watched.need(&away).is_some_and(|options| options.reserve));
        assert_eq!(watched.need(&away).map(|options| options.reserve), None);
        assert!(watched.need(&whole).is_some_and(|options| options.reserve));
        // A mirror that does not run waits for all its legs at first.
        let stopped = looks(false, &[(None, true), (None, false)]);
        assert!(watched
            .need(&stopped)
            .is_some_and(|options| options.patient && !options.reserve));
    }
}
