//! Access rights of the state directory, and of the file with secrets.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;

use crate::error::{ControlError, ControlErrorKind};

/// The rights of other users to a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// No relevant rights.
    Nothing,
    /// The right to read.
    Read,
    /// The right to write.
    Write,
    /// All rights, because this user is the owner.
    Own(u32),
}

/// A file or a directory that other users may read or change, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    pub(crate) what: String,
    pub(crate) next: String,
}

impl From<Exposure> for ControlError {
    fn from(found: Exposure) -> Self {
        let Exposure { what, next } = found;
        Self::new(ControlErrorKind::Store, format!("{what}; {next}"))
    }
}

/// Returns the rights of users other than `me` to an object of `owner` with these mode bits. Root has all rights
/// anyway.
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

/// The rights of other users before the start of the daemon removed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// True if others could read the file with secrets.
    pub(crate) readable: bool,
    /// True if others could change the directory or the file.
    pub(crate) writable: bool,
    /// True if others could enter the directory.
    is_entered: bool,
}

impl Before {
    /// Removes the right of others to change the directory. They may still read it, because the file with secrets is
    /// protected separately.
    ///
    /// # Errors
    /// If the directory belongs to another user, except root.
    pub(crate) fn close_folder(path: &Path, about: &Metadata) -> Result<Self, ControlError> {
        let found = others_of(about);
        refuse_owner(path, found)?;
        let (writable, is_entered) = (found == Others::Write, lets_in(about));
        if writable {
            let mode = about.mode() & 0o7755;
            closed(path, fs::set_permissions(path, Permissions::from_mode(mode)));
        }
        Ok(Self { writable, is_entered, ..Self::default() })
    }

    /// Removes all rights of others to the file with secrets. Files that others could not access are unchanged.
    ///
    /// # Errors
    /// If the file belongs to another user, except root.
    pub(crate) fn close_file(
        &mut self,
        path: &Path,
        file: &File,
        about: &Metadata,
    ) -> Result<(), ControlError> {
        let found = others_of(about);
        refuse_owner(path, found)?;
        if found == Others::Nothing {
            return Ok(());
        }
        if self.is_entered {
            self.readable |= about.mode() & 0o044 != 0;
            self.writable |= found == Others::Write;
        }
        closed(path, file.set_permissions(Permissions::from_mode(0o600)));
        Ok(())
    }
}

fn refuse_owner(path: &Path, found: Others) -> Result<(), ControlError> {
    let Others::Own(_) = found else { return Ok(()) };
    of_path(path, found, "").map_or(Ok(()), |found| Err(found.into()))
}

/// Logs the change of the rights of others. If the rights remain, the state is read nevertheless, and the exposure is
/// reported.
fn closed(path: &Path, outcome: io::Result<()>) {
    let path = path.display();
    match outcome {
        Ok(()) => tracing::warn!(%path, "the rights of other users were taken from them"),
        Err(error) => {
            tracing::warn!(%path, %error, "the rights of other users cannot be taken from them")
        }
    }
}

/// True if others can enter a directory.
fn lets_in(folder: &Metadata) -> bool {
    folder.mode() & 0o011 != 0
}

/// Returns the exposure of the directory.
pub(crate) fn of_folder(path: &Path, about: &Metadata) -> Option<Exposure> {
    let found = others_of(about);
    of_path(path, found, &remedy(path, about, "700")).filter(|_| found != Others::Read)
}

/// Returns the exposure of the file with secrets in the directory `folder`.
pub(crate) fn of_file(path: &Path, about: &Metadata, folder: &Metadata) -> Option<Exposure> {
    let found = others_of(about);
    let is_reached = lets_in(folder) || matches!(found, Others::Own(_));
    of_path(path, found, &remedy(path, about, "600")).filter(|_| is_reached)
}

/// Returns the commands with which root removes the rights of others to `path`. The daemon must be the owner to keep
/// its own rights.
fn remedy(path: &Path, about: &Metadata, mode: &str) -> String {
    let (path, me) = (path.display(), geteuid().as_raw());
    if about.uid() == me {
        return format!("chmod {mode} {path}");
    }
    format!("chown {me} {path} && chmod {mode} {path}")
}

fn of_path(path: &Path, others: Others, remedy: &str) -> Option<Exposure> {
    let (path, me) = (path.display(), geteuid().as_raw());
    let (what, next) = match others {
        Others::Nothing => return None,
        Others::Read => {
            (format!("other users can read {path}"), format!("correct it with: {remedy}"))
        }
        Others::Write => (
            format!("other users can write to {path}"),
            format!("check its content, then correct it with: {remedy}"),
        ),
        Others::Own(uid) => (
            format!(
                "{path} belongs to another user (UID {uid}), who is neither root nor the user of this daemon (UID {me})"
            ),
            format!("check its content, then correct it with: chown {me} {path}"),
        ),
    };
    Some(Exposure { what, next })
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
