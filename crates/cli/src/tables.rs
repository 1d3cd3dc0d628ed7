//! What people see. Every function here is text out of a message and a width, so that tests can hold them.

pub mod array;
pub mod bench;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod drive;
pub mod errors;
pub mod event;
pub mod export;
mod grid;
pub mod hook;
pub mod host;
pub mod job;
mod queue;
pub mod scrub;
pub mod show;
pub mod spare;
pub mod stats;
pub mod status;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use strake_units::ByteSize;

/// Where the values of a list of `name value` lines begin.
const INDENT: usize = 11;

/// Fewest characters that a path is shortened to.
const PATH_MIN: usize = 16;

/// A byte count for people.
fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// `one` thing or several of them, with their number.
fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// At most `width` characters of `text`, keeping both ends: of a path, either may be what
/// differs, and more often the last.
fn middle(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(3);
    let end = kept * 2 / 3;
    let first: String = text.chars().take(kept - end).collect();
    let last: String = text.chars().skip(count - end).collect();
    format!("{first}...{last}")
}

/// At most `width` characters of `text`, keeping its beginning.
pub(crate) fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{kept}...")
}

/// `text`, or `-` when there is none.
fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Adds `name value` to `out`, folded at `width`; nothing when there is no value.
fn field(out: &mut String, name: &str, value: &str, width: usize) {
    if !value.is_empty() {
        let indent = INDENT.max(name.len() + 1);
        let _ = writeln!(out, "{name:<10} {}", wrapped(value, width, indent));
    }
}

/// Adds the steps of a plan to `out`.
fn steps(out: &mut String, plan: &[String], width: usize) {
    for step in plan {
        let _ = writeln!(out, "  - {}", wrapped(step, width, 4));
    }
}

/// `text` in lines of at most `width`, the first at the margin, the others indented a little.
fn sentence(text: &str, width: usize) -> String {
    // The first line begins at the margin: folded as if it were indented, it could be longer by as much.
    wrapped(text, width, 2) + "\n"
}

/// `text` broken at spaces into lines of at most `width`, every one after the first indented by `indent`. A number
/// stays with its unit. A path that fits in no line is shortened in the middle.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let room = width.saturating_sub(indent).max(PATH_MIN);
    let mut out = String::new();
    let mut used = indent;
    for word in words(text) {
        let mut gap = " ";
        for part in parts(&word, room) {
            let len = part.chars().count();
            if used > indent && used + gap.len() + len > width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                used = indent;
            } else if used > indent {
                out.push_str(gap);
                used += gap.len();
            }
            out.push_str(&part);
            used += len;
            gap = "";
        }
    }
    out
}

/// `word` as it is if it fits in `room`; otherwise a list without blanks falls apart after its commas, and paths are
/// shortened.
fn parts(word: &str, room: usize) -> Vec<String> {
    if word.chars().count() <= room || !word.contains('/') {
        return vec![word.to_owned()];
    }
    word.split_inclusive(',').map(|part| middle(part, room)).collect()
}

/// The words of `text`, a number and its unit as one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(last) if is_unit(word) && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => words.push(word.to_owned()),
        }
    }
    words
}

fn is_unit(word: &str) -> bool {
    let word = word.trim_end_matches([',', '.', ';', ':', ')']);
    let word = word.strip_suffix("/s").unwrap_or(word);
    ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "bytes", "s", "ms", "us"].contains(&word)
}
