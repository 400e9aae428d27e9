// SPDX-License-Identifier: GPL-2.0

//! Discovery: the disks that a client could open, page by page.
//!
//! The server lists disks in the order of their paths, byte by byte. A client asks for the disks
//! behind a path, so the server need not remember what it has listed, and disks that come and go
//! meanwhile do not move other disks. An extension: only in a session with
//! [`FEATURE_DISCOVERY`](super::FEATURE_DISCOVERY).

use core::fmt::Write as _;

use zerocopy::IntoBytes as _;

use super::{
    wire::{
        self,
        MsgHdr,
        MsgType,
        SECTOR_SIZE, //
    },
    AccessMode,
    OpenRsp,
    Wwid, //
};
use crate::{
    error::ProtoError,
    name::{
        Name,
        NAME_MAX, //
    },
    text::Text,
    wire::{
        split,
        to_array, //
    }, //
};

/// Asks for disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discover {
    /// The response begins with the disk behind this path; `None`: with the first disk.
    pub after: Option<Name>,
}

impl Discover {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Discover>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Discover {
            hdr: MsgHdr::new(MsgType::Discover),
            after: match &self.after {
                Some(name) => name.to_field(),
                None => [0; NAME_MAX],
            },
            reserved: [0; 5],
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::Discover>(bytes, "discover message")?;
        let after = match msg.after.first() {
            Some(0) => None,
            _ => Some(
                Name::from_field(&msg.after).map_err(|error| ProtoError::BadName {
                    field: "path of the discover message",
                    error,
                })?,
            ),
        };
        Ok(Self { after })
    }
}

/// A set of access modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes(u8);

impl Modes {
    /// No mode.
    pub const NONE: Self = Self(0);
    /// All modes, in the order of their bits on the wire.
    pub const ALL: [AccessMode; 3] = [AccessMode::Ro, AccessMode::Rw, AccessMode::Migration];

    /// This set with `mode` added.
    #[must_use]
    pub const fn with(self, mode: AccessMode) -> Self {
        Self(self.0 | Self::bit(mode))
    }

    /// Whether `mode` is in the set.
    pub const fn has(self, mode: AccessMode) -> bool {
        self.0 & Self::bit(mode) != 0
    }

    /// Whether no mode is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn bit(mode: AccessMode) -> u8 {
        match mode {
            AccessMode::Ro => 1 << 0,
            AccessMode::Rw => 1 << 1,
            AccessMode::Migration => 1 << 2,
        }
    }

    /// Bits of later versions are dropped.
    const fn from_wire(value: u8) -> Self {
        Self(value & 0b111)
    }
}

/// A disk that a client could open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundDisk<'a> {
    /// The path, as an open message names it; [`Name::new`] accepts it.
    pub path: &'a [u8],
    /// The worldwide name.
    pub wwid: Wwid,
    /// The size in sectors of 512 bytes, at most [`OpenRsp::MAX_NSECTORS`].
    pub nsectors: u64,
    /// The smallest block of a request, in bytes: a power of two of at least 512.
    pub logical_block_size: u32,
    /// The number of sessions that have the disk open; 65535 also stands for more.
    pub sessions: u16,
    /// The modes in which this client could open it now.
    pub modes: Modes,
    /// The disk is a regular file.
    pub is_file: bool,
    /// This session has the disk open.
    pub is_own: bool,
    /// The server's machine itself uses the disk: the disk is mounted, or is a part of another
    /// disk.
    pub is_used: bool,
}

impl<'a> FoundDisk<'a> {
    const FILE: u8 = 1 << 0;
    const OWN: u8 = 1 << 1;
    const USED: u8 = 1 << 2;

    /// The size of the longest record in bytes.
    pub const MAX_SIZE: usize = size_of::<wire::FoundDisk>() + Name::MAX_LEN + Wwid::MAX_LEN;

    /// The length of the longest line of [`Self::write_line`] in bytes.
    pub const MAX_LINE: usize = 160 + Name::MAX_LEN;

