//! Rows and columns that fit the screen. A column that may give way is cut or folded, and where even that is not
//! enough, every row becomes a record of its own.

use crate::limits::PATH_MIN;
use crate::text::{KEPT_BLANK, blanks, folded, head, middle};

/// What is in a column, which decides how it gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Words that are never cut, such as states.
    Word(&'static str),
    /// Numbers: never cut, and aligned to the right.
    Number(&'static str),
    /// Names: cut at the end.
    Name(&'static str),
    /// Paths: cut in the middle, since both ends tell something.
    Path(&'static str),
    /// Sentences: folded into further lines.
    Text(&'static str),
}

/// Blanks between two columns.
const GAP: usize = 2;

/// Fewest characters of a column that gave way.
const NAME_MIN: usize = 12;
const TEXT_MIN: usize = 20;

impl Column {
    const fn header(self) -> &'static str {
        match self {
            Self::Word(h) | Self::Number(h) | Self::Name(h) | Self::Path(h) | Self::Text(h) => h,
        }
    }

    /// The least that a column of natural width `width` can do with.
    fn least(self, width: usize) -> usize {
        match self {
            Self::Word(_) | Self::Number(_) => width,
            Self::Name(_) => width.min(NAME_MIN),
            Self::Path(_) => width.min(PATH_MIN),
            Self::Text(_) => width.min(TEXT_MIN),
        }
    }

    /// Columns of sentences give way first, then paths, then names.
    const fn patience(self) -> u8 {
        match self {
            Self::Text(_) => 0,
            Self::Path(_) => 1,
            Self::Name(_) => 2,
            Self::Word(_) | Self::Number(_) => 3,
        }
    }

    /// `text` in lines of at most `width` characters.
    fn fit(self, text: &str, width: usize) -> Vec<String> {
        match self {
            Self::Word(_) | Self::Number(_) => vec![text.to_owned()],
            Self::Name(_) => vec![head(text, width)],
            Self::Path(_) => vec![middle(text, width)],
            Self::Text(_) => {
                text.lines().flat_map(|l| lines_of(&folded(l, width, 0), width)).collect()
            }
        }
    }
}

/// The lines of `text`; words that are longer than `width` are cut in the middle, unless they stay together.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    let fit = |line: &str| match line.contains(KEPT_BLANK) {
        true => blanks(line),
        false => middle(line, width),
    };
    text.lines().map(fit).collect()
}

/// A table under construction.
pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// True when it has no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// An empty table.
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Empty cells show as `-`.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.columns.len(), "a row has a cell for every column");
        let filled = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.into_iter().map(filled).collect());
    }

    /// Removes columns that say `-` in every row, except the first `kept`.
    pub fn without_empty(mut self, kept: usize) -> Self {
        for index in (kept..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row[index] == "-") {
                self.columns.remove(index);
                for row in &mut self.rows {
                    row.remove(index);
                }
            }
        }
        self
    }

    /// The table in at most `width` columns.
    pub fn render(&self, width: usize) -> String {
        match self.widths(width) {
            Some(widths) => self.table(&widths),
            None => self.records(width),
        }
    }

    /// Width of every column, or none when they cannot fit side by side.
    fn widths(&self, width: usize) -> Option<Vec<usize>> {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|i| self.natural(i)).collect();
        let room = width.checked_sub(GAP * self.columns.len().saturating_sub(1))?;
        for patience in 0..3 {
            self.shrink(&mut widths, room, patience);
        }
        (widths.iter().sum::<usize>() <= room).then_some(widths)
    }

    /// Takes from the columns of one `patience` what is too much, from the widest first.
    fn shrink(&self, widths: &mut [usize], room: usize, patience: u8) {
        while widths.iter().sum::<usize>() > room {
            let gives = |i: &usize| {
                let column = self.columns[*i];
                let least = column.least(self.natural(*i)).max(column.header().len());
                column.patience() == patience && widths[*i] > least
            };
            let Some(widest) = (0..widths.len()).filter(gives).max_by_key(|i| widths[*i]) else {
                return;
            };
            widths[widest] -= 1;
        }
    }

    /// Characters of the longest cell of a column, its header included.
    fn natural(&self, index: usize) -> usize {
        let cells = self.rows.iter().flat_map(|row| row[index].lines());
        let longest = cells.map(|line| line.chars().count()).max().unwrap_or(0);
        longest.max(self.columns[index].header().len())
    }

    fn table(&self, widths: &[usize]) -> String {
        let headers: Vec<String> = self.columns.iter().map(|c| c.header().to_uppercase()).collect();
        let mut out = self.line(&headers, widths);
        for row in &self.rows {
            out.push_str(&self.line(row, widths));
        }
        out
    }

    /// A row, which takes several lines where cells are folded.
    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells: Vec<Vec<String>> = (self.columns.iter().zip(cells).zip(widths))
            .map(|((column, cell), width)| column.fit(cell, *width))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for at in 0..height {
            let mut line = String::new();
            for ((column, cell), width) in self.columns.iter().zip(&cells).zip(widths) {
                let text = cell.get(at).map_or("", String::as_str);
                let blanks = " ".repeat(width.saturating_sub(text.chars().count()));
                match column {
                    Column::Number(_) => line.extend([blanks.as_str(), text]),
                    Column::Word(_) | Column::Name(_) | Column::Path(_) | Column::Text(_) => {
                        line.extend([text, blanks.as_str()]);
                    }
                }
                line.push_str(&" ".repeat(GAP));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Every row as lines of `header value`, rows apart by an empty line.
    fn records(&self, width: usize) -> String {
        let label = self.columns.iter().map(|c| c.header().len()).max().unwrap_or(0) + 1;
        let mut out = String::new();
        for (nth, row) in self.rows.iter().enumerate() {
            if nth > 0 {
                out.push('\n');
            }
            for (column, cell) in self.columns.iter().zip(row) {
                let value: Vec<String> =
                    column.fit(cell, width.saturating_sub(label).max(PATH_MIN));
                let value = value.join(&format!("\n{}", " ".repeat(label)));
                out.push_str(&format!("{:<label$}{value}\n", column.header()));
            }
        }
        out
    }
}
