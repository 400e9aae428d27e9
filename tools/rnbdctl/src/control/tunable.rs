// SPDX-License-Identifier: GPL-2.0

//! Tunables of sessions and devices. Each tunable is a file.

use proto::setting::Setting;

use crate::Error;
use crate::Kind;
use crate::Result;

/// Parses the value of the tunable `name`, which is among `known`; `what` describes the action, for
/// the error.
pub(super) fn value(what: &str, known: &[Setting], name: &str, text: &str) -> Result<i32> {
    let Some(setting) = known.iter().find(|setting| setting.name == name) else {
        let names: Vec<_> = known.iter().map(|setting| setting.name).collect();
        let hint = match names.as_slice() {
            [only] => format!("the only tunable is {only}"),
            names => format!("the tunables are {}", names.join(", ")),
        };
        let error = Error::new(Kind::Usage, what, "there is no tunable of this name");
        return Err(error.hint(hint));
    };
    // The message begins with the name.
    setting.parse(text.as_bytes()).map_err(|error| {
        let text = error.message();
        let why = text
            .as_str()
            .split_once(": ")
            .map_or(text.as_str(), |(_, why)| why);
        Error::new(Kind::Usage, what, why)
    })
}