    /// The front of the wire form; `None` if the path is too long.
    fn front(&self) -> Option<wire::FoundDisk> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        Some(wire::FoundDisk {
            nsectors: self.nsectors.into(),
            logical_block_size: self.logical_block_size.into(),
            sessions: self.sessions.into(),
            modes: self.modes.0,
            flags: flag(self.is_file, Self::FILE)
                | flag(self.is_own, Self::OWN)
                | flag(self.is_used, Self::USED),
            path_len: u8::try_from(self.path.len()).ok()?,
            wwid_len: u8::try_from(self.wwid.as_bytes().len()).ok()?,
            reserved: [0; 2],
        })
    }

    /// The record at the front of `bytes`, and the bytes behind it. Refuses values that
    /// [`OpenRsp::parse`] would refuse, and a path that no open message can have.
    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ProtoError> {
        let what = "disk in the discovery";
        let bad = |field, value: u64| Err(ProtoError::bad_field(field, value));
        let (record, body) = split::<wire::FoundDisk>(bytes, what)?;
        let (path_len, wwid_len) = (usize::from(record.path_len), usize::from(record.wwid_len));
        // Each length is at most 255.
        let need = path_len.wrapping_add(wwid_len);
        let too_short = ProtoError::TooShort {
            what,
            len: body.len(),
            need,
        };
        let (text, rest) = body.split_at_checked(need).ok_or(too_short)?;
        let (path, wwid) = text.split_at_checked(path_len).ok_or(too_short)?;
        Name::check(path).map_err(|error| ProtoError::BadName {
            field: "path of a disk in the discovery",
            error,
        })?;
        if path.windows(2).any(|pair| pair == b"..") {
            return bad(
                "\"..\" in the path of a disk in the discovery",
                path.len() as u64,
            );
        }
        let wwid = match wwid {
            [] => Wwid::NONE,
            wwid => match Wwid::from_text(wwid) {
                Some(wwid) => wwid,
                None => return bad("wwid of a disk in the discovery", wwid.len() as u64),
            },
        };
        let nsectors = record.nsectors.get();
        if nsectors > OpenRsp::MAX_NSECTORS {
            return bad("size of a disk in the discovery", nsectors);
        }
        let logical_block_size = record.logical_block_size.get();
        if !logical_block_size.is_power_of_two() || logical_block_size < SECTOR_SIZE {
            return bad(
                "block size of a disk in the discovery",
                logical_block_size.into(),
            );
        }
        let disk = Self {
            path,
            wwid,
            nsectors,
            logical_block_size,
            sessions: record.sessions.get(),
            modes: Modes::from_wire(record.modes),
            is_file: record.flags & Self::FILE != 0,
            is_own: record.flags & Self::OWN != 0,
            is_used: record.flags & Self::USED != 0,
        };
        Ok((disk, rest))
    }

    /// Writes the disk as a line of text to the front of `out`, and returns the line's length in
    /// bytes. `None` if `out` is too short; [`Self::MAX_LINE`] bytes are always enough.
    ///
    /// The line is `SECTORS BLOCK_SIZE MODES SESSIONS FLAGS WWID PATH` and a newline. `MODES` and
    /// `FLAGS` are words between commas; `-` stands for no mode, no flag and no `WWID`.
    pub fn write_line(&self, out: &mut [u8]) -> Option<usize> {
        let words = Text::<160>::from_fn(|out| {
            write!(out, "{} {} ", self.nsectors, self.logical_block_size)?;
            let modes = Modes::ALL.iter().filter(|&&mode| self.modes.has(mode));
            write_words(out, modes.map(|mode| mode.as_str()))?;
            write!(out, " {} ", self.sessions)?;
            let flags = [
                (self.is_file, "file"),
                (self.is_own, "own"),
                (self.is_used, "used"),
            ];
            write_words(
                out,
                flags.iter().filter(|flag| flag.0).map(|flag| flag.1), //
            )?;
            if self.wwid.is_empty() {
                out.write_str(" - ")
            } else {
                write!(out, " {} ", self.wwid)
            }
        });
        if words.is_cut() {
            return None;
        }
        let mut len = 0usize;
        for part in [words.as_bytes(), self.path, b"\n"] {
            let end = len.checked_add(part.len())?;
            out.get_mut(len..end)?.copy_from_slice(part);
            len = end;
        }
        Some(len)
    }
}

/// Writes words with commas between them; `-` for no words.
fn write_words<'a>(
    out: &mut impl core::fmt::Write,
    words: impl Iterator<Item = &'a str>,
) -> core::fmt::Result {
    let mut separator = "";
    for word in words {
        write!(out, "{separator}{word}")?;
        separator = ",";
    }
    if separator.is_empty() {
        out.write_str("-")?;
    }
    Ok(())
}

/// Builds the response to [`Discover`].
pub struct DiscoverRspWriter<'a> {
    out: &'a mut [u8],
    /// The offset of the next record.
    len: usize,
    count: u16,
}

