// SPDX-License-Identifier: GPL-2.0

//! Names, the search path, sysfs links and bounded text.

use core::fmt::Write;

use proto::{
    name::{
        Name,
        NameError,
        SessName, //
    },
    search_path::{
        full_path,
        gives_file,
        parse_param,
        SearchPathError, //
    },
    sysfs_name::{
        device_link,
        DEVICE_LINK_LEN, //
    },
    text::Text,
    Errno,
    PATH_MAX, //
};

fn full(search: &[u8], sess: &str, dev: &[u8]) -> Result<Vec<u8>, SearchPathError> {
    let sess = SessName::new(sess.as_bytes()).unwrap();
    let dev = Name::new(dev).unwrap();
    let mut out = [0xff; PATH_MAX];
    full_path(search, &sess, &dev, &mut out).map(|path| path.to_bytes().to_vec())
}

#[track_caller]
fn assert_full(search: &str, dev: &str, path: &str) {
    let got = full(search.as_bytes(), "node-1", dev.as_bytes()).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), path);
}

#[test]
fn the_search_path_comes_first() {
    assert_full("/", "/dev/sda", "/dev/sda");
    assert_full("/", "dev/sda", "/dev/sda");
    assert_full("/srv/disks", "a/b", "/srv/disks/a/b");
    assert_full("/srv/disks/", "/a", "/srv/disks/a");
    assert_full("disks", "a", "disks/a");
    assert_full("", "a", "/a");
}

/// `/dev/sda` is the same disk whether the search path is `/` or `/dev`.
#[test]
fn what_is_below_the_search_path_already_is_the_path() {
    assert_full("/dev", "/dev/sda", "/dev/sda");
    assert_full("//dev/", "//dev///sda", "/dev/sda");
    assert_full("/dev", "sda", "/dev/sda");
    assert_full("/dev", "/sda", "/dev/sda");
    assert_full("/dev/vg", "/dev/vg/a/b", "/dev/vg/a/b");
    assert_full("/srv/%SESSNAME%", "/srv/node-1/a", "/srv/node-1/a");
    assert_full("", "/a", "/a");
    // Paths in another folder, and the folder itself.
    assert_full("/dev", "dev/sda", "/dev/dev/sda");
    assert_full("/dev", "/devices/a", "/dev/devices/a");
    assert_full("/dev", "/dev", "/dev/dev");
    assert_full("/dev", "/dev/", "/dev/dev/");
    assert_full(
        "/srv/%SESSNAME%",
        "/srv/node-2/a",
        "/srv/node-1/srv/node-2/a",
    );
    assert_full("disks", "disks/a", "disks/disks/a");
    assert_full("disks", "/disks/a", "disks/disks/a");
}

#[test]
fn repeated_slashes_become_one() {
    assert_full("///srv//disks//", "//a///b//", "/srv/disks/a/b/");
}

#[test]
fn sessions_can_have_a_directory_each() {
    assert_full("/srv/%SESSNAME%", "a", "/srv/node-1/a");
    assert_full("/srv/%SESSNAME%/", "/a", "/srv/node-1/a");
    assert_full("%SESSNAME%", "a", "/node-1/a");
    // The text behind the mark is ignored, as in C.
    assert_full("/srv/%SESSNAME%/disks", "a", "/srv/node-1/a");
    assert_full("/srv/x%SESSNAME%", "a", "/srv/x/node-1/a");
    assert_full("/srv/%sessname%", "a", "/srv/%sessname%/a");
}

#[test]
fn nothing_leads_out_of_the_search_path() {
    for dev in ["..", "../a", "a/../b", "a/..", "a..b", "..."] {
        let result = full(b"/srv", "s", dev.as_bytes());
        assert_eq!(result, Err(SearchPathError::Relative), "{dev}");
    }
    assert_full("/srv", "./a.b", "/srv/./a.b");
    assert_full("/srv/..", "a", "/srv/../a");
}

#[test]
fn files_are_given_below_a_folder_or_by_a_policy() {
    for narrow in [
        "/srv",
        "srv/",
        "//srv/./disks",
        "/a..b",
        "/srv/%SESSNAME%/..",
    ] {
        assert!(gives_file(narrow.as_bytes(), false, b"/srv/a"), "{narrow}");
    }
    for wide in [
        "",
        "/",
        "/.",
        "/srv/..",
        "/srv/../a",
        "/%SESSNAME%",
        "%SESSNAME%/srv",
    ] {
        assert!(!gives_file(wide.as_bytes(), false, b"/srv/a"), "{wide}");
        assert!(gives_file(wide.as_bytes(), true, b"/srv/a"), "{wide}");
    }
    assert!(!gives_file(b"/dev", false, b"/dev/shm/a"));
    assert!(!gives_file(b"/", true, b"/dev/shm/a"));
    assert!(gives_file(b"/srv", false, b"/srv/dev/a"));
}

