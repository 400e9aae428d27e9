// SPDX-License-Identifier: GPL-2.0

//! configuration.md and the manual page have all keys, and examples that are right.

use super::*;

const DOCUMENT: &str = include_str!("../../../../../Documentation/configuration.md");

#[test]
fn the_examples_of_the_document_are_right() {
    let mut count = 0;
    for block in DOCUMENT.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let config =
            parse("configuration.md", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert!(config.device_count() > 0);
        count += 1;
    }
    assert!(count >= 2);
}

/// The cells of the row of a key.
fn row(key: &str) -> Vec<&'static str> {
    let head = format!("| `{key}` |");
    let line = DOCUMENT.lines().find(|line| line.starts_with(&head));
    let line = line.unwrap_or_else(|| panic!("{key} is not in configuration.md"));
    line.split('|').map(str::trim).collect()
}

/// The keys of sessions, devices and mirrors.
fn every_key() -> Vec<&'static str> {
    let keys = keys::session().into_iter().chain(keys::DEVICE);
    keys.chain(keys::MIRROR).collect()
}

#[test]
fn the_document_has_every_key() {
    for key in every_key() {
        row(key);
    }
    for setting in Settings::ALL.into_iter().chain([IO_TIMEOUT]) {
        let row = row(setting.name);
        assert_eq!(row[4], range(&setting), "{}", setting.name);
        let default = match setting.name {
            "hold_io_ms" => DEFAULT_HOLD_MS.to_string(),
            _ => format!("left as it is ({})", setting.default),
        };
        assert_eq!(row[5], default, "{}", setting.name);
        assert_eq!(
            row[3] == "ms",
            setting.name.ends_with("_ms"),
            "{}",
            setting.name
        );
    }
    let all = every_key();
    for line in DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")) {
        let key = line.split('`').next().unwrap();
        assert!(all.contains(&key), "there is no key {key}");
    }
}

/// The manual page has all keys, and its example is valid.
#[test]
fn the_manual_page_has_every_key() {
    let page = include_str!("../../../../../packaging/man/rnbd.toml.5");
    for key in every_key() {
        let is_named = page
            .lines()
            .any(|line| line.starts_with(".B") && line.split([' ', ',']).any(|word| word == key));
        assert!(is_named, "{key} is not in rnbd.toml(5)");
    }
    let example = page
        .split(".nf\n")
        .nth(1)
        .and_then(|rest| rest.split(".fi\n").next());
    let config = parse("rnbd.toml.5", example.unwrap()).unwrap();
    assert_eq!((config.device_count(), config.mirrors.len()), (5, 1));
}
