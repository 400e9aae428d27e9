// SPDX-License-Identifier: GPL-2.0

//! Discovery: its messages, and the disks that a server lists.

use proto::{
    disk_places::{
        EntryKind,
        Place,
        Verdict, //
    },
    least_names::{
        name_of,
        LeastNames,
        Slot,
        Start,
        MAX_BATCH, //
    },
    map_options,
    name::Name,
    rnbd::{
        AccessMode,
        Discover,
        DiscoverRsp,
        DiscoverRspWriter,
        FoundDisk,
        Modes,
        Request,
        Wwid,
        FEATURE_DISCOVERY, //
    },
    ProtoError, //
};

const FIRST: Discover = Discover { after: None };

fn behind(path: &[u8]) -> Discover {
    Discover {
        after: Some(Name::new(path).unwrap()),
    }
}

fn disk(path: &[u8]) -> FoundDisk<'_> {
    FoundDisk {
        path,
        wwid: Wwid::from_text(b"naa.5000c500").unwrap(),
        nsectors: 0x1122_3344_5566,
        logical_block_size: 4096,
        sessions: 0x0203,
        modes: Modes::NONE.with(AccessMode::Ro).with(AccessMode::Migration),
        is_file: true,
        is_own: false,
        is_used: true,
    }
}

fn response(disks: &[FoundDisk<'_>], more: bool) -> Vec<u8> {
    let mut bytes = vec![0xff; DiscoverRsp::MAX_SIZE];
    let mut writer = DiscoverRspWriter::new(&mut bytes).unwrap();
    for disk in disks {
        assert!(writer.push(disk), "{disk:?}");
    }
    let len = writer.finish(more);
    bytes.truncate(len);
    bytes
}

#[test]
fn the_question_is_what_protocol_md_says() {
    let mut expected = vec![12, 0, 0, 0];
    expected.extend(b"dev/sda");
    expected.resize(264, 0);
    let asked = behind(b"dev/sda");
    assert_eq!(asked.to_bytes().as_slice(), expected);
    let parsed = Request::parse(&expected, FEATURE_DISCOVERY);
    assert_eq!(parsed, Ok(Request::Discover(asked)));
    let first = FIRST.to_bytes();
    let parsed = Request::parse(&first, FEATURE_DISCOVERY);
    assert_eq!(parsed, Ok(Request::Discover(FIRST)));
    assert!(first[4..].iter().all(|&byte| byte == 0));
}

#[test]
fn without_the_extension_there_is_no_such_message() {
    let what = "RNBD message";
    for features in [0, !FEATURE_DISCOVERY] {
        assert_eq!(
            Request::parse(&FIRST.to_bytes(), features),
            Err(ProtoError::BadType { what, found: 12 })
        );
    }
}

#[test]
fn a_question_with_a_bad_path_is_refused() {
    for (at, byte) in [(4, b'\n'), (6, 0x7f), (5, 1)] {
        let mut bytes = behind(b"dev/sda").to_bytes();
        bytes[at] = byte;
        let error = Request::parse(&bytes, FEATURE_DISCOVERY).unwrap_err();
        assert!(matches!(error, ProtoError::BadName { .. }), "{error:?}");
    }
    // A path without its NUL.
    let mut bytes = FIRST.to_bytes();
    bytes[4..259].fill(b'x');
    assert!(Request::parse(&bytes, FEATURE_DISCOVERY).is_err());
    assert!(Request::parse(&bytes[..263], FEATURE_DISCOVERY).is_err());
}

#[test]
fn the_response_is_what_protocol_md_says() {
    let bytes = response(&[disk(b"dev/sda")], true);
    let mut expected = vec![13, 0, 0, 0, 1, 0, 1, 0];
    expected.extend([0; 8]);
    expected.extend([0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0]);
    expected.extend([0, 0x10, 0, 0, 3, 2, 0b101, 0b101, 7, 12, 0, 0]);
    expected.extend(b"dev/sda");
    expected.extend(b"naa.5000c500");
    assert_eq!(bytes, expected);
    let parsed = DiscoverRsp::parse(&bytes, &FIRST).unwrap();
    assert!(parsed.disks().eq([disk(b"dev/sda")]));
    assert_eq!(parsed.rest(&FIRST), Some(behind(b"dev/sda")));
    // Bits of a later version.
    let mut later = bytes;
    later[16 + 14] |= 0xf8;
    later[16 + 15] |= 0xf8;
    later[6] |= 0xfe;
    let parsed = DiscoverRsp::parse(&later, &FIRST).unwrap();
    assert!(parsed.disks().eq([disk(b"dev/sda")]));
}

#[test]
fn a_response_without_disks_may_go_on() {
    let bytes = response(&[], true);
    let parsed = DiscoverRsp::parse(&bytes, &behind(b"a")).unwrap();
    assert!(parsed.is_empty());
    assert_eq!(parsed.rest(&behind(b"a")), Some(behind(b"a")));
    let bytes = response(&[], false);
    assert_eq!(
        DiscoverRsp::parse(&bytes, &FIRST).unwrap().rest(&FIRST),
        None
    );
}

#[test]
fn paths_rise() {
    let bytes = response(&[disk(b"b"), disk(b"b/c"), disk(b"c")], false);
    for (asked, is_good) in [
        (FIRST, true),
        (behind(b"a"), true),
        (behind(b"b"), false),
        (behind(b"ba"), false),
    ] {
        let parsed = DiscoverRsp::parse(&bytes, &asked);
        assert_eq!(parsed.is_ok(), is_good, "{asked:?}");
    }
    for paths in [[b"b", b"b"], [b"b", b"a"]] {
        let bytes = response(&paths.map(|path| disk(path)), false);
        let error = DiscoverRsp::parse(&bytes, &FIRST).unwrap_err();
        assert!(error.to_string().contains("order of the paths"), "{error}");
    }
}

#[test]
fn records_that_make_no_sense_are_refused() {
    type Fault<'a> = (&'a str, fn(&mut FoundDisk<'a>));
    let faults: [Fault<'_>; 11] = [
        ("control", |disk| disk.path = b"a\nb"),
        ("NUL", |disk| disk.path = b"a\0b"),
        ("no path", |disk| disk.path = b""),
        ("dots", |disk| disk.path = b"../etc/passwd"),
        ("dots inside", |disk| disk.path = b"a/../../etc"),
        ("255 bytes", |disk| disk.path = &[b'x'; 255]),
        ("size", |disk| disk.nsectors = u64::MAX),
        ("block of 0", |disk| disk.logical_block_size = 0),
        ("block of 256", |disk| disk.logical_block_size = 256),
        ("block of 513", |disk| disk.logical_block_size = 513),
        ("block of 3072", |disk| disk.logical_block_size = 3072),
    ];
    for (what, fault) in faults {
        let mut bad = disk(b"good");
        fault(&mut bad);
        let bytes = response(&[bad], false);
        let refused = DiscoverRsp::parse(&bytes, &FIRST);
        assert!(refused.is_err(), "{what}");
    }
    let good = response(&[disk(b"good")], false);
    for (what, at, byte) in [
        ("type", 0, 12),
        ("count", 4, 2),
        ("longer path", 16 + 16, 200),
        ("longer wwid", 16 + 17, 13),
        ("letter of the wwid", good.len() - 1, b'/'),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert!(DiscoverRsp::parse(&bytes, &FIRST).is_err(), "{what}");
    }
    for len in 0..good.len() {
        assert!(DiscoverRsp::parse(&good[..len], &FIRST).is_err(), "{len}");
    }
}

#[test]
fn a_response_is_filled_to_its_end() {
    let mut short = [0; DiscoverRsp::MIN_ROOM - 1];
    assert!(DiscoverRspWriter::new(&mut short).is_none());
    // One record of the longest kind fits into the least room.
    let (path, wwid) = ([b'p'; 254], [b'w'; 64]);
    let longest = FoundDisk {
        wwid: Wwid::from_text(&wwid).unwrap(),
        ..disk(&path)
    };
    let mut least = [0; DiscoverRsp::MIN_ROOM];
    let mut writer = DiscoverRspWriter::new(&mut least).unwrap();
    assert!(writer.is_empty());
    assert!(writer.push(&longest));
    assert!(!writer.push(&disk(b"z")));
    assert_eq!(writer.finish(true), DiscoverRsp::MIN_ROOM);
    let parsed = DiscoverRsp::parse(&least, &FIRST).unwrap();
    assert!(parsed.disks().eq([longest]));
    // A larger buffer is not used beyond a page.
    let mut large = vec![0; 2 * DiscoverRsp::MAX_SIZE];
    let mut writer = DiscoverRspWriter::new(&mut large).unwrap();
    let paths: Vec<_> = (0..1000).map(|number| format!("{number:04}")).collect();
    let pushed = paths
        .iter()
        .take_while(|path| writer.push(&disk(path.as_bytes())))
        .count();
    assert_eq!(pushed, (4096 - 16) / (20 + 4 + 12));
    assert!(writer.finish(false) <= DiscoverRsp::MAX_SIZE);
}

#[test]
fn a_disk_is_a_line_of_text() {
    let line = |disk: &FoundDisk<'_>| {
        let mut out = [0; FoundDisk::MAX_LINE];
        let len = disk.write_line(&mut out).unwrap();
        String::from_utf8(out[..len].to_vec()).unwrap()
    };
    assert_eq!(
        line(&disk(b"my disk")),
        "18838586676582 4096 ro,migration 515 file,used naa.5000c500 my disk\n"
    );
    let bare = FoundDisk {
        wwid: Wwid::NONE,
        nsectors: 8,
        logical_block_size: 512,
        sessions: 0,
        modes: Modes::NONE,
        is_file: false,
        is_used: false,
        ..disk(b"x")
    };
    assert_eq!(line(&bare), "8 512 - 0 - - x\n");
    let path = [b'p'; 254];
    let longest = FoundDisk {
        path: &path,
        wwid: Wwid::from_text(&[b'w'; 64]).unwrap(),
        nsectors: u64::MAX,
        logical_block_size: 1 << 31,
        sessions: u16::MAX,
        modes: Modes::NONE
            .with(AccessMode::Ro)
            .with(AccessMode::Rw)
            .with(AccessMode::Migration),
        is_own: true,
        ..disk(b"")
    };
    assert!(line(&longest).len() <= FoundDisk::MAX_LINE);
    assert_eq!(longest.write_line(&mut [0; 100]), None);
}

/// The names of a folder from `start` on, in batches of `size`. Each batch is collected from the
/// whole list.
fn batches(names: &[(&[u8], bool)], size: usize, start: Start<'_>) -> Vec<Vec<u8>> {
    let mut slots = vec![Slot::EMPTY; size];
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let last = found.last().cloned();
        let from = last.as_deref().map_or(start, Start::Behind);
        let mut batch = LeastNames::new(&mut slots, from);
        for (name, is_folder) in names {
            batch.offer(name, *is_folder);
        }
        let count = batch.count();
        found.extend((0..count).map(|rank| name_of(&slots, rank).to_vec()));
        if count < size.min(MAX_BATCH) {
            return found;
        }
    }
}

