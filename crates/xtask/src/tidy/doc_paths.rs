//! Documents that walk through the code name files and functions, and the code moves on.
//!
//! In the documents listed here, `path.rs` in backticks is a source and `path.rs::name` something declared in
//! it; further parts, as in `path.rs::Type::method`, have to occur in it. A path is whole or a whole ending of
//! one, such as `shard/driver.rs`, as long as only one source ends so.

use super::finding::Finding;
use super::lex;
use super::repo::Repo;
use super::source::Source;

const DOCUMENTS: [&str; 6] = [
    "docs/guarantees.md",
    "docs/io-path.md",
    "docs/tour/1-stripe.md",
    "docs/tour/2-drive.md",
    "docs/tour/3-request.md",
    "docs/tour/4-command.md",
];

const DECLARATIONS: [&str; 6] = ["fn", "struct", "enum", "trait", "const", "type"];

/// Checks every name of a source in the documents.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = repo.files.get(document).map_or("", String::as_str);
        for (n, line) in text.lines().enumerate() {
            for quoted in line.split('`').skip(1).step_by(2) {
                if let Some(message) = problem(quoted, repo) {
                    let path = document.to_string();
                    findings.push(Finding { path, line: n + 1, rule: "doc-paths", message });
                }
            }
        }
    }
    findings
}

fn problem(quoted: &str, repo: &Repo) -> Option<String> {
    let (stem, name) = match quoted.split_once(".rs::") {
        Some((stem, name)) => (stem, Some(name)),
        None => (quoted.strip_suffix(".rs")?, None),
    };
    let path = format!("{stem}.rs");
    let found: Vec<&Source> =
        repo.sources.iter().filter(|source| is_ending(&source.path, &path)).collect();
    match (found.as_slice(), name) {
        ([], _) => Some(format!("{path} does not exist")),
        ([_], None) => None,
        ([source], Some(name)) => undeclared(source, name),
        ([first, second, ..], _) => {
            Some(format!("{path} may be {} or {}; name more of its path", first.path, second.path))
        }
    }
}

/// True when `end` is all of `path`, or its last folders and its file.
fn is_ending(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

fn undeclared(source: &Source, name: &str) -> Option<String> {
    let mut parts = name.split("::");
    let first = parts.next().unwrap_or_default();
    let declares = |word: &&str| {
        let declaration = format!("{word} {first}");
        lex::find_words(&source.code, &declaration).next().is_some()
    };
    if DECLARATIONS.iter().find(|word| declares(word)).is_none() {
        return Some(format!("{} declares no `{first}`", source.path));
    }
    let absent = parts.find(|part| lex::find_words(&source.code, part).next().is_none())?;
    Some(format!("{} has no `{absent}`", source.path))
}
