// SPDX-License-Identifier: GPL-2.0

//! The identity of a server's disk, by which a client recognises the disk whatever its path, its
//! session or its device number is.
//!
//! An extension: in a session with [`FEATURE_IDENTITY`](super::FEATURE_IDENTITY) the identity
//! follows the response to [`Open`](super::Open).

use core::fmt::{
    self,
    Write as _, //
};

use super::wire;
use crate::{
    error::ProtoError,
    text::Text,
    wire::{
        split,
        to_array, //
    }, //
};

/// The longest name in bytes.
const NAME_LEN: usize = 64;

/// The kinds of identifiers that disks carry themselves (C: `enum blk_unique_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// The identifier of IEEE's registration authority, mostly of SCSI disks.
    Naa,
    /// The extended or the globally unique identifier, mostly of NVMe namespaces.
    Eui,
}

impl IdKind {
    /// The prefix in names, as in the `wwid` files of SCSI and NVMe disks.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Naa => "naa.",
            Self::Eui => "eui.",
        }
    }
}

/// An identifier that a disk carries itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId {
    /// The kind of the identifier.
    pub kind: IdKind,
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl UniqueId {
    /// The longest identifier in bytes.
    pub const MAX_LEN: usize = 16;

    /// The identifier with these bytes. `None` for no bytes, too many bytes, and zeroes only, which
    /// a disk without an identifier may report.
    pub fn new(kind: IdKind, bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|&byte| byte == 0) {
            return None;
        }
        let mut padded = [0; Self::MAX_LEN];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            kind,
            bytes: padded,
            len: bytes.len(),
        })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The worldwide name of a disk; empty if the disk has none.
///
/// - `naa.HEX` and `eui.HEX`: the identifier that the disk carries itself, see [`UniqueId`],
/// - such a name with `-partN` behind it: a partition of that disk,
/// - `file.UUID.INODE.GENERATION`: a file, by the UUID of its file system, all in hexadecimal.
///
/// # Invariants
///
/// The bytes are letters, digits, `.`, `-`, `_`, `:` and `+`, followed by zeroes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Wwid([u8; NAME_LEN]);

impl Wwid {
    /// The longest name in bytes.
    pub const MAX_LEN: usize = NAME_LEN;

    /// No name.
    pub const NONE: Self = Self([0; NAME_LEN]);

    /// The name of a disk if `partition` is 0, otherwise the name of that partition.
    pub fn of_disk(id: &UniqueId, partition: u32) -> Self {
        Self::from_fn(|out| {
            out.write_str(id.kind.prefix())?;
            write_hex(out, id.as_bytes())?;
            match partition {
                0 => Ok(()),
                number => write!(out, "-part{number}"),
            }
        })
    }

    /// The name of a file; empty if its file system has no UUID.
    pub fn of_file(file_system: &[u8; 16], inode: u64, generation: u32) -> Self {
        if *file_system == [0; 16] {
            return Self::NONE;
        }
        Self::from_fn(|out| {
            out.write_str("file.")?;
            write_hex(out, file_system)?;
            write!(out, ".{inode:x}.{generation:x}")
        })
    }

    fn from_fn(write: impl FnOnce(&mut Text<{ NAME_LEN + 1 }>) -> fmt::Result) -> Self {
        let text = Text::<{ NAME_LEN + 1 }>::from_fn(write);
        let mut bytes = [0; NAME_LEN];
        // A name that is cut could be the name of several disks.
        match bytes.get_mut(..text.as_bytes().len()) {
            Some(place) if !text.is_cut() => place.copy_from_slice(text.as_bytes()),
            _ => return Self::NONE,
        }
        // INVARIANT: The callers write only bytes that the invariant allows.
        Self(bytes)
    }

    /// The name `text`; `None` if it is empty, too long, or has a character that the invariant does
    /// not allow.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME_LEN];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        // INVARIANT: Checked here.
        (!text.is_empty() && text.iter().all(is_good)).then_some(Self(bytes))
    }

    /// The field of a message: the name, then zeroes.
    pub(crate) const fn to_field(self) -> [u8; NAME_LEN] {
        self.0
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.0.first() == Some(&0)
    }

    /// The name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|&byte| byte == 0);
        len.and_then(|len| self.0.get(..len)).unwrap_or(&self.0)
    }

    /// The identifier that the disk carries itself; `None` for partitions and files.
    pub fn unique_id(&self) -> Option<UniqueId> {
        let (kind, digits) = [IdKind::Naa, IdKind::Eui].iter().find_map(|&kind| {
            let digits = self.as_bytes().strip_prefix(kind.prefix().as_bytes())?;
            Some((kind, digits))
        })?;
        let mut bytes = [0; UniqueId::MAX_LEN];
        let pairs = digits.chunks(2);
        let place = bytes.get_mut(..pairs.len())?;
        for (to, pair) in place.iter_mut().zip(pairs) {
            *to = byte_of(pair)?;
        }
        UniqueId::new(kind, place)
    }
}

/// Whether names of disks may contain this character.
fn is_good(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(*byte, b'.' | b'-' | b'_' | b':' | b'+')
}

/// The byte of two hexadecimal digits.
fn byte_of(digits: &[u8]) -> Option<u8> {
    let is_hex = digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit);
    let text = core::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u8::from_str_radix(text, 16).ok()
}

/// Writes the bytes as hexadecimal digits.
fn write_hex(out: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

/// For the log.
impl fmt::Debug for Wwid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no name");
        }
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Wwid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By the type invariant each byte is a character.
        let mut characters = self.as_bytes().iter().copied().map(char::from);
        characters.try_for_each(|character| f.write_char(character))
    }
}

/// The identity of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The disk's worldwide name.
    pub wwid: Wwid,
}

impl Identity {
    /// No identity.
    pub const NONE: Self = Self { wwid: Wwid::NONE };

    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Identity>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Identity {
            wwid: self.wwid.0,
            reserved: [0; 64],
        })
    }

    /// Checks a received identity; `bytes` may be longer than the identity.
    ///
    /// Refuses a name with a character that names of disks may not contain: udev makes links of the
    /// name, for example.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::Identity>(bytes, "identity of the disk")?;
        // INVARIANT: Checked here.
        let wwid = Wwid(msg.wwid);
        let padding = msg.wwid.get(wwid.as_bytes().len()..).unwrap_or(&[]);
        let wrong = wwid.as_bytes().iter().find(|byte| !is_good(byte));
        match wrong.or(padding.iter().find(|byte| **byte != 0)) {
            None => Ok(Self { wwid }),
            Some(byte) => Err(ProtoError::bad_field("character in the disk's wwid", *byte)),
        }
    }
}
