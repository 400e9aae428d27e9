// SPDX-License-Identifier: GPL-2.0

//! Checks JSON with the schema that the program prints.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::json;
use serde_json::Value;

use crate::fake::Fake;

/// The schema of the program's output.
pub(crate) struct Schema(BTreeMap<String, Validator>);

impl Schema {
    /// The schema of this program, for each subcommand. It is read once for all tests.
    pub(crate) fn load() -> &'static Self {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::read);
        &SCHEMA
    }

    fn read() -> Self {
        let whole: Value = serde_json::from_str(&Fake::new().ok(&["schema"])).expect("JSON");
        let definitions = &whole["$defs"];
        let choices = whole["anyOf"].as_array().expect("a list").iter();
        let one = |choice: &Value| {
            let name = choice["$ref"].as_str().expect("a reference");
            let name = name.strip_prefix("#/$defs/").expect("a definition");
            let schema = json!({ "$ref": choice["$ref"], "$defs": definitions });
            (name.replace('_', " "), validator(&schema))
        };
        Self(choices.map(one).collect())
    }

    /// Checks that `value` is what the subcommand prints; the error names the places where it is
    /// not.
    pub(crate) fn check(&self, command: &str, value: &Value) -> Result<(), String> {
        let validator = self.0.get(command);
        let validator =
            validator.unwrap_or_else(|| panic!("the schema has no output of {command}"));
        check(validator, value).map_err(|error| format!("{command}: {error}"))
    }
}

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::meta::validate(schema).expect("a schema of draft 2020-12");
    jsonschema::draft202012::new(schema).expect("a schema")
}

fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    let errors = validator.iter_errors(value);
    let errors: Vec<_> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors.join("; ")),
    }
}

#[test]
fn what_is_wrong_is_found() {
    let schema = Schema::load();
    let check = |text: &str| schema.check("path policy", &serde_json::from_str(text).unwrap());
    let right = r#"{"version": 1, "session": "s", "policy": null}"#;
    assert_eq!(check(right), Ok(()));
    for (text, part) in [
        (
            r#"{"version": 2, "session": "s", "policy": null}"#,
            "/version",
        ),
        (r#"{"version": 1, "policy": null}"#, "\"session\""),
        (r#"{"version": 1, "session": "s"}"#, "\"policy\""),
        (
            r#"{"version": 1, "session": 5, "policy": null}"#,
            "/session",
        ),
        (
            r#"{"version": 1, "session": "s", "policy": "best"}"#,
            "/policy",
        ),
    ] {
        let error = check(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn one_subcommand_has_a_schema_of_its_own() {
    let fake = Fake::typical();
    let text = fake.ok(&["schema", "server", "list"]);
    let validator = validator(&serde_json::from_str(&text).unwrap());
    let list: Value = serde_json::from_str(&fake.ok(&["server", "list", "-o", "json"])).unwrap();
    assert_eq!(check(&validator, &list), Ok(()));
    let rdma: Value = serde_json::from_str(&fake.ok(&["rdma", "-o", "json"])).unwrap();
    assert_eq!(
        check(&validator, &rdma),
        Ok(()),
        "no part of a list is required"
    );
    let wrong = json!({ "version": 1, "server": { "devices": [] } });
    assert!(check(&validator, &wrong).unwrap_err().contains("loaded"));
    assert_eq!(fake.ok(&["schema", "server list", "-o", "json"]), text);
}

#[test]
fn what_prints_no_json_has_no_schema() {
    let fake = Fake::new();
    let said = fake.run(&["schema", "remap"]);
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
    assert!(
        said.stderr.contains("rnbdctl remap prints no JSON"),
        "{said:?}"
    );
    assert!(said.stderr.contains("server policy show"), "{said:?}");
    assert_eq!(fake.run(&["schema", "-o", "csv"]).code, 2);
}

/// The snapshot shows each change of the format in a review. With an unchanged version of the
/// format only fields may be added.
#[test]
fn the_format_is_known() {
    insta::assert_snapshot!(Fake::new().ok(&["schema"]));
}
