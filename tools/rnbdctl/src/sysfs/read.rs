// SPDX-License-Identifier: GPL-2.0

//! Reading single files and folders.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::model::natural_cmp;
use crate::Error;
use crate::Result;

/// The kernel returns at most this for a file in sysfs.
const PAGE_SIZE: usize = 4096;

/// The text of a file, without white space at its end; `None` if the file is not there (any more).
pub(crate) fn text(path: &Path) -> Result<Option<String>> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(Error::io(path.display(), &error)),
    }
}

/// As [`text`], for a file of md. The read of an array that was stopped fails with EBUSY until the
/// kernel has deleted the array: it counts as gone, too.
pub(crate) fn text_of_array(path: &Path) -> Result<Option<String>> {
    let is_busy = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::BUSY);
    match read(path) {
        Err(error) if is_busy(&error) => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(Error::io(path.display(), &error)),
        Ok(text) => Ok(Some(text)),
    }
}

/// The number in a file; `None` if there is no file, or no number in it.
pub(crate) fn number<T: FromStr>(path: &Path) -> Result<Option<T>> {
    Ok(text(path)?.and_then(|text| text.parse().ok()))
}

/// A folder of which several files are read: the kernel walks the path to it only once.
#[derive(Debug)]
pub(crate) struct Folder<'p> {
    path: &'p Path,
    folder: OwnedFd,
}

impl<'p> Folder<'p> {
    /// The folder; `None` if it is not there (any more).
    pub(crate) fn open(path: &'p Path) -> Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from) {
            Ok(folder) => Ok(Some(Self { path, folder })),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(Error::io(path.display(), &error)),
        }
    }

    /// As [`text()`], of the file `name` in the folder.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let read = rustix::fs::openat(&self.folder, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| read_once(File::from(file)));
        match read {
            Ok(text) => Ok(Some(text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(Error::io(self.path.join(name).display(), &error)),
        }
    }

    /// As [`number()`], of the file `name` in the folder.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        Ok(self.text(name)?.and_then(|text| text.parse().ok()))
    }
}

/// The entries of a folder by their names, in natural order; empty if it is not there.
pub(crate) fn entries(path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let fail = |error: &io::Error| Error::io(path.display(), error);
    let folder = match fs::read_dir(path) {
        Ok(folder) => folder,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(fail(&error)),
    };
    let mut found = Vec::new();
    for entry in folder {
        match entry {
            Ok(entry) => found.push((
                printable(entry.file_name().as_encoded_bytes()),
                entry.path(),
            )),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(fail(&error)),
        }
    }
    found.sort_by(|(a, _), (b, _)| natural_cmp(a, b));
    Ok(found)
}

/// The last part of a link's target; `None` if there is no link.
pub(crate) fn link_name(path: &Path) -> Result<Option<String>> {
    match fs::read_link(path) {
        Ok(target) => Ok(target
            .file_name()
            .map(|name| printable(name.as_encoded_bytes()))),
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(Error::io(path.display(), &error)),
    }
}

fn read(path: &Path) -> io::Result<String> {
    read_once(File::open(path)?)
}

// A file in sysfs is read with one call: the result of a second call may be from another moment.
fn read_once(mut file: File) -> io::Result<String> {
    let mut buffer = [0; PAGE_SIZE];
    let len = loop {
        match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            result => break result?,
        }
    };
    Ok(printable(buffer.get(..len).unwrap_or(&[]).trim_ascii_end()))
}

/// Whether the file, or the object that it belonged to, is gone.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV, Errno::NXIO, Errno::NOTDIR];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno))
}

/// Makes text safe for a terminal: bytes that are not UTF-8 and control characters are replaced,
/// except tabs and newlines.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars()
        .map(|c| {
            if harmless(c) {
                c
            } else {
                char::REPLACEMENT_CHARACTER
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            printable(b"a\x1b[31mb\xff\tc\n"),
            "a\u{fffd}[31mb\u{fffd}\tc\n"
        );
        assert_eq!(printable("\u{9b}31m".as_bytes()), "\u{fffd}31m");
    }

    #[test]
    fn what_is_not_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("x");
        assert_eq!(text(&missing).unwrap(), None);
        assert_eq!(number::<u32>(&missing).unwrap(), None);
        assert!(entries(&missing).unwrap().is_empty());
        assert_eq!(link_name(&missing).unwrap(), None);
        assert_eq!(link_name(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_folder_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = text(folder.path()).unwrap_err();
        assert!(
            error.what().contains(folder.path().to_str().unwrap()),
            "{error}"
        );
    }

    #[test]
    fn numbers_with_white_space_around() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("size");
        for (text, expected) in [
            ("12\n", Some(12)),
            ("-1", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(number::<u64>(&file).unwrap(), expected, "{text:?}");
        }
    }
}
