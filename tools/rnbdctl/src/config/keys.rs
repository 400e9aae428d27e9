// SPDX-License-Identifier: GPL-2.0

//! The keys of the file.

use crate::model::Settings;

/// The keys of a `[[session]]` besides [`Settings::ALL`].
pub const SESSION: [&str; 6] = [
    "name",
    "paths",
    "dest_port",
    "policy",
    "nr_poll_queues",
    "devices",
];

/// The keys of an element of `paths`, if it is a table.
pub const PATH: [&str; 2] = ["src", "dst"];

/// The keys of an element of `devices`, if it is a table.
pub const DEVICE: [&str; 5] = [
    "path",
    "access_mode",
    "io_mode",
    "io_timeout_ms",
    "hold_io_ms",
];

/// The keys of a `[[mirror]]`.
pub const MIRROR: [&str; 3] = ["name", "legs", "reserve"];

/// The keys of an element of `legs`, if it is a table.
pub const LEG: [&str; 3] = ["disk", "write_mostly", "failfast"];

/// The keys outside of all tables.
pub const TOP: [&str; 2] = ["session", "mirror"];

/// Every key of a `[[session]]`.
pub fn session() -> Vec<&'static str> {
    let settings = Settings::ALL.iter().map(|setting| setting.name);
    SESSION.into_iter().chain(settings).collect()
}

/// The name in `known` that the user who wrote `word` most probably meant.
pub fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| match name.split('_').any(|part| part == word) {
        true => 1.0,
        false => strsim::jaro_winkler(word, name),
    };
    known
        .iter()
        .map(|&name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
