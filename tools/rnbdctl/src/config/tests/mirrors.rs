// SPDX-License-Identifier: GPL-2.0

//! Mirrors of the file.

use super::*;

const TWO: &str = "[[session]]\nname = \"a\"\npaths = [\"10.0.0.2\"]\ndevices = [\"d\"]\n\
                   [[session]]\nname = \"b\"\npaths = [\"10.0.0.3\"]\ndevices = [\"d\", \"e\"]\n";

#[test]
fn a_mirror_makes_legs_of_devices() {
    let text = format!(
        "{TWO}[[mirror]]\nname = \"db\"\n\
         legs = [\"d@a\", {{ disk = \"d@b\", write_mostly = true }}]\n"
    );
    let config = parse("f", &text).unwrap();
    let mirror = &config.mirrors[0];
    assert_eq!((mirror.name.as_str(), mirror.reserve), ("db", true));
    let legs: Vec<_> = (mirror.legs.iter())
        .map(|leg| (leg.name.to_string(), leg.write_mostly, leg.failfast))
        .collect();
    assert_eq!(
        legs,
        [
            ("d@a".to_owned(), false, true),
            ("d@b".to_owned(), true, true)
        ]
    );
    let holds: Vec<_> = (config.sessions.iter().flat_map(|session| &session.devices))
        .map(|device| device.hold_io_ms)
        .collect();
    assert_eq!(holds, [Some(0), Some(0), None]);
    let attempts = |session: &Session| session.settings.get("max_reconnect_attempts").copied();
    assert_eq!(
        config.sessions.iter().map(attempts).collect::<Vec<_>>(),
        [Some(-1); 2]
    );
    assert_eq!(parse("f", &to_toml(&config)), Ok(config));
}

#[test]
fn mistakes_of_mirrors_are_told() {
    for (mirror, part) in [
        ("name = \"db\"", "mirror \"db\": legs: is missing"),
        ("legs = [\"d@a\", \"d@b\"]", "mirror: name: is missing"),
        (
            "name = \"0\"\nlegs = [\"d@a\", \"d@b\"]",
            "no name of a mirror",
        ),
        ("name = \"db\"\nlegs = [\"d@a\"]", "at least two legs"),
        ("name = \"db\"\nlegs = [\"d@a\", \"d@a\"]", "given twice"),
        ("name = \"db\"\nlegs = [\"d@a\", \"d\"]", "not DISK@SESSION"),
        ("name = \"db\"\nlegs = [\"d@a\", 5]", "not a number"),
        (
            "name = \"db\"\nlegs = [\"d@a\", \"x@b\"]",
            "has no device \"x\"",
        ),
        (
            "name = \"db\"\nlegs = [\"d@a\", \"d@c\"]",
            "no session of this file is called \"c\"",
        ),
        ("name = \"db\"\nlegs = [\"d@a\", {}]", "a leg needs a disk"),
        (
            "name = \"db\"\nreserve = 1\nlegs = [\"d@a\", \"d@b\"]",
            "mirror \"db\": reserve: must be true or false",
        ),
        (
            "name = \"db\"\nleg = []\nlegs = [\"d@a\", \"d@b\"]",
            "mirror \"db\": leg: unknown key (did you mean legs?)",
        ),
        (
            "name = \"x\"\nlegs = [\"d@a\", \"e@b\"]\n\
             [[mirror]]\nname = \"y\"\nlegs = [\"d@a\", \"d@b\"]",
            "is a leg of mirror \"x\" already",
        ),
        (
            "name = \"x\"\nlegs = [\"d@a\", \"e@b\"]\n\
             [[mirror]]\nname = \"x\"\nlegs = [\"d@b\", \"d@b\"]",
            "13:8: mirror \"x\": name: there is a mirror of this name already",
        ),
    ] {
        let text = format!("{TWO}[[mirror]]\n{mirror}\n");
        let error = parse("f", &text).unwrap_err().to_string();
        assert!(error.contains(part), "{mirror}: {error}");
    }
    let held = TWO.replace("[\"d\"]", "[{ path = \"d\", hold_io_ms = 5 }]");
    let text = format!("{held}[[mirror]]\nname = \"db\"\nlegs = [\"d@a\", \"d@b\"]\n");
    let error = parse("f", &text).unwrap_err().to_string();
    assert!(error.contains("leave hold_io_ms out"), "{error}");
    let text = format!("{TWO}[mirror]\nname = \"db\"\n");
    let error = parse("f", &text).unwrap_err().to_string();
    assert!(error.contains("write [[mirror]], not [mirror]"), "{error}");
}
