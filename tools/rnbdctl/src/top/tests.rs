// SPDX-License-Identifier: GPL-2.0

use std::time::Duration;

use crossterm::event::KeyCode;
use crossterm::event::KeyEvent;
use crossterm::event::KeyModifiers;
use ratatui::backend::TestBackend;
use ratatui::Terminal;

use super::app::App;
use super::app::Reaction;
use super::app::Sort;
use super::app::View;
use super::view::draw;
use crate::live::history::Key;
use crate::live::rates::Flow;
use crate::live::DeviceRates;
use crate::live::PathRates;
use crate::live::Rates;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::Side;

fn device(name: &str, state: DeviceState, iops: Option<f64>) -> DeviceRates {
    DeviceRates {
        name: name.into(),
        session: "storage".into(),
        device_path: format!("/dev/vg/{name}"),
        state,
        flow: Flow {
            read_iops: iops,
            write_iops: iops.map(|iops| iops / 2.0),
            read_bytes_per_s: iops.map(|iops| iops * 4096.0),
            write_bytes_per_s: iops.map(|iops| iops * 2048.0),
        },
        read_ms: iops.map(|iops| 100.0 / iops),
        write_ms: None,
        inflight: 3,
        busy: iops.map(|_| 0.5),
    }
}

fn path(number: u8, state: PathState) -> PathRates {
    PathRates {
        name: format!("ip:10.0.{number}.1@ip:10.0.{number}.2"),
        session: "storage".into(),
        side: Side::Client,
        state,
        flow: Flow {
            read_iops: Some(f64::from(number)),
            write_iops: Some(0.0),
            read_bytes_per_s: Some(f64::from(number) * 4096.0),
            write_bytes_per_s: Some(0.0),
        },
        inflight: Some(number.into()),
        latency_ns: Some(12_345),
        reconnects: Some(2),
        failed_reconnects: Some(7),
        failovers: Some(1),
    }
}

fn rates() -> Rates {
    Rates {
        seconds: 1.0,
        devices: vec![
            device("rnbd10", DeviceState::Open, Some(20_000.0)),
            device("rnbd2", DeviceState::Closed, None),
            device("rnbd0", DeviceState::Open, Some(50.0)),
        ],
        paths: vec![
            path(1, PathState::Connected),
            path(2, PathState::Disconnected),
        ],
    }
}

fn app() -> App {
    let mut app = App::new(Duration::from_secs(1));
    for factor in [1.0, 4.0, 2.0] {
        let mut rates = rates();
        for device in &mut rates.devices {
            device.flow.read_iops = device.flow.read_iops.map(|iops| iops * factor);
        }
        app.update(rates);
    }
    app
}

fn press(app: &mut App, key: KeyCode) -> Reaction {
    app.key(KeyEvent::new(key, KeyModifiers::NONE))
}

