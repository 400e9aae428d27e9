// SPDX-License-Identifier: GPL-2.0

//! Draws the view.

use ratatui::layout::Constraint;
use ratatui::layout::Layout;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::style::Modifier;
use ratatui::style::Style;
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::text::Span;
use ratatui::widgets::Block;
use ratatui::widgets::Borders;
use ratatui::widgets::Cell;
use ratatui::widgets::Clear;
use ratatui::widgets::Paragraph;
use ratatui::widgets::Row;
use ratatui::widgets::Sparkline;
use ratatui::widgets::Table;
use ratatui::widgets::TableState;
use ratatui::Frame;

use super::app::device_key;
use super::app::path_key;
use super::app::App;
use super::app::View;
use crate::live::history::sparkline;
use crate::live::history::Key;
use crate::live::rates::Flow;
use crate::live::report::bytes_per_second;
use crate::live::report::milliseconds;
use crate::live::report::per_second;
use crate::live::report::percent;
use crate::live::DeviceRates;
use crate::live::PathRates;
use crate::model::DeviceState;
use crate::model::PathState;
use crate::model::Side;
use crate::output::nanoseconds;
use crate::output::short;

/// The width of a sparkline in a row.
const SPARK: u16 = 12;
/// The height of the large sparklines.
const GRAPHS: u16 = 6;

/// Draws everything.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let graphs = if area.height >= 20 { GRAPHS } else { 0 };
    let [head, body, graph, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(graphs),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(app, frame, head);
    let devices = u16::try_from(app.rates().devices.len()).unwrap_or(u16::MAX);
    match app.view {
        View::Devices => draw_devices(app, frame, body),
        View::Paths => draw_paths(app, frame, body),
        View::Both => {
            // The table with its title, its head and a line below.
            let wanted = devices
                .saturating_add(3)
                .min(body.height.saturating_mul(3) / 5);
            let [upper, lower] =
                Layout::vertical([Constraint::Length(wanted), Constraint::Min(0)]).areas(body);
            draw_devices(app, frame, upper);
            draw_paths(app, frame, lower);
        }
    }
    if graphs > 0 {
        draw_graphs(app, frame, graph);
    }
    draw_foot(frame, foot);
    if app.help {
        draw_help(frame, area);
    }
}

