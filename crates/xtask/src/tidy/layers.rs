//! Dependency arrows: the table in ARCHITECTURE.md against the manifests.
//!
//! The table is the authority. It is the one fenced block whose first line is [`HEADER`]; each further line
//! is a crate, its layer, the crates of ours it may depend on, and the third-party crates it may depend on.
//! A third-party cell may say `recorded`, which allows everything that has a decision record.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::lex;
use super::repo::{Package, Repo};

/// First line of the authoritative table, white space aside.
pub const HEADER: [&str; 4] = ["crate", "layer", "may depend on", "third parties"];
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const DECISIONS: &str = "docs/decisions/0002-dependencies.md";
const LAYERS: [&str; 9] = ["L0", "L0k", "L1", "L2", "L3", "L4", "L5", "L6", "tools"];

/// What one crate may depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Line in ARCHITECTURE.md, counted from 1.
    pub line: usize,
    /// Position of the crate's layer in [`LAYERS`], lowest first.
    layer: usize,
    /// Folders of our crates it may depend on.
    pub ours: Vec<String>,
    /// Third-party crates it may depend on; `None` means every recorded one.
    theirs: Option<Vec<String>>,
}

impl Row {
    /// True for crates that must stay pure.
    pub fn is_pure(&self) -> bool {
        LAYERS[self.layer] == "L0"
    }
}

/// Rows by crate folder.
pub type Table = BTreeMap<String, Row>;

/// The table of the repository; empty when there is none, which [`check`] reports.
pub fn table(repo: &Repo) -> Table {
    parse(repo.files.get(ARCHITECTURE).map_or("", String::as_str)).0
}

/// Compares the table, the manifests and the dependency record.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let (table, mut findings) = parse(repo.files.get(ARCHITECTURE).map_or("", String::as_str));
    findings.extend(check_table(&table, repo));
    for package in &repo.packages {
        match table.get(&package.folder) {
            Some(row) => findings.extend(check_package(package, row, repo)),
            None => findings.push(at_table(
                0,
                format!("crate `{}` has no row in the layer table", package.folder),
            )),
        }
    }
    findings
}

/// Development dependencies on crates of ours, which the table does not restrict, for printing.
pub fn development_arrows(repo: &Repo) -> Vec<String> {
    let mut arrows = Vec::new();
    for package in &repo.packages {
        let dev = package.dependencies.iter().filter(|d| d.kind.as_deref() == Some("dev"));
        let names: Vec<&str> = dev.map(|d| d.ours().unwrap_or(&d.name)).collect();
        if !names.is_empty() {
            arrows.push(format!("{} -> {}", package.folder, names.join(" ")));
        }
    }
    arrows
}

fn at_table(line: usize, message: String) -> Finding {
    Finding { path: ARCHITECTURE.to_string(), line, rule: "layers", message }
}

fn parse(text: &str) -> (Table, Vec<Finding>) {
    let mut table = Table::new();
    let mut findings = Vec::new();
    let mut inside = false;
    let mut found = false;
    for (number, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line)) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells == HEADER {
            (inside, found) = (true, true);
        } else if line.starts_with("```") {
            inside = false;
        } else if inside {
            match parse_row(number, &cells) {
                Ok((name, row)) => drop(table.insert(name, row)),
                Err(why) => findings.push(at_table(number, why)),
            }
        }
    }
    if !found {
        let header = HEADER.join(" | ");
        findings.push(at_table(0, format!("has no fenced table that starts with `{header}`")));
    }
    (table, findings)
}

fn parse_row(line: usize, cells: &[&str]) -> Result<(String, Row), String> {
    let [name, layer, ours, theirs] = cells else {
        return Err(format!(
            "a row of the layer table has {} cells, this one {}",
            HEADER.len(),
            cells.len()
        ));
    };
    let Some(layer) = LAYERS.iter().position(|known| known == layer) else {
        return Err(format!("`{layer}` is not a layer; the layers are {}", LAYERS.join(" ")));
    };
    let words =
        |cell: &str| cell.split_whitespace().filter(|w| *w != "-").map(str::to_string).collect();
    let theirs = (*theirs != "recorded").then(|| words(theirs));
    Ok((name.to_string(), Row { line, layer, ours: words(ours), theirs }))
}

/// The table itself must be possible: arrows go down or stay level, and name crates that exist.
fn check_table(table: &Table, repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, row) in table {
        if !repo.packages.iter().any(|package| &package.folder == name) {
            findings.push(at_table(
                row.line,
                format!("`{name}` has a row but is not a crate of the workspace"),
            ));
        }
        for below in &row.ours {
            match table.get(below) {
                None => findings.push(at_table(
                    row.line,
                    format!("`{name}` may depend on `{below}`, which has no row"),
                )),
                Some(target) if target.layer > row.layer => findings.push(at_table(
                    row.line,
                    format!(
                        "`{name}` ({}) may not depend upwards on `{below}` ({})",
                        LAYERS[row.layer], LAYERS[target.layer]
                    ),
                )),
                Some(_) => {}
            }
        }
    }
    findings
}

fn check_package(package: &Package, row: &Row, repo: &Repo) -> Vec<Finding> {
    let recorded = repo.files.get(DECISIONS).map_or("", String::as_str);
    let mut findings = Vec::new();
    let mut report = |rule, message| {
        let path = format!("crates/{}/Cargo.toml", package.folder);
        findings.push(Finding { path, line: 0, rule, message });
    };
    for dependency in &package.dependencies {
        let (name, is_dev) = (&dependency.name, dependency.kind.as_deref() == Some("dev"));
        match dependency.ours() {
            Some(ours) if is_dev || row.ours.iter().any(|allowed| allowed == ours) => {}
            Some(ours) => report(
                "layers",
                format!(
                    "depends on `{ours}`, which its row at {ARCHITECTURE}:{} does not allow",
                    row.line
                ),
            ),
            None if !has_record(recorded, name) => {
                report(
                    "decisions",
                    format!("depends on `{name}`, which has no row in {DECISIONS}"),
                );
            }
            None => {
                let is_build = dependency.kind.as_deref() == Some("build");
                let listed = row.theirs.as_ref().is_none_or(|list| list.contains(name));
                if !listed && !is_dev && !is_build {
                    let line = row.line;
                    report(
                        "layers",
                        format!(
                            "depends on `{name}`, which its row at {ARCHITECTURE}:{line} does not list"
                        ),
                    );
                }
            }
        }
    }
    findings
}

/// A crate is recorded when it is named, as a whole word in backticks, in a row of the dependency table.
fn has_record(record: &str, name: &str) -> bool {
    let needle = format!("`{name}`");
    record
        .lines()
        .any(|line| line.starts_with('|') && lex::find_words(line, &needle).next().is_some())
}
