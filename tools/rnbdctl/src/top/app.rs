// SPDX-License-Identifier: GPL-2.0

//! The state of the view.

use std::cmp::Ordering;
use std::time::Duration;

use crossterm::event::KeyCode;
use crossterm::event::KeyEvent;
use crossterm::event::KeyEventKind;
use crossterm::event::KeyModifiers;

use crate::live::history::Key;
use crate::live::rates::Flow;
use crate::live::DeviceRates;
use crate::live::History;
use crate::live::PathRates;
use crate::live::Rates;
use crate::model::natural_cmp;

/// The tables that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Devices and paths.
    #[default]
    Both,
    /// Devices only.
    Devices,
    /// Paths only.
    Paths,
}

impl View {
    const fn next(self) -> Self {
        match self {
            Self::Both => Self::Devices,
            Self::Devices => Self::Paths,
            Self::Paths => Self::Both,
        }
    }

    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Both => "devices and paths",
            Self::Devices => "devices",
            Self::Paths => "paths",
        }
    }
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The names, in their order.
    #[default]
    Name,
    /// The most requests per second.
    Iops,
    /// The most bytes per second.
    Bandwidth,
    /// The longest latency.
    Latency,
    /// The most requests in flight.
    Inflight,
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Name => Self::Iops,
            Self::Iops => Self::Bandwidth,
            Self::Bandwidth => Self::Latency,
            Self::Latency => Self::Inflight,
            Self::Inflight => Self::Name,
        }
    }

    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Iops => "IOPS",
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
            Self::Inflight => "in flight",
        }
    }
}

/// The reaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Draw again.
    Draw,
    /// End the view.
    Quit,
    /// Do nothing.
    None,
}

/// The shortest and longest time between samples.
pub const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The state of the view.
#[derive(Clone, Debug)]
pub struct App {
    /// The tables that are shown.
    pub view: View,
    /// The order of the rows.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// Whether the shown rates stay as they are.
    pub paused: bool,
    /// Whether the keys are explained.
    pub help: bool,
    /// The time between samples.
    pub interval: Duration,
    /// The selected row of the tables.
    pub selected: Option<Key>,
    /// Why the last sample could not be read.
    pub error: Option<String>,
    rates: Rates,
    history: History,
}

impl App {
    /// A view without rates.
    pub fn new(interval: Duration) -> Self {
        Self {
            view: View::default(),
            sort: Sort::default(),
            reverse: false,
            paused: false,
            help: false,
            interval: interval.clamp(INTERVALS.0, INTERVALS.1),
            selected: None,
            error: None,
            rates: Rates::default(),
            history: History::default(),
        }
    }

    /// Takes new rates. While the view is paused they are dropped.
    pub fn update(&mut self, rates: Rates) {
        self.error = None;
        if self.paused {
            return;
        }
        self.history.push(&rates);
        self.rates = rates;
        self.sort_rows();
        let rows = self.rows();
        self.selected = self.selected.take().filter(|key| rows.contains(key));
    }

    /// The shown rates, in the shown order.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The earlier rates.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Reaction {
        if key.kind == KeyEventKind::Release {
            return Reaction::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Reaction::Quit,
                KeyCode::Char('l') => Reaction::Draw,
                _ => Reaction::None,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Esc if !self.help => return Reaction::Quit,
            KeyCode::Esc => self.help = false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Char('v') | KeyCode::Tab => {
                self.view = self.view.next();
                self.selected = None;
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.sort_rows();
            }
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                self.sort_rows();
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+') => self.set_interval(self.interval.saturating_mul(2)),
            KeyCode::Char('-') => self.set_interval(self.interval.div_f64(2.0)),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            _ => return Reaction::None,
        }
        Reaction::Draw
    }

    fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.clamp(INTERVALS.0, INTERVALS.1);
    }

    /// The rows of the tables that are shown.
    pub fn rows(&self) -> Vec<Key> {
        let devices = self.rates.devices.iter().map(device_key);
        let paths = self.rates.paths.iter().map(path_key);
        match self.view {
            View::Both => devices.chain(paths).collect(),
            View::Devices => devices.collect(),
            View::Paths => paths.collect(),
        }
    }

    fn select(&mut self, step: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else {
            return;
        };
        let now = self
            .selected
            .as_ref()
            .and_then(|key| rows.iter().position(|row| row == key));
        let next = match now {
            Some(now) => now.saturating_add_signed(step).min(last),
            None if step > 0 => 0,
            None => last,
        };
        self.selected = rows.get(next).cloned();
    }

    fn sort_rows(&mut self) {
        let (sort, reverse) = (self.sort, self.reverse);
        let order = |ordering: Ordering| {
            if reverse {
                ordering.reverse()
            } else {
                ordering
            }
        };
        // The sort is stable: rows that are equal stay in the order of their names.
        self.rates
            .devices
            .sort_by(|a, b| natural_cmp(&a.name, &b.name));
        self.rates
            .paths
            .sort_by(|a, b| path_order(a).cmp(&path_order(b)));
        self.rates.devices.sort_by(|a, b| {
            order(match sort {
                Sort::Name => natural_cmp(&a.name, &b.name),
                Sort::Inflight => b.inflight.cmp(&a.inflight),
                Sort::Latency => most(device_latency(a), device_latency(b)),
                _ => most(by_flow(sort, &a.flow), by_flow(sort, &b.flow)),
            })
        });
        self.rates.paths.sort_by(|a, b| {
            order(match sort {
                Sort::Name => path_order(a).cmp(&path_order(b)),
                Sort::Inflight => b.inflight.cmp(&a.inflight),
                Sort::Latency => b.latency_ns.cmp(&a.latency_ns),
                _ => most(by_flow(sort, &a.flow), by_flow(sort, &b.flow)),
            })
        });
    }
}

/// The key of a device's history.
pub fn device_key(device: &DeviceRates) -> Key {
    Key::Device(device.name.clone(), device.session.clone())
}

/// The key of a path's history.
pub fn path_key(path: &PathRates) -> Key {
    Key::path(path.side, &path.session, &path.name)
}

fn path_order(path: &PathRates) -> (bool, &str, &str) {
    (
        path.side == crate::model::Side::Server,
        &path.session,
        &path.name,
    )
}

fn by_flow(sort: Sort, flow: &Flow) -> Option<f64> {
    match sort {
        Sort::Bandwidth => flow.bytes_per_s(),
        _ => flow.iops(),
    }
}

fn device_latency(device: &DeviceRates) -> Option<f64> {
    match (device.read_ms, device.write_ms) {
        (Some(read), Some(write)) => Some(read.max(write)),
        (read, write) => read.or(write),
    }
}

/// The larger number first; unknown numbers last.
fn most(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}
