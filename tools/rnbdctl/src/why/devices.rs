// SPDX-License-Identifier: GPL-2.0

//! The troubles of a device whose session has a path that is up.

use rustix::io::Errno;

use super::said;
use super::Facts;
use super::Trouble;
use crate::control::errno;
use crate::kernel_log::Record;
use crate::model::ClientDevice;
use crate::model::DeviceState;

/// The time for which errors of requests are reported, in seconds.
const RECENT_S: u64 = 600;

const OPENING: &str = "Opening failed, server responded: ";
const ERROR: &str = "I/O failed with err: ";

/// The troubles of a device.
pub(super) fn of(facts: &Facts, device: &ClientDevice) -> Vec<Trouble> {
    let is_up = (facts.client.sessions.iter())
        .any(|session| session.name == device.session && session.paths_up() > 0);
    // Without a path the session has the trouble.
    if !is_up {
        return Vec::new();
    }
    let mut found = Vec::new();
    match device.state {
        DeviceState::Open => {
            found.extend(hangs(facts, device));
            found.extend(removed(facts, device));
            found.extend(errors(facts, device));
        }
        DeviceState::Closed if device.closed_by_server => found.push(closed_there(facts, device)),
        DeviceState::Closed => found.push(not_opened(facts, device)),
        DeviceState::Init | DeviceState::Unmapped | DeviceState::Unknown => (),
    }
    found
}

fn new(
    facts: &Facts,
    device: &ClientDevice,
    trouble: &'static str,
    problem: String,
    remedy: String,
) -> Trouble {
    let subject = format!(
        "{} (disk {} of session {})",
        device.path, device.device_path, device.session
    );
    let mut trouble = Trouble::new(trouble, subject, problem, remedy)
        .of_session(&device.session)
        .of_device(&device.name);
    trouble.kernel = said::lines(facts.of_device(device));
    trouble
}

fn since(facts: &Facts, mut trouble: Trouble, line: Option<&Record>) -> Trouble {
    trouble.for_seconds = line.map(|line| facts.seconds_since(line.time_us));
    trouble
}

fn newest<'f>(facts: &'f Facts, device: &ClientDevice, part: &str) -> Option<&'f Record> {
    facts
        .of_device(device)
        .find(|record| record.message.contains(part))
}

/// The error number at the end of a line, such as `... err: -5`.
fn errno_of(line: &Record) -> Option<Errno> {
    let number = line.message.rsplit(": ").next()?;
    let number: i32 = number
        .split(|c: char| c != '-' && !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()?;
    let number = number
        .checked_neg()
        .filter(|number| (1..=4095).contains(number))?;
    Some(Errno::from_raw_os_error(number))
}

fn closed_there(facts: &Facts, device: &ClientDevice) -> Trouble {
    let problem = "the server's administrator has closed it: requests fail".to_owned();
    let remedy = format!(
        "ask the administrator; when it may be used again: rnbdctl remap {}",
        device.name
    );
    let line = newest(facts, device, "closed the device");
    since(
        facts,
        new(facts, device, "closed-by-server", problem, remedy),
        line,
    )
}

fn not_opened(facts: &Facts, device: &ClientDevice) -> Trouble {
    let line = newest(facts, device, OPENING);
    let errno = line.and_then(errno_of);
    let remap = format!("then: rnbdctl remap {}", device.name);
    let (problem, what) = match errno {
        Some(Errno::NOENT) => (
            "the server has no such disk any more",
            "look on the server where the disk is",
        ),
        Some(Errno::ACCESS) => (
            "the server's export policy refuses it, or the disk is read-only now",
            "look at the policy on the server: rnbdctl server policy show",
        ),
        Some(Errno::PERM) => (
            "another client has it mapped for writing",
            "unmap it there (on the server: rnbdctl server list devices)",
        ),
        Some(Errno::BUSY) => (
            "other clients use it with another io_mode",
            "map it there with the same one",
        ),
        Some(_) => (
            "the server could not open it again",
            "look at the disk on the server, and at its kernel log",
        ),
        None => (
            "it is closed, though a path is up",
            "look at the kernel log of the server",
        ),
    };
    let problem = match errno {
        Some(errno) => format!("{problem} ({})", errno::name(errno)),
        None => problem.to_owned(),
    };
    let trouble = new(
        facts,
        device,
        "not-opened",
        problem,
        format!("{what}; {remap}"),
    );
    since(facts, trouble, line)
}

fn hangs(facts: &Facts, device: &ClientDevice) -> Option<Trouble> {
    let unanswered = device.io_unanswered.unwrap_or(0);
    let look = "look at the disk on the server (its kernel log, iostat)";
    if unanswered > 0 {
        let problem = format!(
            "requests took longer than io_timeout_ms and were ended: {unanswered} of them are not \
             answered yet, and until then all requests fail"
        );
        let line = newest(facts, device, "no response of the server");
        let trouble = new(facts, device, "disk-hangs", problem, look.to_owned());
        return Some(since(facts, trouble, line));
    }
    let inflight = facts.stuck.get(&device.name)?;
    let problem = format!("{inflight} requests are in flight, and none has ended for a second");
    let remedy = format!(
        "{look}; with rnbdctl device set {} io_timeout_ms=30000 requests fail instead of waiting",
        device.name
    );
    Some(new(facts, device, "requests-stuck", problem, remedy))
}

fn removed(facts: &Facts, device: &ClientDevice) -> Option<Trouble> {
    let is_news = |record: &&Record| {
        record.message.contains("The server's disk was removed")
            || record.message.contains("The server's disk is back")
    };
    let line = facts.of_device(device).find(is_news)?;
    if !line.message.contains("was removed") {
        return None;
    }
    let problem = "the server's disk was removed: requests fail".to_owned();
    let remedy = "put the disk in again, or unmap the device".to_owned();
    let trouble = new(facts, device, "disk-removed", problem, remedy);
    Some(since(facts, trouble, Some(line)))
}

fn errors(facts: &Facts, device: &ClientDevice) -> Option<Trouble> {
    let line = newest(facts, device, ERROR)?;
    if facts.seconds_since(line.time_us) > RECENT_S {
        return None;
    }
    let errno = errno_of(line)?;
    // These errors mean that a path was lost or that the device was closed. Both are over.
    if matches!(errno, Errno::CONNABORTED | Errno::NOTCONN | Errno::TIMEDOUT) {
        return None;
    }
    let problem = format!(
        "requests have failed with {}, which is the error of the server's disk",
        errno::name(errno)
    );
    let remedy = match errno {
        Errno::BADE => "another machine has the disk reserved: blkpr -c read-reservation",
        Errno::NOSPC => "the server's disk, which is thin, is full",
        _ => "look at the disk on the server (its kernel log, smartctl)",
    };
    let trouble = new(facts, device, "io-errors", problem, remedy.to_owned()).mild();
    Some(since(facts, trouble, Some(line)))
}
