// SPDX-License-Identifier: GPL-2.0

//! Lets the kernel time requests.

use super::write::write;
use crate::latency::Source;
use crate::Result;

/// Lets the kernel time the requests of a device for `seconds` from now on, or longer if that was
/// requested before. The kernel ends it by itself.
pub fn count(source: &Source, seconds: u32) -> Result {
    let what = format!("timing the requests of {}", source.name);
    write(
        &what,
        &source.folder.join("seconds"),
        &seconds.to_string(),
        &[],
    )
}
