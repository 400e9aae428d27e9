// SPDX-License-Identifier: GPL-2.0

//! Runs programs of the system, as `mkfs.ext4`, without a shell.

use std::process::Command;
use std::process::Stdio;

use crate::grpc::Result;
use crate::grpc::Status;

/// The most characters of a program's output that go into an error.
const SHOWN: usize = 500;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// What it wrote to its standard output.
    pub(crate) out: String,
    /// The end of what it wrote to either.
    said: String,
    what: String,
}

impl Done {
    /// An error unless it ended with 0.
    pub(crate) fn success(self) -> Result<String> {
        match self.code {
            Some(0) => Ok(self.out),
            _ => Err(self.failure()),
        }
    }

    /// The error of a program that failed.
    pub(crate) fn failure(&self) -> Status {
        let how = match self.code {
            Some(code) => format!("exit code {code}"),
            None => "ended by a signal".to_owned(),
        };
        Status::internal(format!("{}: {how}: {}", self.what, self.said))
    }
}

/// Runs a program until it ends, which takes as long as it takes.
///
/// The error is that it cannot be run.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<Done> {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Status::precondition(format!("{program} cannot be run: {error}")))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(Done {
        code: output.status.code(),
        said: end_of(match errors.trim() {
            "" => out.trim(),
            errors => errors,
        }),
        out,
        what: program.to_owned(),
    })
}

/// The end of a text, in one line.
fn end_of(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let skip = text.chars().count().saturating_sub(SHOWN);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_in_the_error() {
        assert_eq!(run("true", &[]).unwrap().success().unwrap(), "");
        assert_eq!(run("echo", &["a b"]).unwrap().success().unwrap(), "a b\n");
        let failed = run("sh", &["-c", "echo one; echo two >&2; exit 3"]).unwrap();
        let error = failed.success().unwrap_err();
        assert_eq!(error.message, "sh: exit code 3: two");
        let missing = run("no-such-program", &[]).unwrap_err();
        assert!(missing.message.starts_with("no-such-program cannot be run"));
    }

    #[test]
    fn long_outputs_are_cut() {
        let long = format!("{}\nend", "x".repeat(10_000));
        let end = end_of(&long);
        assert_eq!(end.chars().count(), SHOWN);
        assert!(end.ends_with("x end"));
    }
}
