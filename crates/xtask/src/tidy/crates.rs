//! What every crate must state about itself: its documentation, its stance on unsafe code, its lints.

use super::finding::Finding;
use super::layers::{self, Table};
use super::repo::{Package, Repo};
use super::source::Source;

/// Crates that may contain unsafe code, because their job is to confine it.
pub const UNSAFE_ALLOWED: [&str; 7] =
    ["parity", "reactor", "block", "dev-uring", "dev-nvme", "tls", "bench"];

const DOC_PARTS: [&str; 3] =
    ["**What it is.**", "**What it must never do.**", "**Where to start.**"];

/// Names a clippy.toml of a pure crate must refuse: the same things the `pure` rule searches for.
pub const PURE_CLIPPY_PATHS: [&str; 9] = [
    "std::time::Instant",
    "std::time::SystemTime",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
    "std::fs::File",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::env::var",
];

/// Checks every crate of the workspace.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let table = layers::table(repo);
    let mut findings = Vec::new();
    for package in &repo.packages {
        findings.extend(check_documentation(package, repo));
        findings.extend(check_lints(package, repo));
        findings.extend(check_pure_clippy(package, &table, repo));
    }
    for root in repo.sources.iter().filter(|source| is_crate_root(source)) {
        findings.extend(check_unsafe(root));
    }
    findings
}

/// The library if there is one, else the program.
fn check_documentation(package: &Package, repo: &Repo) -> Vec<Finding> {
    let paths = ["lib.rs", "main.rs"].map(|file| format!("crates/{}/src/{file}", package.folder));
    let Some(root) = paths.iter().find_map(|path| repo.source(path)) else {
        let message = "has neither src/lib.rs nor src/main.rs".to_string();
        return vec![Finding {
            path: format!("crates/{}", package.folder),
            line: 0,
            rule: "crate-doc",
            message,
        }];
    };
    let doc: String = root.text.lines().filter(|line| line.starts_with("//!")).collect();
    let missing = DOC_PARTS.iter().filter(|part| !doc.contains(*part));
    missing
        .map(|part| {
            let message = format!("the crate documentation has no part that starts with {part}");
            Finding { path: root.path.clone(), line: 1, rule: "crate-doc", message }
        })
        .collect()
}

fn check_lints(package: &Package, repo: &Repo) -> Option<Finding> {
    let path = format!("crates/{}/Cargo.toml", package.folder);
    let manifest = repo.files.get(&path).map_or("", String::as_str);
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]");
    let inherits = lines.nth(1) == Some("workspace = true");
    let message = "lacks `[lints]` followed by `workspace = true`".to_string();
    (!inherits).then_some(Finding { path, line: 0, rule: "lints", message })
}

fn check_pure_clippy(package: &Package, table: &Table, repo: &Repo) -> Option<Finding> {
    if !table.get(&package.folder)?.is_pure() {
        return None;
    }
    let path = format!("crates/{}/clippy.toml", package.folder);
    let settings = repo.files.get(&path).map_or("", String::as_str);
    let missing: Vec<&str> =
        PURE_CLIPPY_PATHS.into_iter().filter(|p| !settings.contains(&format!("\"{p}\""))).collect();
    let message =
        format!("a pure crate needs its own clippy.toml that refuses {}", missing.join(", "));
    (!missing.is_empty()).then_some(Finding { path, line: 0, rule: "pure-clippy", message })
}

fn is_crate_root(source: &Source) -> bool {
    let Some(inside) = source.crate_folder().and_then(|folder| {
        source.path.strip_prefix("crates/").and_then(|path| path.strip_prefix(folder))
    }) else {
        return false;
    };
    matches!(inside, "/src/lib.rs" | "/src/main.rs" | "/build.rs")
        || inside.starts_with("/src/bin/")
}

fn check_unsafe(root: &Source) -> Option<Finding> {
    let folder = root.crate_folder()?;
    if UNSAFE_ALLOWED.contains(&folder) || root.code.contains("#![forbid(unsafe_code)]") {
        return None;
    }
    let message = format!(
        "lacks `#![forbid(unsafe_code)]`; only {} may contain unsafe code",
        UNSAFE_ALLOWED.join(", ")
    );
    Some(Finding { path: root.path.clone(), line: 1, rule: "unsafe", message })
}
