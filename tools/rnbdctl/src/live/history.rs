// SPDX-License-Identifier: GPL-2.0

//! Rates of the last minutes, for sparklines.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::rates::Flow;
use super::Rates;
use crate::model::Side;

/// The number of samples that are kept: more than a terminal is wide.
pub const LENGTH: usize = 300;

/// The last rates of a device or path, the oldest first. Unknown rates are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Reads and writes per second.
    pub iops: VecDeque<u64>,
    /// Bytes read and written per second.
    pub bytes: VecDeque<u64>,
}

impl Series {
    fn push(&mut self, flow: Flow) {
        push(&mut self.iops, rounded(flow.iops()));
        push(&mut self.bytes, rounded(flow.bytes_per_s()));
    }
}

fn push(series: &mut VecDeque<u64>, value: u64) {
    while series.len() >= LENGTH {
        series.pop_front();
    }
    series.push_back(value);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and rates are not negative"
)]
fn rounded(value: Option<f64>) -> u64 {
    value.unwrap_or(0.0).round() as u64
}

/// The key of a device or path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// All devices together.
    Total,
    /// A device, by kernel name and session.
    Device(String, String),
    /// A path: whether it is the server's, its session and its name.
    Path(bool, String, String),
}

impl Key {
    /// The key of a path.
    pub fn path(side: Side, session: &str, name: &str) -> Self {
        Self::Path(side == Side::Server, session.to_owned(), name.to_owned())
    }
}

/// The last rates of all devices and paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<Key, Series>);

impl History {
    /// Adds rates. A device or path that is gone is forgotten, and begins anew when it comes back.
    pub fn push(&mut self, rates: &Rates) {
        let mut old = std::mem::take(&mut self.0);
        let mut add = |key: Key, flow: Flow| {
            let mut series = old.remove(&key).unwrap_or_default();
            series.push(flow);
            self.0.insert(key, series);
        };
        add(Key::Total, rates.total());
        for device in &rates.devices {
            add(
                Key::Device(device.name.clone(), device.session.clone()),
                device.flow,
            );
        }
        for path in &rates.paths {
            add(Key::path(path.side, &path.session, &path.name), path.flow);
        }
    }

    /// The last rates of a device or path; `None` if there is none with this key.
    pub fn get(&self, key: &Key) -> Option<&Series> {
        self.0.get(key)
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last `width` values as a line of bars. The highest bar has the full height.
pub fn sparkline(values: &VecDeque<u64>, width: usize) -> String {
    let skip = values.len().saturating_sub(width);
    let highest = values.iter().skip(skip).copied().max().unwrap_or(0).max(1);
    let bar = |&value: &u64| {
        if value == 0 {
            return ' ';
        }
        let top = BARS.len().saturating_sub(1);
        let scaled = u128::from(value)
            .saturating_mul(top as u128)
            .checked_div(u128::from(highest));
        let at = scaled.and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        BARS.get(at.min(top)).copied().unwrap_or(' ')
    };
    let bars: String = values.iter().skip(skip).map(bar).collect();
    format!("{bars:>width$}")
}
