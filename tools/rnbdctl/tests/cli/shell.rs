// SPDX-License-Identifier: GPL-2.0

//! Completions and manual pages.

use std::fs;

use predicates::str::contains;
use predicates::Predicate;

use crate::fake::Fake;
use crate::fake::Said;

#[test]
fn shells_are_told_to_ask_the_program() {
    let fake = Fake::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = fake.ok(&["completions", shell]);
        assert!(contains("RNBDCTL_COMPLETE").eval(&text), "{shell}: {text}");
    }
    for shell in ["elvish", "powershell"] {
        assert_eq!(fake.run(&["completions", shell]).code, 2);
    }
}

/// The program's completions for the last of these words, as bash asks for them.
pub(crate) fn offered(fake: &Fake, words: &[&str]) -> Vec<String> {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_rnbdctl"));
    command
        .env_clear()
        .env("RNBDCTL_ROOT", fake.root())
        .env("RNBDCTL_COMPLETE", "bash")
        .env(
            "_CLAP_COMPLETE_INDEX",
            words.len().saturating_sub(1).to_string(),
        )
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true")
        .env("_CLAP_IFS", "\n")
        .arg("--")
        .args(words);
    let said = Said::of(&mut command);
    assert_eq!(said.code, 0, "{said:?}");
    said.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn completions_know_what_there_is() {
    let fake = Fake::typical();
    let has = |words: &[&str], wanted: &[&str]| {
        let offered = offered(&fake, words);
        for name in wanted {
            assert!(
                offered.iter().any(|have| have == name),
                "{words:?}: {offered:?}"
            );
        }
    };
    has(&["rnbdctl", "server", "f"], &["force-close"]);
    has(&["rnbdctl", "unmap", ""], &["rnbd0", "rnbd2", "rnbd10"]);
    has(&["rnbdctl", "unmap", "--all", "--session", ""], &["backup"]);
    has(&["rnbdctl", "path", "policy", "b"], &["backup"]);
    has(
        &["rnbdctl", "path", "policy", "backup", ""],
        &["round-robin"],
    );
    has(
        &["rnbdctl", "path", "reconnect", "10"],
        &["10.0.0.2", "10.0.1.2"],
    );
    has(&["rnbdctl", "server", "disconnect", ""], &["web"]);
    has(&["rnbdctl", "server", "force-close", ""], &["sda"]);
    has(&["rnbdctl", "show", ""], &["rnbd0", "backup", "sda", "web"]);
    assert!(!offered(&fake, &["rnbdctl", "--"]).contains(&"--sysfs".to_owned()));
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
        assert!(pages.contains(&format!("{name}.8")), "{name}: {pages:?}");
    }
    let hidden = |page: &String| page.contains("-man") || page.contains("help");
    assert!(!pages.iter().any(hidden), "{pages:?}");
    let page = fs::read_to_string(folder.join("rnbdctl.8")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
    let page = fs::read_to_string(folder.join("rnbdctl-device-set.8")).unwrap();
    let range = "(0, or 1000 to 86400000, default 0)";
    assert!(page.contains(range), "{page}");
    let page = fs::read_to_string(folder.join("rnbdctl-map.8")).unwrap();
    for part in [
        ".SH EXAMPLES",
        "storage1:nvme0n1",
        ".SH FILES",
        "rnbd.toml",
        ".SH SEE ALSO",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
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
