//! Reports connections that are lost and come back.
//!
//! Paths are looked at now and then, and a target that was restarted may be back before the next look: the number of
//! reconnects shows what was missed.

use std::collections::{BTreeMap, BTreeSet};

use strake_dev_fabrics::{PathState, PathStatus};

use crate::events::{EventKind, Note};

/// What was reported of connections.
#[derive(Default)]
pub(crate) struct Reported {
    /// Drives that were reported as lost.
    drives: BTreeSet<String>,
    /// What was seen of paths, by their addresses.
    paths: BTreeMap<String, Seen>,
}

impl Reported {
    pub(crate) fn forget_drive(&mut self, name: &str) {
        self.drives.remove(name);
    }

    pub(crate) fn forget_path(&mut self, address: &str) {
        self.paths.remove(address);
    }
}

impl Reported {
    /// What to report of drives that were lost and came back since the last look, and of paths to drives that have
    /// several: the only path of a drive is reported as the drive. `all` is how the paths of each drive are.
    pub(crate) fn look(&mut self, all: Vec<(String, Vec<PathStatus>)>) -> Vec<Note> {
        let addresses: BTreeSet<_> =
            all.iter().flat_map(|(_, paths)| paths).map(|path| path.address.to_string()).collect();
        self.paths.retain(|address, _| addresses.contains(address));
        let mut notes = Vec::new();
        for (name, paths) in all {
            let mut all_lost = !paths.is_empty();
            for path in &paths {
                let address = path.address.to_string();
                let seen = self.paths.entry(address.clone()).or_default();
                let news = seen.look(path);
                all_lost &= seen.lost || news.lost;
                if paths.len() > 1 {
                    notes.extend(path_notes(&name, &address, news, path));
                }
            }
            notes.extend(self.drive_notes(&name, all_lost, &paths));
        }
        notes
    }

    /// What to report of a drive of which each path is lost, or was since the last look.
    fn drive_notes(&mut self, name: &str, all_lost: bool, paths: &[PathStatus]) -> Vec<Note> {
        let is_up = paths.iter().any(|path| matches!(path.state, PathState::Up(_)));
        let news = News::of(self.drives.contains(name), all_lost, is_up);
        let object = format!("drive/{name}");
        let mut notes = Vec::new();
        if news.lost {
            let what = format!("the connection to drive {name} is lost");
            let last = paths.iter().min_by_key(|path| path.age);
            notes.push(because(Note::new(EventKind::DriveLost, object.clone(), what), last));
            self.drives.insert(name.to_owned());
        }
        if news.back {
            self.drives.remove(name);
            let what = format!("drive {name} is connected again");
            notes.push(Note::new(EventKind::DriveBack, object, what));
        }
        notes
    }
}

/// What to report of a path to a drive that has several.
fn path_notes(name: &str, address: &str, news: News, path: &PathStatus) -> Vec<Note> {
    let object = format!("drive/{name}");
    let mut notes = Vec::new();
    if news.lost {
        let what = format!("path {address} to drive {name} is lost");
        let note = Note::new(EventKind::DrivePathLost, object.clone(), what);
        notes.push(because(note, Some(path)));
    }
    if news.back {
        let what = format!("path {address} to drive {name} is connected again");
        notes.push(Note::new(EventKind::DrivePathBack, object, what));
    }
    notes
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
    /// News of something that was reported as lost or not, may have been lost since, and is back or not.
    const fn of(was_lost: bool, has_been_lost: bool, is_back: bool) -> Self {
        Self { lost: !was_lost && has_been_lost, back: is_back && (was_lost || has_been_lost) }
    }
}

impl Seen {
    /// Records how the path is now. One that was never connected is reported as lost once it could not be.
    fn look(&mut self, path: &PathStatus) -> News {
        let is_lost = matches!(path.state, PathState::Down(Some(_), _));
        let has_been_lost = is_lost || path.reconnects > self.reconnects;
        let news = News::of(self.lost, has_been_lost, !is_lost);
        *self = Self { lost: is_lost, reconnects: path.reconnects };
        news
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
