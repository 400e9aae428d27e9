// SPDX-License-Identifier: GPL-2.0

//! Files as disks: their block sizes, and their names in sysfs.

use proto::{
    file_disk::{
        Alignment,
        Blocks,
        FileError,
        FileFacts, //
    },
    rnbd::IoMode,
    sysfs_name::{
        file_device,
        FILE_DEVICE_LEN, //
    },
    Errno, //
};

const MIB: u64 = 1 << 20;

fn facts(block_size: u32, alignment: Option<(u32, u32)>) -> FileFacts {
    FileFacts {
        size: MIB,
        block_size,
        alignment: alignment.map(|(offset, memory)| Alignment { offset, memory }),
    }
}

#[track_caller]
fn assert_blocks(facts: &FileFacts, mode: IoMode, logical: u32, physical: u32) {
    assert_eq!(
        Blocks::of(facts, mode),
        Ok(Blocks { logical, physical }),
        "{facts:?} {mode:?}"
    );
}

#[test]
fn direct_io_has_the_blocks_that_the_file_system_asks_for() {
    let direct = IoMode::Direct;
    assert_blocks(&facts(4096, Some((512, 4))), direct, 512, 4096);
    assert_blocks(&facts(4096, Some((4096, 512))), direct, 4096, 4096);
    assert_blocks(&facts(4096, Some((1, 1))), direct, 512, 4096);
    assert_blocks(&facts(4096, Some((32768, 4096))), direct, 32768, 32768);
    // Blocks are at most `Blocks::MAX`; this file needs no alignment of memory.
    assert_blocks(&facts(1 << 20, Some((512, 0))), direct, 512, 32768);
}

#[test]
fn a_file_system_that_does_not_say_gets_its_own_blocks() {
    let direct = IoMode::Direct;
    assert_blocks(&facts(1024, None), direct, 1024, 1024);
    assert_blocks(&facts(4096, None), direct, 4096, 4096);
    assert_blocks(&facts(1 << 20, None), direct, 4096, 32768);
    assert_blocks(&facts(0, None), direct, 512, 512);
    assert_blocks(&facts(3000, None), direct, 512, 512);
}

#[test]
fn the_page_cache_takes_sectors() {
    let buffered = IoMode::Buffered;
    assert_blocks(&facts(4096, Some((4096, 512))), buffered, 512, 4096);
    assert_blocks(&facts(4096, Some((0, 0))), buffered, 512, 4096);
    assert_blocks(&facts(4096, Some((1 << 16, 1 << 16))), buffered, 512, 4096);
    assert_blocks(&facts(4096, None), buffered, 512, 4096);
}

#[test]
fn alignments_that_no_disk_has_are_refused() {
    let refused = |offset, memory| {
        let error = Blocks::of(&facts(4096, Some((offset, memory))), IoMode::Direct).unwrap_err();
        assert!(error.is_of_direct_io(), "{error}");
        assert_eq!(error.errno(), Errno::EINVAL);
        error
    };
    assert_eq!(refused(0, 0), FileError::NoDirectIo);
    assert_eq!(refused(65536, 512), FileError::Offset(65536));
    assert_eq!(refused(1536, 512), FileError::Offset(1536));
    assert_eq!(refused(512, 8192), FileError::Memory(8192));
    assert_eq!(refused(512, 3), FileError::Memory(3));
}

#[test]
fn a_file_has_whole_blocks_and_one_at_least() {
    let sized = |size, align| FileFacts {
        size,
        ..facts(4096, Some((align, 4)))
    };
    let too_small = |size, align| {
        let error = Blocks::of(&sized(size, align), IoMode::Direct).unwrap_err();
        assert_eq!(error, FileError::TooSmall { size, block: align });
        assert!(!error.is_of_direct_io());
    };
    too_small(0, 512);
    too_small(511, 512);
    too_small(4095, 4096);
    let blocks = Blocks::of(&sized(4096, 4096), IoMode::Direct).unwrap();
    assert_eq!(blocks.nr_sectors(4096), 8);
    assert_eq!(blocks.nr_sectors(8191), 8);
    assert_eq!(blocks.nr_sectors(0), 0);
    let blocks = Blocks::of(&sized(1024, 512), IoMode::Direct).unwrap();
    assert_eq!(blocks.nr_sectors(1535), 2);
    // The largest size that a file can have.
    assert_eq!(blocks.nr_sectors(i64::MAX as u64), (i64::MAX / 512) as u64);
}

#[test]
fn modes_have_names() {
    for mode in IoMode::ALL {
        assert_eq!(IoMode::from_name(mode.as_str().as_bytes()), Some(*mode));
    }
    assert_eq!(IoMode::from_name(b"Direct"), None);
    assert_eq!(IoMode::from_name(b""), None);
}

fn name(path: &[u8]) -> Vec<u8> {
    let mut out = [0xff; FILE_DEVICE_LEN];
    file_device(path, None, &mut out).to_bytes().to_vec()
}

#[track_caller]
fn assert_name(path: &str, wanted: &str) {
    assert_eq!(String::from_utf8_lossy(&name(path.as_bytes())), wanted);
}

#[test]
fn a_file_is_called_by_its_path() {
    assert_name("/srv/a.img", "!srv!a.img");
    assert_name("/a", "!a");
    // No block device's name begins with `!`.
    assert_name("a", "!a");
    // As long as a name can be: 255 bytes.
    let longest = format!("/{}", "x".repeat(254));
    assert_name(&longest, &longest.replace('/', "!"));
}

#[test]
fn names_of_different_files_differ() {
    let long = "x".repeat(300);
    let paths = [
        "/a/b".to_string(),
        "/a!b".to_string(),
        "/a\nb".to_string(),
        "/a?b".to_string(),
        format!("/{long}"),
        format!("/{long}y"),
        format!("/{}", "x".repeat(255)),
    ];
    let names: Vec<_> = paths.iter().map(|path| name(path.as_bytes())).collect();
    for (index, name) in names.iter().enumerate() {
        assert!(name.len() <= 255, "{} bytes", name.len());
        assert!(name.starts_with(b"!"));
        assert!(!name
            .iter()
            .any(|byte| byte.is_ascii_control() || *byte == b'/'));
        assert!(!names[..index].contains(name), "{}", paths[index]);
    }
}

#[test]
fn a_name_that_is_not_the_path_has_a_number_of_it() {
    // The number is the same in each run: FNV-1a of the path.
    assert_name("/a!b", "!a!b~3660289cb3abc732");
    assert_name("/a\nb", "!a?b~36bc2a9cb3fa2945");
    let cut = name(format!("/{}", "x".repeat(255)).as_bytes());
    assert_eq!(cut.len(), 255);
    assert!(cut.starts_with(b"!xxx"));
    assert_eq!(cut[255 - 17], b'~');
}

#[test]
fn a_file_that_took_the_path_of_another_one_has_its_number() {
    let numbered = |path: &[u8], number| {
        let mut out = [0xff; FILE_DEVICE_LEN];
        let name = file_device(path, Some(number), &mut out);
        String::from_utf8(name.to_bytes().to_vec()).unwrap()
    };
    assert_eq!(numbered(b"/srv/a", 0xfe), "!srv!a~00000000000000fe");
    assert_eq!(numbered(b"/a!b", u64::MAX), "!a!b~ffffffffffffffff");
    assert_eq!(numbered(&[b'x'; 4095], 1).len(), 255);
}
