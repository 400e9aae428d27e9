// SPDX-License-Identifier: GPL-2.0

//! Tends the mirrors of mirrored volumes: brings legs back.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rnbdctl::cli;
use rnbdctl::commands::mirror_watch;
use rnbdctl::output::Format;
use rnbdctl::output::Output;

use super::Devices;
use crate::volume::id;

/// The time between two attempts to map legs that are missing.
const WAIT: Duration = Duration::from_secs(5);
/// The wait before watching begins anew after an error.
const PAUSE: Duration = Duration::from_secs(10);

impl Devices {
    /// Begins to tend the mirrors of volumes, until the process ends. What is begun here does what
    /// `rnbdctl mirror watch` does, for volumes only: so a node needs no service for them. If that
    /// service runs, too, one of them at a time works on a mirror.
    ///
    /// No call may be going on yet.
    pub(crate) fn tend(self: &Arc<Self>) -> std::io::Result<()> {
        if let Err(status) = self.mirrors.park_lost() {
            eprintln!("rnbd-csi: parking records: {}", status.message);
        }
        let system = self.system.clone();
        let watch = move || loop {
            let context = cli::Context {
                system: system.clone(),
                output: Output::new(Format::Table),
            };
            if let Err(error) = mirror_watch::watch(&context, id::is_volume) {
                eprintln!("rnbd-csi: watching mirrors: {error}");
            }
            thread::sleep(PAUSE);
        };
        thread::Builder::new().spawn(watch)?;
        let devices = Arc::clone(self);
        let map = move || {
            // What was said in the last round is not said again.
            let mut said = Vec::new();
            loop {
                let lines = match devices.mirrors.map_missing(&devices.disks) {
                    Ok(lines) => lines,
                    Err(status) => vec![format!("mapping legs: {}", status.message)],
                };
                let news = lines.iter().filter(|line| !said.contains(*line));
                news.for_each(|line| eprintln!("rnbd-csi: {line}"));
                said = lines;
                thread::sleep(WAIT);
            }
        };
        thread::Builder::new().spawn(map).map(drop)
    }
}
