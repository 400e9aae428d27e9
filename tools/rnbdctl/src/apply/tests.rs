// SPDX-License-Identifier: GPL-2.0

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use proptest::prelude::*;

use super::model::Model;
use super::report;
use super::report::Changes;
use super::run::run;
use super::run::Event;
use super::run::Options;
use super::run::Patience;
use super::run::Summary;
use super::*;
use crate::config;
use crate::config::running;
use crate::config::Config;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::Policy;
use crate::Kind;

mod device_values;
mod new_sessions;

const TWO: &str = r#"
[[session]]
name = "storage"
paths = ["10.0.0.2", "10.0.1.2"]
policy = "round-robin"
hb_interval_ms = 1000
devices = ["a", { path = "b", access_mode = "ro" }]

[[session]]
name = "fast"
paths = ["10.0.2.2"]
nr_poll_queues = -1
devices = ["c"]
"#;

fn read(text: &str) -> Config {
    config::parse("test.toml", text, &|server, _| format!("here-{server}")).unwrap()
}

fn quick(patience: Patience, prune: bool) -> Options {
    Options {
        first_delay: Duration::from_millis(1),
        longest_delay: Duration::from_millis(2),
        ..Options::new(patience, prune)
    }
}

fn apply(model: &Arc<Model>, config: &Config, options: Options) -> Summary {
    let machine = Arc::clone(model);
    run(machine, config, options, |_| (), |_, _| ()).unwrap()
}

fn once(model: &Arc<Model>, config: &Config) -> Summary {
    apply(model, config, quick(Patience::Once, false))
}

fn plan(model: &Arc<Model>, config: &Config, prune: bool) -> Plan {
    Plan::new(config, &model.state().unwrap(), prune)
}

fn list(model: &Arc<Model>, config: &Config, prune: bool) -> String {
    report::list(&plan(model, config, prune), false)
}

fn failures(summary: &Summary) -> Vec<String> {
    let failed = summary
        .outcomes
        .iter()
        .filter(|outcome| outcome.result.is_err());
    let mut lines: Vec<_> = failed
        .map(|outcome| {
            let change = outcome
                .change
                .as_ref()
                .map_or(String::new(), ToString::to_string);
            let error = outcome.result.as_ref().unwrap_err();
            format!("{}: {change}: {}", outcome.session, error.why())
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn everything_is_made_and_then_there_is_nothing_to_do() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    assert_eq!(
        list(&model, &config, true),
        "\
storage: (a new session)
  ~ hb_interval_ms: 1000
  ~ hold_io_ms: 600000
  ~ policy: round-robin
  + path ip:10.0.0.2
  + path ip:10.0.1.2
  + device a (rw)
  + device b (ro)
fast: (a new session)
  ~ hold_io_ms: 600000
  + path ip:10.0.2.2
  + device c (rw)
10 changes to make
"
    );
    assert_eq!(model.writes(), [""; 0], "a plan changes nothing");
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), [""; 0]);
    assert_eq!(summary.outcomes.len(), 8);
    assert!(!model.writes().is_empty());

    assert_eq!(list(&model, &config, true), "nothing to do\n");
    let summary = once(&model, &config);
    assert!(summary.outcomes.is_empty());
    assert_eq!(
        model.writes(),
        [""; 0],
        "the second time nothing is written"
    );
}

#[test]
fn differences_are_told_and_made() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    model.with(|inner| {
        let client = &mut inner.state.client;
        let storage = client
            .sessions
            .iter_mut()
            .find(|have| have.name == "storage")
            .unwrap();
        storage.settings.0.insert("hb_interval_ms", 5000);
        storage.paths[0].state = PathState::Disconnected;
        client
            .devices
            .iter_mut()
            .find(|have| have.device_path == "b")
            .unwrap()
            .state = DeviceState::Closed;
    });
    model.writes();
    let changed = TWO
        .replace("round-robin", "min-latency")
        .replace("\"10.0.1.2\"", "\"10.0.3.2\"")
        .replace(
            "[\"a\"",
            "[\"d\", { path = \"a\", access_mode = \"migration\" }",
        )
        .replace("nr_poll_queues = -1", "nr_poll_queues = 2");
    let changed = read(&changed);
    let state = model.state().unwrap();
    let node = |path: &str| {
        let device = state
            .client
            .devices
            .iter()
            .find(|have| have.device_path == path);
        device.unwrap().path.clone()
    };
    assert_eq!(
        list(&model, &changed, true),
        format!(
            "\
storage:
  ~ device a: {} -> access_mode migration instead of rw
  ~ hb_interval_ms: 5000 -> 1000
  ~ policy: round-robin -> min-latency
  ~ path ip:192.168.7.7@ip:10.0.0.2: disconnected -> connected
  + path ip:10.0.3.2
  + device d (rw)
  ~ device b: closed -> open
  - path ip:192.168.7.7@ip:10.0.1.2
fast:
  ~ device c: {} -> nr_poll_queues 2 instead of 4
9 changes to make
",
            node("a"),
            node("c"),
        )
    );
    let summary = apply(&model, &changed, quick(Patience::Once, true));
    assert_eq!(failures(&summary), [""; 0]);
    assert_eq!(list(&model, &changed, true), "nothing to do\n");
}

