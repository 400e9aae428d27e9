// SPDX-License-Identifier: GPL-2.0

use clap::ValueEnum;
use proptest::prelude::*;
use proto::rnbd::IoMode;
use proto::setting::IO_TIMEOUT;

use super::*;
use crate::model::range;
use crate::model::Settings;

mod document;
mod mirrors;

const FULL: &str = r#"
# Two links to one server.
[[session]]
name = "storage"
paths = ["10.0.0.2", { src = "ip:10.0.1.1", dst = "10.0.1.2" }, "fe80::1%eth0"]
dest_port = 1_235
policy = "round-robin"
hb_interval_ms = 0x3e8
max_reconnect_attempts = -1
devices = ["disk1", { path = "/dev/vg/disk2", access_mode = "ro" }]

[[session]]
name = "fast"
paths = ["gid:fe80::1"]
nr_poll_queues = -1

[[session.devices]]
path = "nvme0n1"
io_timeout_ms = 30_000
"#;

/// Parses a file as the program does, with names that are easy to foresee.
fn parse(file: &str, text: &str) -> Result<Config, ConfigErrors> {
    super::parse(file, text, &namer)
}

fn namer(server: &str, purpose: &str) -> String {
    format!("here-{server}{purpose}").replace('.', "-")
}

fn errors(text: &str) -> Vec<String> {
    match parse("rnbd.toml", text) {
        Ok(config) => panic!("taken without complaint: {config:?}"),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

fn path(text: &str) -> PathAddress {
    PathAddress::parse(text.as_bytes()).unwrap()
}

#[test]
fn everything() {
    let config = parse("rnbd.toml", FULL).unwrap();
    let expected = [
        Session {
            name: "storage".into(),
            paths: vec![
                path("ip:10.0.0.2"),
                path("ip:10.0.1.1@ip:10.0.1.2"),
                path("ip:fe80::1%eth0"),
            ],
            hosts: Vec::new(),
            found: Vec::new(),
            dest_port: Some(1235),
            policy: Some(Policy::RoundRobin),
            nr_poll_queues: None,
            settings: BTreeMap::from([("hb_interval_ms", 1000), ("max_reconnect_attempts", -1)]),
            devices: vec![
                Device {
                    path: "disk1".into(),
                    access_mode: AccessMode::Rw,
                    io_mode: None,
                    io_timeout_ms: None,
                    hold_io_ms: None,
                },
                Device {
                    path: "/dev/vg/disk2".into(),
                    access_mode: AccessMode::Ro,
                    io_mode: None,
                    io_timeout_ms: None,
                    hold_io_ms: None,
                },
            ],
        },
        Session {
            name: "fast".into(),
            paths: vec![path("gid:fe80::1")],
            hosts: Vec::new(),
            found: Vec::new(),
            dest_port: None,
            policy: None,
            nr_poll_queues: Some(-1),
            settings: BTreeMap::new(),
            devices: vec![Device {
                path: "nvme0n1".into(),
                access_mode: AccessMode::Rw,
                io_mode: None,
                io_timeout_ms: Some(30_000),
                hold_io_ms: None,
            }],
        },
    ];
    assert_eq!(config.sessions, expected);
    assert_eq!(config.device_count(), 3);
}

#[test]
fn empty_files_say_nothing() {
    for text in ["", "# nothing\n", "session = []\n"] {
        assert_eq!(parse("f", text), Ok(Config::default()), "{text:?}");
    }
}

/// A session that is valid except for `line`, which is line 4.
fn with(line: &str) -> String {
    format!("[[session]]\nname = \"s\"\npaths = [\"10.0.0.2\"]\n{line}\ndevices = [\"d\"]\n")
}

#[test]
fn mistakes_name_line_and_key() {
    let cases = [
        (
            "hb_interval = 5",
            "4:1: session \"s\": hb_interval: unknown key (did you mean hb_interval_ms?)",
        ),
        (
            "frobnicate = 5",
            "4:1: session \"s\": frobnicate: unknown key (known here: name, paths, dest_port, \
             policy, nr_poll_queues, devices, hb_interval_ms, hb_missed_max, reconnect_delay_ms, \
             connect_timeout_ms, ack_timeout_ms, max_reconnect_attempts, hold_io_ms)",
        ),
        (
            "hb_interval_ms = 5",
            "4:18: session \"s\": hb_interval_ms: 5 is not between 10 and 600000",
        ),
        (
            "hold_io_ms = 99999999999999999999",
            "4:14: session \"s\": hold_io_ms: 99999999999999999999 is not between 0 and 86400000",
        ),
        (
            "hb_missed_max = \"5\"",
            "4:17: session \"s\": hb_missed_max: must be a number, not a string",
        ),
        (
            "hb_missed_max = 5.5",
            "4:17: session \"s\": hb_missed_max: must be a number, not a fraction",
        ),
        (
            "dest_port = 0",
            "4:13: session \"s\": dest_port: 0 is not between 1 and 65535",
        ),
        (
            "policy = \"fastest\"",
            "4:10: session \"s\": policy: \"fastest\" is not one of \"round-robin\", \
             \"min-inflight\", \"min-latency\"",
        ),
        (
            "policy = true",
            "4:10: session \"s\": policy: must be a string, not true or false",
        ),
        ("name = \"t\"", "4:1: name: duplicate key"),
        (
            "hb_missed_max = ",
            "4:17: hb_missed_max: string values must be quoted, expected literal string",
        ),
    ];
    for (line, message) in cases {
        assert_eq!(
            errors(&with(line)),
            [format!("rnbd.toml:{message}")],
            "{line}"
        );
    }
}

#[test]
fn mistakes_of_paths_and_devices() {
    // The key, its value, the column of the mistake, the message.
    let path_list = "an element must be a server or { src = ..., dst = ... }, not a number";
    let modes = r#"access_mode: "RW" is not one of "ro", "rw", "migration""#;
    let newline = r#""a\n" cannot contain '\n'"#;
    let above = r#""a/../b" contains "..", which no server allows"#;
    let same = "the path ip:10.0.0.2 repeats an earlier path";
    let same_end = "the path ip:10.0.0.1@ip:10.0.0.2 repeats an earlier path";
    let two_ends = r#"["10.0.0.2", "10.0.0.1@10.0.0.2"]"#;
    let unknown = "to: unknown key (known here: src, dst)";
    let alike = "acess_mode: unknown key (did you mean access_mode?)";
    let cases = [
        ("paths", "[]", 9, "is empty: a session needs an element"),
        (
            "paths",
            r#""10.0.0.2""#,
            9,
            "must be an array, not a string",
        ),
        ("paths", "[5]", 10, path_list),
        (
            "paths",
            r#"["10.0.0"]"#,
            10,
            r#""ip:10.0.0" is not an IPv4 or IPv6 address"#,
        ),
        ("paths", r#"["gid:x"]"#, 10, r#""gid:x" is not a GID"#),
        (
            "paths",
            r#"[{ src = "10.0.0.1" }]"#,
            10,
            "a path needs a destination: dst is missing",
        ),
        (
            "paths",
            r#"[{ to = "10.0.0.1", dst = "10.0.0.2" }]"#,
            12,
            unknown,
        ),
        (
            "paths",
            r#"[{ src = 1, dst = "10.0.0.2" }]"#,
            18,
            "src: must be a string, not a number",
        ),
        ("paths", r#"["10.0.0.2", "ip:10.0.0.2"]"#, 22, same),
        ("paths", two_ends, 22, same_end),
        ("devices", "[]", 11, "is empty: a session needs an element"),
        ("devices", r#"["a", "a"]"#, 17, r#""a" is given twice"#),
        (
            "devices",
            r#"["a b"]"#,
            12,
            r#""a b" cannot contain white space"#,
        ),
        ("devices", r#"["a/../b"]"#, 12, above),
        ("devices", r#"[""]"#, 12, r#""" is empty"#),
        ("devices", r#"["a\n"]"#, 12, newline),
        (
            "devices",
            r#"[{ access_mode = "ro" }]"#,
            12,
            "a device needs a path",
        ),
        (
            "devices",
            r#"[{ path = "a", access_mode = "RW" }]"#,
            40,
            modes,
        ),
        (
            "devices",
            r#"[{ path = "a", io_mode = "fileio" }]"#,
            36,
            r#"io_mode: "fileio" is not one of "direct", "buffered""#,
        ),
        (
            "devices",
            r#"[{ path = "a", acess_mode = "ro" }]"#,
            26,
            alike,
        ),
        (
            "devices",
            "[5]",
            12,
            "an element must be a path or a table with path, access_mode, io_mode, \
             io_timeout_ms, hold_io_ms, not a number",
        ),
        (
            "devices",
            r#"[{ path = "a", io_timeout = 5000 }]"#,
            26,
            "io_timeout: unknown key (did you mean io_timeout_ms?)",
        ),
    ];
    for (key, value, column, message) in cases {
        let other = match key {
            "paths" => r#"devices = ["d"]"#,
            _ => r#"paths = ["10.0.0.2"]"#,
        };
        let text = format!("[[session]]\nname = \"s\"\n{key} = {value}\n{other}\n");
        let wanted = format!("rnbd.toml:3:{column}: session \"s\": {key}: {message}");
        assert_eq!(errors(&text), [wanted], "{text}");
    }
}

#[test]
fn mistakes_of_the_time_limit_of_a_device() {
    let range = "is neither 0 nor between 1000 and 86400000";
    let cases = [
        ("1", format!("1 {range}")),
        ("999", format!("999 {range}")),
        ("-1", format!("-1 {range}")),
        ("86_400_001", format!("86_400_001 {range}")),
        (
            "99999999999999999999",
            format!("99999999999999999999 {range}"),
        ),
        ("\"30s\"", "must be a number, not a string".to_owned()),
        ("1.5", "must be a number, not a fraction".to_owned()),
        ("false", "must be a number, not true or false".to_owned()),
    ];
    for (value, message) in cases {
        let devices = format!("[{{ path = \"a\", io_timeout_ms = {value} }}]");
        let text = with("").replace("[\"d\"]", &devices);
        let wanted = format!("rnbd.toml:5:42: session \"s\": devices: io_timeout_ms: {message}");
        assert_eq!(errors(&text), [wanted], "{text}");
    }
}

/// Other mistakes of a device are reported together with that of its time limit.
#[test]
fn all_mistakes_of_a_device_at_once() {
    let devices = "[{ access_mode = \"x\", io_mode = 5, io_timeout_ms = 5 }]";
    let text = with("").replace("[\"d\"]", devices);
    assert_eq!(
        errors(&text),
        [
            "rnbd.toml:5:12: session \"s\": devices: a device needs a path",
            "rnbd.toml:5:28: session \"s\": devices: access_mode: \"x\" is not one of \"ro\", \
             \"rw\", \"migration\"",
            "rnbd.toml:5:43: session \"s\": devices: io_mode: must be a string, not a number",
            "rnbd.toml:5:62: session \"s\": devices: io_timeout_ms: 5 is neither 0 nor between \
             1000 and 86400000",
        ]
    );
}

#[test]
fn mistakes_of_sessions() {
    let good = "paths = [\"10.0.0.2\"]\ndevices = [\"d\"]\n";
    let named = |name: &str| format!("[[session]]\nname = \"{name}\"\n");
    let cases = [
        (
            format!("[session]\nname = \"s\"\n{good}"),
            "1:1: session: must be an array of tables: write [[session]], not [session]",
        ),
        (
            "session = [5]".to_owned(),
            "1:12: session: must be a table, not a number",
        ),
        (
            format!("[[sessions]]\nname = \"s\"\n{good}"),
            "1:3: sessions: unknown key (did you mean session?)",
        ),
        (
            "[[session]]\npaths = [\"10.0.0.2\"]\n".to_owned(),
            "1:1: session: devices: is missing",
        ),
        (
            format!("[[session]]\n{good}[[session]]\n{good}"),
            "4:1: session \"here-10-0-0-2\": name: there is a session of this name in line 1 \
             already",
        ),
        (
            named("a/b") + good,
            "2:8: session: name: \"a/b\" cannot contain '/'",
        ),
        (
            named("a b") + good,
            "2:8: session: name: \"a b\" cannot contain white space",
        ),
        (
            format!("{0}{good}\n{0}{good}", named("s")),
            "7:8: session \"s\": name: there is a session of this name in line 2 already",
        ),
        (
            named("s") + "paths = [\"10.0.0.2\"]\n",
            "1:1: session \"s\": devices: is missing",
        ),
        (
            named("s") + "paths = [\"10.0.0.2\"]\nnr_poll_queues = 2\ndevices = [\"a\", \"b\"]\n",
            "4:18: session \"s\": nr_poll_queues: \
             a session with queues for polled IO can have only one device",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(errors(&text), [format!("rnbd.toml:{message}")], "{text}");
    }
}

#[test]
fn what_names_no_session_is_named_after_the_server() {
    let text = "[[session]]\npaths = [\"Storage1\", \"10.0.0.2\", { src = \"10.0.0.1\", \
                dst = \"storage2\" }]\ndevices = [\"a\"]\n\
                [[session]]\npaths = [\"storage1\"]\ndest_port = 99\nnr_poll_queues = 1\n\
                devices = [\"b\"]\n";
    let config = parse("f", text).unwrap();
    let [first, second] = config.sessions.as_slice() else {
        panic!("{config:?}");
    };
    assert_eq!(
        (first.name.as_str(), second.name.as_str()),
        ("here-storage1", "here-storage199-b")
    );
    assert_eq!(first.paths, [path("ip:10.0.0.2")]);
    let hosts: Vec<_> = first.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["storage1", "ip:10.0.0.1@storage2"]);
    assert_eq!(parse("f", &to_toml(&config)), Ok(config));
    for (paths, why) in [
        ("[\"a\", \"A\"]", "the path a repeats an earlier path"),
        (
            "[{ dst = \"10.0.0.1@b\" }]",
            "dst: \"10.0.0.1@b\" has a source: write the source as src",
        ),
    ] {
        let text = format!("[[session]]\npaths = {paths}\ndevices = [\"d\"]\n");
        let told = errors(&text);
        assert!(told.len() == 1 && told[0].ends_with(why), "{told:?}");
    }
}

#[test]
fn all_mistakes_at_once() {
    let text = "[[session]]\nname = \"s\"\npaths = [\"x y\"]\nport = 5\ndevices = \
         \"d\"\n[[session]]\nname = \"\"\n";
    assert_eq!(
        errors(text),
        [
            "rnbd.toml:3:10: session \"s\": paths: \"x y\" is neither an address nor a host name",
            "rnbd.toml:4:1: session \"s\": port: unknown key (did you mean dest_port?)",
            "rnbd.toml:5:11: session \"s\": devices: must be an array, not a string",
            "rnbd.toml:7:8: session: name: \"\" is empty",
        ]
    );
}

#[test]
fn files_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rnbd.toml");
    let shown = file.display();
    let error = Config::load(&file, &namer).unwrap_err().to_string();
    assert_eq!(error, format!("{shown}: there is no such file"));
    std::fs::write(&file, b"# a\n# \xff\n").unwrap();
    let error = Config::load(&file, &namer).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{shown}:2:3: this byte is not UTF-8, and a TOML file is UTF-8")
    );
}

fn any_address() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|a| format!("ip:{}", std::net::Ipv4Addr::from(a))),
        any::<[u8; 16]>().prop_map(|a| format!("ip:{}", std::net::Ipv6Addr::from(a))),
        any::<[u8; 16]>().prop_map(|a| format!("gid:{}", std::net::Ipv6Addr::from(a))),
        Just("ip:fe80::1%eth0".to_owned()),
    ]
}

fn any_io_timeout() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), IO_TIMEOUT.least..=IO_TIMEOUT.max]
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(
        name in "[^\\s\\p{C}/.]{1,30}",
        ends in proptest::collection::vec(
            (proptest::option::of(any_address()), any_address()), 1..5
        ),
        devices in proptest::collection::btree_map(
            "[^\\s\\p{C}.]{1,30}", (0usize..3, proptest::option::of(any_io_timeout())), 1..5
        ),
        port in proptest::option::of(1u16..),
        policy in proptest::option::of(
            proptest::sample::select(Policy::value_variants())
        ),
        setting in proptest::option::of((0usize..7, 0i32..1000)),
    ) {
        let mut paths: Vec<PathAddress> = Vec::new();
        for (src, dst) in ends {
            let text = match src {
                Some(src) => format!("{src}@{dst}"),
                None => dst,
            };
            let path = path(&text);
            if !paths.iter().any(|other| other.dst.same_as(&path.dst)) {
                paths.push(path);
            }
        }
        let setting = setting.map(|(at, value)| {
            let setting = Settings::ALL[at];
            (setting.name, value.clamp(setting.min, setting.max))
        });
        let modes = [AccessMode::Ro, AccessMode::Rw, AccessMode::Migration];
        let io_modes = [None, Some(IoMode::Direct), Some(IoMode::Buffered)];
        let config = Config {
            sessions: vec![Session {
                name,
                paths,
                hosts: Vec::new(),
                found: Vec::new(),
                dest_port: port,
                policy,
                nr_poll_queues: None,
                settings: setting.into_iter().collect(),
                devices: devices
                    .into_iter()
                    .map(|(path, (mode, io_timeout_ms))| Device {
                        path,
                        access_mode: modes[mode],
                        io_mode: io_modes[mode],
                        hold_io_ms: io_timeout_ms.map(|ms| ms.saturating_sub(1)),
                        io_timeout_ms,
                    })
                    .collect(),
            }],
            mirrors: Vec::new(),
        };
        let text = to_toml(&config);
        prop_assert_eq!(parse("f", &text), Ok(config), "{}", text);
    }

    #[test]
    fn no_text_is_too_bad(text in "(?s).{0,200}") {
        let _ = parse("f", &text);
    }

    #[test]
    fn no_toml_is_too_bad(
        key in "session|name|paths|devices|policy|x",
        value in "5|\"a\"|\\[\\]|\\[\\[\\]\\]|\\{\\}|\\[\\{\\}\\]|1979-05-27|nan|\
                  0xffffffffffffffffffff",
        header in "|\\[\\[session\\]\\]\n|\\[session\\]\n|\
                   \\[\\[session\\]\\]\n\\[\\[session.devices\\]\\]\n",
    ) {
        let _ = parse("f", &format!("{header}{key} = {value}\n"));
    }
}
