// SPDX-License-Identifier: GPL-2.0

//! Values of sessions that the file does not name, and host names.

use std::sync::Arc;

use super::failures;
use super::list;
use super::once;
use super::read;
use super::Machine;
use super::Model;
use super::TWO;
use crate::Kind;

#[test]
fn requests_wait_unless_the_file_says_otherwise() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.hold_io_ms = 0);
    once(&model, &config);
    let held = |model: &Model| -> Vec<_> {
        let client = model.state().unwrap().client;
        let sessions = client.sessions.iter();
        sessions
            .map(|have| have.settings.get("hold_io_ms"))
            .collect()
    };
    assert_eq!(held(&model), [Some(600_000); 2]);
    assert_eq!(list(&model, &config, true), "nothing to do\n");
    let fails_at_once = TWO.replace("policy = ", "hold_io_ms = 0\npolicy = ");
    let config = read(&fails_at_once);
    assert_eq!(
        list(&model, &config, false),
        "storage:\n  ~ hold_io_ms: 600000 -> 0\n1 change to make\n"
    );
    once(&model, &config);
    let mut now = held(&model);
    now.sort_unstable();
    assert_eq!(now, [Some(0), Some(600_000)]);
    // The C module's requests fail at once, and nothing can be done about that.
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.is_c = true);
    once(&model, &config);
    assert!(!list(&model, &config, true).contains("hold_io_ms"));
}

#[test]
fn names_are_looked_up_whenever_it_is_tried() {
    let model = Arc::new(Model::new());
    let config = read("[[session]]\npaths = [\"storage1\"]\ndevices = [\"a\"]\n");
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), ["here-storage1: : no such name"]);
    let path = |text: &str| crate::address::parse_path(text).unwrap();
    model.with(|inner| {
        let paths = ["10.0.0.2", "10.0.1.2", "10.0.2.2"].map(path).to_vec();
        inner.names.insert("storage1".into(), paths);
        inner.down.insert("ip:10.0.0.2".into());
        // This address is another server's.
        inner
            .refused
            .insert("ip:10.0.2.2".into(), Kind::Unreachable);
    });
    let summary = once(&model, &config);
    let client = model.state().unwrap().client;
    assert_eq!(client.devices.len(), 1);
    let paths = &client.sessions[0].paths;
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert!(paths[0].name.ends_with("@ip:10.0.1.2"), "{paths:?}");
    assert!(
        summary
            .remarks
            .iter()
            .any(|(_, text)| text.starts_with("path ip:10.0.2.2: left out")),
        "{:?}",
        summary.remarks
    );
    assert_eq!(summary.first_failure(), None, "{:?}", failures(&summary));
}
