// SPDX-License-Identifier: GPL-2.0

//! Tables, for people and as CSV.

use unicode_width::UnicodeWidthStr;

/// The space between two columns.
const GAP: &str = "  ";

/// The least width of a column of sentences.
const LEAST_WRAPPED: usize = 24;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name in CSV.
    pub key: &'static str,
    /// The title for people. A column without a title is only in CSV.
    pub title: &'static str,
    /// Whether the column has numbers.
    pub number: bool,
    /// If the terminal is too narrow, columns with the highest rank are left out first. Columns
    /// with rank 0 always stay.
    pub rank: u8,
    /// Whether the column has sentences, which may go on in the next line.
    pub wraps: bool,
}

impl Column {
    /// A column of text.
    pub const fn text(key: &'static str, title: &'static str) -> Self {
        Self {
            key,
            title,
            number: false,
            rank: 0,
            wraps: false,
        }
    }

    /// A column of numbers.
    pub const fn number(key: &'static str, title: &'static str) -> Self {
        Self {
            number: true,
            ..Self::text(key, title)
        }
    }

    /// The column with this rank: see the field `rank`.
    #[must_use]
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// The column with sentences.
    #[must_use]
    pub const fn wraps(self) -> Self {
        Self {
            wraps: true,
            ..self
        }
    }
}

/// How good the content of a cell is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Neither good nor bad.
    #[default]
    Plain,
    /// Everything is as it should be.
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
    /// A cell with the same text for people and in CSV.
    pub fn new(text: impl ToString) -> Self {
        Self {
            text: text.to_string(),
            raw: None,
            tone: Tone::Plain,
        }
    }

    /// A value that people read as `text` and programs as `raw`. Without a value people read `-`
    /// and programs nothing.
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

    /// The cell with this tone.
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
    /// The kind of its rows, for CSV with several tables: `device`.
    pub kind: &'static str,
    /// The title, if there are several tables: `Devices`.
    pub title: String,
    /// The columns.
    pub columns: &'static [Column],
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The text for people if there are no rows.
    pub empty: String,
}

impl Table {
    /// The lines for people, with the title if `titled`. If the table is wider than `width`,
    /// columns are left out, and sentences go on in the next line. Words are never cut.
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
        let columns = self.fitting(width.map_or(usize::MAX, usize::from));
        let head: Vec<_> = columns
            .iter()
            .map(|fit| Cell::new(fit.column.title))
            .collect();
        write_row(&mut text, &columns, &head.iter().collect::<Vec<_>>(), false);
        for row in &self.rows {
            let cells: Vec<_> = columns
                .iter()
                .filter_map(|fit| row.get(fit.index))
                .collect();
            write_row(&mut text, &columns, &cells, colour);
        }
        text
    }

    /// The columns that fit into `room`, with their widths.
    fn fitting(&self, room: usize) -> Vec<Fit<'_>> {
        let mut columns: Vec<_> = self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.title.is_empty())
            .map(|(index, column)| Fit {
                column,
                index,
                width: self.natural_width(index, column),
            })
            .collect();
        while total(&columns) > room {
            let last = columns.iter().enumerate().rev();
            let (at, rank) =
                last.map(|(at, fit)| (at, fit.column.rank))
                    .fold(
                        (0, 0),
                        |best, next| if next.1 > best.1 { next } else { best },
                    );
            if rank == 0 {
                break;
            }
            columns.remove(at);
        }
        let excess = total(&columns).saturating_sub(room);
        if let Some(fit) = columns.iter_mut().find(|fit| fit.column.wraps) {
            let narrowed = fit.width.saturating_sub(excess).max(LEAST_WRAPPED);
            fit.width = fit.width.min(narrowed);
        }
        columns
    }

    fn natural_width(&self, index: usize, column: &Column) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        let lines = cells.flat_map(|cell| cell.text.lines());
        let widest = lines.map(UnicodeWidthStr::width).max().unwrap_or(0);
        widest.max(column.title.width())
    }
}

/// A column, its place in rows, and its width in characters.
struct Fit<'t> {
    column: &'t Column,
    index: usize,
    width: usize,
}

