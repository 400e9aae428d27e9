// SPDX-License-Identifier: GPL-2.0

//! Export policies and their patterns.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use proto::{
    addr::Address,
    client_id::ClientId,
    export_policy::{
        admits,
        allows,
        check,
        is_about,
        Query,
        Start,
        StartError,
        Subject,
        MAX_LEN, //
    },
    name::SessName,
    pattern::{
        Pattern,
        PatternError, //
    },
    rnbd::AccessMode,
    Errno, //
};

/// Whether a policy lets `session` at `address` open `device` in `mode`.
fn may(policy: &str, session: &str, address: &str, device: &str, mode: AccessMode) -> bool {
    let query = Query {
        subject: Subject {
            client_id: None,
            session: &SessName::new(session.as_bytes()).unwrap(),
            client: Address::parse(address.as_bytes()).ok(),
        },
        device: device.as_bytes(),
        mode,
    };
    allows(policy.as_bytes(), &query)
}

fn may_read(policy: &str, session: &str, address: &str, device: &str) -> bool {
    may(policy, session, address, device, AccessMode::Ro)
}

fn error(policy: &str) -> String {
    let error = check(policy.as_bytes()).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    error.message().as_str().into()
}

#[test]
fn a_rule_allows_what_it_lists_and_nothing_else() {
    let policy = "allow session=web1 client=ip:192.0.2.7 device=/dev/vdb mode=ro,migration\n";
    assert_eq!(check(policy.as_bytes()), Ok(1));
    let asked = ("web1", "ip:192.0.2.7", "/dev/vdb");
    assert!(may(policy, asked.0, asked.1, asked.2, AccessMode::Ro));
    assert!(may(
        policy,
        asked.0,
        asked.1,
        asked.2,
        AccessMode::Migration
    ));
    assert!(!may(policy, asked.0, asked.1, asked.2, AccessMode::Rw));
    assert!(!may_read(policy, "web10", asked.1, asked.2));
    assert!(!may_read(policy, "web", asked.1, asked.2));
    assert!(!may_read(policy, asked.0, "ip:192.0.2.8", asked.2));
    assert!(!may_read(policy, asked.0, "unknown", asked.2));
    assert!(!may_read(policy, asked.0, asked.1, "/dev/vdb1"));
    assert!(!may_read(policy, asked.0, asked.1, "/dev/vd"));
}

#[test]
fn a_policy_without_rules_allows_nothing() {
    for policy in ["", "\n", "# allow session=* client=* device=/** mode=ro\n"] {
        assert_eq!(check(policy.as_bytes()), Ok(0));
        assert!(!may_read(policy, "s", "ip:192.0.2.7", "/dev/vdb"));
    }
}

#[test]
fn any_rule_is_enough() {
    let policy = "# Two clients.\n\
                  allow session=a client=* device=/dev/vdb mode=ro\n\
                  \n\
                  \t allow mode=rw device=/dev/vdb client=* session=b";
    assert_eq!(check(policy.as_bytes()), Ok(2));
    let modes = |session| {
        [AccessMode::Ro, AccessMode::Rw].map(|mode| may(policy, session, "x", "/dev/vdb", mode))
    };
    assert_eq!(modes("a"), [true, false]);
    assert_eq!(modes("b"), [false, true]);
    assert_eq!(modes("c"), [false, false]);
}

