//! Prints what this version and those before it make of labels of each format, as `docs/on-disk.md` has it.
//!
//! The tables come from the images that `crates/engine/tests/releases` opens; that test fails while the document has
//! other ones.

use std::path::Path;
use std::process::{Command, ExitCode};

const DOCUMENT: &str = "docs/on-disk.md";
const BEGIN: &str = "<!-- releases: printed by cargo xtask releases -->\n";
const END: &str = "<!-- releases: end -->\n";

/// Prints the tables, or with `--write` puts them between their marks in the document.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let done = match arguments {
        [] => tables(root).map(|tables| print!("{tables}")),
        [flag] if flag == "--write" => tables(root).and_then(|tables| write(root, &tables)),
        _ => Err("usage: cargo xtask releases [--write]".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn tables(root: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "-p", "strake-engine", "--example", "release-table"]);
    let output =
        command.current_dir(root).output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("no tables: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("no tables: {e}"))
}

fn write(root: &Path, tables: &str) -> Result<(), String> {
    let path = root.join(DOCUMENT);
    let document =
        std::fs::read_to_string(&path).map_err(|e| format!("cannot read {DOCUMENT}: {e}"))?;
    let document = with_table(&document, tables)
        .ok_or_else(|| format!("{DOCUMENT} has no marks {} and {}", BEGIN.trim(), END.trim()))?;
    std::fs::write(&path, document).map_err(|e| format!("cannot write {DOCUMENT}: {e}"))
}

/// The document with `table` between its marks.
fn with_table(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, with_table};

    #[test]
    fn a_table_goes_between_its_marks_and_nowhere_else() {
        let document = format!("a\n{BEGIN}old\n{END}b\n");
        let wanted = format!("a\n{BEGIN}new\n{END}b\n");
        assert_eq!(with_table(&document, "new\n"), Some(wanted));
        assert_eq!(with_table("a\nb\n", "new\n"), None);
        assert_eq!(with_table(&format!("{END}{BEGIN}"), "new\n"), None);
    }
}
