// SPDX-License-Identifier: GPL-2.0

//! The changes between two moments.

use super::Event;
use super::What;
use crate::model::Client;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::Path;

/// The changes: first new sessions, paths and devices, then changed ones, then removed ones. A
/// device that was unmapped and mapped again under the same name counts as another device if its
/// disk or session is another.
pub fn between(before: &Client, after: &Client) -> Vec<Event> {
    let mut events = Vec::new();
    for session in &after.sessions {
        let old = before.sessions.iter().find(|old| old.name == session.name);
        compare_sessions(old, session, &mut events);
    }
    for device in &after.devices {
        let old = before.devices.iter().find(|old| is_same(old, device));
        compare_devices(old, device, &mut events);
    }
    for old in &before.devices {
        if !after.devices.iter().any(|device| is_same(old, device)) {
            events.push(of_device(What::DeviceUnmapped, old));
        }
    }
    for old in &before.sessions {
        match after.sessions.iter().find(|new| new.name == old.name) {
            Some(new) => removed_paths(old, new, &mut events),
            None => events.push(of_session(What::SessionEnded, old)),
        }
    }
    events
}

fn is_same(a: &ClientDevice, b: &ClientDevice) -> bool {
    a.name == b.name && a.session == b.session && a.device_path == b.device_path
}

fn compare_sessions(old: Option<&ClientSession>, new: &ClientSession, events: &mut Vec<Event>) {
    if old.is_none() {
        events.push(Event {
            to: Some(new.state.as_str().to_owned()),
            ..of_session(What::SessionMade, new)
        });
    }
    for path in &new.paths {
        let known = old.map(|old| old.paths.iter().find(|have| have.name == path.name));
        match known.flatten() {
            None => events.push(Event {
                to: Some(path.state.as_str().to_owned()),
                ..of_path(What::PathAdded, path)
            }),
            Some(have) if have.state != path.state => events.push(Event {
                from: Some(have.state.as_str().to_owned()),
                to: Some(path.state.as_str().to_owned()),
                ..of_path(What::PathState, path)
            }),
            Some(_) => (),
        }
    }
    if let Some(old) = old.filter(|old| old.state != new.state) {
        events.push(Event {
            from: Some(old.state.as_str().to_owned()),
            to: Some(new.state.as_str().to_owned()),
            ..of_session(What::SessionState, new)
        });
    }
}

fn removed_paths(old: &ClientSession, new: &ClientSession, events: &mut Vec<Event>) {
    for path in &old.paths {
        if !new.paths.iter().any(|have| have.name == path.name) {
            events.push(of_path(What::PathRemoved, path));
        }
    }
}

fn compare_devices(old: Option<&ClientDevice>, new: &ClientDevice, events: &mut Vec<Event>) {
    let Some(old) = old else {
        events.push(Event {
            to: Some(new.state.as_str().to_owned()),
            ..of_device(What::DeviceMapped, new)
        });
        return;
    };
    if old.state != new.state {
        events.push(Event {
            from: Some(old.state.as_str().to_owned()),
            to: Some(new.state.as_str().to_owned()),
            ..of_device(What::DeviceState, new)
        });
    }
    if old.size_bytes != new.size_bytes {
        let text = |size: Option<u64>| size.map(|size| size.to_string());
        events.push(Event {
            from: text(old.size_bytes),
            to: text(new.size_bytes),
            ..of_device(What::DeviceSize, new)
        });
    }
}

fn of_session(event: What, session: &ClientSession) -> Event {
    Event {
        event,
        device: None,
        mirror: None,
        session: Some(session.name.clone()),
        disk: None,
        path: None,
        from: None,
        to: None,
    }
}

fn of_path(event: What, path: &Path) -> Event {
    Event {
        event,
        device: None,
        mirror: None,
        session: Some(path.session.clone()),
        disk: None,
        path: Some(path.name.clone()),
        from: None,
        to: None,
    }
}

fn of_device(event: What, device: &ClientDevice) -> Event {
    Event {
        event,
        device: Some(device.name.clone()),
        mirror: None,
        session: Some(device.session.clone()),
        disk: Some(device.device_path.clone()),
        path: None,
        from: None,
        to: None,
    }
}