#[test]
fn clients_are_addresses_with_prefixes() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "*",
            &["ip:192.0.2.7", "ip:2001:db8::1", "gid:fe80::1", "unknown"],
            &[],
        ),
        (
            "ip:192.0.2.7",
            &["ip:192.0.2.7", "ip:::ffff:192.0.2.7"],
            &["ip:192.0.2.6"],
        ),
        (
            "ip:192.0.2.0/24",
            &["ip:192.0.2.0", "ip:192.0.2.255"],
            &["ip:192.0.3.0"],
        ),
        (
            "ip:192.0.2.6/31",
            &["ip:192.0.2.6", "ip:192.0.2.7"],
            &["ip:192.0.2.5", "ip:192.0.2.8"],
        ),
        (
            "ip:0.0.0.0/0",
            &["ip:192.0.2.7"],
            &["ip:2001:db8::1", "gid:::ffff:192.0.2.7", "unknown"],
        ),
        (
            "ip:::/0",
            &["ip:2001:db8::1"],
            &["ip:192.0.2.7", "ip:::ffff:192.0.2.7"],
        ),
        (
            "ip:2001:db8::/33",
            &["ip:2001:db8:7fff::1"],
            &["ip:2001:db8:8000::1", "ip:192.0.2.7"],
        ),
        (
            "ip:2001:db8::1",
            &["ip:2001:db8::1"],
            &["ip:2001:db8::2", "gid:2001:db8::1"],
        ),
        (
            "ip:::ffff:192.0.2.0/120",
            &["ip:192.0.2.7"],
            &["ip:192.0.3.7"],
        ),
        (
            "gid:fe80::/10",
            &["gid:fe80::1"],
            &["ip:fe80::1", "gid:2001:db8::1"],
        ),
    ];
    for (rule, inside, outside) in cases {
        let policy = format!("allow session=* client={rule} device=/dev/vdb mode=ro\n");
        assert_eq!(check(policy.as_bytes()), Ok(1), "{rule}");
        for address in *inside {
            assert!(
                may_read(&policy, "s", address, "/dev/vdb"),
                "{rule}: {address}"
            );
        }
        for address in *outside {
            assert!(
                !may_read(&policy, "s", address, "/dev/vdb"),
                "{rule}: {address}"
            );
        }
    }
}

#[test]
fn errors_name_line_and_cause() {
    let cases = [
        (
            "deny session=* client=* device=/x mode=ro",
            "line 2: \"deny\" is not \"allow\"",
        ),
        (
            "allow session",
            "line 2: \"session\" is not of the form key=value",
        ),
        (
            "allow clinet=*",
            "line 2: \"clinet\" is not one of session, client, client-id, device and mode",
        ),
        (
            "allow session=a session=a",
            "line 2: session= is given twice",
        ),
        (
            "allow client=* device=/x mode=ro",
            "line 2: session= is missing",
        ),
        (
            "allow session=* device=/x mode=ro",
            "line 2: client= is missing",
        ),
        (
            "allow session=* client=* mode=ro",
            "line 2: device= is missing",
        ),
        (
            "allow session=* client=* device=/x",
            "line 2: mode= is missing",
        ),
        ("allow session=", "line 2: session=\"\" is empty"),
        (
            "allow session=\\40",
            "line 2: session=\"\\\\40\" has a backslash that no three octal digits from 001 to \
             377 follow",
        ),
        (
            "allow device=vdb",
            "line 2: device=\"vdb\" does not start with /",
        ),
        (
            "allow device=/dev/../x",
            "line 2: device=\"/dev/../x\" contains \"..\"",
        ),
        (
            "allow device=/dev//x",
            "line 2: device=\"/dev//x\" contains \"//\"",
        ),
        (
            "allow device=/***",
            "line 2: device=\"/***\" has more than two stars in a row",
        ),
        (
            "allow mode=",
            "line 2: mode=\"\" is not one of ro, rw and migration",
        ),
        (
            "allow mode=ro,r",
            "line 2: mode=\"r\" is not one of ro, rw and migration",
        ),
        (
            "allow mode=ro,",
            "line 2: mode=\"\" is not one of ro, rw and migration",
        ),
        (
            "allow client=192.0.2.7",
            "line 2: client=\"192.0.2.7\" does not start with ip: or gid:",
        ),
        (
            "allow client=ip:192.0.2",
            "line 2: client=\"ip:192.0.2\" is not an IPv4 or IPv6 address",
        ),
        (
            "allow client=ip:192.0.2.0/33",
            "line 2: client=\"ip:192.0.2.0/33\" has a bad prefix length",
        ),
        (
            "allow client=ip:192.0.2.0/",
            "line 2: client=\"ip:192.0.2.0/\" has a bad prefix length",
        ),
        (
            "allow client=ip:::/+9",
            "line 2: client=\"ip:::/+9\" has a bad prefix length",
        ),
        (
            "allow client=ip:192.0.2.7/24",
            "line 2: client=\"ip:192.0.2.7/24\" has bits set behind its prefix",
        ),
        (
            "allow client=ip:fe80::1%eth0",
            "line 2: client=\"ip:fe80::1%eth0\" names an interface: write the address without it",
        ),
        ("allow session=a\r", "line 2: cannot contain '\\r'"),
        ("\0", "line 2: cannot contain '\\x00'"),
    ];
    for (line, message) in cases {
        assert_eq!(error(&format!("# first\n{line}\n")), message);
        // A line that is not a rule allows nothing, also in a policy that was not checked.
        assert!(!may_read(line, "s", "ip:192.0.2.7", "/x"));
    }
}

