// SPDX-License-Identifier: GPL-2.0

//! Tables, for people and as CSV.

use comfy_table::presets;
use comfy_table::CellAlignment;
use comfy_table::ContentArrangement;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in CSV.
    pub key: &'static str,
    /// Its title for people; one without is in CSV only.
    pub title: &'static str,
    /// Whether it has numbers.
    pub number: bool,
}

impl Column {
    /// A column of text.
    pub const fn text(key: &'static str, title: &'static str) -> Self {
        Self {
            key,
            title,
            number: false,
        }
    }

    /// A column of numbers.
    pub const fn number(key: &'static str, title: &'static str) -> Self {
        Self {
            key,
            title,
            number: true,
        }
    }
}

/// Whether what a cell says is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Neither nor.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// It works, but not as it should.
    Warning,
    /// It does not work.
    Bad,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    raw: Option<String>,
    tone: Tone,
}

impl Cell {
    /// The same text for people and in CSV.
    pub fn new(text: impl ToString) -> Self {
        Self {
            text: text.to_string(),
            raw: None,
            tone: Tone::Plain,
        }
    }

    /// A value that people read as `text` and programs as `raw`; `-` and nothing if there is none.
    pub fn value<T: ToString>(raw: Option<T>, text: impl FnOnce(&T) -> String) -> Self {
        match raw {
            Some(raw) => Self {
                text: text(&raw),
                raw: Some(raw.to_string()),
                tone: Tone::Plain,
            },
            None => Self {
                text: "-".to_owned(),
                raw: Some(String::new()),
                tone: Tone::Plain,
            },
        }
    }

    /// A value that may be missing.
    pub fn option<T: ToString>(raw: Option<T>) -> Self {
        Self::value(raw, T::to_string)
    }

    /// Coloured.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn raw(&self) -> &str {
        self.raw.as_deref().unwrap_or(&self.text)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What its rows are, in CSV with several tables: `device`.
    pub kind: &'static str,
    /// What stands above it, where there are several: `Devices`.
    pub title: String,
    /// The columns.
    pub columns: &'static [Column],
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// What people see if there is no row.
    pub empty: String,
}

impl Table {
    /// The lines for people; with its title if `titled`.
    pub(super) fn for_people(&self, titled: bool, colour: bool, width: Option<u16>) -> String {
        let mut text = if titled {
            format!("{}\n", self.title)
        } else {
            String::new()
        };
        if self.rows.is_empty() {
            text.push_str(&self.empty);
            text.push('\n');
            return text;
        }
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        if let Some(width) = width {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width);
        }
        if colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let shown = |index: usize| {
            self.columns
                .get(index)
                .is_some_and(|column| !column.title.is_empty())
        };
        table.set_header(
            self.columns
                .iter()
                .filter(|column| !column.title.is_empty())
                .map(|column| column.title),
        );
        for row in &self.rows {
            let cells = row.iter().enumerate().filter(|(index, _)| shown(*index));
            table.add_row(cells.map(|(_, cell)| styled(cell, colour)));
        }
        let numbers = self
            .columns
            .iter()
            .filter(|column| !column.title.is_empty())
            .map(|column| column.number);
        for (column, number) in table.column_iter_mut().zip(numbers) {
            column.set_padding((0, 2));
            if number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.lines() {
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

fn styled(cell: &Cell, colour: bool) -> comfy_table::Cell {
    let styled = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        _ if !colour => styled,
        Tone::Plain => styled,
        Tone::Good => styled.fg(comfy_table::Color::Green),
        Tone::Warning => styled.fg(comfy_table::Color::Yellow),
        Tone::Bad => styled.fg(comfy_table::Color::Red),
    }
}

/// The tables under one header.
pub(super) fn csv(tables: &[Table]) -> csv::Result<String> {
    let mut keys: Vec<&str> = Vec::new();
    for column in tables.iter().flat_map(|table| table.columns) {
        if !keys.contains(&column.key) {
            keys.push(column.key);
        }
    }
    let several = tables.len() > 1;
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(
        several
            .then_some("kind")
            .into_iter()
            .chain(keys.iter().copied()),
    )?;
    for table in tables {
        for row in &table.rows {
            let value = |key: &&str| {
                let at = table.columns.iter().position(|column| column.key == *key);
                at.and_then(|at| row.get(at)).map_or("", Cell::raw)
            };
            writer.write_record(
                several
                    .then_some(table.kind)
                    .into_iter()
                    .chain(keys.iter().map(value)),
            )?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &[Column] = &[
        Column::text("name", "NAME"),
        Column::number("size_bytes", "SIZE"),
        Column::text("node", ""),
    ];
    const SESSIONS: &[Column] = &[Column::text("name", "NAME"), Column::text("state", "STATE")];

    fn table(kind: &'static str, columns: &'static [Column], rows: Vec<Vec<Cell>>) -> Table {
        Table {
            kind,
            title: format!("{kind}s"),
            columns,
            rows,
            empty: "nothing".to_owned(),
        }
    }

    fn disks() -> Table {
        let size = |bytes: Option<u64>| Cell::value(bytes, |bytes| format!("{} KiB", bytes / 1024));
        table(
            "disk",
            DISKS,
            vec![
                vec![
                    Cell::new("a, \"b\""),
                    size(Some(10240)),
                    Cell::new("/dev/a"),
                ],
                vec![Cell::new("c"), size(None), Cell::new("/dev/c")],
            ],
        )
    }

    #[test]
    fn for_people() {
        let text = disks().for_people(false, false, None);
        assert_eq!(text, "NAME      SIZE\na, \"b\"  10 KiB\nc            -\n");
    }

    #[test]
    fn empty_says_so() {
        assert_eq!(
            table("disk", DISKS, vec![]).for_people(true, false, None),
            "disks\nnothing\n"
        );
    }

    #[test]
    fn colours_only_where_wanted() {
        let table = table(
            "s",
            SESSIONS,
            vec![vec![Cell::new("s"), Cell::new("up").tone(Tone::Good)]],
        );
        assert!(!table.for_people(false, false, None).contains('\x1b'));
        assert!(table.for_people(false, true, None).contains("\x1b["));
    }

    #[test]
    fn csv_of_one_table() {
        assert_eq!(
            csv(&[disks()]).unwrap(),
            "name,size_bytes,node\n\"a, \"\"b\"\"\",10240,/dev/a\nc,,/dev/c\n"
        );
    }

    #[test]
    fn csv_of_several_tables() {
        let sessions = table(
            "session",
            SESSIONS,
            vec![vec![Cell::new("s"), Cell::new("up")]],
        );
        let text = csv(&[disks(), sessions]).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "kind,name,size_bytes,node,state",
                "disk,\"a, \"\"b\"\"\",10240,/dev/a,",
                "disk,c,,/dev/c,",
                "session,s,,,up"
            ]
        );
    }
}
