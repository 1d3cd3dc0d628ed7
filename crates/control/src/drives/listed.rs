//! Drives that came to the machine and went from it.

use std::collections::BTreeSet;

use strake_dev_uring::Machine;

use crate::events::{EventKind, Note};

/// Rounds of upkeep after which drives are listed although their names are the same as before: a drive may die or come
/// to life under its name. A list costs dozens of files of sysfs for every drive.
const LISTED_EVERY: u32 = 10;

/// The machine's drives as they were last listed.
#[derive(Default)]
pub(crate) struct Listed {
    names: Vec<String>,
    /// `None` before the first list.
    paths: Option<BTreeSet<String>>,
    rounds: u32,
}

impl Listed {
    /// Whether drives were not listed yet, so that the next look shows all of them.
    pub(crate) fn is_new(&self) -> bool {
        self.paths.is_none()
    }

    /// The machine's block devices that came since the last look, and what to report of those that came and went.
    pub(crate) fn notice(&mut self, machine: &Machine) -> (Vec<String>, Vec<Note>) {
        let names = machine.names();
        self.rounds += 1;
        if self.paths.is_some() && self.names == names && self.rounds < LISTED_EVERY {
            return (Vec::new(), Vec::new());
        }
        // A controller has no block device for a moment when its driver begins, and when it ends.
        let drives = machine.block_devices().into_iter();
        let now: BTreeSet<String> = drives.map(|drive| drive.path).collect();
        let before = self.paths.take();
        *self = Self { names, paths: Some(now.clone()), rounds: 0 };
        let Some(before) = before else {
            return (now.into_iter().collect(), Vec::new());
        };
        let note = |kind, path: &String, how| {
            Note::new(kind, format!("drive/{path}"), format!("drive {path} {how}"))
        };
        let gone = before.difference(&now);
        let gone = gone.map(|path| note(EventKind::DriveVanished, path, "vanished from the host"));
        let came = now.difference(&before);
        let appeared =
            came.clone().map(|path| note(EventKind::DriveAppeared, path, "appeared in the host"));
        (came.cloned().collect(), gone.chain(appeared).collect())
    }
}
