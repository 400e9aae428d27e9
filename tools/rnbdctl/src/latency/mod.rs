// SPDX-License-Identifier: GPL-2.0

//! Measuring where the time of requests goes: the kernel counts for a number of seconds, and what
//! counts is the difference of two looks. So several programs can measure at the same time.

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

/// Has the kernel count for `seconds`, and waits for it; a device that goes meanwhile is left out.
pub fn measure(sources: &[Source], seconds: u32) -> Result<Latency> {
    let mut before = Vec::new();
    for source in sources {
        // One more: the last look comes a little later.
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
