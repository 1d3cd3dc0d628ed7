//! Answers on standard output: a table, or the message itself.

pub mod paint;

use crate::error::Error;
use crate::limits::{HEIGHT, WIDTH_MAX, WIDTH_MIN, WIDTH_UNLIMITED};
use crate::text::KEPT_BLANK;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// How answers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables.
    #[default]
    Table,
    /// JSON: the message of the API, with the field names of the proto file.
    Json,
}

/// Whether answers are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Always, also in pipes.
    Always,
    /// Never.
    Never,
}

/// Where answers go.
pub struct Output {
    format: Format,
    colour: bool,
    quiet: bool,
}

impl Output {
    /// Standard output in `format`, in as many columns as [`terminal`] returns. Colour is for terminals whose owner has
    /// not asked for none (<https://no-color.org>).
    #[must_use]
    pub fn stdout(format: Format) -> Self {
        Self::with(format, Color::Auto, false)
    }

    /// Standard output in `format`, coloured according to `color`. A `quiet` output prints nothing.
    #[must_use]
    pub fn with(format: Format, color: Color, quiet: bool) -> Self {
        let unwanted = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        let colour = match color {
            Color::Auto => std::io::stdout().is_terminal() && !dumb && !unwanted("NO_COLOR"),
            Color::Always => true,
            Color::Never => false,
        };
        Self { format, colour, quiet }
    }

    /// How answers are printed here.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// True if nothing is printed.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// True when a person watches standard output.
    #[must_use]
    pub fn on_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Prints `message` as one JSON document, or what `table` makes of it in as many columns as it is given.
    ///
    /// # Errors
    /// When standard output is closed, or its file system is full.
    pub fn print<M: Serialize>(
        &self,
        message: &M,
        table: impl FnOnce(&M, usize) -> String,
    ) -> Result<(), Error> {
        match self.format {
            Format::Json => self.text(&json(message, Layout::Pretty)),
            Format::Table => self.text(&self.rendered(message, table)),
        }
    }

    /// Prints `message` like [`Output::print`], but JSON on one line: for answers that follow one another.
    ///
    /// # Errors
    /// When standard output is closed, or its file system is full.
    pub fn print_one_of_many<M: Serialize>(
        &self,
        message: &M,
        table: impl FnOnce(&M, usize) -> String,
    ) -> Result<(), Error> {
        self.text(&self.rendered(message, table))
    }

    /// `message` as [`Output::print_one_of_many`] prints it, without the last line end.
    #[must_use]
    pub fn rendered<M: Serialize>(
        &self,
        message: &M,
        table: impl FnOnce(&M, usize) -> String,
    ) -> String {
        match self.format {
            Format::Json => json(message, Layout::Line),
            Format::Table => {
                let (columns, _) = terminal();
                let plain = printable(table(message, columns).trim_end());
                if self.colour { paint::words(&plain) } else { plain }
            }
        }
    }

    /// Prints `text` and a line end.
    ///
    /// # Errors
    /// When standard output is closed, or its file system is full.
    pub fn text(&self, text: &str) -> Result<(), Error> {
        if self.quiet {
            return Ok(());
        }
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Error::answer)
    }
}

/// Columns and rows of the terminal on standard output. If there is none, the columns are those of the variable
/// `COLUMNS`; without this variable, lines have no limit.
#[must_use]
pub fn terminal() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let (of_terminal, rows) = size.map_or((0, 0), |w| (w.ws_col, w.ws_row));
    let variable = std::env::var("COLUMNS").ok();
    (columns(of_terminal, variable.as_deref()), if rows == 0 { HEIGHT } else { usize::from(rows) })
}

/// Columns of the terminal on standard error; without a limit if there is none.
#[must_use]
pub fn error_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    columns(size.map_or(0, |w| w.ws_col), None)
}

/// The columns to print in, if the terminal has `of_terminal` of them, 0 for no terminal, and the variable `COLUMNS`
/// has the value `variable`.
fn columns(of_terminal: u16, variable: Option<&str>) -> usize {
    match (of_terminal, variable.and_then(|text| text.trim().parse::<usize>().ok())) {
        (0, None | Some(0)) => WIDTH_UNLIMITED,
        (0, Some(asked)) => asked.max(WIDTH_MIN),
        (terminal, _) => usize::from(terminal).clamp(WIDTH_MIN, WIDTH_MAX),
    }
}

/// `text` without characters that tell a terminal to do something: names and models come from elsewhere.
#[must_use]
pub fn printable(text: &str) -> String {
    let seen = |c: char| match c {
        KEPT_BLANK => ' ',
        c if c.is_control() && c != '\n' => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(seen).collect()
}

/// How a JSON document is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Over several lines, for one answer.
    Pretty,
    /// On one line, for answers that follow one another.
    Line,
}

/// `message` as JSON.
#[must_use]
pub fn json<M: Serialize>(message: &M, layout: Layout) -> String {
    let text = match layout {
        Layout::Pretty => serde_json::to_string_pretty(message),
        Layout::Line => serde_json::to_string(message),
    };
    text.expect("messages hold only numbers, texts and lists, which always have a JSON form")
}

/// Prints `text` and a line end to standard error. A closed standard error must not end the command: there may be
/// a daemon to stop and files to remove, and the text has no reader.
pub fn tell(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", printable(&text.to_string()));
}

/// As [`tell`], for sentences: on a terminal they are folded between words, elsewhere they stay as they are.
pub fn tell_person(text: &str) {
    let width = error_columns();
    if width == WIDTH_UNLIMITED {
        return tell(text);
    }
    for line in text.lines() {
        // What is a line of its own in the text, such as a remedy, keeps its indent.
        let begin: String = line.chars().take_while(|c| *c == ' ').collect();
        tell(format_args!("{begin}{}", crate::text::wrapped(line, width, begin.len().max(2))));
    }
}

#[cfg(test)]
mod tests {
    use super::{WIDTH_UNLIMITED, columns, printable};

    /// The history: output to a pipe had 80 columns whatever `COLUMNS` said, and long names in it were shortened.
    #[test]
    fn a_pipe_has_the_columns_of_the_variable_or_no_limit() {
        let check = |terminal: u16, variable: Option<&str>, want: usize| {
            assert_eq!(columns(terminal, variable), want, "{terminal} {variable:?}");
        };
        check(0, None, WIDTH_UNLIMITED);
        check(0, Some("200"), 200);
        check(0, Some("60"), 60);
        check(0, Some("1"), 40);
        for other in ["", "0", "-1", "wide"] {
            check(0, Some(other), WIDTH_UNLIMITED);
        }
        check(100, Some("60"), 100);
        check(400, None, 160);
    }

    #[test]
    fn kept_blanks_are_printed_as_blanks() {
        assert_eq!(printable("a\u{1f}b\x1b"), "a b\u{fffd}");
    }
}
