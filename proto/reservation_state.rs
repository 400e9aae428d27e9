// SPDX-License-Identifier: GPL-2.0

//! The reservations of a disk as a file, which the server keeps over its own restart.
//!
//! A file is a header and a record for each registrant. Documentation/design.md has the tables. The
//! header names the disk, so that a file that was copied to the name of another disk is refused.

use core::{
    fmt,
    fmt::Write as _, //
};

use crate::{
    name::{
        NameError,
        SessName,
        NAME_MAX, //
    },
    reservation::Table,
    rnbd::{
        Host,
        Kind,
        Wwid,
        MAX_REGISTRANTS, //
    },
    text::{
        impl_error,
        Text, //
    },
    wire::{
        split,
        to_array,
        wire_structs,
        U16,
        U32,
        U64, //
    },
};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"RNBDRESV";
/// The version of the format.
const VERSION: u32 = 1;
/// The end of a file's name, behind the disk's name.
const SUFFIX: &str = ".reservations";

wire_structs! {
    /// The disk's reservation.
    struct Header: 96 {
        0 => magic: [u8; 8],
        8 => version: U32,
        /// CRC-32C of the whole file, with zeroes in place of this field.
        12 => checksum: U32,
        16 => generation: U32,
        /// A [`Kind`]; 0 if the disk is not reserved.
        20 => kind: u8,
        /// The number of the holder's record, from 0; 0 if there is no holder or all registrants
        /// are holders.
        21 => holder: u8,
        22 => count: U16,
        24 => wwid: [u8; 64],
        88 => reserved: [u8; 8],
    }

    /// A registrant.
    struct Record: 264 {
        0 => key: U64,
        /// [`HOST`] or [`SESSION`].
        8 => by: u8,
        /// A UUID or the name of a session, and zeroes.
        9 => name: [u8; NAME_MAX],
    }
}

/// In `by`: `name` is the UUID of the machine.
const HOST: u8 = 1;
/// In `by`: `name` is the name of the machine's session.
const SESSION: u8 = 2;

/// The length of a UUID in bytes.
const UUID_LEN: usize = 16;

/// The name of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // The server has each in an allocation of its own.
pub enum MachineName {
    /// The name that the client told for its machine.
    Host(Host),
    /// The name of the session, for a client that told no name.
    Session(SessName),
}

impl MachineName {
    fn to_record(self, key: u64) -> Record {
        let mut name = [0; NAME_MAX];
        let by = match self {
            Self::Host(host) => {
                for (to, from) in name.iter_mut().zip(host.to_uuid()) {
                    *to = from;
                }
                HOST
            }
            Self::Session(session) => {
                name = session.to_field();
                SESSION
            }
        };
        Record {
            key: key.into(),
            by,
            name,
        }
    }

    /// The machine of a record. Refuses a record with bytes behind the name.
    fn of_record(record: &Record) -> Result<Self, StateError> {
        let name = match record.by {
            HOST => {
                let uuid = record.name.first_chunk::<UUID_LEN>();
                let host = uuid.and_then(|uuid| Host::new(*uuid));
                Self::Host(host.ok_or(StateError::Field("UUID of a machine", 0))?)
            }
            SESSION => {
                Self::Session(SessName::from_field(&record.name).map_err(StateError::Session)?)
            }
            by => return Err(StateError::Field("kind of a machine's name", by.into())),
        };
        match name.to_record(0).name == record.name {
            true => Ok(name),
            false => Err(StateError::Field("byte behind a machine's name", 1)),
        }
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {host}"),
            Self::Session(session) => write!(f, "session {}", **session),
        }
    }
}

/// Why a file is not the state of a disk's reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The size of the file in bytes is wrong.
    Size {
        /// The size of the file. For a file larger than [`MAX_SIZE`], any number above it.
        size: usize,
        /// The right size; without a whole header, the least size.
        wanted: usize,
    },
    /// The file does not begin with the magic bytes.
    Magic,
    /// The file has this version of the format, which is not supported.
    Version(u32),
    /// The checksum is wrong.
    Checksum,
    /// A field has an invalid value.
    Field(&'static str, u64),
    /// The name of a session is invalid.
    Session(NameError),
    /// The file is the state of another disk.
    OtherDisk,
    /// A machine is registered twice.
    Twice,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size, wanted } => write!(f, "it has {size} bytes in place of {wanted}"),
            Self::Magic => f.write_str("it does not begin with RNBDRESV"),
            Self::Version(version) => {
                write!(f, "it is of version {version}, not {VERSION}")
            }
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Field(field, value) => write!(f, "{field} has bad value {value}"),
            Self::Session(error) => write!(f, "name of a session {error}"),
            Self::OtherDisk => f.write_str("it is that of another disk"),
            Self::Twice => f.write_str("a machine is registered twice in it"),
        }
    }
}

impl_error!(StateError, EUCLEAN);

/// The size of the longest file in bytes.
pub const MAX_SIZE: usize = size(MAX_REGISTRANTS);

/// The size of a file with this many registrants, in bytes.
pub const fn size(registrants: usize) -> usize {
    let records = size_of::<Record>().wrapping_mul(registrants);
    size_of::<Header>().wrapping_add(records)
}

/// The name of a file: at most 64 bytes of the disk's name, and the suffix.
pub type FileName = Text<80>;

/// The name of a disk's file; `None` for a disk without a name. No other disk has the same, and it
/// contains no slash.
pub fn file_name(wwid: &Wwid) -> Option<FileName> {
    let name = FileName::from_fn(|out| write!(out, "{wwid}{SUFFIX}"));
    (!wwid.is_empty() && !name.is_cut()).then_some(name)
}

