// SPDX-License-Identifier: GPL-2.0

//! Completions and manual pages.

use std::fs;

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use predicates::Predicate;

use crate::fake::Fake;

#[test]
fn completions_know_the_subcommands() {
    let fake = Fake::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = fake.ok(&["completions", shell]);
        let known = contains("force-close")
            .and(contains("reconnect"))
            .and(contains("--sysfs").not());
        assert!(known.eval(&text), "{shell}: {text}");
    }
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let fake = Fake::new();
    let folder = fake.path("man");
    fake.ok(&["man", folder.to_str().unwrap()]);
    let pages: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in [
        "rnbdctl",
        "rnbdctl-map",
        "rnbdctl-device-set",
        "rnbdctl-path-add",
        "rnbdctl-server-force-close",
    ] {
        assert!(pages.contains(&format!("{name}.1")), "{name}: {pages:?}");
    }
    let hidden = |page: &String| page.contains("-man") || page.contains("help");
    assert!(!pages.iter().any(hidden), "{pages:?}");
    let page = fs::read_to_string(folder.join("rnbdctl.1")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
    let page = fs::read_to_string(folder.join("rnbdctl-device-set.1")).unwrap();
    let range = "(0, or 1000 to 86400000, default 0)";
    assert!(page.contains(range), "{page}");
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let fake = Fake::typical();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_rnbdctl"))
        .env_clear()
        .env("RNBDCTL_ROOT", fake.root())
        .arg("list")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
