//! Words that STYLE.md's glossary replaces. Documents use the terms of the field; this list holds the ones that came
//! back most often.
//!
//! Checked are Markdown pages, the string literals of the programs (messages, events, metrics), and the comments that
//! users read: the help texts of commands and the comments of the API. Identifiers must not hold the words of
//! [`DENIED_IN_NAMES`], and other comments not those of [`DENIED_IN_COMMENTS`], in tests too. Code in backticks, code
//! blocks, generated pages and the glossary itself are not checked: they quote.

use super::finding::Finding;
use super::lex::{self, Class};
use super::repo::Repo;
use super::source::Source;

/// What must not be written, in lower case, and what to write in its place.
pub const DENIED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("another machine", "another host, or remote"),
    ("anybody", "the host or operator"),
    ("anyone", "the host or operator"),
    ("begun", "started"),
    ("came back", "returned"),
    ("clerk", "reservation thread"),
    ("come back", "return"),
    ("comes back", "returns"),
    ("everybody", "every member"),
    ("everyone", "every member"),
    ("for ever", "permanently"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("heal", "repair or rewrite"),
    ("healed", "repaired or rewritten"),
    ("heals", "repairs or rewrites"),
    ("is no more", "was removed"),
    ("let in", "accepted"),
    ("lobby", "acceptor"),
    ("made up from", "reconstructed from"),
    ("mend", "repair or rewrite"),
    ("mended", "repaired or rewritten"),
    ("mends", "repairs or rewrites"),
    ("newcomer", "accepted connection"),
    ("nobody", "no host or no member"),
    ("other machines", "other hosts, or remote"),
    ("put right", "repaired"),
    ("puts right", "repairs"),
    ("somebody", "the host or operator"),
    ("someone", "the host or operator"),
    ("stand still", "stall"),
    ("stands still", "stalls"),
    ("standstill", "stall"),
    ("tells of", "reports"),
    ("told", "reported or notified"),
    ("twin", "replacement"),
    ("under way", "in progress"),
    ("whoever", "the host or operator"),
    ("whomever", "the host or operator"),
];

/// Words of [`DENIED`] that no identifier holds either.
const DENIED_IN_NAMES: [&str; 14] = [
    "anew",
    "anybody",
    "anyone",
    "clerk",
    "everybody",
    "everyone",
    "lobby",
    "newcomer",
    "nobody",
    "somebody",
    "someone",
    "told",
    "twin",
    "whoever",
];

/// Words of [`DENIED`] that no comment of a source has either.
const DENIED_IN_COMMENTS: [&str; 7] =
    ["anew", "anybody", "nobody", "somebody", "someone", "told", "whoever"];

/// Pages that name these words on purpose: the glossary, and the history of releases.
const EXEMPT: [&str; 2] = ["CHANGELOG.md", "STYLE.md"];

/// What a generated page says of itself.
const GENERATED: &str = "do not edit";

/// Rows of this table repeat the texts of the program; a test compares them.
const QUOTED_TABLE: &str = "docs/events.md";

/// Crates whose messages only developers read.
pub(super) const TOOLS: [&str; 3] = ["fuzz", "sim", "xtask"];

/// Sources whose documentation comments are the help texts of commands.
const HELP: [&str; 3] =
    ["crates/bench/src/program/args", "crates/cli/src/args", "crates/daemon/src/args"];

/// Checks every Markdown page, every source and every interface definition.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let pages = repo.files.iter().filter(|(path, text)| is_checked(path, text));
    let mut findings: Vec<Finding> =
        pages.flat_map(|(path, text)| denied(path, &prose(text, path == QUOTED_TABLE))).collect();
    findings.extend(repo.sources.iter().flat_map(check_source));
    findings.extend(repo.sources.iter().flat_map(check_names));
    findings.extend(repo.sources.iter().flat_map(check_comments));
    let interfaces = repo.files.iter().filter(|(path, _)| path.ends_with(".proto"));
    findings.extend(interfaces.flat_map(|(path, text)| denied(path, &comments(text))));
    let documents = repo.files.iter().filter(|(path, _)| path.ends_with(".md"));
    findings.extend(documents.flat_map(|(path, text)| conflicts(path, text)));
    findings
}

/// Lines that git leaves where two changes of a document met. Markdown renders them, so nothing else fails.
fn conflicts(path: &str, text: &str) -> Vec<Finding> {
    let is_mark = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    let marks = text.lines().enumerate().filter(|(_, line)| is_mark(line));
    let finding = |(at, _)| Finding {
        path: path.to_string(),
        line: at + 1,
        rule: "conflicts",
        message: "a mark of a merge conflict".into(),
    };
    marks.map(finding).collect()
}

