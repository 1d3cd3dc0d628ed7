//! Rules about single sources: things that must not be written.

use super::finding::Finding;
use super::layers;
use super::lex::{self, Class};
use super::repo::Repo;
use super::source::Source;

const COLUMNS_MAX: usize = 120;

/// Names that make a function depend on more than its arguments.
const IMPURE: [&str; 16] = [
    "std::time",
    "core::time",
    "Instant",
    "SystemTime",
    "std::thread",
    "thread_local",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "HashMap",
    "HashSet",
    "RandomState",
    "rand",
    "getrandom",
];

/// Crates that may sleep: they wait for people and processes, not for I/O.
const MAY_SLEEP: [&str; 4] = ["xtask", "cli", "control", "daemon"];

/// Modules whose glob import is understood: every name in them carries the prefix of its instruction set.
const GLOB_ALLOWED: [&str; 4] =
    ["core::arch::x86_64", "std::arch::x86_64", "core::arch::aarch64", "std::arch::aarch64"];

/// Checks every source of the repository.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let table = layers::table(repo);
    let mut findings = Vec::new();
    for source in &repo.sources {
        let is_pure = source
            .crate_folder()
            .and_then(|folder| table.get(folder))
            .is_some_and(|row| row.is_pure());
        if is_pure {
            findings.extend(check_pure(source));
        }
        findings.extend(check_globs(source));
        findings.extend(check_attributes(source));
        findings.extend(check_sleep(source));
        findings.extend(check_unfinished(source));
        findings.extend(check_ascii(source));
        findings.extend(check_columns(source));
    }
    findings
}

fn finding(source: &Source, offset: usize, rule: &'static str, message: String) -> Finding {
    Finding { path: source.path.clone(), line: lex::line_of(&source.code, offset), rule, message }
}

/// Places of `word` in code that is not a test.
fn outside_tests<'a>(source: &'a Source, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    lex::find_words(&source.code, word)
        .filter(|&at| !source.is_test_line(lex::line_of(&source.code, at)))
}

fn check_pure(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for word in IMPURE {
        for at in outside_tests(source, word) {
            let message =
                format!("`{word}` in a pure crate; take the value as an argument instead");
            findings.push(finding(source, at, "pure", message));
        }
    }
    findings
}

fn check_globs(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in outside_tests(source, "use") {
        let statement = &source.code[at..statement_end(&source.code, at)];
        for module in globbed_modules(statement) {
            let message = format!(
                "glob import of `{module}`; name what is used, so that every name has a visible origin"
            );
            findings.push(finding(source, at, "globs", message));
        }
    }
    findings
}

/// Paths in a `use` statement that end in `::*` and whose last name is a module, that is, in lower case.
fn globbed_modules(statement: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (end, _) in statement.match_indices("::*") {
        let head = &statement[..end];
        let start =
            head.rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').map_or(0, |n| n + 1);
        let path = &head[start..];
        let last = path.rsplit("::").next().unwrap_or(path);
        let is_type = last.starts_with(|c: char| c.is_ascii_uppercase());
        if !is_type && !GLOB_ALLOWED.contains(&path) {
            modules.push(path.to_string());
        }
    }
    modules
}

fn check_attributes(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, _) in source.code.match_indices("#[ignore") {
        findings.push(finding(
            source,
            at,
            "tests",
            "a test that is not run proves nothing: fix or delete it".into(),
        ));
    }
    for at in lex::find_words(&source.code, "should_panic") {
        let message = "should_panic accepts any panic: check the error instead".to_string();
        findings.push(finding(source, at, "tests", message));
    }
    findings
}

fn check_sleep(source: &Source) -> Vec<Finding> {
    if source.crate_folder().is_some_and(|folder| MAY_SLEEP.contains(&folder)) {
        return Vec::new();
    }
    let message = "thread::sleep: wait for the event itself, tests included";
    lex::find_words(&source.code, "thread::sleep")
        .map(|at| finding(source, at, "sleep", message.into()))
        .collect()
}

fn check_unfinished(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in ["todo!", "unimplemented!"] {
        for at in lex::find_words(&source.code, name) {
            findings.push(finding(source, at, "unfinished", format!("{name}() is not an answer")));
        }
    }
    findings
}

/// At most one finding per line.
fn check_ascii(source: &Source) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (at, c) in source.text.char_indices().filter(|(_, c)| !c.is_ascii()) {
        let line = lex::line_of(&source.text, at);
        let allowed = source.classes[at] == Class::Literal && source.is_test_line(line);
        if !allowed && findings.last().is_none_or(|last| last.line != line) {
            let message = format!("character {} is not ASCII", c.escape_unicode());
            findings.push(Finding { path: source.path.clone(), line, rule: "ascii", message });
        }
    }
    findings
}

fn check_columns(source: &Source) -> Vec<Finding> {
    let long = |(n, line): (usize, &str)| {
        let columns = line.chars().count();
        let message = format!("{columns} columns, the limit is {COLUMNS_MAX}");
        (columns > COLUMNS_MAX).then(|| Finding {
            path: source.path.clone(),
            line: n + 1,
            rule: "columns",
            message,
        })
    };
    source.text.lines().enumerate().filter_map(long).collect()
}

/// The offset of the semicolon that ends the statement at `at`.
fn statement_end(code: &str, at: usize) -> usize {
    code[at..].find(';').map_or(code.len(), |n| at + n)
}
