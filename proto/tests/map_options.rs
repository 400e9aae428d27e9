// SPDX-License-Identifier: GPL-2.0

//! The line written to `map_device`.

use proto::{
    addr::PathAddress,
    map_options::{
        parse,
        MapOptions, //
    },
    rnbd::{
        AccessMode,
        IoMode, //
    },
    Errno, //
};

const CPUS: u32 = 8;

#[track_caller]
fn accept(line: &str) -> MapOptions {
    match parse(line.as_bytes(), CPUS) {
        Ok(options) => options,
        Err(error) => panic!("{line:?}: {error}"),
    }
}

#[track_caller]
fn refuse(line: &str, message: &str) {
    refuse_with(line, message, Errno::EINVAL);
}

#[track_caller]
fn refuse_with(line: &str, message: &str, errno: Errno) {
    match parse(line.as_bytes(), CPUS) {
        Ok(options) => panic!("{line:?} gives {options:?}"),
        Err(error) => {
            assert_eq!(error.message().as_str(), message, "{line:?}");
            assert_eq!(error.errno(), errno, "{line:?}");
        }
    }
}

/// A line with both mandatory options, and more.
fn with(more: &str) -> String {
    format!("sessname=s device_path=/dev/sda {more}")
}

#[test]
fn a_line_with_everything() {
    let options = accept(
        "dest_port=4321 sessname=node-1 path=ip:10.0.0.1@ip:10.0.0.2 path=ip:fe80::2 \
         device_path=/dev/vdb access_mode=migration nr_poll_queues=3\n",
    );
    assert_eq!(options.sessname.as_bytes(), b"node-1");
    assert_eq!(options.device_path.as_bytes(), b"/dev/vdb");
    assert_eq!(options.access_mode, AccessMode::Migration);
    assert_eq!(options.dest_port, 4321);
    assert_eq!(options.nr_poll_queues, 3);
    let paths: Vec<_> = options
        .paths()
        .map(|path| path.to_text().as_str().to_owned())
        .collect();
    assert_eq!(paths, ["ip:10.0.0.1@ip:10.0.0.2", "ip:fe80::2"]);
}

#[test]
fn the_shortest_line_has_the_defaults_of_c() {
    let options = accept("sessname=s device_path=d");
    assert_eq!(options.access_mode, AccessMode::Rw);
    assert_eq!(options.dest_port, 1234);
    assert_eq!(options.nr_poll_queues, 0);
    assert_eq!(options.paths().count(), 0);
}

#[test]
fn order_and_extra_spaces_do_not_matter() {
    let line = "  device_path=/dev/sda    access_mode=ro path=ip:1.2.3.4 \
                sessname=s dest_port=99  \n";
    let options = accept(line);
    assert_eq!(options.access_mode, AccessMode::Ro);
    assert_eq!(options.dest_port, 99);
    let path = PathAddress::parse(b"ip:1.2.3.4").unwrap();
    assert_eq!(options.paths().collect::<Vec<_>>(), [&path]);
}

#[test]
fn missing_options_are_named() {
    refuse("", "device_path= is missing");
    refuse("\n", "device_path= is missing");
    refuse("sessname=s", "device_path= is missing");
    refuse("device_path=/dev/sda", "sessname= is missing");
}

#[test]
fn doubled_options_are_named() {
    let cases = [
        ("sessname=s", "sessname"),
        ("device_path=/dev/sdb", "device_path"),
        ("dest_port=1 dest_port=1", "dest_port"),
        ("access_mode=ro access_mode=rw", "access_mode"),
        ("io_mode=direct io_mode=direct", "io_mode"),
        ("nr_poll_queues=0 nr_poll_queues=1", "nr_poll_queues"),
    ];
    for (more, name) in cases {
        refuse(&with(more), &format!("{name}= is given twice"));
    }
}

#[test]
fn unknown_options_are_named() {
    let cases = [
        ("pth=ip:1.2.3.4", "unknown option \"pth=ip:1.2.3.4\""),
        ("paths=x", "unknown option \"paths=x\""),
        ("PATH=ip:1.2.3.4", "unknown option \"PATH=ip:1.2.3.4\""),
        ("\"path=x\"", "unknown option \"\\\"path=x\\\"\""),
        ("=x", "unknown option \"=x\""),
        ("\tpath=x", "unknown option \"\\tpath=x\""),
        ("x\u{1b}[1m", "unknown option \"x\\x1b[1m\""),
    ];
    for (more, message) in cases {
        refuse(&format!("sessname=s {more} device_path=d"), message);
    }
    let long = "x".repeat(3000);
    refuse(
        &with(&long),
        &format!("unknown option \"{}...\"", &long[..64]),
    );
}

#[test]
fn options_without_a_value_are_named() {
    for name in [
        "path",
        "device_path",
        "dest_port",
        "access_mode",
        "io_mode",
        "sessname",
        "nr_poll_queues",
    ] {
        let message = format!("{name}= has no value");
        refuse(&format!("{name}="), &message);
        refuse(name, &message);
    }
}

