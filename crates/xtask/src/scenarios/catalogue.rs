//! The catalogue, `docs/scenarios.md`, as data, and what may be wrong with it.
//!
//! A row is a line of a Markdown table with three cells: the scenario, what it means, and what shows it. What shows
//! it is `none yet`, or tests in backticks (`path/file.rs::function`, or a script below `tests/`); the words beside
//! the backticks, or behind `none yet`, are a note on what the tests leave open.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ids;
use crate::tidy::finding::Finding;
use crate::tidy::lex;
use crate::tidy::repo::Repo;
use crate::tidy::source::Source;

/// Where the catalogue is.
pub const PATH: &str = "docs/scenarios.md";
/// What a row says that has no test.
pub const NONE_YET: &str = "none yet";

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// `F01`, `B01`, or the name of a test of mdadm.
    pub id: String,
    /// What it is about, in a line.
    pub meaning: String,
    /// What shows it.
    pub tests: Shown,
    /// What the tests leave open; empty when nothing does.
    pub note: String,
    /// Line in the catalogue, counted from 1.
    #[serde(skip)]
    pub line: usize,
}

/// What shows a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Shown {
    /// Test functions and scripts.
    By(Vec<String>),
    /// The words [`NONE_YET`].
    NoneYet(&'static str),
}

impl Scenario {
    /// The tests, none when there are none yet.
    pub fn claims(&self) -> &[String] {
        match &self.tests {
            Shown::By(tests) => tests,
            Shown::NoneYet(_) => &[],
        }
    }
}

/// Every row of the catalogue, in its order. Tables with another number of columns are left alone.
pub fn parse(text: &str) -> Vec<Scenario> {
    text.lines().enumerate().filter_map(|(n, line)| row(line, n + 1)).collect()
}

fn row(line: &str, number: usize) -> Option<Scenario> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    let &[id, meaning, shown] = cells.as_slice() else { return None };
    if id == "id" || id.chars().all(|c| c == '-') {
        return None;
    }
    let tests: Vec<String> = shown.split('`').skip(1).step_by(2).map(str::to_string).collect();
    let said: Vec<&str> = shown.split('`').step_by(2).collect();
    let said = said.join(" ");
    let note = said.trim().trim_start_matches(NONE_YET);
    let note = note.trim_matches(|c: char| c.is_whitespace() || ",;:".contains(c)).to_string();
    let tests = if tests.is_empty() && said.trim().starts_with(NONE_YET) {
        Shown::NoneYet(NONE_YET)
    } else {
        Shown::By(tests)
    };
    Some(Scenario { id: id.to_string(), meaning: meaning.to_string(), tests, note, line: number })
}

/// Everything wrong with the catalogue of `repo`: the rule `scenarios` of tidy.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let Some(text) = repo.files.get(PATH) else {
        return vec![finding(PATH, 0, format!("{PATH} does not exist"))];
    };
    let scenarios = parse(text);
    let ids = ids::all();
    let mut findings = rows_against_ids(&scenarios, &ids);
    for scenario in &scenarios {
        findings.extend(claims(scenario, repo));
    }
    findings.extend(unlisted(&scenarios, &ids, repo));
    findings
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding { path: path.to_string(), line, rule: "scenarios", message }
}

/// Rows that are missing, there twice, or about nothing known.
fn rows_against_ids(scenarios: &[Scenario], ids: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for scenario in scenarios {
        let id = scenario.id.as_str();
        if !ids.iter().any(|known| known == id) {
            let message = format!(
                "there is no scenario {id:?}; crates/xtask/src/scenarios/ids.rs lists them"
            );
            findings.push(finding(PATH, scenario.line, message));
        }
        if !seen.insert(id) {
            findings.push(finding(PATH, scenario.line, format!("{id} has a row already")));
        }
    }
    for id in ids.iter().filter(|id| !seen.contains(id.as_str())) {
        findings.push(finding(
            PATH,
            0,
            format!("{id} has no row; write `{NONE_YET}` when nothing shows it"),
        ));
    }
    findings
}

/// Claims of one row that nothing stands behind.
fn claims(scenario: &Scenario, repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |message| findings.push(finding(PATH, scenario.line, message));
    if matches!(&scenario.tests, Shown::By(tests) if tests.is_empty()) {
        say(format!("{} names no test and does not say `{NONE_YET}`", scenario.id));
    }
    for claim in scenario.claims() {
        let problem = match claim.split_once("::") {
            None if claim.starts_with("tests/") && repo.files.contains_key(claim) => None,
            None => Some(format!("{claim} is no script below tests/")),
            Some((path, function)) => match repo.source(path) {
                None => Some(format!("{path} does not exist")),
                Some(source) if tests_of(source).any(|(name, _)| name == function) => None,
                Some(_) => Some(format!("{path} has no test function `{function}`")),
            },
        };
        problem.into_iter().for_each(&mut say);
    }
    findings
}

/// Tests that are named after a scenario whose row does not list them.
fn unlisted(scenarios: &[Scenario], ids: &[String], repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &repo.sources {
        for (function, line) in tests_of(source) {
            let claim = format!("{}::{function}", source.path);
            for id in ids::named_after(&function, ids) {
                let listed = |s: &Scenario| s.id == id && s.claims().contains(&claim);
                if !scenarios.iter().any(listed) {
                    let message = format!(
                        "`{claim}` is named after {id}, whose row in {PATH} does not list it"
                    );
                    findings.push(finding(&source.path, line, message));
                }
            }
        }
    }
    findings
}

/// Names and lines of the functions of a source that carry a test attribute (`#[test]`, `#[tokio::test]` and so on).
pub fn tests_of(source: &Source) -> impl Iterator<Item = (String, usize)> + '_ {
    let attributes =
        source.code.match_indices("test").filter_map(|(at, _)| attribute_end(&source.code, at));
    attributes.filter_map(|end| function_after(&source.code, end))
}

/// When the word at `at` is the last of an attribute's path, the offset behind the attribute.
fn attribute_end(code: &str, at: usize) -> Option<usize> {
    let head = code[..at].rsplit_once("#[")?.1;
    if !head.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
        return None;
    }
    if !head.is_empty() && !head.ends_with("::") {
        return None;
    }
    let rest = &code[at + "test".len()..];
    match rest.chars().next()? {
        ']' => Some(at + "test".len() + 1),
        '(' => Some(at + "test".len() + rest.find(")]")? + 2),
        _ => None,
    }
}

/// The function declared next, with the line of its name, over further attributes and `async`.
fn function_after(code: &str, mut at: usize) -> Option<(String, usize)> {
    loop {
        let rest = code[at..].trim_start();
        at = code.len() - rest.len();
        if rest.starts_with("#[") {
            at += rest.find(']')? + 1;
        } else if let Some(name) = rest.strip_prefix("fn ") {
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            return Some((name[..end].to_string(), lex::line_of(code, at)));
        } else if let Some(word) =
            ["async ", "pub "].into_iter().find(|word| rest.starts_with(word))
        {
            at += word.len();
        } else {
            return None;
        }
    }
}
