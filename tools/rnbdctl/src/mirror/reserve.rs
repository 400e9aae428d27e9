// SPDX-License-Identifier: GPL-2.0

//! Reserves a leg for this machine, by a persistent reservation at the leg's server.
//!
//! The reservation is "write exclusive": no other machine can write to the leg, even if it has
//! mapped the disk. Other machines can still read the leg. The reservation outlasts the session.
//!
//! `blkpr` of util-linux gives the commands. The system calls for reservations need unsafe code,
//! and this program has none.

use super::tool;
use super::tool::Ran;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The type of the reservation, as `blkpr` calls it.
const TYPE: &str = "write-exclusive";

/// A part of the message of `blkpr` about a command that the server refuses because of a
/// reservation or a key.
const CONFLICT: &str = "error code 0x18";

/// The reason of the error if another machine has reserved the disk.
const RESERVED: &str = "another machine has reserved the disk";

/// How a leg was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This machine was registered before: no other machine could reserve the leg in between.
    Kept,
    /// This machine registered in this call.
    New,
}

/// Reserves the leg with the device node `node`, with the key of this machine.
///
/// With `take_over` the leg is also taken from another machine. When this returns, no write of that
/// machine reaches the leg any more.
///
/// The error is [`Kind::Busy`] if another machine has reserved the leg ([`is_conflict`]), and
/// [`Kind::Unsupported`] if the disk takes no reservations.
pub fn take(node: &str, key: u64, take_over: bool) -> Result<Taken> {
    let what = format!("reserving {node}");
    // The server refuses a machine that is not registered with this key.
    if succeeds(&what, &reserve(node, key)?)? {
        return Ok(Taken::Kept);
    }
    register(&what, node, key)?;
    if take_over {
        command("clear", &[("-k", &text(key))], node)?.ok(&what)?;
        register(&what, node, key)?;
    }
    if succeeds(&what, &reserve(node, key)?)? {
        return Ok(Taken::New);
    }
    // Another machine has reserved the disk: this machine takes its registration back.
    let _ = unregister(node, key);
    Err(Error::new(Kind::Busy, what, RESERVED).hint(
        "if the disk is a leg of a mirror of the other machine, stop that mirror there: rnbdctl \
         mirror stop NAME --release",
    ))
}

/// As [`take`], for a disk that is to become a leg.
pub fn take_new_leg(node: &str, key: u64) -> Result<Taken> {
    take(node, key, false).map_err(|error| match is_conflict(&error) {
        true => error.hint(
            "choose another disk; or, if the disk is a leg of a mirror of the other machine, stop \
             that mirror there: rnbdctl mirror stop NAME --release",
        ),
        false => error,
    })
}

/// Returns whether this is the error of [`take`] if another machine has reserved the disk. Other
/// errors of [`take`] may be [`Kind::Busy`], too.
pub fn is_conflict(error: &Error) -> bool {
    error.kind() == Kind::Busy && error.why() == RESERVED
}

/// Gives up the reservation and the registration of a leg. It is no error if this machine has
/// neither.
pub fn release(node: &str, key: u64) -> Result {
    let what = format!("releasing {node}");
    let key_text = text(key);
    let ran = command("release", &[("-k", &key_text), ("-t", TYPE)], node)?;
    succeeds(&what, &ran)?;
    succeeds(&what, &unregister(node, key)?)?;
    Ok(())
}

fn text(key: u64) -> String {
    format!("{key:#x}")
}

fn reserve(node: &str, key: u64) -> Result<Ran> {
    command("reserve", &[("-k", &text(key)), ("-t", TYPE)], node)
}

/// Registers the key; a key that this machine had before is replaced.
fn register(what: &str, node: &str, key: u64) -> Result {
    let ran = command(
        "register",
        &[("-k", &text(key)), ("-f", "ignore-key")],
        node,
    )?;
    ran.ok(what).map(drop)
}

fn unregister(node: &str, key: u64) -> Result<Ran> {
    command("register", &[("-K", &text(key)), ("-k", "0")], node)
}

fn command(name: &str, options: &[(&str, &str)], node: &str) -> Result<Ran> {
    let mut args = vec!["-c", name];
    args.extend(options.iter().flat_map(|(option, value)| [*option, *value]));
    args.push(node);
    tool::run("blkpr", &args)
}

/// Returns whether a command has succeeded; `false` if the server refused it because of a
/// reservation or a key. Any other failure is an error.
fn succeeds(what: &str, ran: &Ran) -> Result<bool> {
    if ran.is_ok() {
        return Ok(true);
    }
    if ran.err.contains(CONFLICT) {
        return Ok(false);
    }
    if ran.err.contains("not supported") || ran.err.contains("Inappropriate ioctl") {
        let why = "the disk takes no reservations";
        return Err(Error::new(Kind::Unsupported, what, why).hint(
            "this client or the server has C modules, or modules older than 0.2.0; load newer \
             modules. A new mirror can do without reservations (--no-reserve, or reserve = false \
             in rnbd.toml), but then a second machine can write to its legs",
        ));
    }
    Err(ran.error(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, err: &str) -> Ran {
        Ran {
            line: "blkpr".to_owned(),
            code: Some(code),
            out: String::new(),
            err: err.to_owned(),
        }
    }

    #[test]
    fn answers_of_blkpr() {
        assert_eq!(succeeds("x", &ran(0, "")), Ok(true));
        let conflict = "blkpr: error code 0x18, for more detailed information see specification";
        assert_eq!(succeeds("x", &ran(1, conflict)), Ok(false));
        for (said, kind) in [
            (
                "blkpr: pr ioctl failed: Operation not supported",
                Kind::Unsupported,
            ),
            (
                "blkpr: pr ioctl failed: Inappropriate ioctl for device",
                Kind::Unsupported,
            ),
            ("blkpr: pr ioctl failed: Input/output error", Kind::Failed),
            ("blkpr: error code 0x1, for more", Kind::Failed),
        ] {
            let error = succeeds("x", &ran(1, said)).unwrap_err();
            assert_eq!(error.kind(), kind, "{said}");
        }
    }
}
