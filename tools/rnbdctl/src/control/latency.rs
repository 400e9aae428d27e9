// SPDX-License-Identifier: GPL-2.0

//! Having the kernel time requests.

use super::write::write;
use crate::latency::Source;
use crate::Result;

/// Has the requests of a device be timed for `seconds` from now on, or longer if that was asked for
/// before. Nothing has to be ended.
pub fn count(source: &Source, seconds: u32) -> Result {
    let what = format!("timing the requests of {}", source.name);
    write(
        &what,
        &source.folder.join("seconds"),
        &seconds.to_string(),
        &[],
    )
}
