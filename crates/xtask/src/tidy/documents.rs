//! ARCHITECTURE.md promises that each invariant has a check; a check it names must exist.
//!
//! In its text, `path/to/file.rs::name` in backticks is a test function, and `tidy name` in backticks a rule
//! of this tool.

use super::finding::Finding;
use super::repo::Repo;
use super::{RULES, lex};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks every reference in ARCHITECTURE.md.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let text = repo.files.get(ARCHITECTURE).map_or("", String::as_str);
    let mut findings = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            if let Some(message) = problem(quoted, repo) {
                let path = ARCHITECTURE.to_string();
                findings.push(Finding { path, line: n + 1, rule: "references", message });
            }
        }
    }
    findings
}

fn problem(quoted: &str, repo: &Repo) -> Option<String> {
    if let Some(rule) = quoted.strip_prefix("tidy ") {
        let known = RULES.iter().any(|(name, _)| *name == rule);
        return (!known).then(|| format!("`{rule}` is not a rule of tidy"));
    }
    let (path, function) = quoted.split_once(".rs::")?;
    let path = format!("{path}.rs");
    let Some(source) = repo.source(&path) else {
        return Some(format!("{path} does not exist"));
    };
    let declaration = format!("fn {function}");
    let declared = lex::find_words(&source.code, &declaration).next().is_some();
    (!declared).then(|| format!("{path} has no function `{function}`"))
}
