// SPDX-License-Identifier: GPL-2.0

//! Results as tables, JSON or CSV.

mod confirm;
mod duration;
mod format;
mod progress;
mod size;
mod table;

use std::io;
use std::io::IsTerminal;
use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

pub use confirm::confirm;
pub use duration::parse_duration;
pub use format::bytes;
pub use format::names;
pub use format::nanoseconds;
pub use format::short;
pub use progress::Progress;
pub use size::parse_size;
pub use table::Cell;
pub use table::Column;
pub use table::Table;
pub use table::Tone;

use crate::schema::Document;
use crate::Error;
use crate::Kind;
use crate::Result;

/// A document as one line of JSON, without a newline at its end.
pub(crate) fn one_line<D: Serialize + Document>(document: &D) -> serde_json::Result<String> {
    serde_json::to_string(document)
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// The result of a command.
///
/// JSON has it as it is serialised, and `rnbdctl schema` describes it.
pub trait Report: Serialize + Document {
    /// The result as tables. CSV has one header for all tables. With several tables a first column
    /// `kind` tells them apart, and columns that a table lacks are empty.
    fn tables(&self) -> Vec<Table>;

    /// The result as tables for CSV, whose columns should not depend on the machine.
    fn csv_tables(&self) -> Vec<Table> {
        self.tables()
    }

    /// Further lines for people, below the tables.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The width of the terminal in characters; `None` if the terminal does not know it, as a serial
/// terminal.
fn width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col != 0).then_some(size.ws_col)
}

/// Standard output in some format.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
    colour: bool,
    width: Option<u16>,
}

impl Output {
    /// Standard output; in colour and as wide as the terminal, if it is one.
    pub fn new(format: Format) -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            format,
            colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            width: terminal.then(width).flatten(),
        }
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether to use colours.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Prints a report.
    pub fn print<R: Report>(&self, report: &R) -> Result {
        self.print_text(&self.render(report)?)
    }

    /// Prints text as it is. It is not an error if the reader closes the pipe.
    pub fn print_text(&self, text: &str) -> Result {
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::io("standard output", &error))
            }
            _ => Ok(()),
        }
    }

    /// Prints text with a form of its own, such as a configuration file.
    pub fn print_only(&self, what: &str, text: &str) -> Result {
        match self.format {
            Format::Table => self.print_text(text),
            Format::Json | Format::Csv => {
                let why = "the output is neither JSON nor CSV";
                Err(Error::new(Kind::Usage, what, why).hint("leave out --output"))
            }
        }
    }

    /// Breaks a text into lines that begin at `indent`. If the terminal is too narrow, the text
    /// goes on in the next line, two places further to the right. Words are never cut.
    pub fn indented(&self, indent: usize, text: &str) -> String {
        let room = self.width.map_or(usize::MAX, usize::from);
        let further = indent.saturating_add(2);
        let mut lines = String::new();
        for (number, line) in table::wrap(text, room.saturating_sub(further))
            .iter()
            .enumerate()
        {
            let places = if number == 0 { indent } else { further };
            lines.push_str(&format!("{:places$}{line}\n", ""));
        }
        lines
    }

    /// Prints a line for people: nothing with JSON or CSV.
    pub fn say(&self, line: &str) -> Result {
        match self.format {
            Format::Table => self.print_text(&format!("{line}\n")),
            _ => Ok(()),
        }
    }

    /// The text of a report, with a newline at its end unless it is empty.
    pub fn render<R: Report>(&self, report: &R) -> Result<String> {
        match self.format {
            Format::Table => Ok(self.for_people(report)),
            Format::Json => match serde_json::to_string_pretty(report) {
                Ok(text) => Ok(text + "\n"),
                Err(error) => Err(Error::new(Kind::Failed, "writing JSON", error.to_string())),
            },
            Format::Csv => table::csv(&report.csv_tables())
                .map_err(|error| Error::new(Kind::Failed, "writing CSV", error.to_string())),
        }
    }

    fn for_people<R: Report>(&self, report: &R) -> String {
        let tables = report.tables();
        let titled = tables.len() > 1;
        let mut text = String::new();
        for table in &tables {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&table.for_people(titled, self.colour, self.width));
        }
        for note in report.notes() {
            text.push_str(&note);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_has_whole_words() {
        let output = |width| Output {
            format: Format::Table,
            colour: false,
            width,
        };
        let text = "kernel: the server does not respond";
        assert_eq!(
            output(Some(20)).indented(2, text),
            "  kernel: the\n    server does not\n    respond\n"
        );
        assert_eq!(
            output(None).indented(2, text),
            "  kernel: the server does not respond\n"
        );
    }
}
