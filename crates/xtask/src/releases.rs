//! Writes what this version makes of labels of each format into `docs/on-disk.md`.
//!
//! The table comes from the images that `crates/ondisk/tests/releases.rs` opens; that test fails while the document has
//! another one.

use std::path::Path;
use std::process::{Command, ExitCode};

const DOCUMENT: &str = "docs/on-disk.md";
const BEGIN: &str = "<!-- releases: written by cargo xtask formats -->\n";
const END: &str = "<!-- releases: end -->\n";

/// Puts the table between its marks.
pub fn run(root: &Path) -> ExitCode {
    match write(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write(root: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "-p", "strake-ondisk", "--example", "release-table"]);
    let output =
        command.current_dir(root).output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("no table: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let table = String::from_utf8(output.stdout).map_err(|e| format!("no table: {e}"))?;
    let path = root.join(DOCUMENT);
    let document =
        std::fs::read_to_string(&path).map_err(|e| format!("cannot read {DOCUMENT}: {e}"))?;
    let document = with_table(&document, &table)
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
