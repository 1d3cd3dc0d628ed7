//! Tells of connections that are lost and come back.
//!
//! How a path is is looked at now and then, and a target that was started anew may be back before the next look: what
//! was missed is known by how often the path was made anew.

use std::collections::{BTreeMap, BTreeSet};

use strake_dev_fabrics::{PathState, PathStatus};

use crate::events::{EventKind, Note};
use crate::manager::Manager;

/// What was told of connections.
#[derive(Default)]
pub(super) struct Reported {
    /// Drives of which it was told that they are lost.
    drives: BTreeSet<String>,
    /// What was seen of paths, by their addresses.
    paths: BTreeMap<String, Seen>,
}

impl Reported {
    pub(super) fn forget_drive(&mut self, name: &str) {
        self.drives.remove(name);
    }

    pub(super) fn forget_path(&mut self, address: &str) {
        self.paths.remove(address);
    }
}

/// How a path was at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    lost: bool,
    reconnects: u64,
}

/// What came to be of a path, or of a drive, since the last look, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    lost: bool,
    back: bool,
}

impl News {
    /// Of something that was told to be lost or not, may have been since, and is back or not.
    const fn of(was_lost: bool, has_been_lost: bool, is_back: bool) -> Self {
        Self { lost: !was_lost && has_been_lost, back: is_back && (was_lost || has_been_lost) }
    }
}

impl Seen {
    /// Takes how the path is now. Of one that was never connected it is told once it could not be.
    fn look(&mut self, path: &PathStatus) -> News {
        let is_lost = matches!(path.state, PathState::Down(Some(_), _));
        let has_been_lost = is_lost || path.reconnects > self.reconnects;
        let news = News::of(self.lost, has_been_lost, !is_lost);
        *self = Self { lost: is_lost, reconnects: path.reconnects };
        news
    }
}

impl Manager {
    /// Tells of drives that were lost and came back since the last look, and of paths to drives that have several: the
    /// only path of a drive is told of as the drive.
    pub(super) fn tell_losses(&mut self) {
        let all = self.drives.remote_paths();
        let addresses: BTreeSet<_> =
            all.iter().flat_map(|(_, paths)| paths).map(|path| path.address.to_string()).collect();
        self.remotes.reported.paths.retain(|address, _| addresses.contains(address));
        for (name, paths) in all {
            let mut all_lost = !paths.is_empty();
            for path in &paths {
                let address = path.address.to_string();
                let seen = self.remotes.reported.paths.entry(address.clone()).or_default();
                let news = seen.look(path);
                all_lost &= seen.lost || news.lost;
                if paths.len() > 1 {
                    self.tell_path(&name, &address, news, path);
                }
            }
            self.tell_drive(&name, all_lost, &paths);
        }
    }

    fn tell_path(&mut self, name: &str, address: &str, news: News, path: &PathStatus) {
        let object = format!("drive/{name}");
        if news.lost {
            let what = format!("path {address} to drive {name} is lost");
            self.record(because(
                Note::new(EventKind::DrivePathLost, object.clone(), what),
                Some(path),
            ));
        }
        if news.back {
            let what = format!("path {address} to drive {name} is connected again");
            self.record(Note::new(EventKind::DrivePathBack, object, what));
        }
    }

    /// Tells of a drive, of which each path is lost, or was since the last look.
    fn tell_drive(&mut self, name: &str, all_lost: bool, paths: &[PathStatus]) {
        let was_lost = self.remotes.reported.drives.contains(name);
        let is_up = paths.iter().any(|path| matches!(path.state, PathState::Up(_)));
        let news = News::of(was_lost, all_lost, is_up);
        let object = format!("drive/{name}");
        if news.lost {
            let what = format!("the connection to drive {name} is lost");
            let last = paths.iter().min_by_key(|path| path.age);
            self.record(because(Note::new(EventKind::DriveLost, object.clone(), what), last));
            self.remotes.reported.drives.insert(name.to_owned());
        }
        if news.back {
            self.remotes.reported.drives.remove(name);
            let what = format!("drive {name} is connected again");
            self.record(Note::new(EventKind::DriveBack, object, what));
        }
    }
}

/// The note with why the path was lost the last time.
fn because(note: Note, path: Option<&PathStatus>) -> Note {
    match path.and_then(|path| path.last) {
        Some(reason) => note.cause(reason.to_string()),
        None => note,
    }
}

#[cfg(test)]
mod tests;
