// SPDX-License-Identifier: GPL-2.0

//! Tends the mirrors of mirrored volumes: brings legs back.

use std::sync::mpsc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rnbdctl::cli;
use rnbdctl::commands::mirror_watch;
use rnbdctl::output::Format;
use rnbdctl::output::Output;

use super::Devices;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::lock::Lock;
use crate::volume::id;

/// The lock of the driver that tends the mirrors of this node.
const LOCK: &str = "volumes";
/// The time between two attempts to map legs that are missing.
const WAIT: Duration = Duration::from_secs(5);
/// The wait before this driver tries again, after an error, to take the lock or to watch mirrors.
const PAUSE: Duration = Duration::from_secs(10);

impl Devices {
    /// Begins to tend the mirrors of volumes, until the process ends. The threads that begin here
    /// do for volumes what `rnbdctl mirror watch` does for other mirrors: so a node needs no
    /// service for volumes. If that service runs, too, one program at a time works on a mirror.
    ///
    /// Of several drivers on a node one tends the mirrors of all drivers. When that driver ends,
    /// another driver begins to.
    ///
    /// Call this before the driver takes calls, as this parks records that calls work on.
    pub(crate) fn tend(self: &Arc<Self>) -> Result {
        let lock = Lock::take(&self.system, LOCK)?;
        if lock.is_some() {
            if let Err(status) = self.mirrors.park_lost() {
                eprintln!("rnbd-csi: parking records: {}", status.message);
            }
        }
        let (sender, locked) = mpsc::channel();
        let devices = Arc::clone(self);
        spawn(move || {
            if locked.recv().is_ok() {
                devices.watch();
            }
        })?;
        let devices = Arc::clone(self);
        spawn(move || {
            let _lock = lock.unwrap_or_else(|| devices.lock());
            // The thread that watches mirrors begins when this thread has the lock.
            let _ = sender.send(());
            devices.map_missing();
        })
    }

    /// Waits until no other driver tends mirrors.
    fn lock(&self) -> Lock {
        loop {
            match Lock::wait(&self.system, LOCK) {
                Ok(lock) => return lock,
                Err(status) => eprintln!("rnbd-csi: tending mirrors: {}", status.message),
            }
            thread::sleep(PAUSE);
        }
    }

    fn watch(&self) {
        loop {
            let context = cli::Context {
                system: self.system.clone(),
                output: Output::new(Format::Table),
            };
            if let Err(error) = mirror_watch::watch(&context, id::is_volume) {
                eprintln!("rnbd-csi: watching mirrors: {error}");
            }
            thread::sleep(PAUSE);
        }
    }

    fn map_missing(&self) {
        // A line of the last round is not printed again.
        let mut said = Vec::new();
        loop {
            let lines = match self.mirrors.map_missing(&self.disks) {
                Ok(lines) => lines,
                Err(status) => vec![format!("mapping legs: {}", status.message)],
            };
            let news = lines.iter().filter(|line| !said.contains(*line));
            news.for_each(|line| eprintln!("rnbd-csi: {line}"));
            said = lines;
            thread::sleep(WAIT);
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result {
    let thread = thread::Builder::new().spawn(work);
    thread
        .map(drop)
        .map_err(|error| Status::io("making a thread", error))
}
