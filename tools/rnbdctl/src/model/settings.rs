// SPDX-License-Identifier: GPL-2.0

//! The tunables of a client's sessions and devices.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proto::setting;
use proto::setting::Setting;
use schemars::json_schema;
use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use serde::Serialize;

/// The range of a tunable, as text: `0, or 1000 to 86400000`.
pub fn range(setting: &Setting) -> String {
    let Setting {
        min, least, max, ..
    } = setting;
    match min == least {
        true => format!("{min} to {max}"),
        false => format!("{min}, or {least} to {max}"),
    }
}

/// The values of the tunables that the loaded module has, by name.
///
/// The C module has only `max_reconnect_attempts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<&'static str, i64>);

impl Settings {
    /// All tunables of a session: their names (which are also the names of their files), ranges and
    /// defaults.
    pub const ALL: [Setting; 7] = [
        setting::HB_INTERVAL,
        setting::HB_MISSED,
        setting::RECONNECT_DELAY,
        setting::CONNECT_TIMEOUT,
        setting::ACK_TIMEOUT,
        setting::MAX_RECONNECT_ATTEMPTS,
        setting::HOLD_IO,
    ];

    /// The tunable called `name`.
    pub fn find(name: &str) -> Option<Setting> {
        Self::ALL.into_iter().find(|setting| setting.name == name)
    }

    /// The value of the tunable called `name`, if the module has it.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }
}

/// The tunables are those of [`Settings::ALL`], each with its range.
impl JsonSchema for Settings {
    fn schema_name() -> Cow<'static, str> {
        "Settings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let tunable = |setting: Setting| {
            let values = json_schema!({
                "description": range(&setting),
                "type": "integer",
                "minimum": setting.min,
                "maximum": setting.max,
            });
            (setting.name.to_owned(), values.to_value())
        };
        let tunables: serde_json::Map<_, _> = Self::ALL.into_iter().map(tunable).collect();
        json_schema!({
            "description": "The values of the tunables that the loaded module has. The C module \
                has only max_reconnect_attempts.",
            "type": "object",
            "properties": tunables,
        })
    }
}
