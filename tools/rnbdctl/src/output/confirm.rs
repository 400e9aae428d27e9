// SPDX-License-Identifier: GPL-2.0

//! Confirmation of steps that take something from a program that uses it.

use std::io;
use std::io::BufRead;
use std::io::IsTerminal;
use std::io::Write;

use crate::Error;
use crate::Kind;
use crate::Result;

/// Succeeds if the user agrees: with `--force`, or by answering on a terminal. Without a terminal
/// the user cannot answer, and the call fails. `what` is the step, `danger` its consequence.
pub fn confirm(is_forced: bool, what: &str, danger: &str) -> Result {
    if is_forced {
        return Ok(());
    }
    let refused = |why: &str| Error::new(Kind::Busy, what, why);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refused(danger).hint("to do it without a question, give --force"));
    }
    match ask(&mut io::stdin().lock(), &mut io::stderr(), what, danger) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused("the answer was not yes")),
        Err(error) => Err(Error::io("asking for confirmation", &error)),
    }
}

/// Whether the answer is yes. Any other answer, and no answer, is no.
fn ask(
    input: &mut impl BufRead,
    output: &mut impl Write,
    what: &str,
    danger: &str,
) -> io::Result<bool> {
    write!(output, "{what}: {danger}. Continue? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, agreed) in [
            ("y\n", true),
            (" YES \n", true),
            ("n\n", false),
            ("\n", false),
            ("", false),
            ("yesterday\n", false),
        ] {
            let mut shown = Vec::new();
            let asked = ask(
                &mut answer.as_bytes(),
                &mut shown,
                "removing x",
                "all is lost",
            );
            assert_eq!(asked.unwrap(), agreed, "{answer:?}");
            let shown = String::from_utf8(shown).unwrap();
            assert_eq!(shown, "removing x: all is lost. Continue? [y/N] ");
        }
    }

    #[test]
    fn force_asks_nothing() {
        assert_eq!(confirm(true, "x", "y"), Ok(()));
    }
}
