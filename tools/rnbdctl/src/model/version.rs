// SPDX-License-Identifier: GPL-2.0

//! The version of the JSON output.

use std::borrow::Cow;
use std::fmt;

use schemars::json_schema;
use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use serde::Deserialize;
use serde::Serialize;

/// The version of the JSON output. It changes when a field is removed or changes its meaning, not
/// when a field is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(u32);

/// The version of this program's JSON output.
pub const JSON_VERSION: Version = Version(1);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Only [`JSON_VERSION`] is valid: a program reads other versions by another schema.
impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The version of the format. It changes when a field is removed or \
                changes its meaning, not when a field is added.",
            "const": JSON_VERSION.0,
        })
    }
}
