// SPDX-License-Identifier: GPL-2.0

//! Checks JSON with `schema.json`. It knows the part of JSON Schema that the file uses, and also
//! checks that all fields are described.

use serde_json::Value;

/// The schema of the program's output.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn load() -> Self {
        let text = include_str!("../../schema.json");
        Self(serde_json::from_str(text).expect("schema.json is JSON"))
    }

    /// Checks that `value` is as `$defs/name` describes; the error names the place where it is not.
    pub(crate) fn check(&self, name: &str, value: &Value) -> Result<(), String> {
        self.is(value, &self.definition(name), name)
    }

    /// Whether the schema lists `$defs/name` as the output of a subcommand.
    pub(crate) fn has(&self, name: &str) -> bool {
        let reference = Value::from(format!("#/$defs/{name}"));
        let listed = self.0["anyOf"].as_array().expect("anyOf");
        listed.iter().any(|entry| entry["$ref"] == reference)
    }

    fn definition(&self, name: &str) -> Value {
        let definition = &self.0["$defs"][name];
        assert!(definition.is_object(), "schema.json has no $defs/{name}");
        definition.clone()
    }

    fn is(&self, value: &Value, schema: &Value, at: &str) -> Result<(), String> {
        for (keyword, wanted) in schema.as_object().expect("an object") {
            let holds = match keyword.as_str() {
                "description" | "properties" => true,
                "$ref" => {
                    let name = wanted
                        .as_str()
                        .and_then(|text| text.strip_prefix("#/$defs/"));
                    return self.is(value, &self.definition(name.expect("a definition")), at);
                }
                "const" => value == wanted,
                "enum" => wanted.as_array().expect("a list").contains(value),
                "minimum" => value
                    .as_i64()
                    .is_none_or(|number| number >= wanted.as_i64().unwrap()),
                "type" => match wanted {
                    Value::Array(types) => types.iter().any(|name| has_type(value, name)),
                    name => has_type(value, name),
                },
                "anyOf" => {
                    let mut choices = wanted.as_array().expect("a list").iter();
                    choices.any(|choice| self.is(value, choice, at).is_ok())
                }
                "required" => {
                    let mut fields = wanted.as_array().expect("a list").iter();
                    fields.all(|field| value.get(field.as_str().unwrap()).is_some())
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.is(item, wanted, &format!("{at}[{index}]"))?;
                    }
                    true
                }
                other => panic!("{at}: the keyword {other} is not checked here"),
            };
            if !holds {
                return Err(format!("{at}: {value} breaks {keyword} {wanted}"));
            }
        }
        for (field, value) in value.as_object().into_iter().flatten() {
            let described = &schema["properties"][field.as_str()];
            if !described.is_object() && schema.get("anyOf").is_none() {
                return Err(format!("{at}: the field {field} is not described"));
            }
            if described.is_object() {
                self.is(value, described, &format!("{at}.{field}"))?;
            }
        }
        Ok(())
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("the type {other} is not checked here"),
    }
}

#[test]
fn what_is_wrong_is_found() {
    let schema = Schema::load();
    let check = |text: &str| schema.check("policy", &serde_json::from_str(text).unwrap());
    assert_eq!(
        check(r#"{"version": 1, "session": "s", "policy": null}"#),
        Ok(())
    );
    for (text, part) in [
        (r#"{"version": 2, "session": "s", "policy": null}"#, "const"),
        (r#"{"version": 1, "policy": null}"#, "required"),
        (r#"{"version": 1, "session": 5, "policy": null}"#, "type"),
        (
            r#"{"version": 1, "session": "s", "policy": "best"}"#,
            "enum",
        ),
        (
            r#"{"version": 1, "session": "s", "policy": null, "x": 1}"#,
            "not described",
        ),
    ] {
        let error = check(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
