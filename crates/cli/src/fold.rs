//! Text in lines that fit the screen, with its commands in one piece: a command that is broken cannot be copied.

use strake_terminal::output;
use strake_terminal::text::{self, KEPT_BLANK};

/// The word that every command begins with.
const PROGRAM: &str = "strake";

/// As [`text::wrapped`], but a command stays in one line.
#[must_use]
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    text::wrapped(&kept(text), width, indent)
}

/// As [`text::sentence`], but a command stays in one line.
#[must_use]
pub fn sentence(text: &str, width: usize) -> String {
    text::sentence(&kept(text), width)
}

/// As [`output::tell_person`], but a command stays in one line.
pub fn tell_person(text: &str) {
    output::tell_person(&kept(text));
}

/// `text` with a [`KEPT_BLANK`] between the words of each command. A command begins with the word `strake` before the
/// name of an object or a flag. It ends at the next punctuation mark, or with the line.
#[must_use]
pub fn kept(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = begin(rest) {
        let (before, command) = rest.split_at(begin);
        let (command, after) = command.split_at(end(command));
        out.push_str(before);
        out.extend(command.chars().map(|c| if c == ' ' { KEPT_BLANK } else { c }));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Where the first command of `text` begins.
fn begin(text: &str) -> Option<usize> {
    let begins = |at: usize| {
        let is_word = !text[..at].ends_with(|c: char| !" \n(`\"\u{1f}".contains(c));
        let next = text[at + PROGRAM.len()..].strip_prefix(' ');
        is_word && next.is_some_and(|n| n.starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
    };
    text.match_indices(PROGRAM).map(|(at, _)| at).find(|at| begins(*at))
}

/// Where the command at the beginning of `text` ends: at a parenthesis, a backquote, the end of the line, or a
/// punctuation mark at the end of a word. Within quotes, blanks and punctuation marks are part of the command.
fn end(text: &str) -> usize {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let is_last = rest.is_empty() || rest.starts_with([' ', '\n']);
        match c {
            '\'' => quoted = !quoted,
            '\n' | '`' | ')' => return at,
            ' ' if !quoted && rest.starts_with('(') => return at,
            ',' | ';' | '.' | ':' if !quoted && is_last && !text[..at].ends_with("..") => {
                return at;
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BLANK, kept, wrapped};

    /// The history: `strake array undelete old1` was broken after `strake`.
    #[test]
    fn a_command_is_never_broken() {
        let check = |text: &str, command: &str| {
            let whole = command.replace(' ', &KEPT_BLANK.to_string());
            assert_eq!(kept(text), text.replacen(command, &whole, 1), "{text}");
            for width in 20..100 {
                let folded = wrapped(text, width, 2);
                assert!(folded.lines().any(|line| line.contains(command)), "{width}: {folded}");
            }
        };
        check("to undo this: strake array undelete old1", "strake array undelete old1");
        check("strake array show tank, or wait", "strake array show tank");
        check("start it with `strake daemon start`, and", "strake daemon start");
        check("return it (strake drive list) or: wait", "strake drive list");
        check("or: strake job cancel a/b. Then wait", "strake job cancel a/b");
        check(
            "create: strake array create NAME --level 6 --drives ...",
            "strake array create NAME --level 6 --drives ...",
        );
        check("strake --socket /s status; x", "strake --socket /s status");
        check("do: strake drive clean '/a; b c' and", "strake drive clean '/a; b c' and");
        check(
            "add: strake array add tank --drive /dev/a,b; then",
            "strake array add tank --drive /dev/a,b",
        );
    }

    #[test]
    fn other_words_are_left_alone() {
        for text in [
            "strake: warning: a b",
            "/run/strake a",
            "straked is serving",
            "strake",
            "Strake array a",
        ] {
            assert_eq!(kept(text), text);
        }
    }
}
