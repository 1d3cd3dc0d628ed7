//! What people see. Every function here is text out of a message and a width, so that tests can hold them.

pub mod array;
pub mod daemon;
pub mod drive;
pub mod export;
pub mod status;

#[cfg(test)]
mod tests;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use strake_units::ByteSize;

/// An empty table with `headers`, columns apart by two spaces and no lines: it pastes well into a mail.
fn columns(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headers.iter().map(|h| h.to_uppercase()));
    table
}

/// `table` as text: nothing before the first column or after the last.
fn render(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Aligns the `index`th column to the right, for numbers.
fn right(table: &mut Table, index: usize) {
    if let Some(column) = table.column_mut(index) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A byte count for people.
fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// At most `width` characters of `text`, keeping its end: of a path, the end is what differs.
fn tail(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - width.saturating_sub(3)).collect();
    format!("...{kept}")
}

/// At most `width` characters of `text`, keeping its beginning.
fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{kept}...")
}

/// Characters of the longest of `texts`, but at least `min` and at most `max`.
fn widest<'a>(texts: impl Iterator<Item = &'a str>, min: usize, max: usize) -> usize {
    texts.map(|t| t.chars().count()).max().unwrap_or(0).clamp(min, max)
}

/// `text`, or `-` when there is none.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// `text` broken at spaces into lines of at most `width`, every one after the first indented by `indent`.
fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = indent;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > indent && used + 1 + len > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > indent {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += len;
    }
    out
}