#[test]
fn names_come_in_the_order_of_paths() {
    let names: [(&[u8], bool); 6] = [
        (b"vm1", true),
        (b"b", false),
        (b"vm1-old", false),
        (b"a", false),
        (b"vm1.img", false),
        (b"vm10", true),
    ];
    let all: [&[u8]; 6] = [b"a", b"b", b"vm1-old", b"vm1.img", b"vm1/", b"vm10/"];
    for size in 1..10 {
        assert_eq!(batches(&names, size, Start::First), all, "{size}");
        assert_eq!(
            batches(&names, size, Start::At(b"vm1/")),
            all[4..],
            "{size}"
        );
        assert_eq!(batches(&names, size, Start::At(b"b0")), all[2..], "{size}");
        assert_eq!(
            batches(&names, size, Start::Behind(b"b")),
            all[2..],
            "{size}"
        );
        assert_eq!(
            batches(&names, size, Start::Behind(b"x")),
            all[..0],
            "{size}"
        );
    }
    assert!(batches(&[], 3, Start::First).is_empty());
}

#[test]
fn many_names_in_any_order_come_once_each() {
    let mut names: Vec<_> = (0..1000u32)
        // A multiple of each number modulo a prime is another order.
        .map(|number| format!("disk{:05}", number * 7919 % 1009))
        .collect();
    for _ in 0..2 {
        let offered: Vec<_> = names.iter().map(|name| (name.as_bytes(), false)).collect();
        let mut sorted: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
        sorted.sort();
        for size in [1, 7, 128, 256, 300, 2000] {
            assert_eq!(batches(&offered, size, Start::First), sorted, "{size}");
        }
        names.reverse();
        names.sort_by(|one, other| other.cmp(one));
    }
}