#[test]
fn what_the_server_has_closed_is_left_alone() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    let node = model.with(|inner| {
        let mut devices = inner.state.client.devices.iter_mut();
        let device = devices.find(|have| have.device_path == "b").unwrap();
        device.state = DeviceState::Closed;
        device.closed_by_server = true;
        device.path.clone()
    });
    model.writes();
    let text = list(&model, &config, true);
    assert!(
        text.contains(&format!(
            "! device b ({node}) was closed by the server's administrator: left alone \
             (rnbdctl remap {node})\n"
        )),
        "{text}"
    );
    assert!(text.ends_with("nothing to do\n"), "{text}");
    let summary = once(&model, &config);
    assert_eq!((model.writes().len(), summary.outcomes.len()), (0, 0));
}

#[test]
fn what_the_file_does_not_have_goes_only_with_prune() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    model.writes();
    let less = read("[[session]]\nname = \"storage\"\npaths = [\"10.0.0.2\"]\ndevices = [\"a\"]\n");
    let summary = once(&model, &less);
    assert_eq!((model.writes().len(), summary.outcomes.len()), (0, 0));
    let text = list(&model, &less, false);
    assert!(
        text.contains("! path ip:192.168.7.7@ip:10.0.1.2 is not in the file: left alone\n"),
        "{text}"
    );
    assert!(text.ends_with("nothing to do\n"), "{text}");

    let summary = apply(&model, &less, quick(Patience::Once, true));
    assert_eq!(failures(&summary), [""; 0]);
    let client = model.state().unwrap().client;
    let devices: Vec<_> = client
        .devices
        .iter()
        .map(|device| device.device_path.as_str())
        .collect();
    let sessions: Vec<_> = client
        .sessions
        .iter()
        .map(|session| (session.name.as_str(), session.paths.len()))
        .collect();
    assert_eq!((devices, sessions), (vec!["a"], vec![("storage", 1)]));
    assert_eq!(list(&model, &less, true), "nothing to do\n");
}

#[test]
fn a_device_in_use_is_not_unmapped() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    let busy: Vec<_> = model
        .state()
        .unwrap()
        .client
        .devices
        .iter()
        .map(|device| device.name.clone())
        .collect();
    model.with(|inner| inner.busy.extend(busy));
    let summary = apply(&model, &Config::default(), quick(Patience::Once, true));
    assert_eq!(failures(&summary).len(), 3);
    assert_eq!(summary.first_failure().unwrap().kind(), Kind::Busy);
    assert_eq!(model.state().unwrap().client.devices.len(), 3);
}

#[test]
fn the_last_connected_path_stays() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    model.with(|inner| inner.down.insert("ip:10.9.9.9".into()));
    let moved = read(&TWO.replace("\"10.0.2.2\"", "\"10.9.9.9\""));
    let summary = apply(&model, &moved, quick(Patience::Once, true));
    assert_eq!(
        failures(&summary),
        [
            "fast: path ip:10.9.9.9: the server does not respond",
            "fast: path ip:192.168.7.7@ip:10.0.2.2: no other path of the session is connected",
        ]
    );
}

#[test]
fn one_failure_does_not_keep_the_rest_away() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| {
        inner.down.insert("ip:10.0.0.2".into());
        inner.down.insert("ip:10.0.2.2".into());
        inner.missing.insert("a".into());
    });
    let summary = once(&model, &config);
    assert_eq!(
        failures(&summary),
        [
            "fast: device c (rw): no path of the session can be connected",
            "fast: path ip:10.0.2.2: the server does not respond",
            "storage: device a (rw): no such disk",
            "storage: path ip:10.0.0.2: the server does not respond",
        ]
    );
    let client = model.state().unwrap().client;
    assert_eq!(client.devices.len(), 1);
    assert_eq!(
        (client.sessions.len(), client.sessions[0].paths.len()),
        (1, 1)
    );
    let json = serde_json::to_value(Changes::made(&summary)).unwrap();
    let results: Vec<_> = json["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| &change["result"])
        .collect();
    assert_eq!(
        results.iter().filter(|result| **result == "failed").count(),
        4
    );
    assert_eq!(
        results.iter().filter(|result| **result == "done").count(),
        4
    );
}

