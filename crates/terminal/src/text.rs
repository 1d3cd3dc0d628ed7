//! Text that fits the screen.

use crate::limits::PATH_MIN;

/// A blank at which no line is broken and no text is cut (ASCII unit separator). It is printed as a blank.
pub const KEPT_BLANK: char = '\u{1f}';

/// `text` with each [`KEPT_BLANK`] as an ordinary blank.
#[must_use]
pub fn blanks(text: &str) -> String {
    text.replace(KEPT_BLANK, " ")
}

/// At most `width` characters of `text`, keeping both ends: of a path, either may be what
/// differs, and more often the last.
#[must_use]
pub fn middle(text: &str, width: usize) -> String {
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
#[must_use]
pub fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{kept}...")
}

/// `text` in lines of at most `width`, the first at the margin, the others indented a little.
#[must_use]
pub fn sentence(text: &str, width: usize) -> String {
    // The first line begins at the margin: folded as if it were indented, it could be longer by as much.
    wrapped(text, width, 2) + "\n"
}

/// `text` broken at spaces into lines of at most `width`, every one after the first indented by `indent`. A number
/// stays with its unit. A path that fits in no line is shortened in the middle. Words with a [`KEPT_BLANK`] between
/// them stay together and are never shortened, even if the line becomes longer than `width`.
#[must_use]
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    blanks(&folded(text, width, indent))
}

/// As [`wrapped`], with every [`KEPT_BLANK`] in its place.
pub(crate) fn folded(text: &str, width: usize, indent: usize) -> String {
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
    if word.chars().count() <= room || !word.contains('/') || word.contains(KEPT_BLANK) {
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

#[cfg(test)]
mod tests {
    use super::{KEPT_BLANK, wrapped};
    use crate::grid::{Column, Grid};

    /// The history: a command was broken between an option and its value, so that it could not be copied.
    #[test]
    fn words_that_stay_together_are_neither_broken_nor_cut() {
        let command = "strake array add tank --drive /dev/disk/by-id/nvme-eui.0025388b71b0a1c2";
        let text = format!("next: {}", command.replace(' ', &KEPT_BLANK.to_string()));
        for width in [20, 40, 80, usize::MAX] {
            let mut grid = Grid::new(&[Column::Number("number"), Column::Text("what")]);
            grid.row(["1".to_owned(), text.clone()]);
            for printed in [wrapped(&text, width, 2), grid.render(width)] {
                assert!(printed.lines().any(|line| line.contains(command)), "{width}: {printed}");
            }
        }
        assert_eq!(wrapped("a bc", 18, 16), "a\n                bc", "other words are broken");
    }
}
