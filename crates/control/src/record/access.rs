//! Which users may read and write the state directory, and the file with secrets in it.

use std::fs::{File, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;

use crate::error::{ControlError, ControlErrorKind};

/// What others may do with a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// Nothing that matters.
    Nothing,
    /// Read it.
    Read,
    /// Change it.
    Write,
    /// Anything: this user owns it.
    Own(u32),
}

/// A file or a directory that other users may read or change, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    pub(crate) what: String,
    pub(crate) next: String,
    /// Its content is as this daemon wrote it.
    pub(crate) is_only_readable: bool,
}

impl From<Exposure> for ControlError {
    fn from(found: Exposure) -> Self {
        let Exposure { what, next, .. } = found;
        Self::new(ControlErrorKind::Store, format!("{what}; {next}"))
    }
}

/// What others may do with what `owner` owns with these mode bits, when `me` is asking. Root may do anything anyway.
const fn others(owner: u32, mode: u32, me: u32) -> Others {
    match mode {
        _ if owner != me && owner != 0 => Others::Own(owner),
        mode if mode & 0o022 != 0 => Others::Write,
        mode if mode & 0o044 != 0 => Others::Read,
        _ => Others::Nothing,
    }
}

fn others_of(about: &Metadata) -> Others {
    others(about.uid(), about.mode(), geteuid().as_raw())
}

/// How the directory is exposed. Others may look into it: the file with secrets is not for them.
pub(crate) fn of_folder(path: &Path, about: &Metadata) -> Option<Exposure> {
    of_path(path, others_of(about), "700").filter(|found| !found.is_only_readable)
}

/// How the file with secrets is exposed.
pub(crate) fn of_file(path: &Path, about: &Metadata) -> Option<Exposure> {
    of_path(path, others_of(about), "600")
}

fn of_path(path: &Path, others: Others, mode: &str) -> Option<Exposure> {
    let path = path.display();
    let (what, next) = match others {
        Others::Nothing => return None,
        Others::Read => (
            format!("other users can read {path}"),
            format!("correct it with: chmod {mode} {path}"),
        ),
        Others::Write => (
            format!("other users can write to {path}"),
            format!("check its content, then correct it with: chmod {mode} {path}"),
        ),
        Others::Own(uid) => (
            format!("{path} belongs to another user (UID {uid})"),
            format!("check its content, then correct it with: chown {} {path}", geteuid().as_raw()),
        ),
    };
    Some(Exposure { what, next, is_only_readable: others == Others::Read })
}

/// Takes the right to read from others. `Err` when the file system refuses.
pub(crate) fn close(file: &File) -> std::io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::{Others, others};

    #[test]
    fn others_own_write_read_or_neither() {
        let check = |owner, mode, found| assert_eq!(others(owner, mode, 7), found, "{mode:o}");
        for owner in [0, 7] {
            check(owner, 0o100_600, Others::Nothing);
            check(owner, 0o040_711, Others::Nothing);
            check(owner, 0o100_640, Others::Read);
            check(owner, 0o100_604, Others::Read);
            check(owner, 0o100_620, Others::Write);
            check(owner, 0o040_777, Others::Write);
        }
        check(8, 0o100_600, Others::Own(8));
        check(8, 0o100_666, Others::Own(8));
    }
}
