//! Files that are there whole or not at all.

use crate::error::CliError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Makes `bytes` what is in `file`, readable by its owner only: written beside it, flushed, and renamed into its
/// place, so that after a power loss there is the old file or the new one.
///
/// # Errors
/// When any of that fails; the file is then what it was.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let beside = beside(file)?;
    let written = fill(&beside, bytes).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        // It is ours, and of no further use.
        let _ = fs::remove_file(&beside);
    }
    written
        .and_then(|()| File::open(folder(file))?.sync_all())
        .map_err(|e| CliError::io(format_args!("cannot write {}", file.display()), &e))
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The name to write under: in the same folder, so that it can be renamed, and not used by any other process.
fn beside(file: &Path) -> Result<PathBuf, CliError> {
    let Some(name) = file.file_name() else {
        return Err(CliError::usage(format!("{} is not a file name", file.display())));
    };
    let mut name = name.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    Ok(file.with_file_name(name))
}

/// The folder that `file` is in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}
