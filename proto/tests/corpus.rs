// SPDX-License-Identifier: GPL-2.0

//! The seeds of the fuzz targets, as an ordinary test.

use std::{
    env,
    fs,
    path::PathBuf,
    process, //
};

use crate::checks;

// The test has no use for its `main()`.
#[allow(dead_code)]
#[path = "../fuzz/make_seeds.rs"]
mod make_seeds;

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
fn seeds_of_the_generator_are_committed() {
    let made = env::temp_dir().join(format!("rnbd-seeds-{}", process::id()));
    make_seeds::write(&made).unwrap();
    let mut wrong = Vec::new();
    for target in fs::read_dir(&made).unwrap() {
        for seed in fs::read_dir(target.unwrap().path()).unwrap() {
            let seed = seed.unwrap().path();
            let name = seed.strip_prefix(&made).unwrap();
            let committed = fs::read(fuzz().join("corpus").join(name)).ok();
            if committed != fs::read(&seed).ok() {
                wrong.push(name.display().to_string());
            }
        }
    }
    fs::remove_dir_all(&made).unwrap();
    assert!(
        wrong.is_empty(),
        "not as in fuzz/corpus, run `cargo run --example make_seeds` in proto/: {wrong:?}"
    );
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
