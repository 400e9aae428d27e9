// SPDX-License-Identifier: GPL-2.0

//! The mistakes of a configuration file.

use std::fmt;
use std::io;
use std::ops::Range;

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the user named it.
    pub file: String,
    /// Line and column, from 1; `None` if the file could not be read.
    pub position: Option<(usize, usize)>,
    /// The key, with its session; empty if there is none.
    pub key: String,
    /// The mistake, and what would be right.
    pub message: String,
}

/// All mistakes of a file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigError {
    /// A mistake at `span`, a range of bytes of `text`.
    pub fn at(file: &str, text: &str, span: Range<usize>, key: &str, message: String) -> Self {
        Self {
            file: file.to_owned(),
            position: Some(position(text, span.start)),
            key: key.to_owned(),
            message,
        }
    }
}

impl ConfigErrors {
    /// The file could not be read.
    pub fn unreadable(file: &str, error: &io::Error) -> Self {
        Self(vec![ConfigError {
            file: file.to_owned(),
            position: None,
            key: String::new(),
            message: match error.kind() {
                io::ErrorKind::NotFound => "there is no such file".to_owned(),
                _ => format!("cannot be read: {error}"),
            },
        }])
    }

    /// The bytes behind `before` are not UTF-8.
    pub fn not_utf8(file: &str, before: &[u8]) -> Self {
        let before = String::from_utf8_lossy(before);
        let end = before.len();
        let message = "this byte is not UTF-8, and a TOML file is UTF-8".to_owned();
        Self(vec![ConfigError::at(file, &before, end..end, "", message)])
    }
}

/// Line and column of a byte, counted from 1, columns in characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count().saturating_add(1);
    let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let column = before.get(start..).unwrap_or("").chars().count();
    (line, column.saturating_add(1))
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.message)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
impl std::error::Error for ConfigErrors {}