fn draw_head(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let total = app.rates().total();
    let mut spans = vec![
        Span::from("rnbdctl top").bold(),
        Span::from(format!(
            "  {} devices, {} paths  {} IOPS, {}/s  sort: {}{}  every {} s",
            app.rates().devices.len(),
            app.rates().paths.len(),
            per_second(total.iops().unwrap_or(0.0)),
            bytes_per_second(total.bytes_per_s().unwrap_or(0.0)),
            app.sort.as_str(),
            if app.reverse { " (reversed)" } else { "" },
            app.interval.as_secs_f64(),
        )),
    ];
    if app.paused {
        spans.push(Span::from("  PAUSED").yellow().bold());
    }
    if let Some(error) = &app.error {
        spans.push(Span::from(format!("  {error}")).red());
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect) {
    let keys = [
        ("q", "quit"),
        ("?", "help"),
        ("s", "sort"),
        ("r", "reverse"),
        ("p", "pause"),
        ("v", "devices/paths"),
        ("↑↓", "select"),
        ("+-", "interval"),
    ];
    let mut spans = Vec::new();
    // The last key needs no space behind it.
    let mut left = usize::from(area.width).saturating_add(2);
    for (key, what) in keys {
        let shown = [
            Span::styled(
                format!(" {key} "),
                Style::new().add_modifier(Modifier::REVERSED),
            ),
            Span::from(format!(" {what}  ")),
        ];
        // A narrow terminal shows fewer keys, and no key in part. The help has all keys.
        let Some(rest) = left.checked_sub(shown.iter().map(Span::width).sum()) else {
            break;
        };
        left = rest;
        spans.extend(shown);
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    const LINES: [&str; 14] = [
        "q, Esc      quit",
        "s           sort by name, IOPS, bandwidth, latency, in flight",
        "r           reverse the order",
        "p, Space    pause: the values stay as they are",
        "v, Tab      devices and paths, devices only, paths only",
        "Up, Down    select a row for the graphs; without it: the total",
        "+, -        longer or shorter interval",
        "",
        "R-LAT, W-LAT  mean time of the reads and writes of the interval",
        "BUSY          part of the time with requests in flight",
        "LATENCY       round trip of the path's last heartbeats",
        "RECON         reconnects of the path / failed reconnects",
        "FAILOV        requests taken over from a lost path",
        "-             not known: counters were reset, or the row is new",
    ];
    let height = u16::try_from(LINES.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2)
        .min(area.height);
    let width = 68.min(area.width);
    let place = Rect {
        x: area.width.saturating_sub(width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width,
        height,
    };
    let block = Block::bordered().title(" Keys and columns ");
    frame.render_widget(Clear, place);
    let text: Vec<_> = LINES.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), place);
}

fn optional(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn flow_cells(flow: &Flow) -> [Cell<'static>; 4] {
    [
        right(optional(flow.read_iops, per_second)),
        right(optional(flow.write_iops, per_second)),
        right(optional(flow.read_bytes_per_s, bytes_per_second)),
        right(optional(flow.write_bytes_per_s, bytes_per_second)),
    ]
}

fn spark_cell(app: &App, key: &Key) -> Cell<'static> {
    let series = app.history().get(key);
    let line = series.map(|series| sparkline(&series.iops, SPARK.into()));
    Cell::from(line.unwrap_or_default()).style(Style::new().fg(Color::Cyan))
}

fn device_row(app: &App, device: &DeviceRates) -> Vec<Cell<'static>> {
    let colour = match device.state {
        DeviceState::Open => Color::Green,
        DeviceState::Closed => Color::Red,
        _ => Color::Yellow,
    };
    let names = [
        Cell::from(device.name.clone()).style(Style::new().bold()),
        Cell::from(device.session.clone()),
        Cell::from(device.device_path.clone()),
        Cell::from(device.state.as_str()).style(Style::new().fg(colour)),
    ];
    let rest = [
        right(optional(device.read_ms, milliseconds)),
        right(optional(device.write_ms, milliseconds)),
        right(device.inflight.to_string()),
        right(optional(device.busy, percent)),
        spark_cell(app, &device_key(device)),
    ];
    names
        .into_iter()
        .chain(flow_cells(&device.flow))
        .chain(rest)
        .collect()
}

fn path_row(app: &App, path: &PathRates) -> Vec<Cell<'static>> {
    let colour = match path.state {
        PathState::Connected => Color::Green,
        PathState::Disconnected => Color::Red,
    };
    let count =
        |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let side = match path.side {
        Side::Client => "",
        Side::Server => " (server)",
    };
    let names = [
        Cell::from(format!("{}{side}", path.session)).style(Style::new().bold()),
        Cell::from(path.name.clone()),
        Cell::from(path.state.as_str()).style(Style::new().fg(colour)),
    ];
    let rest = [
        right(
            path.latency_ns
                .map_or_else(|| "-".to_owned(), |time| short(&nanoseconds(time))),
        ),
        right(
            path.inflight
                .map_or_else(|| "-".to_owned(), |number| number.to_string()),
        ),
        right(format!(
            "{}/{}",
            count(path.reconnects),
            count(path.failed_reconnects)
        )),
        right(
            path.failovers
                .map_or_else(|| "-".to_owned(), |number| number.to_string()),
        ),
        spark_cell(app, &path_key(path)),
    ];
    names
        .into_iter()
        .chain(flow_cells(&path.flow))
        .chain(rest)
        .collect()
}

