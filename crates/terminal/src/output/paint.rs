//! Colour for terminals. It repeats what words say and adds nothing: without it, nothing is missing.

/// Words of states and severities, and what they are painted with (ECMA-48 SGR).
const WORDS: [(&str, &[&str]); 3] = [
    ("\x1b[32m", &["ok", "online", "in_sync", "ready", "free"]),
    (
        "\x1b[33m",
        &[
            "degraded",
            "warning",
            "rebuilding",
            "rebuild_halted",
            "corrupt",
            "in_doubt",
            "resyncing",
            "starting",
            "initializing",
            "missing",
            "paused",
            "halted",
            "busy",
            "occupied",
        ],
    ),
    ("\x1b[31m", &["failed", "no_redundancy", "faulty", "lost", "offline", "critical"]),
];

/// Back to how text looked before.
const PLAIN: &str = "\x1b[0m";

/// `text` with its words of state painted.
#[must_use]
pub fn words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(in_word) {
        let (before, word) = rest.split_at(begin);
        let end = word.find(|c| !in_word(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        out.push_str(before);
        match colour(word) {
            Some(colour) => out.extend([colour, word, PLAIN]),
            None => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Paths, names and commands hang together by these, so that no part of one is taken for a word.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || "_-/.:=@".contains(c)
}

fn colour(word: &str) -> Option<&'static str> {
    // A colon after the object of a sentence is not part of it.
    let word = word.trim_end_matches([':', '.']);
    WORDS.iter().find(|(_, words)| words.contains(&word)).map(|(colour, _)| *colour)
}

/// `text` without what [`words`] added.
#[must_use]
pub fn plain(text: &str) -> String {
    WORDS.iter().fold(text.replace(PLAIN, ""), |text, (colour, _)| text.replace(colour, ""))
}