fn is_checked(path: &str, text: &str) -> bool {
    path.ends_with(".md") && !EXEMPT.contains(&path) && !text.contains(GENERATED)
}

/// The literals of a source outside of tests, and the comments that become help texts.
fn check_source(source: &Source) -> Vec<Finding> {
    let folder = source.crate_folder().unwrap_or_default();
    if folder.is_empty() || TOOLS.contains(&folder) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let is_help = HELP.iter().any(|path| source.path.starts_with(path));
    let mut words = Vec::new();
    let mut at = 0;
    for run in source.classes.chunk_by(|a, b| a == b) {
        let text = source.text.get(at..at + run.len()).unwrap_or_default();
        let line = lex::line_of(&source.text, at);
        at += run.len();
        let is_read = match run[0] {
            Class::Literal => true,
            Class::Comment => is_help && text.starts_with("///"),
            Class::Code => false,
        };
        if is_read && !source.is_test_line(line) {
            let lines = text.lines().enumerate();
            words.extend(lines.flat_map(|(n, text)| words_of(text).map(move |w| (line + n, w))));
            // The last word of one text and the first of the next are no phrase.
            words.push((line, String::new()));
        }
    }
    findings.extend(denied(&source.path, &words));
    findings
}

/// The identifiers of a source.
fn check_names(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (n, line) in source.code.lines().enumerate() {
        let names = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in names.filter(|name| !name.is_empty()) {
            let parts = parts_of(name);
            let held = DENIED_IN_NAMES.iter().find(|word| parts.iter().any(|part| part == *word));
            let Some(word) = held else { continue };
            let message =
                format!("the identifier `{name}` holds `{word}`, which STYLE.md replaces");
            findings.push(Finding {
                path: source.path.clone(),
                line: n + 1,
                rule: "words",
                message,
            });
        }
    }
    findings
}

/// The comments of a source.
fn check_comments(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut at = 0;
    for run in source.classes.chunk_by(|a, b| a == b) {
        let text = source.text.get(at..at + run.len()).unwrap_or_default();
        let line = lex::line_of(&source.text, at);
        at += run.len();
        if run[0] != Class::Comment {
            continue;
        }
        for (n, text) in text.lines().enumerate() {
            for word in words_of(text).filter(|word| DENIED_IN_COMMENTS.contains(&word.as_str())) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line: line + n,
                    rule: "words",
                    message: format!("a comment has the word `{word}`, which STYLE.md replaces"),
                });
            }
        }
    }
    findings
}

/// The words of an identifier, in lower case.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lower) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    parts
}

/// The comments of an interface definition.
fn comments(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    let comments = lines.filter_map(|(n, line)| Some((n + 1, line.split_once("//")?.1)));
    comments.flat_map(|(n, text)| words_of(text).map(move |word| (n, word))).collect()
}

/// What `words`, each with its line, hold of [`DENIED`].
fn denied(path: &str, words: &[(usize, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (denied, instead) in DENIED {
        let parts: Vec<&str> = denied.split(' ').collect();
        let is_here = |window: &&[(usize, String)]| {
            window.iter().zip(&parts).all(|((_, word), part)| word == part)
        };
        for window in words.windows(parts.len()).filter(is_here) {
            let message = format!("`{denied}`: write `{instead}`, or name the subject");
            let line = window[0].0;
            findings.push(Finding { path: path.to_string(), line, rule: "words", message });
        }
    }
    findings
}

/// The words of a page outside of code, in lower case, with their lines. Code in backticks counts as one word.
fn prose(text: &str, quoted_rows: bool) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let mut in_block = false;
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let quoted = quoted_rows && line.starts_with("| `");
            words.extend(words_of(if quoted { "" } else { line }).map(|word| (n + 1, word)));
        }
    }
    words
}

/// The words of a line, without code and without the targets of links.
fn words_of(line: &str) -> impl Iterator<Item = String> {
    line.split('`').enumerate().flat_map(|(at, piece)| {
        let piece = if at % 2 == 1 { "x".to_string() } else { without_targets(piece) };
        let apart = piece.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let words = apart.filter(|word| !word.is_empty()).map(str::to_lowercase);
        words.collect::<Vec<String>>()
    })
}

fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or_default().to_string();
    for part in parts {
        kept.push(' ');
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}
