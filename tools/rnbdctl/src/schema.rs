// SPDX-License-Identifier: GPL-2.0

//! The JSON schema of the program's output (JSON Schema, draft 2020-12).
//!
//! The schema is derived from the types that are serialised, and their documentation is the
//! schema's. The list in this file has all documents that the program prints. Only a type of the
//! list can be printed ([`Document`]), so no document lacks a schema. The schema does not depend on
//! the features with which the program is built.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::transform::Transform;
use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use serde_json::json;
use serde_json::Map;
use serde_json::Value;

use crate::apply;
use crate::commands::check;
use crate::commands::config;
use crate::commands::discover;
use crate::commands::events;
use crate::commands::fabric;
use crate::commands::key;
use crate::commands::latency;
use crate::commands::list;
use crate::commands::map;
use crate::commands::mirror_status;
use crate::commands::path;
use crate::commands::rdma;
use crate::commands::server_apply;
use crate::commands::server_policy;
use crate::commands::show;
use crate::commands::stats;
use crate::commands::unmap;
use crate::commands::why;
use crate::error;
use crate::live;

/// A type whose JSON the program prints. The list of this file implements it.
pub trait Document: JsonSchema {}

/// The documents of some subcommands.
struct Documents {
    /// The subcommands; `error` is a line of standard error of any subcommand.
    commands: &'static [&'static str],
    schema: fn(&mut SchemaGenerator) -> Schema,
}

macro_rules! documents {
    ($($commands:expr => $document:ty,)*) => {
        $(impl Document for $document {})*

        const ALL: &[Documents] = &[$(Documents {
            commands: &$commands,
            schema: <$document as JsonSchema>::json_schema,
        }),*];
    };
}

documents! {
    ["list", "server list"] => list::Listing,
    ["show"] => show::Shown,
    ["map"] => map::Done<'_>,
    ["unmap"] => unmap::Unmapped<'_>,
    ["discover"] => discover::Found,
    ["path policy"] => path::Chosen,
    ["rdma"] => rdma::Devices,
    ["check"] => check::Checked,
    ["why"] => why::Found,
    ["stats"] => stats::Stats,
    ["latency"] => latency::Measured,
    ["top"] => live::RatesReport<'_>,
    ["events"] => events::Line<'_>,
    ["apply"] => apply::report::Changes,
    ["config check"] => config::Checked,
    ["server apply"] => server_apply::Applied,
    ["server policy show"] => server_policy::Shown,
    ["key list"] => key::Keys,
    ["mirror status"] => mirror_status::Listing,
    ["fabric test"] => fabric::Tested,
    ["error"] => error::Told<'_>,
}

/// The subcommands that print JSON, as `server list`, and `error` for a line of standard error.
pub fn commands() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|documents| documents.commands).copied()
}

/// The schema of the output of all subcommands. `$defs` has that of each subcommand, by its name
/// with `_` between the words.
pub fn whole() -> Value {
    let mut generator = generator();
    let mut definitions = Map::new();
    let mut choices = Vec::new();
    for documents in ALL {
        let mut schema = (documents.schema)(&mut generator);
        schema.insert("title".to_owned(), title(documents.commands).into());
        let name = name(documents.commands);
        let reference = json!({ "$ref": format!("#/$defs/{name}") });
        for command in documents.commands {
            definitions.insert(command.replace(' ', "_"), reference.clone());
        }
        definitions.insert(name, schema.to_value());
        choices.push(reference);
    }
    let mut root = Map::new();
    root.insert("title".to_owned(), "The JSON output of rnbdctl".into());
    let text = "More fields may come: ignore fields that you do not know.";
    root.insert("description".to_owned(), text.into());
    root.insert("anyOf".to_owned(), choices.into());
    finish(Schema::from(root), definitions, generator)
}

/// The schema of the output of one of [`commands()`]; `None` if it is none of them.
pub fn of(command: &str) -> Option<Value> {
    let documents = ALL
        .iter()
        .find(|documents| documents.commands.contains(&command))?;
    let mut generator = generator();
    let mut schema = (documents.schema)(&mut generator);
    schema.insert("title".to_owned(), title(documents.commands).into());
    Some(finish(schema, Map::new(), generator))
}

fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12();
    settings.for_serialize().into_generator()
}

/// The name of a definition.
fn name(commands: &[&str]) -> String {
    commands.first().unwrap_or(&"").replace(' ', "_")
}

fn title(commands: &[&str]) -> String {
    match commands {
        ["error"] => "An error: a line of standard error with -o json".to_owned(),
        ["events"] => "A line of rnbdctl events".to_owned(),
        _ => {
            let each = |command: &&str| format!("rnbdctl {command} -o json");
            commands.iter().map(each).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The whole document: the schema with the definitions that it refers to.
fn finish(
    mut schema: Schema,
    mut definitions: Map<String, Value>,
    mut generator: SchemaGenerator,
) -> Value {
    definitions.extend(generator.take_definitions(true));
    let meta = "https://json-schema.org/draft/2020-12/schema";
    schema.insert("$schema".to_owned(), meta.into());
    schema.insert("$defs".to_owned(), definitions.into());
    RecursiveTransform(for_readers).transform(&mut schema);
    schema.to_value()
}

/// Makes the documentation of a type the description of its JSON: `None` is `null` there, and lines
/// are as long as they are.
fn for_readers(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs = text.split("\n\n").map(|text| text.replace('\n', " "));
        *text = paragraphs
            .collect::<Vec<_>>()
            .join("\n\n")
            .replace("`None`", "null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_subcommand() {
        let is_built = |name: &&str| match *name {
            "error" => false,
            "top" => cfg!(feature = "top"),
            _ => true,
        };
        for name in commands().filter(is_built) {
            let mut command = &crate::cli::command();
            for word in name.split(' ') {
                command = command
                    .find_subcommand(word)
                    .unwrap_or_else(|| panic!("there is no rnbdctl {name}"));
            }
        }
    }

    #[test]
    fn two_types_do_not_have_one_name() {
        let whole = whole();
        for name in whole["$defs"].as_object().unwrap().keys() {
            // schemars adds a number to the name of the second type.
            assert!(!name.ends_with(char::is_numeric), "{name}");
        }
    }

    #[test]
    fn everything_is_described() {
        fn look(schema: &Value, at: &str) {
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                let at = format!("{at}.{field}");
                // A constant describes itself.
                let is_clear = schema.get("description").is_some() || schema.get("const").is_some();
                assert!(is_clear, "{at} has no description");
                let text = schema["description"].as_str().unwrap_or_default();
                assert!(
                    !text.contains("None") && !text.contains("[`"),
                    "{at}: {text}"
                );
                look(schema, &at);
            }
            for schema in schema["oneOf"].as_array().into_iter().flatten() {
                look(schema, at);
            }
        }
        for (name, schema) in whole()["$defs"].as_object().unwrap() {
            look(schema, name);
        }
    }

    #[test]
    fn the_schema_of_one_command_is_that_of_the_whole() {
        let whole = whole();
        for documents in ALL {
            let one = of(documents.commands[0]).unwrap();
            let in_whole = &whole["$defs"][name(documents.commands)];
            for (keyword, value) in in_whole.as_object().unwrap() {
                assert_eq!(one[keyword], *value, "{:?}", documents.commands);
            }
            for (name, value) in one["$defs"].as_object().unwrap() {
                assert_eq!(whole["$defs"][name], *value, "{name}");
            }
        }
        assert_eq!(of("remap"), None);
    }
}
