// SPDX-License-Identifier: GPL-2.0

//! The lines of the kernel's log about a path, a device or a session.

use super::Facts;
use crate::kernel_log::Record;
use crate::model::ClientDevice;
use crate::model::Path;

/// The most lines that are shown for a trouble.
const MAX_LINES: usize = 3;

/// The line with which a device begins has this text.
const MAPPED: &str = "map_device: Device mapped as ";

impl Facts {
    /// The lines about a path, the newest first. The module names a path by its addresses, and by
    /// the destination alone before the path has a source.
    pub(super) fn of_path<'f>(&'f self, path: &'f Path) -> impl Iterator<Item = &'f Record> {
        let own = format!("rtrs_client: {}: ", path.name);
        let destination = path.name.rsplit('@').next().unwrap_or_default();
        let short = format!("rtrs_client: {destination}: ");
        let is_of_it = move |record: &&Record| {
            record.message.starts_with(&own) || record.message.starts_with(&short)
        };
        self.log.iter().rev().filter(is_of_it)
    }

    /// The lines about a device, the newest first. Lines from before the device was mapped are
    /// about an earlier device of the same disk.
    pub(super) fn of_device<'f>(
        &'f self,
        device: &ClientDevice,
    ) -> impl Iterator<Item = &'f Record> + use<'f> {
        let mark = format!("<{}@{}> ", device.device_path, device.session);
        let is_of_it = move |record: &&Record| record.message.contains(&mark);
        let mut is_earlier = false;
        let is_later = move |record: &&Record| {
            let was_earlier = is_earlier;
            is_earlier |= record.message.contains(MAPPED);
            !was_earlier
        };
        self.log.iter().rev().filter(is_of_it).take_while(is_later)
    }

    /// The lines about a session itself, the newest first.
    pub(super) fn of_session<'f>(
        &'f self,
        session: &str,
    ) -> impl Iterator<Item = &'f Record> + use<'f> {
        let mark = format!("session {session}: ");
        let is_of_it = move |record: &&Record| record.message.contains(&mark);
        self.log.iter().rev().filter(is_of_it)
    }

    /// The last lines that contain one of these words.
    pub(super) fn last_lines(&self, words: &[&str]) -> Vec<String> {
        let has = |record: &&Record| words.iter().any(|word| record.message.contains(word));
        lines(self.log.iter().rev().filter(has))
    }
}

/// The texts of the first few records, each once, in reverse order. `records` begins with the
/// newest record.
pub(super) fn lines<'r>(records: impl Iterator<Item = &'r Record>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for record in records {
        if lines.len() == MAX_LINES {
            break;
        }
        if !lines.contains(&record.message) {
            lines.push(record.message.clone());
        }
    }
    lines.reverse();
    lines
}
