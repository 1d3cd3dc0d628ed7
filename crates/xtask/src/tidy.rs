//! The house rules that no compiler checks.
//!
//! Rules about truth (layers, determinism, unsafe code, formats) fail. Rules about taste (lengths) are
//! printed for a person to judge. Every check is a function from a [`repo::Repo`], which is plain data, to
//! findings, so each is tested on a made-up repository that breaks the rule.

pub mod commands;
pub mod crates;
pub mod doc_paths;
pub mod documents;
pub mod finding;
pub mod formats;
pub mod layers;
pub mod lex;
pub mod repo;
pub mod rows;
pub mod rules;
pub mod sizes;
pub mod source;
pub mod structure;
pub mod words;

#[cfg(test)]
mod tests;

use crate::scenarios::catalogue;
use finding::Finding;
use repo::Repo;

/// Every rule, with one line on what it keeps true. ARCHITECTURE.md names rules by these words.
pub const RULES: &[(&str, &str)] = &[
    ("layers", "dependencies follow the table in ARCHITECTURE.md"),
    ("decisions", "every third-party crate has a row in docs/decisions/0002-dependencies.md"),
    ("crate-doc", "every crate says what it is, what it must never do and where to start"),
    ("unsafe", "unsafe code is forbidden outside the crates that exist to contain it"),
    ("lints", "every crate takes the lints of the workspace"),
    ("pure", "L0 sources use no clock, thread, environment, I/O, randomness or hash map"),
    ("pure-clippy", "every L0 crate has its own clippy.toml that refuses the same"),
    ("formats", "a format source and its document change together"),
    ("globs", "no `use super::*` and no glob import of a module outside tests"),
    ("tests", "no ignored test and no should_panic"),
    ("sleep", "no thread::sleep outside xtask and the control plane"),
    ("unfinished", "no todo! and no unimplemented!"),
    ("ascii", "sources are ASCII, except for strings in tests"),
    ("columns", "no source line is longer than 120 columns"),
    ("references", "tests and rules named in ARCHITECTURE.md exist"),
    (
        "doc-paths",
        "sources and functions named in io-path.md, guarantees.md and the tour of docs exist",
    ),
    ("scenarios", "docs/scenarios.md has every scenario once and names tests that exist"),
    ("words", "documents use the terms of the glossary in STYLE.md"),
    (
        "structure",
        "few modules import each other, and no type has many methods; what is above is no worse",
    ),
    ("rows", "modules import none of a later row of the table in lib.rs"),
    ("commands", "no text below the clients spells a command of `strake`"),
    ("flags", "no text below the clients names a command-line flag"),
    ("conflicts", "no document has a mark of a merge conflict"),
];

/// All findings of all checks, in order of path and line.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(layers::check(repo));
    findings.extend(crates::check(repo));
    findings.extend(rules::check(repo));
    findings.extend(formats::check(repo));
    findings.extend(documents::check(repo));
    findings.extend(doc_paths::check(repo));
    findings.extend(catalogue::check(repo));
    findings.extend(words::check(repo));
    findings.extend(commands::check(repo));
    findings.extend(structure::check(repo));
    findings.extend(rows::check(repo));
    findings.sort();
    findings
}