#[test]
fn a_policy_has_a_greatest_length() {
    let mut policy = vec![b'#'; MAX_LEN];
    assert_eq!(check(&policy), Ok(0));
    policy.push(b'#');
    assert_eq!(check(&policy).unwrap_err().errno(), Errno::EFBIG);
}

#[test]
fn a_write_starts_with_what_it_is() {
    assert_eq!(Start::parse(b"clear\n"), Ok(Start::Clear));
    assert_eq!(Start::parse(b"clear"), Ok(Start::Clear));
    assert_eq!(Start::parse(b"clear\nx"), Err(StartError::Excess(1)));
    let policy = |len, text| Ok(Start::Policy { len, text });
    assert_eq!(Start::parse(b"policy 0\n"), policy(0, b""));
    assert_eq!(Start::parse(b"policy 7\nallow"), policy(7, b"allow"));
    assert_eq!(Start::parse(b"policy 5\nallow"), policy(5, b"allow"));
    assert_eq!(Start::parse(b"policy 4\nallow"), Err(StartError::Excess(1)));
    assert_eq!(Start::parse(b"policy 1048576\n"), policy(1 << 20, b""));
    for long in ["1048577", "18446744073709551616"] {
        let start = format!("policy {long}\n");
        let error = Start::parse(start.as_bytes()).unwrap_err();
        assert_eq!(error, StartError::TooLong(long.as_bytes()));
        assert_eq!(error.errno(), Errno::EFBIG);
    }
    for wrong in [
        "",
        "\n",
        "allow session=*",
        "policy",
        "policy 5",
        "policy\n",
        "policy \n",
        "policy +5\n",
        "policy 5 \n",
        "policy  5\n",
        "clear \n",
        "# policy 5\n",
    ] {
        let error = Start::parse(wrong.as_bytes()).unwrap_err();
        assert!(matches!(error, StartError::Unknown(_)), "{wrong:?}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }
    assert_eq!(
        StartError::Unknown(b"allow").message().as_str(),
        "the first line is \"allow\", neither \"policy BYTES\" nor \"clear\""
    );
}

#[test]
fn patterns_know_slashes() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "/dev/vdb",
            &["/dev/vdb"],
            &["/dev/vdb1", "/dev/vd", "", "x/dev/vdb"],
        ),
        ("/dev/*", &["/dev/vdb", "/dev/"], &["/dev", "/dev/vg0/data"]),
        (
            "/dev/vg*/d*a",
            &["/dev/vg0/data", "/dev/vg/da"],
            &["/dev/vg0/x/data", "/dev/vg0/dat"],
        ),
        (
            "/dev/**",
            &["/dev/vdb", "/dev/vg0/data", "/dev/"],
            &["/dev", "/x/dev/vdb"],
        ),
        (
            "/**/data",
            &["/a/data", "/a/b/data", "//data"],
            &["/data", "/a/data/x"],
        ),
        (
            "/**/a*b/**c",
            &["/x/ab/c", "/x/y/a-b/d/c"],
            &["/x/a/b/c", "/x/ab/"],
        ),
        ("/a\\040b\\052", &["/a b*"], &["/a bc", "/a\\040b*"]),
        ("/a\\134b", &["/a\\b"], &["/ab"]),
        ("*", &["", "a", "web-1"], &["a/b"]),
        ("?", &["?"], &["a"]),
    ];
    for (text, good, bad) in cases {
        let pattern = Pattern::parse(text.as_bytes()).unwrap();
        for name in *good {
            assert!(pattern.matches(name.as_bytes()), "{text} {name}");
        }
        for name in *bad {
            assert!(!pattern.matches(name.as_bytes()), "{text} {name}");
        }
    }
}

