// SPDX-License-Identifier: GPL-2.0

//! The troubles of the paths of a session.

use super::said;
use super::Facts;
use super::Trouble;
use super::TroubleKind;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::Path;
use crate::output;

/// A line of the kernel's log that tells why a path is down.
struct Sign {
    /// A part of the line.
    part: &'static str,
    trouble: TroubleKind,
    problem: &'static str,
    remedy: &'static str,
}

const fn sign(
    part: &'static str,
    trouble: TroubleKind,
    problem: &'static str,
    remedy: &'static str,
) -> Sign {
    Sign {
        part,
        trouble,
        problem,
        remedy,
    }
}

const ASK_SERVER: &str = "check the server and the network to the server: rnbdctl check ";
const RECONNECT: &str = "remove the cause, then: rnbdctl path reconnect ";

/// The first sign that is in the newest lines counts. If a remedy ends with a space, the address or
/// the name of the path is added.
const SIGNS: [Sign; 12] = [
    sign(
        "(max_reconnect_attempts)",
        TroubleKind::GivenUp,
        "all attempts to connect the path have failed (max_reconnect_attempts)",
        RECONNECT,
    ),
    sign(
        "queue depth changed",
        TroubleKind::ServerChanged,
        "rtrs_server was loaded with another sess_queue_depth: the session cannot go on",
        "load the server's modules as before, then: rnbdctl path reconnect ",
    ),
    sign(
        "largest request shrank",
        TroubleKind::ServerChanged,
        "rtrs_server was loaded with a smaller max_chunk_size: the session cannot go on",
        "load the server's modules as before, then: rnbdctl path reconnect ",
    ),
    sign(
        "draining for maintenance",
        TroubleKind::Maintenance,
        "the server is away for maintenance",
        "wait until the maintenance is over, or ask the server's administrator",
    ),
    sign(
        "previous session still exists",
        TroubleKind::OldSession,
        "the server still has the old session of this client, or a limit of the server is reached",
        "wait 35 s, as this machine tries again; then see the server's log: dmesg | grep refused",
    ),
    sign(
        "refused connection",
        TroubleKind::Refused,
        "the server's machine responds, but refuses the connection",
        "load rnbd_server on the server, or see its kernel log: dmesg | grep rtrs_server",
    ),
    sign(
        "does not respond to heartbeats",
        TroubleKind::Silent,
        "the server does not respond to heartbeats",
        ASK_SERVER,
    ),
    sign(
        "no machine responds",
        TroubleKind::Silent,
        "no machine responds at the address",
        ASK_SERVER,
    ),
    sign(
        "took more than",
        TroubleKind::Silent,
        "connecting the path takes longer than connect_timeout_ms",
        ASK_SERVER,
    ),
    sign(
        "no way to the server",
        TroubleKind::NoRoute,
        "no machine responds at the address, or no RDMA device of this machine leads to it",
        "list the RDMA devices with rnbdctl rdma; show the route with: ip route get ",
    ),
    sign(
        "the RDMA device is being removed",
        TroubleKind::RdmaDeviceGone,
        "the RDMA device of the path was removed",
        "load the driver of the RDMA device again; the path then reconnects by itself",
    ),
    sign(
        "connecting to the server failed",
        TroubleKind::NotConnected,
        "the path cannot be connected",
        ASK_SERVER,
    ),
];

/// The number of a path's newest lines that are searched for a sign.
const RECENT: usize = 10;

/// The troubles of a session that carries devices.
pub(super) fn of(facts: &Facts, session: &ClientSession) -> Vec<Trouble> {
    let devices: Vec<_> = (facts.client.devices.iter())
        .filter(|device| device.session == session.name)
        .collect();
    if devices.is_empty() {
        return Vec::new();
    }
    let is_down = session.paths_up() == 0;
    let mut found: Vec<_> = session
        .paths
        .iter()
        .filter(|path| !path.is_up())
        .map(|path| {
            let trouble = path_down(facts, path);
            match is_down {
                true => trouble,
                false => trouble.mild(),
            }
        })
        .collect();
    if is_down {
        found.insert(0, no_path(facts, session, &devices));
    }
    found
}