/// EIO and ENOMEDIUM of a server's disk are `Failed`, its EINVAL is `Usage`.
#[test]
fn a_bad_disk_does_not_keep_its_session_away() {
    for kind in [Kind::Failed, Kind::Usage] {
        let (model, config) = (Arc::new(Model::new()), read(TWO));
        model.with(|inner| inner.refused.insert("a".into(), kind));
        let summary = once(&model, &config);
        assert_eq!(failures(&summary), ["storage: device a (rw): refused"]);
        let client = model.state().unwrap().client;
        let has = |path: &str| client.devices.iter().any(|have| have.device_path == path);
        assert!(has("b") && has("c"), "{client:?}");
        assert_eq!(list(&model, &config, false).lines().count(), 3);
    }
}

#[test]
fn a_path_that_fails_for_no_clear_reason_does_not_keep_the_devices_away() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.refused.insert("ip:10.0.0.2".into(), Kind::Usage));
    let summary = once(&model, &config);
    assert_eq!(failures(&summary), ["storage: path ip:10.0.0.2: refused"]);
    assert_eq!(model.state().unwrap().client.devices.len(), 3);
}

#[test]
fn a_disk_that_is_mapped_in_another_way_and_goes_bad_is_told_as_such() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    let other = TWO
        .replace("nr_poll_queues = -1", "nr_poll_queues = 2")
        .replace("\"10.0.2.2\"", "\"10.0.2.2\", \"10.0.3.2\"");
    model.with(|inner| {
        inner.refused.insert("c".into(), Kind::Failed);
        inner.down.insert("ip:10.0.3.2".into());
    });
    let summary = once(&model, &read(&other));
    let failed = failures(&summary);
    assert!(
        failed
            .iter()
            .any(|line| line.ends_with("instead of 4: refused")),
        "{failed:?}"
    );
}

#[test]
fn what_the_module_does_not_have_is_told() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.is_c = true);
    let summary = once(&model, &config);
    let remark = (
        "storage".to_owned(),
        "hb_interval_ms: the loaded modules lack this tunable".to_owned(),
    );
    assert_eq!(
        (failures(&summary), summary.remarks),
        (vec![], vec![remark])
    );
    let summary = once(&model, &config);
    assert!(summary.outcomes.is_empty());
}

#[test]
fn waiting_ends_when_everything_is_there() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| {
        inner.down.insert("ip:10.0.0.2".into());
        inner.down.insert("ip:10.0.1.2".into());
        inner.patience.insert("c".into(), 3);
    });
    let mut waits = 0;
    let machine = Arc::clone(&model);
    let server = Arc::clone(&model);
    let summary = run(
        machine,
        &config,
        quick(Patience::Forever, false),
        |_| (),
        |session, event| {
            if let (Event::Waiting(..), "storage") = (event, session) {
                waits += 1;
                if waits == 2 {
                    server.with(|inner| inner.down.clear());
                }
            }
        },
    );
    assert_eq!(failures(&summary.unwrap()), [""; 0]);
    assert!(waits >= 2);
    assert_eq!(model.state().unwrap().client.devices.len(), 3);
}

#[test]
fn waiting_ends_when_its_time_is_over() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.missing.insert("c".into()));
    let summary = apply(
        &model,
        &config,
        quick(Patience::For(Duration::from_millis(20)), false),
    );
    assert_eq!(failures(&summary), ["fast: device c (rw): no such disk"]);
}

#[test]
fn a_signal_ends_the_waiting() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    model.with(|inner| inner.missing.insert("c".into()));
    let mut interrupt = None;
    let (machine, slow) = (Arc::clone(&model), Options::new(Patience::Forever, false));
    let mut signalled = false;
    let keep = std::cell::RefCell::new(&mut interrupt);
    let summary = run(
        machine,
        &config,
        slow,
        |given| **keep.borrow_mut() = Some(given),
        |_, event| {
            if let (Event::Waiting(..), false) = (event, signalled) {
                signalled = true;
                keep.borrow().as_ref().unwrap().send(15);
            }
        },
    );
    let summary = summary.unwrap();
    assert_eq!(summary.signal, Some(15));
    assert_eq!(failures(&summary), ["fast: device c (rw): no such disk"]);
}

#[test]
fn what_is_saved_is_what_there_is() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    let client = model.state().unwrap().client;
    let saved = read(&running::file_text(&client));
    assert_eq!(list(&model, &saved, true), "nothing to do\n");
    let other = Arc::new(Model::new());
    once(&other, &saved);
    assert_eq!(list(&other, &saved, true), "nothing to do\n");
    assert_eq!(list(&other, &config, true), "nothing to do\n");
}

