// SPDX-License-Identifier: GPL-2.0

//! What the kernel's log says of something.

use super::Facts;
use crate::kernel_log::Record;
use crate::model::ClientDevice;
use crate::model::Path;

/// The most lines that are shown of one trouble.
const MAX_LINES: usize = 3;

impl Facts {
    /// The lines about a path, the newest first. The module calls a path by its addresses, and
    /// before it has a source by the destination alone.
    pub(super) fn of_path<'f>(&'f self, path: &'f Path) -> impl Iterator<Item = &'f Record> {
        let own = format!("rtrs_client: {}: ", path.name);
        let destination = path.name.rsplit('@').next().unwrap_or_default();
        let short = format!("rtrs_client: {destination}: ");
        let is_of_it = move |record: &&Record| {
            record.message.starts_with(&own) || record.message.starts_with(&short)
        };
        self.log.iter().rev().filter(is_of_it)
    }

    /// The lines about a device, the newest first.
    pub(super) fn of_device<'f>(
        &'f self,
        device: &ClientDevice,
    ) -> impl Iterator<Item = &'f Record> + use<'f> {
        let mark = format!("<{}@{}> ", device.device_path, device.session);
        let is_of_it = move |record: &&Record| record.message.contains(&mark);
        self.log.iter().rev().filter(is_of_it)
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

    /// The last lines that have one of these words in them.
    pub(super) fn last_lines(&self, words: &[&str]) -> Vec<String> {
        let has = |record: &&Record| words.iter().any(|word| record.message.contains(word));
        lines(self.log.iter().rev().filter(has))
    }
}

/// The texts of records that come the newest first: the last few, the oldest first, each once.
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
