// SPDX-License-Identifier: GPL-2.0

//! The file with the reservations of a disk.

use proto::{
    name::SessName,
    reservation::Table,
    reservation_state::{
        file_name,
        size,
        write,
        MachineName,
        SavedState,
        StateError,
        MAX_SIZE, //
    },
    rnbd::{
        Command,
        Host,
        Kind,
        Wwid,
        MAX_REGISTRANTS, //
    }, //
};

type Machines = Table<MachineName>;

fn disk() -> Wwid {
    Wwid::of_file(&[7; 16], 12, 34)
}

fn session(name: &str) -> MachineName {
    MachineName::Session(SessName::new(name.as_bytes()).unwrap())
}

fn host(last: u8) -> MachineName {
    MachineName::Host(Host::new([last; 16]).unwrap())
}

fn register(table: &mut Machines, machine: &MachineName, key: u64) {
    let command = Command::Register {
        key: 0,
        new: key,
        ignore_key: true,
    };
    table.execute(machine, &command).unwrap();
}

fn reserve(table: &mut Machines, machine: &MachineName, key: u64, kind: Kind) {
    table
        .execute(machine, &Command::Reserve { key, kind })
        .unwrap();
}

/// Three machines, of which the first was removed again; the last holds the disk.
fn table(kind: Kind) -> Machines {
    let mut table = Table::new();
    for (machine, key) in [(session("a"), 1), (host(2), u64::MAX), (session("b"), 3)] {
        register(&mut table, &machine, key);
    }
    register(&mut table, &session("a"), 0);
    reserve(&mut table, &session("b"), 3, kind);
    table
}

fn file(table: &Machines) -> Vec<u8> {
    let mut bytes = vec![0xff; size(table.registrants().count())];
    assert!(write(table, &disk(), |machine| machine, &mut bytes));
    bytes
}

/// A table with the most registrants, none of which may be left after a restore.
fn full() -> Machines {
    let mut table = Table::new();
    for number in 1..=MAX_REGISTRANTS as u8 {
        register(&mut table, &host(number), 1);
    }
    table
}

fn read(bytes: &[u8]) -> Result<Machines, StateError> {
    let saved = SavedState::parse(bytes, &disk())?;
    let mut table = full();
    saved
        .restore(&mut table, saved.registrants())
        .expect("a table");
    Ok(table)
}

/// The same file with other bytes and the right checksum.
fn changed(at: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = file(&table(Kind::WriteExclusive));
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes[12..16].fill(0);
    let sum = crc32c(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// CRC-32C as textbooks have it: the bits are shifted into a register of 32 bits.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let bit = u32::from(byte >> bit) & 1;
            let carry = (crc & 1) ^ bit;
            crc = (crc >> 1) ^ if carry == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn what_was_written_is_read() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    for number in 1..=6 {
        let kind = Kind::try_from(number).unwrap();
        let table = table(kind);
        let again = read(&file(&table)).unwrap();
        assert_eq!(again.generation(), 4);
        assert!(again.registrants().eq(table.registrants()), "{kind:?}");
        assert_eq!(again.reservation(), table.reservation(), "{kind:?}");
        assert_eq!(again.report(), table.report(), "{kind:?}");
        assert_eq!(file(&again), file(&table), "{kind:?}");
    }
}

#[test]
fn a_table_without_reservation_and_a_full_one_are_read() {
    let mut table = Table::new();
    assert_eq!(read(&file(&table)), Ok(table.clone()));
    for number in 0..MAX_REGISTRANTS {
        register(&mut table, &session(&format!("{number:0254}")), 1);
    }
    let bytes = file(&table);
    assert_eq!(bytes.len(), MAX_SIZE);
    assert_eq!(read(&bytes), Ok(table));
}

#[test]
fn no_byte_can_be_another_one() {
    let bytes = file(&table(Kind::WriteExclusive));
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x10;
        assert!(read(&wrong).is_err(), "byte {at}");
    }
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(
        read(&longer),
        Err(StateError::Size {
            size: size(2) + 1,
            wanted: size(2)
        })
    );
}

#[test]
fn fields_that_make_no_sense_are_refused() {
    let field = StateError::Field;
    let (first, second) = (size(0), size(1));
    let cases: [(usize, &[u8], StateError); 15] = [
        (0, b"X", StateError::Magic),
        (8, &[2], StateError::Version(2)),
        (20, &[7], field("type of the reservation", 7)),
        (20, &[0], field("holder", 1)),
        (20, &[5], field("holder", 1)),
        (21, &[2], field("holder", 2)),
        (22, &[65], field("number of machines", 65)),
        (24, b"naa", StateError::OtherDisk),
        (first, &[0; 8], field("key", 0)),
        (first + 8, &[0], field("kind of a machine's name", 0)),
        (first + 8, &[3], field("kind of a machine's name", 3)),
        (first + 9, &[0; 16], field("UUID of a machine", 0)),
        (first + 25, &[1], field("byte behind a machine's name", 1)),
        (second + 11, &[1], field("byte behind a machine's name", 1)),
        (88, &[1], field("reserved byte", 1)),
    ];
    for (at, to, wanted) in cases {
        assert_eq!(read(&changed(at, to)), Err(wanted), "{to:?} at {at}");
    }
    let session = read(&changed(second + 9, b"/"));
    assert!(
        matches!(session, Err(StateError::Session(_))),
        "{session:?}"
    );
}

#[test]
fn a_machine_is_registered_once() {
    let bytes = file(&table(Kind::WriteExclusive));
    let again = bytes[size(0)..size(1)].to_vec();
    assert_eq!(read(&changed(size(1), &again)), Err(StateError::Twice));
}

#[test]
fn the_name_of_the_file_is_that_of_the_disk() {
    let name = |wwid: &Wwid| file_name(wwid).map(|name| name.as_str().to_owned());
    assert_eq!(
        name(&disk()).unwrap(),
        "file.07070707070707070707070707070707.c.22.reservations"
    );
    assert_eq!(name(&Wwid::NONE), None);
    let longest = Wwid::from_text(&[b'x'; 64]).unwrap();
    assert_eq!(name(&longest).unwrap().len(), 64 + ".reservations".len());
    for text in [&b""[..], b"a/b", b"a b", b"a\n", &[b'x'; 65]] {
        assert_eq!(Wwid::from_text(text), None, "{text:?}");
    }
    let mut bytes = vec![0; size(0)];
    let empty = Machines::new();
    assert!(!write(&empty, &Wwid::NONE, |machine| machine, &mut bytes));
}
