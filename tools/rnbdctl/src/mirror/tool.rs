// SPDX-License-Identifier: GPL-2.0

//! Runs the programs that mirrors need: `mdadm`, `blkpr`, `blkid`, `modprobe`.
//!
//! A program runs with `LC_ALL=C`, so its messages are in English: [`Ran::error`] and
//! [`super::reserve`] look for words in them. Its input is empty, so a program that asks a question
//! reads the end of its input.

use std::io;
use std::process::Command;
use std::process::Stdio;

use crate::Error;
use crate::Kind;
use crate::Result;

/// The result of a program that has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The program and its arguments, with spaces between.
    pub line: String,
    /// The exit code; `None` if a signal has ended the program.
    pub code: Option<i32>,
    /// The standard output, made printable and without white space at its end.
    pub out: String,
    /// The standard error, in the same form.
    pub err: String,
}

impl Ran {
    /// Whether the exit code is 0.
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns the standard output; [`Self::error`] if the program has failed.
    pub fn ok(self, what: &str) -> Result<String> {
        match self.is_ok() {
            true => Ok(self.out),
            false => Err(self.error(what)),
        }
    }

    /// Returns the error that `what` could not be done, with the program's message as the reason.
    ///
    /// Its kind is [`Kind::Busy`] if the message has "busy" or "in use", else [`Kind::Failed`].
    pub fn error(&self, what: &str) -> Error {
        let kind = match self.err.contains("busy") || self.err.contains("in use") {
            true => Kind::Busy,
            false => Kind::Failed,
        };
        Error::new(kind, what, self.why()).hint(format!("the command was: {}", self.line))
    }

    /// Returns the lines of the standard error as one line; the exit code if there are none.
    pub(super) fn why(&self) -> String {
        let lines = self
            .err
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let said = lines.collect::<Vec<_>>().join("; ");
        match (said.is_empty(), self.code) {
            (false, _) => said,
            (true, Some(code)) => format!("exit code {code}"),
            (true, None) => "a signal ended the program".to_owned(),
        }
    }
}

/// Runs a program, and waits for its end without a time limit.
///
/// The error is [`Kind::Unsupported`] if no folder of `PATH` has the program.
pub fn run(program: &str, args: &[&str]) -> Result<Ran> {
    let line = std::iter::once(&program)
        .chain(args)
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| missing(program, &line, &error))?;
    let text = |bytes: &[u8]| crate::sysfs::printable(bytes.trim_ascii_end());
    Ok(Ran {
        line,
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}

fn missing(program: &str, line: &str, error: &io::Error) -> Error {
    if error.kind() != io::ErrorKind::NotFound {
        return Error::io(line, error);
    }
    let package = match program {
        "blkpr" => "util-linux-extra",
        "blkid" => "util-linux",
        "modprobe" => "kmod",
        program => program,
    };
    let why = format!("no folder of PATH has the program {program}");
    Error::new(Kind::Unsupported, line, why).hint(format!(
        "install {package} (apt install {package}); if it is installed, add /usr/sbin to PATH"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_told() {
        let ran = run("sh", &["-c", "echo out; echo a >&2; echo ' b' >&2; exit 3"]).unwrap();
        assert_eq!((ran.code, ran.out.as_str()), (Some(3), "out"));
        let error = ran.clone().ok("trying").unwrap_err();
        assert_eq!(error.to_string(), "trying: a; b");
        assert!(error.remedy().unwrap().contains("sh -c"), "{error:?}");
        let busy = run("sh", &["-c", "echo Device or resource busy >&2; exit 1"]).unwrap();
        assert_eq!(busy.error("x").kind(), Kind::Busy);
        let silent = run("false", &[]).unwrap();
        assert_eq!(silent.error("x").why(), "exit code 1");
        assert_eq!(run("sh", &["-c", "cat"]).unwrap().ok("x").unwrap(), "");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run("rnbdctl-no-such-program", &["x"]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.remedy().unwrap().contains("rnbdctl-no-such-program"));
        assert!(
            missing("blkpr", "x", &io::Error::from(io::ErrorKind::NotFound))
                .remedy()
                .unwrap()
                .contains("util-linux-extra")
        );
    }
}
