//! Whether an open drive is still found at its path.

use std::fs;

use strake_dev_uring::Machine;

use crate::drives::{Key, Medium, OpenDrive, key_of, medium};

/// Where an open drive should be found.
#[derive(Clone, Debug)]
pub struct Anchor {
    path: String,
    key: Key,
    medium: Option<Medium>,
}

/// What is at the path of an open drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtPath {
    /// The drive, or something that cannot be distinguished from it.
    Itself,
    /// Nothing.
    Nothing,
    /// Another drive: opening the path again does not reach the one that is open.
    Another,
}

impl AtPath {
    /// What can be said of `path` without knowing what should be there.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        if fs::symlink_metadata(path).is_err_and(gone) { Self::Nothing } else { Self::Itself }
    }
}

impl OpenDrive {
    /// Where it should be found when it was opened as `path`.
    #[must_use]
    pub fn anchor(&self, path: &str) -> Anchor {
        Anchor { path: path.to_owned(), key: self.key, medium: self.medium.clone() }
    }
}

impl Anchor {
    /// Looks what is at the path now. Asks the file system, which may take its time.
    #[must_use]
    pub fn look(&self, machine: &Machine) -> AtPath {
        if self.key.is_named() {
            return AtPath::Itself;
        }
        if AtPath::of(&self.path) == AtPath::Nothing {
            return AtPath::Nothing;
        }
        // What cannot be looked at may be anything, so it is nothing to act upon.
        let Some((key, _)) = key_of(&self.path) else { return AtPath::Itself };
        let now = machine.at_node(&self.path).map(medium);
        // A device number may be given to another drive, and a drive another number; its medium tells.
        let same = match (&self.medium, &now) {
            // A drive that grew under its number is the same: while it is open, no other drive gets that number.
            (Some(was), Some(is)) => {
                was == is || (self.key == key && was.0 == is.0 && was.1 < is.1)
            }
            (Some(_), None) | (None, Some(_)) | (None, None) => self.key == key,
        };
        if same { AtPath::Itself } else { AtPath::Another }
    }
}
