// SPDX-License-Identifier: GPL-2.0

//! Reads md's superblock of a leg, of version 1.2 (the kernel's `include/uapi/linux/raid/md_p.h`,
//! `struct mdp_superblock_1`).
//!
//! The superblock is read past the page cache, as md writes it past the page cache: a cached copy
//! would be out of date.

use std::collections::BTreeSet;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The place of the superblock on a leg, in bytes.
const OFFSET: u64 = 4096;

/// The number of bytes that are read.
const LENGTH: usize = 4096;

/// The superblock's first four bytes.
const MAGIC: u32 = 0xa92b_4efc;

/// The length of the superblock before its list of roles, in bytes.
const HEAD: usize = 256;

/// A bit of `feature_map`: the leg is being filled.
const RECOVERING: u32 = 2;

/// A bit of `feature_map`: the leg is to replace another leg.
const REPLACEMENT: u32 = 16;

/// Roles from this number on are no places in the array (`MD_DISK_ROLE_MAX`).
const LAST_ROLE: u16 = 0xff00;

/// The role of a leg that has failed.
const FAULTY: u16 = 0xfffe;

/// `resync_offset` if md has nothing to copy from leg to leg (`MaxSector`).
const CLEAN: u64 = u64::MAX;

/// A bit of `devflags`: reads avoid the leg.
const WRITE_MOSTLY: u8 = 1;

/// A bit of `devflags`: md marks requests to the leg to fail fast.
const FAIL_FAST: u8 = 2;

/// The superblock of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The mirror's UUID, as 32 hexadecimal digits.
    pub array: String,
    /// The mirror's home host and name, as `rnbd-mirror:db`.
    pub name: String,
    /// The leg's own UUID, as 32 hexadecimal digits.
    pub leg: String,
    /// The number of legs that the mirror shall have.
    pub legs: u32,
    /// The event count: how often the array had changed when this superblock was written.
    pub events: u64,
    /// Whether all writes to the mirror were done when this superblock was written: then its legs
    /// were the same.
    pub is_clean: bool,
    /// The leg's number among all disks that the mirror ever had. The list of roles goes by it.
    pub number: usize,
    /// The leg's role in the array.
    pub role: Role,
    /// Whether the leg lacks data: it is being filled, or is to replace another leg.
    pub is_partial: bool,
    /// Whether the leg is to replace another leg. Until then both legs have the same place.
    pub replaces: bool,
    /// Whether reads avoid the leg.
    pub write_mostly: bool,
    /// Whether md marks requests to the leg to fail fast.
    pub failfast: bool,
    /// The places whose legs took part when this superblock was written.
    pub active: BTreeSet<u16>,
    /// For each number the place of the disk that took part under this number; `None` if no disk
    /// did.
    pub places: Vec<Option<u16>>,
}

impl Superblock {
    /// Returns the place of another disk of the mirror, if the disk took part when this superblock
    /// was written. A disk that was replaced has the place of the new disk, and another number.
    pub fn place_of(&self, other: &Self) -> Option<u16> {
        self.places.get(other.number).copied().flatten()
    }
}

/// The role of a leg in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The leg has this place.
    Active(u16),
    /// The leg has no place yet.
    Spare,
    /// The leg has failed.
    Faulty,
}

/// The content of a disk at the place of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A superblock.
    Superblock(Superblock),
    /// No superblock, as on a disk that was never a leg.
    Nothing,
    /// A superblock that cannot be used, and the reason.
    Damaged(&'static str),
}

/// Parses the bytes at the place of a superblock.
pub fn parse(bytes: &[u8]) -> Found {
    match number::<4>(bytes, 0).map(u32::from_le_bytes) {
        Some(MAGIC) => (),
        _ => return Found::Nothing,
    }
    match checked(bytes) {
        Ok(superblock) => Found::Superblock(superblock),
        Err(why) => Found::Damaged(why),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn number_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], &'static str> {
    number(bytes, at).ok_or("the superblock is too short")
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, &'static str> {
    number_at(bytes, at).map(u32::from_le_bytes)
}

