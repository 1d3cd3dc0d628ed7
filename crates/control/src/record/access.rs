//! Which users may read and write the state directory, and the file with secrets in it.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
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
}

impl From<Exposure> for ControlError {
    fn from(found: Exposure) -> Self {
        let Exposure { what, next } = found;
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

/// What others could do before a start of the daemon took these rights from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// They could read the file with secrets.
    pub(crate) readable: bool,
    /// They could change the directory or the file.
    pub(crate) writable: bool,
    /// They could reach what is in the directory.
    is_entered: bool,
}

impl Before {
    /// Takes the right to change the directory from others. They may go on to look into it: the file with secrets is
    /// not for them.
    ///
    /// # Errors
    /// When it belongs to another user, who is not root.
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

    /// Takes all rights to the file with secrets from others. What they could not reach is as the daemon left it.
    ///
    /// # Errors
    /// When it belongs to another user, who is not root.
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

/// Logs what became of the rights of others. Where they stay, the state is read all the same, and it is reported.
fn closed(path: &Path, outcome: io::Result<()>) {
    let path = path.display();
    match outcome {
        Ok(()) => tracing::warn!(%path, "the rights of other users were taken from them"),
        Err(error) => {
            tracing::warn!(%path, %error, "the rights of other users cannot be taken from them")
        }
    }
}

/// Whether others reach what is in a directory.
fn lets_in(folder: &Metadata) -> bool {
    folder.mode() & 0o011 != 0
}

/// How the directory is exposed.
pub(crate) fn of_folder(path: &Path, about: &Metadata) -> Option<Exposure> {
    let found = others_of(about);
    of_path(path, found, &remedy(path, about, "700")).filter(|_| found != Others::Read)
}

/// How the file with secrets is exposed, in the directory `folder`.
pub(crate) fn of_file(path: &Path, about: &Metadata, folder: &Metadata) -> Option<Exposure> {
    let found = others_of(about);
    let is_reached = lets_in(folder) || matches!(found, Others::Own(_));
    of_path(path, found, &remedy(path, about, "600")).filter(|_| is_reached)
}

/// How root takes the rights to `path` from others. The daemon has to be the owner then, to have any itself.
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
