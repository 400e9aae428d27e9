// SPDX-License-Identifier: GPL-2.0

//! Measures the stages of requests. The kernel counts for a number of seconds, and the result is
//! the difference of two reads. So several programs can measure at the same time.

mod histogram;
mod network;
mod source;

pub use histogram::bars;
pub use network::add_network;
pub use network::other_end;
pub use source::Source;

use std::thread;
use std::time::Duration;

use crate::control;
use crate::model::Latency;
use crate::model::JSON_VERSION;
use crate::Result;

/// Lets the kernel count for `seconds`, and waits for that time. A device that goes meanwhile is
/// left out.
pub fn measure(sources: &[Source], seconds: u32) -> Result<Latency> {
    let mut before = Vec::new();
    for source in sources {
        // One second more, since the second read comes a little later.
        control::latency::count(source, seconds.saturating_add(1))?;
        before.push(source.look()?);
    }
    if !sources.is_empty() {
        thread::sleep(Duration::from_secs(seconds.into()));
    }
    let mut devices = Vec::new();
    for (source, before) in sources.iter().zip(before) {
        if let (Some(before), Some(after)) = (before, source.look()?) {
            devices.push(source.between(&before, &after));
        }
    }
    Ok(Latency {
        version: JSON_VERSION,
        seconds,
        devices,
    })
}