fn checked(bytes: &[u8]) -> Result<Superblock, &'static str> {
    if u32_at(bytes, 4)? != 1 {
        return Err("the superblock is not of version 1");
    }
    let count =
        usize::try_from(u32_at(bytes, 220)?).map_err(|_| "its list of roles is too long")?;
    let size = count.checked_mul(2).and_then(|size| size.checked_add(HEAD));
    let used = size
        .and_then(|size| bytes.get(..size))
        .ok_or("its list of roles is too long")?;
    if sum(used) != u32_at(bytes, 216)? {
        return Err("the superblock has a wrong checksum");
    }
    let roles: Vec<u16> = (used.get(HEAD..).unwrap_or_default().chunks_exact(2))
        .filter_map(|pair| Some(u16::from_le_bytes(*pair.first_chunk()?)))
        .collect();
    let number = usize::try_from(u32_at(bytes, 160)?).map_err(|_| "its number is too large")?;
    let role = match roles.get(number) {
        Some(&role) if role < LAST_ROLE => Role::Active(role),
        Some(&FAULTY) => Role::Faulty,
        _ => Role::Spare,
    };
    let name = number_at::<32>(bytes, 32)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let features = u32_at(bytes, 8)?;
    let [flags] = number_at::<1>(bytes, 184)?;
    let place = |role: u16| (role < LAST_ROLE).then_some(role);
    Ok(Superblock {
        array: hex(&number_at::<16>(bytes, 16)?),
        name: crate::sysfs::printable(name),
        leg: hex(&number_at::<16>(bytes, 168)?),
        legs: u32_at(bytes, 92)?,
        events: number_at(bytes, 200).map(u64::from_le_bytes)?,
        is_clean: number_at(bytes, 208).map(u64::from_le_bytes)? == CLEAN,
        number,
        role,
        is_partial: features & (RECOVERING | REPLACEMENT) != 0,
        replaces: features & REPLACEMENT != 0,
        write_mostly: flags & WRITE_MOSTLY != 0,
        failfast: flags & FAIL_FAST != 0,
        active: roles.iter().copied().filter_map(place).collect(),
        places: roles.into_iter().map(place).collect(),
    })
}

/// Returns the checksum of `calc_sb_1_csum()`: the sum of all words of 32 bits, with 0 in place of
/// the checksum. The bits of the sum above 32 are added once more.
fn sum(bytes: &[u8]) -> u32 {
    let mut sum = 0_u64;
    for (index, word) in bytes.chunks(4).enumerate() {
        let word = match word {
            _ if index == 54 => 0,
            [a, b, c, d] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            [a, b, ..] => u64::from(u16::from_le_bytes([*a, *b])),
            _ => 0,
        };
        // A superblock has at most 1024 words, so the sum does not wrap.
        sum = sum.wrapping_add(word);
    }
    let folded = (sum & 0xffff_ffff).wrapping_add(sum >> 32);
    u32::try_from(folded & 0xffff_ffff).unwrap_or_default()
}

/// Returns bytes as hexadecimal digits, two for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16);
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.flatten().collect()
}