#[test]
fn full_paths_have_a_limit() {
    let search = |len: usize| {
        let mut search = vec![b'x'; len];
        search[0] = b'/';
        search
    };
    // "/", device name and NUL.
    let fits = PATH_MAX - 6;
    assert_eq!(full(&search(fits), "s", b"abcd").unwrap().len(), 4095);
    assert_eq!(
        full(&search(fits + 1), "s", b"abcd"),
        Err(SearchPathError::TooLong(4096))
    );
    // The whole search path counts even where only its start is used.
    let mut marked = b"/%SESSNAME%".to_vec();
    marked.resize(PATH_MAX - 4, b'x');
    assert!(full(&marked, "s", b"abcd").is_err());
    assert!(full(&marked, "s", b"abc").is_ok());
    // And slashes count before they are squeezed.
    assert!(full(&[b'/'; 4091], "s", b"abcd").is_err());
    assert_eq!(full(&[b'/'; 4090], "s", b"abcd").unwrap(), b"/abcd");
}

#[test]
fn a_nul_does_not_end_the_search_path_unseen() {
    assert_eq!(full(b"/srv\0", "s", b"a"), Err(SearchPathError::Nul));
    assert_eq!(parse_param(b"/srv\0"), Err(SearchPathError::Nul));
}

#[test]
fn the_parameter_ends_at_its_last_newline() {
    assert_eq!(parse_param(b"/srv"), Ok(&b"/srv"[..]));
    assert_eq!(parse_param(b"/srv\n"), Ok(&b"/srv"[..]));
    assert_eq!(parse_param(b"/a\nb\nrest"), Ok(&b"/a\nb"[..]));
    assert_eq!(parse_param(b""), Ok(&b""[..]));
    assert!(parse_param(&[b'x'; PATH_MAX - 1]).is_ok());
    let error = parse_param(&[b'x'; PATH_MAX]).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    assert_eq!(
        error.message().as_str(),
        "the device path is too long (4096 bytes, at most 4095)"
    );
}

#[test]
fn links_have_no_slash() {
    let link = |dev: &[u8], sess: &[u8]| {
        let (dev, sess) = (Name::new(dev).unwrap(), SessName::new(sess).unwrap());
        let mut out = [0xff; DEVICE_LINK_LEN];
        device_link(&dev, &sess, &mut out).to_bytes().to_vec()
    };
    assert_eq!(link(b"/dev/sda", b"node-1"), b"!dev!sda@node-1");
    assert_eq!(link(b"sda", b"s"), b"sda@s");
    assert_eq!(link(b"\xff/", b"\xfe"), b"\xff!@\xfe");
    let longest = link(&[b'/'; 254], &[b's'; 254]);
    assert_eq!(longest.len(), 254 + 1 + 254);
    assert!(longest.ends_with(
        b"!@"
            .iter()
            .chain(&[b's'; 254])
            .copied()
            .collect::<Vec<_>>()
            .as_slice()
    ));
}

#[test]
fn names_keep_any_byte_but_control_characters() {
    for byte in 0..=255u8 {
        let result = Name::new(&[b'a', byte]);
        if byte < 0x20 || byte == 0x7f {
            assert_eq!(result, Err(NameError::BadByte(byte)));
        } else {
            let name = result.unwrap();
            assert_eq!(name.as_bytes(), [b'a', byte]);
            assert_eq!(name.as_cstr().to_bytes(), [b'a', byte]);
            assert_eq!(Name::from_field(&name.to_field()), Ok(name));
        }
    }
}

#[test]
fn names_have_1_to_254_bytes() {
    assert_eq!(Name::new(b""), Err(NameError::Empty));
    assert_eq!(Name::new(&[b'x'; 254]).unwrap().as_bytes().len(), 254);
    for len in [255, 256, 511, 512, 70_000] {
        let long = vec![b'x'; len];
        assert_eq!(Name::new(&long), Err(NameError::TooLong(len)));
    }
}

#[test]
fn what_follows_the_nul_of_a_field_does_not_matter() {
    let mut field = [b'x'; 255];
    field[3] = 0;
    field[5] = b'\n';
    assert_eq!(
        Name::from_field(&field).unwrap(),
        Name::new(b"xxx").unwrap()
    );
}

#[test]
fn text_keeps_what_fits() {
    let mut text = Text::<8>::new();
    write!(text, "{}-{}", 12, 34).unwrap();
    assert_eq!((text.as_str(), text.is_cut()), ("12-34", false));
    write!(text, "56789").unwrap();
    assert_eq!((text.as_str(), text.is_cut()), ("12-3456", true));
    write!(text, "").unwrap();
    assert_eq!(text.as_cstr().to_bytes(), b"12-3456");
}

#[test]
fn text_is_cut_between_characters_and_stays_cut() {
    let mut text = Text::<6>::new();
    text.write_str("abc\u{20ac}").unwrap();
    assert_eq!((text.as_str(), text.is_cut()), ("abc", true));
    text.write_str("d").unwrap();
    assert_eq!(text.as_str(), "abc");
    let mut nul = Text::<6>::new();
    nul.write_str("a\0b").unwrap();
    assert_eq!((nul.as_str(), nul.is_cut()), ("a", true));
}