/// A column: its head, its width, and the least width of the window in which it is shown.
struct Column(&'static str, Constraint, u16);

/// The width from which names of sessions need not be cut.
const WIDE: u16 = 150;

const DEVICES: [Column; 13] = [
    Column("DEVICE", Constraint::Length(8), 0),
    Column("SESSION", Constraint::Max(12), 100),
    Column("DISK", Constraint::Fill(1), 90),
    Column("STATE", Constraint::Length(6), 0),
    Column("R/s", Constraint::Length(6), 0),
    Column("W/s", Constraint::Length(6), 0),
    Column("READ/s", Constraint::Length(9), 0),
    Column("WRITE/s", Constraint::Length(9), 0),
    Column("R-LAT", Constraint::Length(7), 0),
    Column("W-LAT", Constraint::Length(7), 0),
    Column("INFL", Constraint::Length(4), 0),
    Column("BUSY", Constraint::Length(4), 0),
    Column("IOPS", Constraint::Length(SPARK), 120),
];

const PATHS: [Column; 12] = [
    Column("SESSION", Constraint::Max(16), 100),
    Column("PATH", Constraint::Fill(1), 0),
    Column("STATE", Constraint::Length(12), 0),
    Column("R/s", Constraint::Length(6), 0),
    Column("W/s", Constraint::Length(6), 0),
    Column("READ/s", Constraint::Length(9), 0),
    Column("WRITE/s", Constraint::Length(9), 0),
    Column("LATENCY", Constraint::Length(7), 100),
    Column("INFL", Constraint::Length(4), 84),
    Column("RECON", Constraint::Length(6), 90),
    Column("FAILOV", Constraint::Length(6), 100),
    Column("IOPS", Constraint::Length(SPARK), 120),
];

/// A table with its title; the selected row is kept in sight.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    columns: &[Column],
    rows: Vec<Vec<Cell<'static>>>,
    selected: Option<usize>,
) {
    let block = Block::new()
        .borders(Borders::TOP)
        .title(format!(" {title} ({}) ", rows.len()));
    if rows.is_empty() {
        frame.render_widget(Paragraph::new("none").block(block), area);
        return;
    }
    // Text to the left, numbers to the right: as in the rows.
    let is_number = |name: &str| {
        !matches!(
            name,
            "DEVICE" | "SESSION" | "DISK" | "PATH" | "STATE" | "IOPS"
        )
    };
    let is_shown = |Column(_, _, width): &&Column| *width <= area.width;
    let head = columns
        .iter()
        .filter(is_shown)
        .map(|Column(name, ..)| match is_number(name) {
            true => right((*name).to_owned()),
            false => Cell::from(*name),
        });
    let rows = rows.into_iter().map(|cells| {
        let cells = cells.into_iter().zip(columns);
        Row::new(
            cells
                .filter(|(_, column)| is_shown(column))
                .map(|(cell, _)| cell),
        )
    });
    let widths = columns
        .iter()
        .filter(is_shown)
        .map(|Column(name, width, _)| match (*name, area.width) {
            // Names that rnbdctl makes, of two hosts, have room in a wide window.
            ("SESSION", WIDE..) => Constraint::Max(32),
            _ => *width,
        });
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::DIM));
    let table = Table::new(rows, widths)
        .header(head)
        .block(block)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_devices(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let devices = &app.rates().devices;
    let is_selected = |device: &DeviceRates| app.selected.as_ref() == Some(&device_key(device));
    let selected = devices.iter().position(is_selected);
    let rows = devices
        .iter()
        .map(|device| device_row(app, device))
        .collect();
    draw_table(frame, area, "Devices", &DEVICES, rows, selected);
}

fn draw_paths(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let paths = &app.rates().paths;
    let is_selected = |path: &PathRates| app.selected.as_ref() == Some(&path_key(path));
    let selected = paths.iter().position(is_selected);
    let rows = paths.iter().map(|path| path_row(app, path)).collect();
    draw_table(frame, area, "Paths", &PATHS, rows, selected);
}

fn draw_graphs(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let key = app.selected.clone().unwrap_or(Key::Total);
    let name = match &key {
        Key::Total => "all devices".to_owned(),
        Key::Device(name, _) => name.clone(),
        Key::Path(_, session, name) => format!("{session} {name}"),
    };
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let series = app.history().get(&key).cloned().unwrap_or_default();
    let graphs = [
        (
            left,
            "IOPS",
            &series.iops,
            per_second as fn(f64) -> String,
            Color::Cyan,
        ),
        (
            right,
            "bytes/s",
            &series.bytes,
            bytes_per_second,
            Color::Magenta,
        ),
    ];
    for (area, what, values, text, colour) in graphs {
        let skip = values.len().saturating_sub(area.width.into());
        let data: Vec<u64> = values.iter().skip(skip).copied().collect();
        let highest = data.iter().copied().max().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
        let title = format!(" {name}: {what}, up to {} ", text(highest as f64));
        // Titles are cut, not wrapped; keep a column between both graphs.
        let block = Block::new().borders(Borders::TOP).title(title);
        let graph = Sparkline::default()
            .block(block)
            .data(&data)
            .max(highest.max(1))
            .style(Style::new().fg(colour));
        frame.render_widget(graph, area);
    }
}