/// Reads the superblock of the disk with this device node. If the disk hangs, this call hangs, too.
pub fn read(node: &Path) -> io::Result<Found> {
    let file = open(node)?;
    // Direct IO takes memory at an aligned address only.
    let mut memory = vec![0_u8; LENGTH.saturating_mul(2)];
    let start = memory.as_ptr().align_offset(LENGTH);
    let end = start.saturating_add(LENGTH);
    let Some(buffer) = memory.get_mut(start..end) else {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory));
    };
    match file.read_exact_at(buffer, OFFSET) {
        Ok(()) => Ok(parse(buffer)),
        // The disk is too small for a superblock.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

/// Opens a disk for reading past the page cache. A file whose file system has no direct IO (EINVAL)
/// is read through the page cache.
fn open(node: &Path) -> io::Result<File> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(node);
    match opened {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => File::open(node),
        opened => opened,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The bytes of a superblock of a mirror of two legs, with the right checksum.
    pub(crate) fn bytes(own: u32, events: u64, features: u32, roles: &[u16]) -> Vec<u8> {
        let mut bytes = vec![0_u8; LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..][..value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        put(8, &features.to_le_bytes());
        put(16, &[0xab; 16]);
        put(32, b"rnbd-mirror:db");
        put(72, &1_u32.to_le_bytes());
        put(92, &2_u32.to_le_bytes());
        put(160, &own.to_le_bytes());
        put(168, &[0xc0 | u8::try_from(own).unwrap(); 16]);
        put(184, &[WRITE_MOSTLY]);
        put(200, &events.to_le_bytes());
        put(220, &u32::try_from(roles.len()).unwrap().to_le_bytes());
        let list: Vec<u8> = roles.iter().flat_map(|role| role.to_le_bytes()).collect();
        put(HEAD, &list);
        let checksum = sum(&bytes[..HEAD.checked_add(list.len()).unwrap()]);
        bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_leg_tells_its_place_and_who_took_part() {
        let Found::Superblock(found) = parse(&bytes(1, 17, 1, &[FAULTY, 1, 0xffff])) else {
            panic!("no superblock");
        };
        assert_eq!(found.array, "ab".repeat(16));
        assert_eq!(found.leg, "c1".repeat(16));
        assert_eq!(found.name, "rnbd-mirror:db");
        assert_eq!((found.legs, found.events), (2, 17));
        assert_eq!(found.role, Role::Active(1));
        assert!(!found.is_partial);
        assert_eq!(found.active, BTreeSet::from([1]));
        assert_eq!(
            (found.number, &found.places[..]),
            (1, &[None, Some(1), None][..])
        );
        assert!(found.write_mostly && !found.failfast);
        assert!(!found.is_clean);
        // The disk that had the place 1 before was replaced by the disk with the number 2.
        let new = |own| match parse(&bytes(own, 18, 1, &[0, FAULTY, 1])) {
            Found::Superblock(found) => found,
            other => panic!("{other:?}"),
        };
        assert_eq!(new(0).place_of(&found), None);
        assert_eq!(new(0).place_of(&new(2)), Some(1));
    }

    #[test]
    fn a_leg_tells_whether_all_writes_were_done() {
        let mut bytes = bytes(0, 17, 1, &[0, 1]);
        bytes[208..216].copy_from_slice(&CLEAN.to_le_bytes());
        let checksum = sum(&bytes[..HEAD + 4]);
        bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        let Found::Superblock(found) = parse(&bytes) else {
            panic!("no superblock");
        };
        assert!(found.is_clean);
    }

    #[test]
    fn other_roles() {
        for (own, roles, features, role, is_partial) in [
            (0, &[0, 1][..], 1, Role::Active(0), false),
            (0, &[0, 1][..], 1 | RECOVERING, Role::Active(0), true),
            (
                2,
                &[0, 1, 1][..],
                1 | REPLACEMENT | RECOVERING,
                Role::Active(1),
                true,
            ),
            (0, &[FAULTY, 1][..], 1, Role::Faulty, false),
            (1, &[0, 0xffff][..], 1, Role::Spare, false),
            (9, &[0, 1][..], 1, Role::Spare, false),
        ] {
            let Found::Superblock(found) = parse(&bytes(own, 1, features, roles)) else {
                panic!("no superblock: {own} {roles:?}");
            };
            assert_eq!(
                (found.role, found.is_partial),
                (role, is_partial),
                "{own} {roles:?}"
            );
            assert_eq!(found.replaces, features & REPLACEMENT != 0, "{own}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_found_out() {
        assert_eq!(parse(&[0; LENGTH]), Found::Nothing);
        assert_eq!(parse(&[]), Found::Nothing);
        let good = bytes(0, 1, 1, &[0, 1]);
        let mut wrong = good.clone();
        wrong[200] ^= 1;
        let checksum = Found::Damaged("the superblock has a wrong checksum");
        assert_eq!(parse(&wrong), checksum);
        let mut old = good.clone();
        old[4] = 0;
        let version = Found::Damaged("the superblock is not of version 1");
        assert_eq!(parse(&old), version);
        let mut long = good.clone();
        long[220..224].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            parse(&long),
            Found::Damaged("its list of roles is too long")
        );
        let short = Found::Damaged("the superblock is too short");
        assert_eq!(parse(&good[..100]), short);
    }

    #[test]
    fn it_is_read_from_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leg");
        let mut disk = vec![0_u8; 4096];
        disk.extend(bytes(0, 5, 1, &[0, 1]));
        std::fs::write(&file, &disk).unwrap();
        assert!(matches!(read(&file).unwrap(), Found::Superblock(found) if found.events == 5));
        std::fs::write(&file, b"short").unwrap();
        assert_eq!(read(&file).unwrap(), Found::Nothing);
        assert!(read(&folder.path().join("none")).is_err());
    }
}
