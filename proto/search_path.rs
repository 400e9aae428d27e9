// SPDX-License-Identifier: GPL-2.0

//! Where a server looks for the device a client names.

use core::{
    ffi::CStr,
    fmt, //
};

use crate::{
    name::{
        Name,
        SessName,
        PATH_MAX, //
    },
    text::impl_error, //
};

/// Stands for the session's name in the search path; the text behind it is ignored.
pub const SESSNAME_MARK: &[u8] = b"%SESSNAME%";

/// The default of the server's `dev_search_path`.
pub const DEFAULT: &[u8] = b"/";

/// Why a search path, or a path made with it, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchPathError {
    /// The device's name contains "..", which could lead out of the search path.
    Relative,
    /// The path would have this many bytes, more than a path can have.
    TooLong(usize),
    /// The search path, or the parameter, contains a NUL.
    Nul,
}

impl fmt::Display for SearchPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative => f.write_str("the device path contains \"..\""),
            Self::TooLong(len) => write!(
                f,
                "the device path is too long ({len} bytes, at most {})",
                PATH_MAX - 1
            ),
            Self::Nul => f.write_str("the search path contains a NUL"),
        }
    }
}

impl_error!(SearchPathError, EINVAL);

/// The value of the `dev_search_path` parameter: the written text up to its last newline.
pub fn parse_param(value: &[u8]) -> Result<&[u8], SearchPathError> {
    if value.len() >= PATH_MAX {
        return Err(SearchPathError::TooLong(value.len()));
    }
    if value.contains(&0) {
        return Err(SearchPathError::Nul);
    }
    let end = value.iter().rposition(|&byte| byte == b'\n');
    Ok(end.and_then(|end| value.get(..end)).unwrap_or(value))
}

/// Whether the regular file at `path` is given to clients: below a search path that names a folder,
/// or if there is an export policy.
///
/// Never below `/dev`: the entries there are disks, and `/dev/shm` has files of programs.
pub fn gives_file(search_path: &[u8], has_policy: bool, path: &[u8]) -> bool {
    (has_policy || is_narrow(search_path)) && !path.starts_with(b"/dev/")
}

/// Whether all devices of clients are below a folder that the search path names.
///
/// `/` does not count as such a folder. Neither does a path that begins with [`SESSNAME_MARK`],
/// since the client chooses the session's name, nor a path with `..`, which may lead back to `/`.
fn is_narrow(search_path: &[u8]) -> bool {
    let mut names = before_mark(search_path)
        .unwrap_or(search_path)
        .split(|&byte| byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .peekable();
    names.peek().is_some() && names.all(|name| name != b"..")
}

/// The part of a search path before [`SESSNAME_MARK`]; `None` if the mark is not there.
fn before_mark(search_path: &[u8]) -> Option<&[u8]> {
    let mark = search_path
        .windows(SESSNAME_MARK.len())
        .position(|part| part == SESSNAME_MARK);
    search_path.get(..mark?)
}

/// Writes the full path of a device to `out` (C: `rnbd_srv_get_full_path`).
///
/// The search path, a slash and the device's name; if the search path contains
/// [`SESSNAME_MARK`], the part before it, the session's name and the device's
/// name. Repeated slashes become one.
///
/// A device's name that begins with a slash and names an entry of that folder is itself the full
/// path: `/dev/sda` with the search path `/dev` is `/dev/sda`, where C has `/dev/dev/sda`.
pub fn full_path<'a>(
    search_path: &[u8],
    sessname: &SessName,
    dev_name: &Name,
    out: &'a mut [u8; PATH_MAX],
) -> Result<&'a CStr, SearchPathError> {
    join(search_path, sessname, dev_name.as_bytes(), out)
}

/// Writes the folder of a session's devices to `out`, with a slash at its end. The path of a device
/// is this path followed by the device's name.
pub fn folder<'a>(
    search_path: &[u8],
    sessname: &SessName,
    out: &'a mut [u8; PATH_MAX],
) -> Result<&'a CStr, SearchPathError> {
    join(search_path, sessname, b"", out)
}

fn join<'a>(
    search_path: &[u8],
    sessname: &SessName,
    dev_name: &[u8],
    out: &'a mut [u8; PATH_MAX],
) -> Result<&'a CStr, SearchPathError> {
    if dev_name.windows(2).any(|pair| pair == b"..") {
        return Err(SearchPathError::Relative);
    }
    if search_path.contains(&0) {
        return Err(SearchPathError::Nul);
    }
    let parts: [&[u8]; 5] = match before_mark(search_path) {
        Some(prefix) => [prefix, b"/", sessname.as_bytes(), b"/", dev_name],
        None => [search_path, b"/", dev_name, b"", b""],
    };
    // C counts before it squeezes the slashes, and counts the whole search path.
    // The sum fits: the search path is in memory, at most once, and the names are short.
    let joined = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
    let len = joined(&parts).max(joined(&[search_path, dev_name]));
    if len >= PATH_MAX {
        return Err(SearchPathError::TooLong(len));
    }
    let parts = match is_below(&parts, dev_name) {
        true => [dev_name, b"", b"", b"", b""],
        false => parts,
    };
    let mut to = out.iter_mut();
    let mut last = 0;
    for &byte in parts.into_iter().flatten() {
        if byte == b'/' && last == b'/' {
            continue;
        }
        last = byte;
        if let Some(to) = to.next() {
            *to = byte;
        }
    }
    if let Some(to) = to.next() {
        *to = 0;
    }
    CStr::from_bytes_until_nul(out).map_err(|_| SearchPathError::TooLong(len))
}

/// Whether `dev_name` is a full path below the folder that `parts` name. `dev_name` is the last
/// part that is not empty.
fn is_below(parts: &[&[u8]; 5], dev_name: &[u8]) -> bool {
    if dev_name.first() != Some(&b'/') {
        return false;
    }
    // `parts` have at least as many bytes as the name: the name's first slash is the slash at the
    // end of the folder.
    let len = squeezed(parts)
        .count()
        .wrapping_sub(squeezed(&[dev_name]).count())
        .wrapping_add(1);
    let mut folder = squeezed(parts).take(len);
    let mut name = squeezed(core::slice::from_ref(&dev_name));
    folder.all(|byte| name.next() == Some(byte)) && name.next().is_some()
}

/// The bytes of `parts` one after the other, with one slash for several.
fn squeezed<'a>(parts: &'a [&'a [u8]]) -> impl Iterator<Item = u8> + 'a {
    let mut last = 0;
    parts
        .iter()
        .copied()
        .flatten()
        .copied()
        .filter(move |&byte| {
            let is_repeated = byte == b'/' && last == b'/';
            last = byte;
            !is_repeated
        })
}
