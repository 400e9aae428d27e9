// SPDX-License-Identifier: GPL-2.0

//! The facts from which troubles follow.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use super::Trouble;
use super::TroubleKind;
use crate::apply::Change;
use crate::apply::Plan;
use crate::apply::State;
use crate::config::Config;
use crate::kernel_log;
use crate::kernel_log::Record;
use crate::model::BlockStat;
use crate::model::Client;
use crate::model::RdmaDevice;
use crate::Result;
use crate::System;

/// The time for which requests in flight are watched. If none ends, they count as stuck.
const WATCH: Duration = Duration::from_secs(1);

/// The facts.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Devices, sessions and paths.
    pub client: Client,
    /// The RDMA devices.
    pub rdma_devices: Vec<RdmaDevice>,
    /// The kernel's log of RNBD's modules, the oldest line first.
    pub log: Vec<Record>,
    /// The present time, in microseconds since the machine was started, as in the log.
    pub now_us: u64,
    /// The devices of which no request ended while they were watched, and the numbers of their
    /// requests in flight.
    pub stuck: BTreeMap<String, u64>,
    /// The configuration file, if there is a valid one.
    pub config: Option<Config>,
}

impl Facts {
    /// Looks at the machine. Takes a second if requests are in flight.
    pub fn gather(system: &System, config: Option<Config>) -> Result<Self> {
        let client = system.client()?;
        let before = counters(system, &client)?;
        let stuck = match before.values().any(|stat| stat.inflight > 0) {
            true => {
                thread::sleep(WATCH);
                stuck(&before, &counters(system, &client)?)
            }
            false => BTreeMap::new(),
        };
        Ok(Self {
            rdma_devices: system.rdma_devices()?,
            log: kernel_log::all(&system.file("dev/kmsg")),
            now_us: uptime_us(system),
            stuck,
            config,
            client,
        })
    }

    /// The time since `time_us` in seconds.
    pub(super) fn seconds_since(&self, time_us: u64) -> u64 {
        self.now_us
            .saturating_sub(time_us)
            .checked_div(1_000_000)
            .unwrap_or(0)
    }
}

fn counters(system: &System, client: &Client) -> Result<BTreeMap<String, BlockStat>> {
    let mut counters = BTreeMap::new();
    for device in &client.devices {
        if let Some(stat) = system.block_stat(&device.name)? {
            counters.insert(device.name.clone(), stat);
        }
    }
    Ok(counters)
}

/// The devices that had requests in flight in both looks, and of which no request ended between
/// them.
pub(super) fn stuck(
    before: &BTreeMap<String, BlockStat>,
    after: &BTreeMap<String, BlockStat>,
) -> BTreeMap<String, u64> {
    let ended = |stat: &BlockStat| {
        let sums = [stat.reads, stat.writes, stat.discards, stat.flushes];
        sums.into_iter().fold(0, u64::wrapping_add)
    };
    let is_stuck = |name: &str, now: &BlockStat| {
        let earlier = before.get(name)?;
        let none_ended = ended(earlier) == ended(now);
        (earlier.inflight > 0 && now.inflight > 0 && none_ended).then_some(now.inflight)
    };
    let found = after
        .iter()
        .filter_map(|(name, now)| Some((name.clone(), is_stuck(name, now)?)));
    found.collect()
}

fn uptime_us(system: &System) -> u64 {
    let text = fs::read_to_string(system.file("proc/uptime")).unwrap_or_default();
    let seconds = text.split_whitespace().next();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let time = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    let time = time.unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The devices of the configuration file that the machine lacks.
pub(super) fn missing(facts: &Facts) -> Vec<Trouble> {
    let Some(config) = facts
        .config
        .as_ref()
        .filter(|config| !config.sessions.is_empty())
    else {
        return Vec::new();
    };
    if !facts.client.loaded {
        let problem = "the module is not loaded, and the configuration file has disks to map";
        let remedy = "modprobe rnbd_client; rnbdctl apply";
        return vec![Trouble::new(
            TroubleKind::NoModule,
            "module rnbd_client",
            problem,
            remedy,
        )];
    }
    let state = State {
        client: facts.client.clone(),
        cpus: 0,
    };
    let mut found = Vec::new();
    for plan in Plan::new(config, &state, false).sessions {
        for change in &plan.changes {
            let Change::Map(device) = change else {
                continue;
            };
            let subject = format!("disk {} of session {}", device.path, plan.session);
            let problem = "the disk is in the configuration file, and not mapped";
            let remedy = "find the cause with: rnbdctl apply, or systemctl status rnbd";
            let trouble = Trouble::new(TroubleKind::NotMapped, subject, problem, remedy);
            let mut trouble = trouble.of_session(&plan.session);
            trouble.kernel = facts.last_lines(&[&plan.session]);
            found.push(trouble);
        }
    }
    found
}
