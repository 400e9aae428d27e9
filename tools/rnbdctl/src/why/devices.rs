// SPDX-License-Identifier: GPL-2.0

//! The troubles of a device whose session has a path that is up.

use rustix::io::Errno;

use super::said;
use super::Facts;
use super::Trouble;
use super::TroubleKind;
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
    trouble: TroubleKind,
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
    let problem = "the server's administrator has closed the device: requests fail".to_owned();
    let remedy = format!(
        "ask the administrator; when the disk may be used again: rnbdctl remap {}",
        device.name
    );
    let line = newest(facts, device, "closed the device");
    since(
        facts,
        new(facts, device, TroubleKind::ClosedByServer, problem, remedy),
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
            "check on the server where the disk is",
        ),
        Some(Errno::ACCESS) => (
            "the server's export policy refuses the disk, or the disk is read-only now",
            "check the policy on the server: rnbdctl server policy show",
        ),
        Some(Errno::PERM) => (
            "another client has mapped the disk for writing",
            "unmap the disk at that client (on the server: rnbdctl server list devices)",
        ),
        Some(Errno::BUSY) => (
            "other clients use the disk with another io_mode",
            "map the disk at all clients with the same io_mode",
        ),
        Some(Errno::OPNOTSUPP) => (
            "the server does not know an option with which the disk is mapped",
            "run a release on the server that knows the option, which the kernel log names, or \
             unmap the disk and map it without the option",
        ),
        Some(_) => (
            "the server could not open the disk again",
            "check the disk and the kernel log of the server",
        ),
        None => (
            "the device is closed, though a path is up",
            "see the kernel log of the server",
        ),
    };
    let problem = match errno {
        Some(errno) => format!("{problem} ({})", errno::name(errno)),
        None => problem.to_owned(),
    };
    let trouble = new(
        facts,
        device,
        TroubleKind::NotOpened,
        problem,
        format!("{what}; {remap}"),
    );
    since(facts, trouble, line)
}

fn hangs(facts: &Facts, device: &ClientDevice) -> Option<Trouble> {
    let unanswered = device.io_unanswered.unwrap_or(0);
    let check = "check the disk on the server (kernel log, iostat)";
    if unanswered > 0 {
        let problem = format!(
            "requests took longer than io_timeout_ms and were ended; all requests fail until the \
             server has responded to {unanswered} of them"
        );
        let line = newest(facts, device, "no response of the server");
        let trouble = new(
            facts,
            device,
            TroubleKind::DiskHangs,
            problem,
            check.to_owned(),
        );
        return Some(since(facts, trouble, line));
    }
    let inflight = facts.stuck.get(&device.name)?;
    let problem = format!("{inflight} requests are in flight; no request has ended for a second");
    let remedy = format!(
        "{check}; to end requests after 30 s: rnbdctl device set {} io_timeout_ms=30000",
        device.name
    );
    Some(new(
        facts,
        device,
        TroubleKind::RequestsStuck,
        problem,
        remedy,
    ))
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
    let remedy = "attach the disk to the server again, or unmap the device".to_owned();
    let trouble = new(facts, device, TroubleKind::DiskRemoved, problem, remedy);
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
    let cause = match errno {
        Errno::BADE => "as another machine has reserved the disk",
        _ => "an error of the server's disk",
    };
    let problem = format!("requests have failed with {}, {cause}", errno::name(errno));
    let remedy = match errno {
        Errno::BADE => "find the machine that has reserved the disk: blkpr -c read-reservation",
        Errno::NOSPC => "add space on the server: the thin disk is full",
        _ => "check the disk on the server (kernel log, smartctl)",
    };
    let trouble = new(
        facts,
        device,
        TroubleKind::IoErrors,
        problem,
        remedy.to_owned(),
    )
    .mild();
    Some(since(facts, trouble, Some(line)))
}