#[test]
fn wrong_patterns_are_refused() {
    for text in ["\\", "a\\12", "\\400", "\\000", "\\1x2", "\\*"] {
        let error = Pattern::parse(text.as_bytes());
        assert_eq!(error, Err(PatternError::BadEscape), "{text}");
    }
    assert_eq!(Pattern::parse(b""), Err(PatternError::Empty));
    assert_eq!(Pattern::parse(b"a***"), Err(PatternError::Stars));
    assert_eq!(Pattern::parse(b"a****"), Err(PatternError::Stars));
}

#[test]
fn many_stars_take_no_long_time() {
    let name = [b'a'; 4095];
    let text = "*a**a".repeat(50);
    assert!(Pattern::parse(text.as_bytes()).unwrap().matches(&name));
    let unlike = text + "b";
    assert!(!Pattern::parse(unlike.as_bytes()).unwrap().matches(&name));
}

/// A second implementation of patterns without escapes, which tries everything.
fn model(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=name.len()).any(|len| model(rest, &name[len..])),
        [b'*', rest @ ..] => {
            let most = name
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(name.len());
            (0..=most).any(|len| model(rest, &name[len..]))
        }
        [byte, rest @ ..] => name.first() == Some(byte) && model(rest, &name[1..]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn patterns_match_what_they_say(
        steps in vec(select(&["*", "**", "a", "b", "/", "a", "/"][..]), 1..9),
        name in vec(select(&b"ab/"[..]), 0..10),
    ) {
        let text = steps.concat();
        if let Ok(pattern) = Pattern::parse(text.as_bytes()) {
            let matches = pattern.matches(&name);
            prop_assert_eq!(matches, model(text.as_bytes(), &name), "{} {:?}", text, name);
        } else {
            prop_assert!(text.contains("***"));
        }
    }

    #[test]
    fn a_prefix_is_that_of_its_bits(address: [u8; 16], other: [u8; 16], len in 0u32..=128) {
        let (bits, other_bits) = (u128::from_be_bytes(address), u128::from_be_bytes(other));
        let mask = if len == 0 { 0 } else { u128::MAX << (128 - len) };
        let network = Address::Gid((bits & mask).to_be_bytes()).to_text();
        let policy = format!("allow session=* client={}/{len} device=/x mode=ro", network.as_str());
        prop_assert_eq!(check(policy.as_bytes()), Ok(1));
        // An address inside of the prefix, and a random address.
        for bits in [(bits & mask) | (other_bits & !mask), other_bits] {
            let client = Address::Gid(bits.to_be_bytes()).to_text();
            let inside = (bits ^ u128::from_be_bytes(address)) & mask == 0;
            prop_assert_eq!(may_read(&policy, "s", client.as_str(), "/x"), inside);
        }
    }
}

