// SPDX-License-Identifier: GPL-2.0

//! Tunables on the command line: `NAME=VALUE`.

use proto::setting::Setting;

use crate::model::range;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The part of a help text that lists tunables with their meanings, ranges and defaults.
pub(crate) fn help(tunables: &[Setting], explained: fn(&str) -> &'static str) -> String {
    let line = |setting: &Setting| {
        format!(
            "\n  {:22}  {} ({}, default {})",
            setting.name,
            explained(setting.name),
            range(setting),
            setting.default
        )
    };
    let mut help = "Tunables:".to_owned();
    help.extend(tunables.iter().map(line));
    help
}

/// The name and the value of a word; `example` is a valid word, for the error.
pub(crate) fn split<'w>(word: &'w str, example: &str) -> Result<(&'w str, &'w str)> {
    word.split_once('=').ok_or_else(|| {
        let error = Error::new(Kind::Usage, format!("setting {word:?}"), "no value given");
        error.hint(format!("write NAME=VALUE, as in {example}"))
    })
}