#[test]
fn names_have_limits() {
    let longest = "x".repeat(254);
    refuse_with(
        &format!("sessname={longest} device_path={longest}"),
        "device_path= and sessname= make a link's name too long (509 bytes, at most 255)",
        Errno::ENAMETOOLONG,
    );
    let short = &longest[..127];
    accept(&format!("sessname={short} device_path={short}"));
    for (session, device) in [(128, 127), (127, 128), (254, 1), (1, 254)] {
        let (session, device) = (&longest[..session], &longest[..device]);
        refuse_with(
            &format!("device_path={device} sessname={session}"),
            "device_path= and sessname= make a link's name too long (256 bytes, at most 255)",
            Errno::ENAMETOOLONG,
        );
    }
    accept(&format!("sessname={} device_path=d", &longest[..253]));
    accept(&format!("sessname=s device_path={}", &longest[..253]));
    for len in [255, 256, 1000] {
        let long = "x".repeat(len);
        let message = format!("sessname= is too long ({len} bytes, at most 254)");
        refuse(&format!("device_path=d sessname={long}"), &message);
        let message = format!("device_path= is too long ({len} bytes, at most 254)");
        refuse(&format!("sessname=s device_path={long}"), &message);
    }
}

#[test]
fn session_names_become_directories() {
    refuse("device_path=d sessname=a/b", "sessname= cannot contain '/'");
    refuse("device_path=d sessname=a.b", "sessname= cannot contain '.'");
    refuse(
        "device_path=d sessname=a\tb",
        "sessname= cannot contain '\\t'",
    );
    refuse(
        "sessname=s device_path=a\nb",
        "device_path= cannot contain '\\n'",
    );
    accept("sessname=a!b@c:d device_path=../x.y");
}

#[test]
fn up_to_six_paths() {
    let paths: Vec<_> = (1..=7).map(|i| format!("path=ip:10.0.0.{i}")).collect();
    let options = accept(&with(&paths[..6].join(" ")));
    assert_eq!(options.paths().count(), 6);
    refuse_with(
        &with(&paths.join(" ")),
        "more than 6 path= options",
        Errno::ENOMEM,
    );
}

#[test]
fn bad_paths_are_named_with_the_errno_of_c() {
    refuse_with(
        &with("path=10.0.0.1"),
        "path=: \"10.0.0.1\" does not start with ip: or gid:",
        Errno::EPROTONOSUPPORT,
    );
    refuse(
        &with("path=ip:10.0.0.300"),
        "path=: \"ip:10.0.0.300\" is not an IPv4 or IPv6 address",
    );
    refuse(
        &with("path=10.0.0.1@ip:10.0.0.2"),
        "path=: \"10.0.0.1\" is not a source address",
    );
}

#[test]
fn ports_are_numbers_as_c_reads_them() {
    for (value, port) in [
        ("0", 0),
        ("1", 1),
        ("65535", 65535),
        ("0x4d2", 1234),
        ("0X4D2", 1234),
        ("02322", 1234),
        ("-0", 0),
    ] {
        let options = accept(&with(&format!("dest_port={value}")));
        assert_eq!(options.dest_port, port, "{value}");
    }
    for value in [
        "65536",
        "-1",
        "x",
        "12x",
        "0x",
        "08",
        "+1",
        "--1",
        "-+1",
        "0x-1",
        "1.5",
        "4294967296",
        "99999999999999999999",
    ] {
        refuse(
            &with(&format!("dest_port={value}")),
            &format!("dest_port= must be 0 to 65535, not \"{value}\""),
        );
    }
}

#[test]
fn poll_queues_are_at_most_one_per_cpu() {
    for (value, queues) in [("0", 0), ("1", 1), ("8", 8), ("-1", 8)] {
        let options = accept(&with(&format!("nr_poll_queues={value}")));
        assert_eq!(options.nr_poll_queues, queues, "{value}");
    }
    for value in ["9", "-2", "4294967295", "all"] {
        refuse(
            &with(&format!("nr_poll_queues={value}")),
            &format!("nr_poll_queues= must be -1 to 8, not \"{value}\""),
        );
    }
}

#[test]
fn access_modes_are_three() {
    for mode in ["ro", "rw", "migration"] {
        let options = accept(&with(&format!("access_mode={mode}")));
        assert_eq!(options.access_mode.as_str(), mode);
    }
    for mode in ["r", "RO", "read-only", "2"] {
        refuse(
            &with(&format!("access_mode={mode}")),
            &format!("access_mode= must be ro, rw or migration, not \"{mode}\""),
        );
    }
}

#[test]
fn an_io_mode_is_a_wish() {
    assert_eq!(accept(&with("")).io_mode, None);
    for (name, mode) in [("direct", IoMode::Direct), ("buffered", IoMode::Buffered)] {
        let options = accept(&with(&format!("io_mode={name}")));
        assert_eq!(options.io_mode, Some(mode), "{name}");
    }
    for name in ["fileio", "blockio", "Direct", "0"] {
        refuse(
            &with(&format!("io_mode={name}")),
            &format!("io_mode= must be direct or buffered, not \"{name}\""),
        );
    }
}

#[test]
fn the_line_ends_at_a_nul() {
    accept("sessname=s device_path=d\0 rubbish");
    refuse("sessname=s\0 device_path=d", "device_path= is missing");
}