fn no_path(facts: &Facts, session: &ClientSession, devices: &[&ClientDevice]) -> Trouble {
    let groups = session.by_hold_ms(devices.iter().copied());
    let fates: Vec<_> = groups.iter().map(|(ms, group)| fate(*ms, group)).collect();
    let problem = format!("no path to the server is up: {}", fates.join("; "));
    let remedy = match session.paths.is_empty() {
        true => format!("add a path: rnbdctl path add {} SERVER", session.name),
        false => "see the trouble of each path below".to_owned(),
    };
    let subject = format!("session {}", session.name);
    let mut trouble =
        Trouble::new(TroubleKind::NoPath, subject, problem, remedy).of_session(&session.name);
    let is_loss =
        |line: &&crate::kernel_log::Record| line.message.ends_with("Device disconnected.");
    let losses = devices
        .iter()
        .filter_map(|device| facts.of_device(device).find(is_loss));
    let first = losses.map(|record| record.time_us).min();
    trouble.for_seconds = first.map(|time| facts.seconds_since(time));
    trouble.kernel = said::lines(facts.of_session(&session.name));
    trouble
}

/// What becomes of the requests of devices that wait for `hold_ms`.
fn fate(hold_ms: i64, devices: &[&ClientDevice]) -> String {
    let names = output::names(devices.iter().map(|device| device.path.as_str()));
    match hold_ms {
        0 => format!("requests of {names} fail at once"),
        ms => format!(
            "requests of {names} are held, and fail {} s after the last path was lost",
            ms.div_euclid(1000)
        ),
    }
}

fn path_down(facts: &Facts, path: &Path) -> Trouble {
    let subject = format!("path {} of session {}", path.name, path.session);
    let address = path
        .destination
        .strip_prefix("ip:")
        .unwrap_or(&path.destination);
    let new = |trouble, problem: String, remedy: &str| {
        let remedy = match remedy.ends_with("reconnect ") {
            true => format!("{remedy}{}", path.name),
            false if remedy.ends_with(' ') => format!("{remedy}{address}"),
            false => remedy.to_owned(),
        };
        Trouble::new(trouble, &subject, problem, remedy).of_session(&path.session)
    };
    let recent = || facts.of_path(path).take(RECENT);
    let found = SIGNS.iter().find_map(|sign| {
        let line = recent().find(|record| record.message.contains(sign.part))?;
        Some((sign, line))
    });
    let mut trouble = match (here(facts, path), found) {
        (Some((trouble, problem, remedy)), _) => new(trouble, problem, &remedy),
        (None, Some((sign, _))) => new(sign.trouble, sign.problem.to_owned(), sign.remedy),
        (None, None) => new(
            TroubleKind::Disconnected,
            "the path is disconnected, perhaps by hand: the kernel's log has no cause".to_owned(),
            "rnbdctl path reconnect ",
        ),
    };
    trouble.for_seconds = found.map(|(_, line)| facts.seconds_since(line.time_us));
    trouble.kernel = said::lines(recent());
    trouble
}

/// The trouble at this end, if there is any.
fn here(facts: &Facts, path: &Path) -> Option<(TroubleKind, String, String)> {
    let name = path.hca_name.as_ref()?;
    let Some(device) = facts
        .rdma_devices
        .iter()
        .find(|device| device.name == *name)
    else {
        return Some((
            TroubleKind::RdmaDeviceGone,
            format!("the RDMA device {name} of the path is missing"),
            "load its driver (for soft-RoCE: rdma link add); the path then reconnects by itself"
                .to_owned(),
        ));
    };
    let port = (device.ports.iter()).find(|port| Some(port.number) == path.hca_port)?;
    if port.is_active() {
        return None;
    }
    let netdev = port.netdev.as_deref().unwrap_or("the interface");
    Some((
        TroubleKind::PortDown,
        format!("port {} of {name} is {}", port.number, port.state),
        format!("check the cable, the switch, and whether {netdev} is up: ip link show"),
    ))
}
