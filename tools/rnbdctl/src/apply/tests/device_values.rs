// SPDX-License-Identifier: GPL-2.0

//! Numbers of devices: the time limit of requests.

use super::*;
use crate::model::ClientDevice;

const LIMITED: &str = r#"
[[session]]
name = "storage"
paths = ["10.0.0.2"]
devices = [{ path = "a", io_timeout_ms = 30000 }, "b", { path = "c", io_timeout_ms = 0 }]
"#;

fn device(model: &Arc<Model>, path: &str) -> ClientDevice {
    let devices = model.state().unwrap().client.devices;
    let device = devices.into_iter().find(|have| have.device_path == path);
    device.unwrap_or_else(|| panic!("{path} is not mapped"))
}

fn set_by_hand(model: &Arc<Model>, path: &str, ms: i32) {
    model.with(|inner| {
        let mut devices = inner.state.client.devices.iter_mut();
        let device = devices.find(|have| have.device_path == path).unwrap();
        device.io_timeout_ms = Some(ms);
    });
}

#[test]
fn they_are_set_after_the_map() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    assert_eq!(
        list(&model, &config, true),
        "\
storage: (a new session)
  ~ hold_io_ms: 600000
  + path ip:10.0.0.2
  + device a (rw)
  + device b (rw)
  + device c (rw)
  ~ io_timeout_ms a: 30000
  ~ io_timeout_ms c: 0
7 changes to make
"
    );
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), [""; 0]);
    let values = ["a", "b", "c"].map(|path| device(&model, path).io_timeout_ms);
    assert_eq!(values, [Some(30_000), Some(0), Some(0)]);
    let name = device(&model, "a").name;
    let set = format!("set io_timeout_ms of {name} to 30000");
    let writes = model.writes();
    let sets: Vec<_> = writes.iter().filter(|have| have.contains("set")).collect();
    assert_eq!(sets, [&set], "c begins with 0");
    assert_eq!(list(&model, &config, true), "nothing to do\n");

    // The time that requests wait is such a number, too.
    let held = read(&LIMITED.replace("\"b\"", "{ path = \"b\", hold_io_ms = 0 }"));
    assert_eq!(
        list(&model, &held, true),
        "storage:\n  ~ hold_io_ms b: -1 -> 0\n1 change to make\n"
    );
    once(&model, &held);
    assert_eq!(device(&model, "b").hold_io_ms, Some(0));
    assert_eq!(list(&model, &held, true), "nothing to do\n");

    // A further device of an existing session.
    let more = read(&LIMITED.replace("\"b\"", "\"b\", { path = \"d\", io_timeout_ms = 5000 }"));
    assert_eq!(
        list(&model, &more, true),
        "storage:\n  + device d (rw)\n  ~ io_timeout_ms d: 5000\n2 changes to make\n"
    );
    let summary = once(&model, &more);
    assert_eq!((failures(&summary), summary.outcomes.len()), (vec![], 2));
    assert_eq!(device(&model, "d").io_timeout_ms, Some(5000));
}

#[test]
fn a_difference_is_made_in_place() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    model.writes();
    for (path, ms) in [("a", 1000), ("c", 2000)] {
        set_by_hand(&model, path, ms);
    }
    assert_eq!(
        list(&model, &config, true),
        "storage:\n  ~ io_timeout_ms a: 1000 -> 30000\n  ~ io_timeout_ms c: 2000 -> 0\n\
         2 changes to make\n"
    );
    let names = ["a", "c"].map(|path| device(&model, path).name);
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), [""; 0]);
    assert_eq!(
        model.writes(),
        [
            format!("set io_timeout_ms of {} to 30000", names[0]),
            format!("set io_timeout_ms of {} to 0", names[1]),
        ],
        "nothing is mapped again"
    );
    let json = serde_json::to_value(Changes::made(&summary)).unwrap();
    let change = &json["changes"][0];
    let fields = ["operation", "kind", "name", "from", "to", "result"];
    let fields = fields.map(|field| change[field].as_str().unwrap());
    assert_eq!(
        fields,
        ["change", "io_timeout_ms", "a", "1000", "30000", "done"]
    );
    assert_eq!(list(&model, &config, true), "nothing to do\n");
}

