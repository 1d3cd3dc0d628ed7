//! Rows of modules: a crate whose first page divides its modules into rows keeps to them.
//!
//! The table stands in the documentation of `lib.rs` and begins with `| modules |`. Its first column names modules of
//! the crate. A module, with all that lies below it, imports no module of a later row.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::repo::Repo;
use super::source::Source;
use super::structure;

/// How the table begins.
const HEAD: &str = "//! | modules |";

/// Checks every crate with such a table.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, sources) in structure::crates(repo) {
        let root = format!("crates/{name}/src/lib.rs");
        let Some(root) = sources.iter().find(|source| source.path == root) else { continue };
        let rows = rows(&root.text);
        let modules: Vec<_> = sources.iter().map(|source| structure::module_of(source)).collect();
        findings.extend(unknown(root, &rows, &modules));
        let row = |module: &[&str]| module.first().and_then(|first| rows.get(*first));
        for (source, from, to) in structure::edges(&sources) {
            let (Some(own), Some(other)) = (row(&from), row(&to)) else { continue };
            if other > own {
                let message =
                    format!("imports `{}`, which is in a later row of lib.rs", to.join("::"));
                findings.push(Finding {
                    path: source.path.clone(),
                    line: 0,
                    rule: "rows",
                    message,
                });
            }
        }
    }
    findings
}

/// The row of each module that the table names, counted from the top.
fn rows(text: &str) -> BTreeMap<&str, usize> {
    let table = text.lines().skip_while(|line| !line.starts_with(HEAD)).skip(2);
    let table = table.take_while(|line| line.starts_with("//! |"));
    table
        .enumerate()
        .flat_map(|(row, line)| {
            let column = line.trim_start_matches("//! |").split('|').next().unwrap_or_default();
            column.split('`').skip(1).step_by(2).map(move |module| (module, row))
        })
        .collect()
}

/// What the table names that is no module of the crate.
fn unknown(root: &Source, rows: &BTreeMap<&str, usize>, modules: &[Vec<&str>]) -> Vec<Finding> {
    let gone = rows.keys().filter(|row| !modules.iter().any(|module| module[..] == [**row]));
    gone.map(|row| {
        let message = format!("the table of modules names `{row}`, which does not exist");
        Finding { path: root.path.clone(), line: 0, rule: "rows", message }
    })
    .collect()
}