/// Configurations that share names, addresses and disks, so that they conflict.
fn any_config() -> impl Strategy<Value = Config> {
    let path = (0u8..3, prop::option::of(0u8..2));
    let io_timeout = prop::option::of(prop_oneof![Just(0), 1000..1003]);
    let device = (io_timeout, 0usize..3);
    let session = (
        prop::collection::btree_map(0u8..4, path, 1..4),
        prop::collection::btree_map("[a-d]", device, 1..4),
        prop::option::of(prop::sample::select(Policy::value_variants())),
        prop::option::of(10i32..20),
        prop::option::of(-1i32..3),
    );
    prop::collection::btree_map("[st]", session, 0..3).prop_map(|sessions| {
        let mut text = String::new();
        for (name, (paths, devices, policy, interval, polls)) in sessions {
            let paths: Vec<_> = paths
                .into_iter()
                .map(|(net, (host, src))| match src {
                    None => format!("\"10.0.{net}.{host}\""),
                    Some(src) => format!("\"10.1.{net}.{src}@10.0.{net}.{host}\""),
                })
                .collect();
            let only_one = polls.is_some_and(|nr| nr != 0);
            let devices: Vec<_> = devices
                .into_iter()
                .take(if only_one { 1 } else { 4 })
                .map(|(path, (io_timeout, mode))| {
                    let mode = ["ro", "rw", "migration"][mode];
                    let more =
                        io_timeout.map_or(String::new(), |ms| format!(", io_timeout_ms = {ms}"));
                    format!("{{ path = \"{path}\", access_mode = \"{mode}\"{more} }}")
                })
                .collect();
            text += &format!(
                "[[session]]\nname = \"{name}\"\npaths = [{}]\ndevices = [{}]\n",
                paths.join(", "),
                devices.join(", ")
            );
            if let Some(policy) = policy {
                text += &format!("policy = \"{}\"\n", policy.as_str());
            }
            if let Some(value) = interval {
                text += &format!("hb_interval_ms = {value}\n");
            }
            if let Some(value) = polls {
                text += &format!("nr_poll_queues = {value}\n");
            }
        }
        read(&text)
    })
}

#[test]
fn the_last_device_of_a_session_is_mapped_in_another_way() {
    let (model, config) = (Arc::new(Model::new()), read(TWO));
    once(&model, &config);
    let text = TWO.replace(
        "devices = [\"c\"]",
        "hold_io_ms = 5000\ndevices = [{ path = \"c\", access_mode = \"ro\" }]",
    );
    let changed = read(&text.replace("\"10.0.2.2\"", "\"10.0.4.2\", \"10.0.2.2\", \"10.0.3.2\""));
    model.with(|inner| inner.down.insert("ip:10.0.4.2".into()));
    let summary = once(&model, &changed);
    assert_eq!(
        failures(&summary),
        ["fast: path ip:10.0.4.2: the server does not respond"]
    );
    model.with(|inner| inner.down.clear());
    once(&model, &changed);
    assert_eq!(list(&model, &changed, true), "nothing to do\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn after_applying_there_is_no_difference(
        before in any_config(),
        config in any_config(),
        prune in any::<bool>(),
        c in any::<bool>(),
    ) {
        let model = Arc::new(Model::new());
        model.with(|inner| inner.is_c = c);
        once(&model, &before);
        let devices = model.state().unwrap().client.devices;
        let summary = apply(&model, &config, quick(Patience::Once, prune));
        // A session with polling queues takes no second device; changes that cannot be made are
        // reported.
        if failures(&summary).is_empty() {
            let left = plan(&model, &config, prune);
            prop_assert!(left.is_empty(), "{}", report::list(&left, false));
            model.writes();
            let again = apply(&model, &config, quick(Patience::Once, prune));
            prop_assert!(again.outcomes.is_empty());
            prop_assert_eq!(model.writes(), Vec::<String>::new());
        }
        if !prune {
            let after = model.state().unwrap().client.devices;
            for device in devices {
                let stays = after.iter().any(|have| {
                    have.session == device.session && have.device_path == device.device_path
                });
                prop_assert!(stays, "{} has gone", device.device_path);
            }
        }
    }

    #[test]
    fn a_plan_is_what_is_done(config in any_config()) {
        let model = Arc::new(Model::new());
        let plan = plan(&model, &config, false);
        let summary = once(&model, &config);
        prop_assert_eq!(failures(&summary), Vec::<String>::new());
        // A new session may have some of the planned values by default.
        prop_assert!(summary.outcomes.len() <= plan.len());
    }
}