#[test]
fn an_address_is_admitted_if_a_rule_names_it() {
    let policy = "# allow session=* client=* device=* mode=ro\n\
                  allow session=web1 client=ip:192.0.2.0/24 device=/dev/vdb mode=ro\n\
                  allow session=db client=ip:2001:db8::1 device=/dev/vdc mode=rw\n";
    assert_eq!(check(policy.as_bytes()), Ok(2));
    let from = |text: &str| admits(policy.as_bytes(), Address::parse(text.as_bytes()).ok());
    assert!(from("ip:192.0.2.200"));
    assert!(from("ip:2001:db8::1"));
    assert!(!from("ip:192.0.3.1"));
    assert!(!from("ip:2001:db8::2"));
    // The client's address is not known for certain.
    assert!(!admits(policy.as_bytes(), None));
    let anywhere = "allow session=web1 client=* device=/dev/vdb mode=ro\n";
    assert!(admits(anywhere.as_bytes(), None));
    assert!(!admits(b"", Address::parse(b"ip:192.0.2.1").ok()));
}

/// Name, address and proved identity of a session have to fit one rule. A session that no rule is
/// about can open nothing.
#[test]
fn a_session_is_admitted_if_a_rule_is_about_it() {
    let policy = "allow session=web* client=ip:192.0.2.0/24 device=/dev/vdb mode=ro\n\
                  allow session=db client=* client-id=db device=/dev/vdc mode=rw\n";
    assert_eq!(check(policy.as_bytes()), Ok(2));
    let about = |session: &str, address: &str, client_id: Option<&[u8]>| {
        let client_id = client_id.map(|client| ClientId::new(client).unwrap());
        let subject = Subject {
            session: &SessName::new(session.as_bytes()).unwrap(),
            client_id: client_id.as_ref(),
            client: Address::parse(address.as_bytes()).ok(),
        };
        is_about(policy.as_bytes(), &subject)
    };
    assert!(about("web1", "ip:192.0.2.1", None));
    assert!(about("web1", "ip:192.0.2.1", Some(b"db")));
    assert!(!about("web1", "ip:192.0.3.1", None));
    assert!(!about("web1", "nowhere", None));
    assert!(!about("we", "ip:192.0.2.1", None));
    assert!(about("db", "ip:192.0.2.1", Some(b"db")));
    assert!(about("db", "nowhere", Some(b"db")));
    assert!(!about("db", "ip:192.0.2.1", None));
    assert!(!about("db", "ip:192.0.2.1", Some(b"web")));
    assert!(!about("web1", "ip:192.0.3.1", Some(b"db")));
}

/// A rule with a client id is only for clients that have proved this identity. A rule without it is
/// for all clients.
#[test]
fn proved_identities() {
    let may = |policy: &str, client: Option<&[u8]>| {
        let client = client.map(|client| ClientId::new(client).unwrap());
        allows(
            policy.as_bytes(),
            &Query {
                subject: Subject {
                    session: &SessName::new(b"s").unwrap(),
                    client_id: client.as_ref(),
                    client: None,
                },
                device: b"/dev/sda",
                mode: AccessMode::Ro,
            },
        )
    };
    let rule = |id: &str| format!("allow session=* client=* {id} device=/** mode=ro\n");
    assert!(may(&rule(""), None) && may(&rule(""), Some(b"web1")));
    for (id, fits) in [
        ("client-id=web1", true),
        ("client-id=web*", true),
        ("client-id=db", false),
    ] {
        assert_eq!(may(&rule(id), Some(b"web1")), fits, "{id}");
        assert!(
            !may(&rule(id), None),
            "{id}: a client that has proved nothing"
        );
    }
    assert!(!may(&rule("client-id=*"), None));
    assert!(may(&rule("client-id=*"), Some(b"a:b@c")));
    assert_eq!(
        error(&rule("client-id=")),
        "line 1: client-id=\"\" is empty"
    );
    assert_eq!(
        error(&rule("client-id=a client-id=a")),
        "line 1: client-id= is given twice"
    );
    assert_eq!(
        error(&rule("id=a")),
        "line 1: \"id\" is not one of session, client, client-id, device and mode"
    );
}