fn total(columns: &[Fit<'_>]) -> usize {
    let gaps = columns.len().saturating_sub(1).saturating_mul(GAP.len());
    let widths = columns.iter().map(|fit| fit.width);
    widths.fold(gaps, usize::saturating_add)
}

/// A row, of as many lines as its longest cell has.
fn write_row(out: &mut String, columns: &[Fit<'_>], cells: &[&Cell], colour: bool) {
    let lines: Vec<Vec<String>> = columns
        .iter()
        .zip(cells)
        .map(|(fit, cell)| match fit.column.wraps {
            true => wrap(&cell.text, fit.width),
            false => cell.text.lines().map(str::to_owned).collect(),
        })
        .collect();
    let height = lines.iter().map(Vec::len).max().unwrap_or(0).max(1);
    for number in 0..height {
        let mut line = String::new();
        // Spaces are written only when text follows.
        let mut pending = 0_usize;
        for ((fit, cell), lines) in columns.iter().zip(cells).zip(&lines) {
            let text = lines.get(number).map_or("", String::as_str);
            let spare = fit.width.saturating_sub(text.width());
            let (before, after) = match fit.column.number {
                true => (spare, 0),
                false => (0, spare),
            };
            if !text.is_empty() {
                line.push_str(&" ".repeat(pending.saturating_add(before)));
                pending = 0;
                let (begin, end) = cell.tone.paint(colour);
                line.push_str(begin);
                line.push_str(text);
                line.push_str(end);
            } else {
                pending = pending.saturating_add(before);
            }
            pending = pending.saturating_add(after).saturating_add(GAP.len());
        }
        out.push_str(&line);
        out.push('\n');
    }
}

/// Breaks a text into lines of at most `width`, unless a word is longer.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let fits = line.width().saturating_add(word.width()) < width;
            if !line.is_empty() && !fits {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

impl Tone {
    /// The codes that begin and end coloured text.
    pub(crate) fn paint(self, colour: bool) -> (&'static str, &'static str) {
        match self {
            _ if !colour => ("", ""),
            Self::Plain => ("", ""),
            Self::Good => ("\x1b[32m", "\x1b[0m"),
            Self::Warning => ("\x1b[33m", "\x1b[0m"),
            Self::Bad => ("\x1b[31m", "\x1b[0m"),
        }
    }
}

/// The tables as CSV under one header.
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

    const WIDE: &[Column] = &[
        Column::text("name", "NAME"),
        Column::number("reads", "READS").rank(2),
        Column::number("writes", "WRITES").rank(2),
        Column::text("session", "SESSION").rank(1),
        Column::text("state", "STATE"),
    ];

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_whole_words() {
        let row = ["/dev/rnbd0", "1234567", "7654321", "a-session", "connected"];
        let table = table("d", WIDE, vec![row.map(Cell::new).to_vec()]);
        for (width, head) in [
            (80, "NAME          READS   WRITES  SESSION    STATE"),
            (48, "NAME          READS  SESSION    STATE"),
            (37, "NAME        SESSION    STATE"),
            (29, "NAME        STATE"),
            (5, "NAME        STATE"),
        ] {
            let text = table.for_people(false, false, Some(width));
            let lines: Vec<_> = text.lines().collect();
            assert_eq!((lines.len(), lines[0]), (2, head), "{width}: {text}");
            assert!(lines[1].ends_with("connected"), "{width}: {text}");
            let widest = lines.iter().map(|line| line.width()).max().unwrap();
            assert!(
                width == 5 || widest <= usize::from(width),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn sentences_go_on_in_the_next_line() {
        const CHECKS: &[Column] = &[
            Column::text("status", "STATUS"),
            Column::text("found", "FOUND").wraps(),
        ];
        let sentence = "the module is loaded, and everything is as it should be";
        let rows = vec![vec![Cell::new("ok").tone(Tone::Good), Cell::new(sentence)]];
        let table = table("c", CHECKS, rows);
        assert_eq!(
            table.for_people(false, false, Some(40)),
            "STATUS  FOUND\nok      the module is loaded, and\n        \
             everything is as it should be\n"
        );
        assert_eq!(table.for_people(false, false, None).lines().count(), 2);
        let coloured = table.for_people(false, true, Some(40));
        assert!(
            coloured.contains("\x1b[32mok\x1b[0m      the"),
            "{coloured:?}"
        );
    }

    #[test]
    fn wide_characters_count_twice() {
        let rows = vec![
            vec![Cell::new("磁盘"), Cell::new("up")],
            vec![Cell::new("abcd"), Cell::new("up")],
        ];
        let text = table("s", SESSIONS, rows).for_people(false, false, None);
        assert_eq!(text, "NAME  STATE\n磁盘  up\nabcd  up\n");
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