/// The lines of the screen, without white space at their ends.
fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let lines = cells
        .chunks(width.into())
        .map(|line| line.concat().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn devices_and_paths() {
    insta::assert_snapshot!(screen(&app(), 130, 24));
}

#[test]
fn a_narrow_window_has_fewer_columns() {
    insta::assert_snapshot!(screen(&app(), 80, 24));
}

#[test]
fn help_and_pause() {
    let mut app = app();
    press(&mut app, KeyCode::Char('?'));
    press(&mut app, KeyCode::Char('p'));
    insta::assert_snapshot!(screen(&app, 100, 24));
    assert_eq!(press(&mut app, KeyCode::Esc), Reaction::Draw);
    assert!(!app.help);
    assert_eq!(press(&mut app, KeyCode::Esc), Reaction::Quit);
}

#[test]
fn nothing_mapped() {
    insta::assert_snapshot!(screen(&App::new(Duration::from_secs(2)), 80, 12));
}

#[test]
fn no_window_is_too_small() {
    let mut app = app();
    for help in [false, true] {
        app.help = help;
        for (width, height) in [(1, 1), (3, 2), (20, 5), (10, 40), (300, 3)] {
            screen(&app, width, height);
        }
    }
}

#[test]
fn more_rows_than_the_window_has_are_scrolled() {
    let mut app = App::new(Duration::from_secs(1));
    let many = |number: i32| device(&format!("rnbd{number}"), DeviceState::Open, Some(1.0));
    app.update(Rates {
        devices: (0..1000).map(many).collect(),
        ..Rates::default()
    });
    assert!(!screen(&app, 120, 24).contains("rnbd999"));
    press(&mut app, KeyCode::Up);
    assert_eq!(
        app.selected,
        Some(Key::Device("rnbd999".into(), "storage".into()))
    );
    assert!(screen(&app, 120, 24).contains("rnbd999"));
    press(&mut app, KeyCode::PageUp);
    assert_eq!(
        app.selected,
        Some(Key::Device("rnbd989".into(), "storage".into()))
    );
}

fn names(app: &App) -> Vec<&str> {
    app.rates()
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect()
}

#[test]
fn sorting() {
    let mut app = app();
    assert_eq!(names(&app), ["rnbd0", "rnbd2", "rnbd10"]);
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(names(&app), ["rnbd10", "rnbd2", "rnbd0"]);
    press(&mut app, KeyCode::Char('r'));
    for (sort, first) in [
        (Sort::Iops, ["rnbd10", "rnbd0", "rnbd2"]),
        (Sort::Bandwidth, ["rnbd10", "rnbd0", "rnbd2"]),
        (Sort::Latency, ["rnbd0", "rnbd10", "rnbd2"]),
        (Sort::Inflight, ["rnbd0", "rnbd2", "rnbd10"]),
        (Sort::Name, ["rnbd0", "rnbd2", "rnbd10"]),
    ] {
        press(&mut app, KeyCode::Char('s'));
        assert_eq!((app.sort, names(&app)), (sort, first.to_vec()));
    }
}

#[test]
fn views() {
    let mut app = app();
    for (view, devices, paths) in [
        (View::Devices, true, false),
        (View::Paths, false, true),
        (View::Both, true, true),
    ] {
        press(&mut app, KeyCode::Char('v'));
        let text = screen(&app, 130, 24);
        assert_eq!(app.view, view);
        assert_eq!(
            (text.contains("/dev/vg/rnbd0"), text.contains("ip:10.0.1.2")),
            (devices, paths),
            "{text}"
        );
    }
}

#[test]
fn what_is_selected_stays_selected_until_it_is_gone() {
    let mut app = app();
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    let key = Key::Device("rnbd2".into(), "storage".into());
    assert_eq!(app.selected, Some(key.clone()));
    press(&mut app, KeyCode::Char('s'));
    app.update(rates());
    assert_eq!(app.selected, Some(key));
    assert!(screen(&app, 130, 24).contains("rnbd2: IOPS"));
    let mut less = rates();
    less.devices.remove(1);
    app.update(less);
    assert_eq!(app.selected, None);
}

#[test]
fn paused_means_nothing_changes() {
    let mut app = app();
    let before = screen(&app, 130, 24);
    press(&mut app, KeyCode::Char('p'));
    app.update(Rates::default());
    assert_eq!(screen(&app, 130, 24).replace("  PAUSED", ""), before);
    press(&mut app, KeyCode::Char('p'));
    app.update(Rates::default());
    assert_eq!(names(&app), [""; 0]);
}

#[test]
fn intervals_have_limits() {
    let mut app = app();
    for _ in 0..40 {
        press(&mut app, KeyCode::Char('+'));
    }
    assert_eq!(app.interval, Duration::from_secs(3600));
    for _ in 0..40 {
        press(&mut app, KeyCode::Char('-'));
    }
    assert_eq!(app.interval, Duration::from_millis(100));
}

#[test]
fn quitting() {
    let mut app = app();
    assert_eq!(press(&mut app, KeyCode::Char('q')), Reaction::Quit);
    assert_eq!(press(&mut app, KeyCode::Char('x')), Reaction::None);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(control_c), Reaction::Quit);
}
