// SPDX-License-Identifier: GPL-2.0

//! The tests of this crate, in a single program.
//!
//! A program for each file would compile the library's generic code, and that of the test
//! libraries, into each of them.

mod addr;
mod admission;
mod auth_keys;
#[path = "../fuzz/checks.rs"]
mod checks;
mod corpus;
mod device_number;
mod device_state;
mod discovery;
mod disk_id;
mod disk_limits;
mod drain;
mod export_policy;
mod fabric;
mod fence;
mod file_disk;
mod group;
mod handshake;
mod identity;
mod imm;
mod latency;
mod map_options;
mod news;
mod number;
mod paths_and_names;
mod policy;
mod properties;
mod request;
mod resent;
mod reservation;
mod reservation_messages;
mod reservation_state;
mod rnbd;
mod rtrs_messages;
mod settings;
mod states;

/// A file that is no module would never be compiled, and nothing would say so.
#[test]
fn every_file_of_tests_is_a_module() {
    let folder = std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder.join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name != "main" && !include_str!("main.rs").contains(&format!("\nmod {name};\n")) {
            missing.push(name.to_owned());
        }
    }
    assert!(
        missing.is_empty(),
        "tests/main.rs lacks the modules {missing:?}"
    );
}