impl<'a> DiscoverRspWriter<'a> {
    /// An empty response, which grows to at most [`DiscoverRsp::MAX_SIZE`] bytes and the length of
    /// `out`. `None` if `out` has no room for the longest record.
    pub fn new(out: &'a mut [u8]) -> Option<Self> {
        let room = out.len().min(DiscoverRsp::MAX_SIZE);
        (room >= DiscoverRsp::MIN_ROOM).then_some(())?;
        Some(Self {
            out: out.get_mut(..room)?,
            len: DiscoverRsp::HEADER_SIZE,
            count: 0,
        })
    }

    /// Whether there is no disk in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a disk. Returns false and adds nothing if there is no room for the disk.
    pub fn push(&mut self, disk: &FoundDisk<'_>) -> bool {
        self.try_push(disk).is_some()
    }

    fn try_push(&mut self, disk: &FoundDisk<'_>) -> Option<()> {
        let front = disk.front()?;
        let parts = [front.as_bytes(), disk.path, disk.wwid.as_bytes()];
        let count = self.count.checked_add(1)?;
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let end = self.len.checked_add(len)?;
        let mut place = self.out.get_mut(self.len..end)?;
        for part in parts {
            let (to, rest) = place.split_at_mut_checked(part.len())?;
            to.copy_from_slice(part);
            place = rest;
        }
        self.len = end;
        self.count = count;
        Some(())
    }

    /// Writes the header and returns the length of the response in bytes. `more` tells the client
    /// to ask again.
    pub fn finish(self, more: bool) -> usize {
        let header = wire::DiscoverRspHdr {
            hdr: MsgHdr::new(MsgType::DiscoverRsp),
            count: self.count.into(),
            flags: if more { DiscoverRsp::MORE } else { 0 }.into(),
            reserved: [0; 8],
        };
        if let Some(place) = self.out.get_mut(..DiscoverRsp::HEADER_SIZE) {
            place.copy_from_slice(header.as_bytes());
        }
        self.len
    }
}

/// The response to [`Discover`], as the client has received it.
///
/// # Invariants
///
/// `records` begins with `count` records that pass [`FoundDisk::split`]. Their paths rise from one
/// record to the next.
#[derive(Clone, Copy, Debug)]
pub struct DiscoverRsp<'a> {
    count: u16,
    more: bool,
    records: &'a [u8],
}

impl<'a> DiscoverRsp<'a> {
    /// The size of the longest response in bytes: a page.
    pub const MAX_SIZE: usize = 4096;
    /// The least room that a client has for a response, in bytes.
    pub const MIN_ROOM: usize = Self::HEADER_SIZE + FoundDisk::MAX_SIZE;

    const HEADER_SIZE: usize = size_of::<wire::DiscoverRspHdr>();
    const MORE: u16 = 1 << 0;

    /// Checks a received response to `request`; `bytes` may be longer than the response.
    ///
    /// Refuses records that make no sense, paths that do not rise, and paths that are not behind
    /// the path that `request` names. So a client that goes on asking sees no disk twice.
    pub fn parse(bytes: &'a [u8], request: &Discover) -> Result<Self, ProtoError> {
        let what = "discovery response";
        let (hdr, records) = split::<wire::DiscoverRspHdr>(bytes, what)?;
        hdr.hdr.check(what, MsgType::DiscoverRsp)?;
        let mut last = request.after.as_ref().map_or(&[][..], Name::as_bytes);
        let mut rest = records;
        for _ in 0..hdr.count.get() {
            let (disk, behind) = FoundDisk::split(rest)?;
            if disk.path <= last {
                return Err(ProtoError::bad_field(
                    "order of the paths in the discovery, at a path with this length",
                    disk.path.len() as u64,
                ));
            }
            last = disk.path;
            rest = behind;
        }
        // INVARIANT: The records and their order were checked above.
        Ok(Self {
            count: hdr.count.get(),
            more: hdr.flags.get() & Self::MORE != 0,
            records,
        })
    }

    /// The disks.
    pub fn disks(&self) -> impl Iterator<Item = FoundDisk<'a>> + 'a {
        let mut rest = self.records;
        (0..self.count).map_while(move |_| {
            // By the type's invariant no record fails.
            let (disk, behind) = FoundDisk::split(rest).ok()?;
            rest = behind;
            Some(disk)
        })
    }

    /// Whether there is no disk in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The message that asks for the rest; `None` if the response was all. `request` is the message
    /// that this responds to. If the response has no disk, the message is `request` again.
    pub fn rest(&self, request: &Discover) -> Option<Discover> {
        self.more.then(|| match self.disks().last() {
            // INVARIANT of the name: checked by `FoundDisk::split`.
            Some(disk) => Discover {
                after: Some(Name::from_checked(disk.path)),
            },
            None => *request,
        })
    }
}
