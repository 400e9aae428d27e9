// SPDX-License-Identifier: GPL-2.0

//! The seeds of the fuzz targets, as an ordinary test.

use std::{
    env,
    fs,
    path::PathBuf, //
};

#[path = "../fuzz/checks.rs"]
mod checks;

/// The folder of the fuzz targets. The test looks it up when it runs, since cargo may have compiled
/// the test in another checkout.
fn fuzz() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("fuzz")
}

#[test]
fn every_seed_passes() {
    let corpus = fuzz().join("corpus");
    for (name, check) in checks::ALL {
        let dir = corpus.join(name);
        let mut seeds = 0;
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(&path).unwrap());
            seeds += 1;
        }
        assert!(seeds > 0, "{} has no seeds", dir.display());
    }
}

#[test]
fn every_check_is_a_fuzz_target() {
    let fuzz = fuzz();
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, _) in checks::ALL {
        let line = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&line), "{name}");
        assert!(fuzz.join(format!("fuzz_targets/{name}.rs")).exists());
    }
}
