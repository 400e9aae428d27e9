// SPDX-License-Identifier: GPL-2.0

//! Runs a test by the module's files.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use proto::addr::PathAddress;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use super::Found;
use crate::address::path_text;
use crate::control;
use crate::output::Progress;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The time between two looks at the result.
const INTERVAL: Duration = Duration::from_millis(200);

/// A test to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// The way to the server.
    pub path: PathAddress,
    /// The port of the test's server.
    pub port: u16,
    /// Requests by which each latency is measured.
    pub requests: u32,
    /// MiB that are transferred in each direction.
    pub mib: u32,
}

impl Request {
    /// The line for the module's file `run`.
    fn line(&self) -> String {
        let Self {
            port,
            requests,
            mib,
            ..
        } = self;
        let path = path_text(&self.path);
        format!("path={path} port={port} requests={requests} mib={mib}")
    }
}

/// Runs a test to its end, and shows its progress. A signal to end this program stops the test
/// first.
pub fn run(system: &System, request: &Request) -> Result<Found> {
    let folder = system.sys("class/rtrs-test/fabric");
    if !folder.is_dir() {
        let why = "rtrs_test_client is not loaded";
        return Err(Error::new(Kind::Unsupported, "testing the fabric", why).hint(
            "load it with: modprobe rtrs_test_client; and on the server: modprobe rtrs_test_server",
        ));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stopped.clone())
            .map_err(|error| Error::io("handling signals", &error))?;
    }
    control::fabric::start(&folder.join("run"), &request.line())?;
    let result = folder.join("result");
    let mut progress: Option<Progress> = None;
    let mut shown = 0;
    let mut told = false;
    loop {
        let found = read(&result)?;
        if let Some((number, count, name)) = &found.step {
            let bar = progress.get_or_insert_with(|| Progress::new(*count));
            while shown < *number {
                if shown > 0 {
                    bar.end();
                }
                shown = shown.saturating_add(1);
            }
            bar.begin(name);
        }
        if found.end.is_some() {
            return Ok(found);
        }
        if stopped.load(Ordering::Relaxed) && !told {
            told = true;
            control::fabric::stop(&folder.join("stop"))?;
        }
        thread::sleep(INTERVAL);
    }
}

fn read(file: &Path) -> Result<Found> {
    match fs::read(file) {
        Ok(bytes) => Ok(Found::parse(&String::from_utf8_lossy(&bytes))),
        Err(error) => Err(Error::io(file.display(), &error)),
    }
}