#[test]
fn a_name_of_the_longest_kind_has_its_place() {
    let (long, longest) = ([b'x'; 254], [b'x'; 255]);
    let names: [(&[u8], bool); 3] = [(&long, true), (&longest, false), (&longest, true)];
    let found = batches(&names, 4, Start::First);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|name| name.len() == 255));
}

#[test]
fn of_dev_the_nodes_are_told() {
    use EntryKind::*;
    use Verdict::*;
    assert_eq!(Place::of(b"/"), Place::Root);
    assert_eq!(Place::of(b"//./"), Place::Root);
    assert_eq!(Place::of(b"/dev/"), Place::Dev);
    assert_eq!(Place::of(b"/dev/mapper"), Place::Named);
    assert_eq!(Place::of(b"/srv/disks"), Place::Named);
    let judged: [(Place, &[u8], EntryKind, Verdict); 22] = [
        (Place::Root, b"dev", Folder, Enter),
        (Place::Root, b"srv", Folder, Skip),
        (Place::Root, b"initrd.img", File, Skip),
        (Place::Root, b"sda", BlockDevice, Skip),
        (Place::Dev, b"sda", BlockDevice, Look),
        (Place::Dev, b"dm-0", BlockDevice, Skip),
        (Place::Dev, b"dm-x", BlockDevice, Look),
        (Place::Dev, b"cdrom", Link, Skip),
        (Place::Dev, b"core", File, Skip),
        (Place::Dev, b"null", Other, Skip),
        (Place::Dev, b"mapper", Folder, Enter),
        (Place::Mapper, b"vg-lv", Link, Look),
        (Place::Mapper, b"vg-lv", BlockDevice, Look),
        (Place::Mapper, b"control", Other, Skip),
        (Place::BelowDev, b"by-id", Link, Skip),
        (Place::Named, b"a disk", Link, Look),
        (Place::Named, b"a.img", File, Look),
        (Place::Named, b"a", Unknown, Look),
        (Place::Named, b".a.swp", File, Skip),
        (Place::Named, b"a\nb", File, Skip),
        (Place::Named, b"a..b", File, Skip),
        (Place::Named, &[b'x'; 255], File, Skip),
    ];
    for (place, name, kind, verdict) in judged {
        let found = place.judge(name, kind);
        assert_eq!(found, verdict, "{place:?} {}", name.escape_ascii());
    }
    assert_eq!(Place::Root.child(b"dev"), Place::Dev);
    assert_eq!(Place::Dev.child(b"mapper"), Place::Mapper);
    assert_eq!(Place::Dev.child(b"disk"), Place::BelowDev);
    assert_eq!(Place::Named.child(b"mapper"), Place::Named);
}

#[test]
fn a_line_about_a_session_has_nothing_of_a_device() {
    let line = b" sessname=a path=ip:10.0.0.1 path=ip:10.0.1.1 dest_port=5000\n";
    let options = map_options::parse_session(line).unwrap();
    assert_eq!(options.sessname.as_bytes(), b"a");
    assert_eq!(options.dest_port, 5000);
    assert_eq!(options.nr_poll_queues, 0);
    assert_eq!(options.paths().count(), 2);
    for (line, message) in [
        ("path=ip:10.0.0.1", "sessname= is missing"),
        (
            "sessname=a device_path=b",
            "device_path= is not an option here",
        ),
        (
            "sessname=a access_mode=ro",
            "access_mode= is not an option here",
        ),
        (
            "sessname=a io_mode=direct",
            "io_mode= is not an option here",
        ),
        (
            "sessname=a nr_poll_queues=0",
            "nr_poll_queues= is not an option here",
        ),
    ] {
        let error = map_options::parse_session(line.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
