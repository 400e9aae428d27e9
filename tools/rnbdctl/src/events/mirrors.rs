// SPDX-License-Identifier: GPL-2.0

//! The changes of mirrors between two moments.

use super::Event;
use super::What;
use crate::mirror::View;

/// Returns the changes: for each mirror of `after` the change of the mirror and then those of its
/// legs; at the end the mirrors that are gone.
pub fn between(before: &[View], after: &[View]) -> Vec<Event> {
    let mut events = Vec::new();
    for view in after {
        let old = before
            .iter()
            .find(|old| old.record.name == view.record.name);
        compare(old, view, &mut events);
    }
    for old in before {
        if !after.iter().any(|view| view.record.name == old.record.name) {
            let from = old.state(&old.states()).as_str().to_owned();
            events.push(Event {
                from: Some(from),
                ..of_mirror(old)
            });
        }
    }
    events
}

fn compare(old: Option<&View>, new: &View, events: &mut Vec<Event>) {
    let states = new.states();
    let old_states = old.map(View::states).unwrap_or_default();
    let from = old.map(|old| old.state(&old_states).as_str());
    let to = new.state(&states).as_str();
    if from != Some(to) {
        events.push(Event {
            from: from.map(str::to_owned),
            to: Some(to.to_owned()),
            ..of_mirror(new)
        });
    }
    let (from, to) = (old.and_then(copied), copied(new));
    if to.is_some() && from != to {
        events.push(Event {
            event: What::MirrorProgress,
            from: from.map(|percent| percent.to_string()),
            to: to.map(|percent| percent.to_string()),
            ..of_mirror(new)
        });
    }
    let legs = new.record.legs.iter().zip(&new.legs).zip(states);
    for ((record, leg), state) in legs {
        let place = old.and_then(|old| {
            let mut legs = old.record.legs.iter();
            legs.position(|have| have.name == record.name)
        });
        let from = place.and_then(|place| old_states.get(place).copied());
        if from == Some(state) {
            continue;
        }
        events.push(Event {
            event: What::MirrorLeg,
            device: leg.device.as_ref().map(|device| device.name.clone()),
            session: Some(record.name.session.clone()),
            disk: Some(record.name.disk.clone()),
            from: from.map(|state| state.as_str().to_owned()),
            to: Some(state.as_str().to_owned()),
            ..of_mirror(new)
        });
    }
}

/// The percentage of the data to copy that md has copied, rounded down to a multiple of ten; `None`
/// if md copies nothing.
fn copied(view: &View) -> Option<u64> {
    let (done, total) = view.array.as_ref()?.progress?;
    let tenths = u128::from(done)
        .checked_mul(10)?
        .checked_div(total.into())?;
    u64::try_from(tenths).ok()?.checked_mul(10)
}

fn of_mirror(view: &View) -> Event {
    Event {
        event: What::MirrorState,
        device: None,
        mirror: Some(view.record.name.to_string()),
        session: None,
        disk: None,
        path: None,
        from: None,
        to: None,
    }
}
