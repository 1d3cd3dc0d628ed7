//! Reports connections that are lost and restored.
//!
//! Paths are checked periodically. A target may restart and reconnect between two checks; the number of reconnects then
//! shows the loss.

use std::collections::{BTreeMap, BTreeSet};

use strake_dev_fabrics::{PathState, PathStatus};

use crate::events::{EventKind, Note};

/// The reported states of connections.
#[derive(Default)]
pub(crate) struct Reported {
    /// Drives that were reported as lost.
    drives: BTreeSet<String>,
    /// The last seen states of paths, by address.
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
    /// Returns the events about drives whose connections were lost or restored since the last check, and about the
    /// paths of drives with several paths. The only path of a drive is reported as the drive. `all` contains the states
    /// of the paths of each drive.
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

    /// Returns the events about a drive. `all_lost` is set if each of its paths is lost, or was lost since the last
    /// check.
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

/// Returns the events about a path of a drive with several paths.
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

/// The state of a path at the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    lost: bool,
    reconnects: u64,
}

/// The changes of a path or of a drive since the last check. The loss precedes the return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    lost: bool,
    back: bool,
}

impl News {
    /// Returns the changes. `was_lost` is set if the loss was already reported, `has_been_lost` if a loss occurred
    /// since, and `is_back` if there is a connection now.
    const fn of(was_lost: bool, has_been_lost: bool, is_back: bool) -> Self {
        Self { lost: !was_lost && has_been_lost, back: is_back && (was_lost || has_been_lost) }
    }
}

impl Seen {
    /// Records the current state of the path. A path that was never connected is reported as lost after the first
    /// failed attempt.
    fn look(&mut self, path: &PathStatus) -> News {
        let is_lost = matches!(path.state, PathState::Down(Some(_), _));
        let has_been_lost = is_lost || path.reconnects > self.reconnects;
        let news = News::of(self.lost, has_been_lost, !is_lost);
        *self = Self { lost: is_lost, reconnects: path.reconnects };
        news
    }
}

/// Adds to `note` the reason of the last loss of the path.
fn because(note: Note, path: Option<&PathStatus>) -> Note {
    match path.and_then(|path| path.last) {
        Some(reason) => note.cause(reason.to_string()),
        None => note,
    }
}

#[cfg(test)]
mod tests;
