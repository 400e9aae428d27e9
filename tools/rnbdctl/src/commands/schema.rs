// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl schema`: the JSON schema of the output, for programs that read it.

use crate::cli::Context;
use crate::complete;
use crate::output::Format;
use crate::schema;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The subcommand whose output is described, such as: server policy show; or error, for a line
    /// of standard error [default: all subcommands]
    #[arg(value_name = "COMMAND", add = complete::documents())]
    pub command: Vec<String>,
}

/// Prints the schema.
pub fn run(args: &Args, context: &Context) -> Result {
    const WHAT: &str = "printing the schema";
    let command = args.command.join(" ");
    let schema = match command.as_str() {
        "" => schema::whole(),
        name => schema::of(name).ok_or_else(|| {
            let why = format!("rnbdctl {name} prints no JSON");
            let known: Vec<_> = schema::commands().collect();
            let hint = format!("give one of: {}", known.join(", "));
            Error::new(Kind::Usage, WHAT, why).hint(hint)
        })?,
    };
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|error| Error::new(Kind::Failed, WHAT, error.to_string()))?;
    let text = text + "\n";
    match context.output.format() {
        // A schema is JSON.
        Format::Json => context.output.print_text(&text),
        Format::Table | Format::Csv => context.output.print_only(WHAT, &text),
    }
}