/// Writes the file of the disk `wwid`. `out` has [`size`] bytes for the table's registrants.
/// Returns false if `out` has another length, or if the disk has no name.
pub fn write<'a, I: Clone + PartialEq + 'a>(
    table: &'a Table<I>,
    wwid: &Wwid,
    name_of: impl Fn(&'a I) -> &'a MachineName,
    out: &mut [u8],
) -> bool {
    let count = table.registrants().count();
    if out.len() != size(count) || wwid.is_empty() {
        return false;
    }
    let Some((head, records)) = out.split_first_chunk_mut::<{ size(0) }>() else {
        return false;
    };
    let places = records.chunks_exact_mut(size_of::<Record>());
    for (place, (machine, key)) in places.zip(table.registrants()) {
        let bytes: [u8; size_of::<Record>()] = to_array(&name_of(machine).to_record(key));
        place.copy_from_slice(&bytes);
    }
    let held = table.held();
    let mut header = Header {
        magic: MAGIC,
        version: VERSION.into(),
        checksum: U32::ZERO,
        generation: table.generation().into(),
        kind: held.map_or(0, |(kind, _)| kind as u8),
        // Both are at most `MAX_REGISTRANTS`.
        holder: held.map_or(0, |(_, holder)| holder as u8),
        count: (count as u16).into(),
        wwid: wwid.to_field(),
        reserved: [0; 8],
    };
    *head = to_array(&header);
    header.checksum = crc32c(&[head, records]).into();
    *head = to_array(&header);
    true
}

/// The content of a file.
///
/// # Invariants
///
/// Each record has a valid name of a machine and a key other than 0. No two records have the same
/// machine.
#[derive(Clone, Copy, Debug)]
pub struct SavedState<'a> {
    /// The number of changes of keys.
    pub generation: u32,
    /// The kind of the reservation and the number of the holder's record, if the disk is reserved.
    pub held: Option<(Kind, usize)>,
    records: &'a [Record],
}

impl<'a> SavedState<'a> {
    /// Checks the file of the disk `wwid`.
    pub fn parse(bytes: &'a [u8], wwid: &Wwid) -> Result<Self, StateError> {
        let wrong_size = |wanted| StateError::Size {
            size: bytes.len(),
            wanted,
        };
        let (header, rest) =
            split::<Header>(bytes, "state of reservations").map_err(|_| wrong_size(size(0)))?;
        if header.magic != MAGIC {
            return Err(StateError::Magic);
        }
        if header.version.get() != VERSION {
            return Err(StateError::Version(header.version.get()));
        }
        let count = header.count.get();
        if usize::from(count) > MAX_REGISTRANTS {
            return Err(StateError::Field("number of machines", count.into()));
        }
        if bytes.len() != size(count.into()) {
            return Err(wrong_size(size(count.into())));
        }
        let summed = Header {
            checksum: U32::ZERO,
            ..*header
        };
        let summed: [u8; size_of::<Header>()] = to_array(&summed);
        if crc32c(&[&summed, rest]) != header.checksum.get() {
            return Err(StateError::Checksum);
        }
        if header.wwid != wwid.to_field() {
            return Err(StateError::OtherDisk);
        }
        if let Some(byte) = header.reserved.iter().find(|byte| **byte != 0) {
            return Err(StateError::Field("reserved byte", (*byte).into()));
        }
        let records = <[Record] as zerocopy::FromBytes>::ref_from_bytes(rest)
            .map_err(|_| wrong_size(size(count.into())))?;
        check_records(records)?;
        // INVARIANT: The records were checked.
        Ok(Self {
            generation: header.generation.get(),
            held: held(header)?,
            records,
        })
    }

    /// The machines and their keys.
    pub fn registrants(&self) -> impl Iterator<Item = (MachineName, u64)> + '_ {
        let records = self.records.iter();
        records.filter_map(|record| {
            let name = MachineName::of_record(record).ok()?;
            Some((name, record.key.get()))
        })
    }

    /// Restores the saved table into `table`. `registrants` are those of [`Self::registrants`], in
    /// the same order, with machines as `I`. `None` if they are others; see [`Table::restore`].
    pub fn restore<I: Clone + PartialEq>(
        &self,
        table: &mut Table<I>,
        registrants: impl Iterator<Item = (I, u64)>,
    ) -> Option<()> {
        table.restore(self.generation, self.held, registrants)
    }
}

/// Checks that each record is of a registrant, and each of another machine.
fn check_records(records: &[Record]) -> Result<(), StateError> {
    for (place, record) in records.iter().enumerate() {
        MachineName::of_record(record)?;
        if record.key == U64::ZERO {
            return Err(StateError::Field("key", 0));
        }
        let is_same = |other: &Record| (other.by, other.name) == (record.by, record.name);
        if records.iter().take(place).any(is_same) {
            return Err(StateError::Twice);
        }
    }
    Ok(())
}

/// The kind of the reservation, and the record of the holder.
fn held(header: &Header) -> Result<Option<(Kind, usize)>, StateError> {
    let holder = StateError::Field("holder", header.holder.into());
    if header.kind == 0 {
        return if header.holder == 0 {
            Ok(None)
        } else {
            Err(holder)
        };
    }
    let kind = Kind::try_from(header.kind)
        .map_err(|kind| StateError::Field("type of the reservation", kind.into()))?;
    let is_other = kind.is_of_all() && header.holder != 0;
    if is_other || u16::from(header.holder) >= header.count.get() {
        return Err(holder);
    }
    Ok(Some((kind, header.holder.into())))
}

/// CRC-32C (Castagnoli) of the parts together.
fn crc32c(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => (crc >> 1) ^ POLYNOMIAL,
        })
    })
}
