//! The check that an open drive is still at its path.

use std::fs;

use strake_dev_uring::Machine;

use crate::drives::{Key, Medium, OpenDrive, key_of, medium};

/// The expected path and identity of an open drive.
#[derive(Clone, Debug)]
pub struct Anchor {
    path: String,
    key: Key,
    medium: Option<Medium>,
}

/// The object at the path of an open drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtPath {
    /// The drive, or an object that cannot be distinguished from it.
    Itself,
    /// No object.
    Nothing,
    /// Another drive. A new open of the path would not access the open drive.
    Another,
}

impl AtPath {
    /// Checks `path` without a known identity.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        if fs::symlink_metadata(path).is_err_and(gone) { Self::Nothing } else { Self::Itself }
    }
}

impl OpenDrive {
    /// Returns the anchor of the drive that was opened as `path`.
    #[must_use]
    pub fn anchor(&self, path: &str) -> Anchor {
        Anchor { path: path.to_owned(), key: self.key, medium: self.medium.clone() }
    }
}

impl Anchor {
    /// Checks the object at the path. Accesses the file system, which may be slow.
    #[must_use]
    pub fn look(&self, machine: &Machine) -> AtPath {
        if self.key.is_named() {
            return AtPath::Itself;
        }
        if AtPath::of(&self.path) == AtPath::Nothing {
            return AtPath::Nothing;
        }
        // The object is unknown, so no action is taken.
        let Some((key, _)) = key_of(&self.path) else { return AtPath::Itself };
        let now = machine.at_node(&self.path).map(medium);
        // Another drive may get the device number, and a drive may get another number. Only the medium identifies a
        // drive.
        let same = match (&self.medium, &now) {
            // A drive that grew with the same number is the same drive: while it is open, no other drive gets its
            // number.
            (Some(was), Some(is)) => {
                was == is || (self.key == key && was.0 == is.0 && was.1 < is.1)
            }
            (Some(_), None) | (None, Some(_)) | (None, None) => self.key == key,
        };
        if same { AtPath::Itself } else { AtPath::Another }
    }
}
