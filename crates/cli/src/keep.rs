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
    write_as(file, bytes, Existing::Replace)
}

/// What happens to a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced, if it is a regular file.
    Replace,
    /// It stays, and the command is refused.
    Refuse,
}

/// Refuses to write to `file` what is not to be replaced: what is not a regular file, and with [`Existing::Refuse`] any
/// file.
///
/// # Errors
/// When it is refused, or cannot be read.
pub fn check(file: &Path, existing: Existing) -> Result<(), CliError> {
    let shown = file.display();
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CliError::io(format_args!("cannot read {shown}"), &error)),
        Ok(about) if !about.is_file() => {
            Err(CliError::usage(format!("{shown} is not a regular file; choose another file")))
        }
        Ok(_) if existing == Existing::Refuse => Err(CliError::usage(format!(
            "{shown} exists; choose another file, or replace it with --force"
        ))),
        Ok(_) => Ok(()),
    }
}

/// As [`write()`], and treats a file that exists as `existing` says.
///
/// # Errors
/// When any of that fails, or the file exists and must stay; the file is then what it was.
pub fn write_as(file: &Path, bytes: &[u8], existing: Existing) -> Result<(), CliError> {
    check(file, existing)?;
    let beside = beside(file)?;
    let written = fill(&beside, bytes).and_then(|()| match existing {
        Existing::Replace => fs::rename(&beside, file),
        // A link, unlike a rename, fails if the file has been created since the check.
        Existing::Refuse => fs::hard_link(&beside, file).and_then(|()| fs::remove_file(&beside)),
    });
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

#[cfg(test)]
mod tests {
    use super::{Existing, check, write_as};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use strake_testkit::Folder;

    #[test]
    fn a_file_that_exists_stays_unless_it_may_be_replaced() {
        let folder = Folder::new("strake-keep");
        let file = folder.join("log.bin");
        write_as(&file, b"one", Existing::Refuse).expect("there is no such file");
        let mode = fs::metadata(&file).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner reads it");
        let refused = write_as(&file, b"two", Existing::Refuse).expect_err("it exists");
        assert!(refused.to_string().contains("--force"), "{refused}");
        assert_eq!(fs::read(&file).expect("it reads"), b"one");
        write_as(&file, b"two", Existing::Replace).expect("it may be replaced");
        assert_eq!(fs::read(&file).expect("it reads"), b"two");
        assert_eq!(fs::read_dir(&*folder).expect("it reads").count(), 1, "nothing is left beside");
        let link = folder.join("link");
        symlink(&file, &link).expect("a link");
        for other in [&*folder, &link, std::path::Path::new("/dev/null")] {
            check(other, Existing::Replace).expect_err("it is no regular file");
        }
    }
}