#[test]
fn what_the_file_does_not_name_is_left_as_it_is() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    set_by_hand(&model, "b", 7000);
    model.writes();
    assert_eq!(list(&model, &config, true), "nothing to do\n");
    once(
        &model,
        &read(&LIMITED.replace(", io_timeout_ms = 30000", "")),
    );
    assert_eq!(model.writes(), [""; 0]);
    let values = ["a", "b"].map(|path| device(&model, path).io_timeout_ms);
    assert_eq!(values, [Some(30_000), Some(7000)]);
}

#[test]
fn a_device_that_is_mapped_again_gets_it_again() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    let other = read(&LIMITED.replace("\"a\"", "\"a\", access_mode = \"ro\""));
    let summary = once(&model, &other);
    assert_eq!(failures(&summary), [""; 0]);
    assert_eq!(device(&model, "a").io_timeout_ms, Some(30_000));
    assert_eq!(list(&model, &other, true), "nothing to do\n");
}

#[test]
fn a_device_in_use_gets_it_though_it_cannot_be_mapped_again() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    let name = device(&model, "a").name;
    model.with(|inner| inner.busy.insert(name));
    let text = LIMITED.replace("\"a\"", "\"a\", access_mode = \"ro\"");
    let summary = once(&model, &read(&text.replace("30000", "40000")));
    assert_eq!(failures(&summary).len(), 1);
    assert_eq!(summary.first_failure().unwrap().kind(), Kind::Busy);
    assert_eq!(device(&model, "a").io_timeout_ms, Some(40_000));
}

#[test]
fn a_module_that_does_not_have_it_is_told_of() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    model.with(|inner| inner.is_c = true);
    // First with a first and a further device of a session, then when nothing else is to do.
    for _ in 0..2 {
        let summary = once(&model, &config);
        assert_eq!(failures(&summary), [""; 0]);
        let remarks = ["a", "c"].map(|path| {
            let node = device(&model, path).path;
            let text = "the loaded modules lack this tunable";
            let remark = format!("io_timeout_ms of device {path} ({node}): {text}");
            ("storage".to_owned(), remark)
        });
        assert_eq!(summary.remarks, remarks);
        let writes = model.writes();
        assert!(
            !writes.iter().any(|have| have.contains("set")),
            "{writes:?}"
        );
    }
    let text = list(&model, &config, true);
    assert!(
        text.contains("  ! io_timeout_ms of device a (/dev/"),
        "{text}"
    );
    assert!(text.ends_with("nothing to do\n"), "{text}");
}

#[test]
fn a_failure_is_told_and_keeps_nothing_away() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    for (path, ms) in [("a", 1000), ("c", 2000)] {
        set_by_hand(&model, path, ms);
    }
    let name = device(&model, "a").name;
    model.with(|inner| inner.refused.insert(name, Kind::Busy));
    let summary = once(&model, &config);
    assert_eq!(
        failures(&summary),
        ["storage: io_timeout_ms a: 1000 -> 30000: refused"]
    );
    assert_eq!(device(&model, "c").io_timeout_ms, Some(0));
}

#[test]
fn a_device_that_cannot_be_mapped_is_one_failure() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    model.with(|inner| inner.missing.insert("a".into()));
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), ["storage: device a (rw): no such disk"]);
}

#[test]
fn what_is_saved_has_those_that_are_not_the_default() {
    let (model, config) = (Arc::new(Model::new()), read(LIMITED));
    once(&model, &config);
    let text = running::file_text(&model.state().unwrap().client);
    let line = "    { path = \"a\", io_timeout_ms = 30000 },\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(text.matches("io_timeout_ms").count(), 1, "{text}");
    let other = Arc::new(Model::new());
    once(&other, &read(&text));
    assert_eq!(list(&other, &config, true), "nothing to do\n");
}
