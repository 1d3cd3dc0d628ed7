//! Detection of drives that appeared on the host or disappeared.

use std::collections::BTreeSet;

use strake_dev_uring::Machine;

use crate::events::{EventKind, Note};

/// Number of rounds of upkeep after which drives are listed even if their names have not changed, because a drive may
/// fail or return under the same name. A list reads dozens of sysfs files for every drive.
const LISTED_EVERY: u32 = 10;

/// The last list of the host's drives.
#[derive(Default)]
pub(crate) struct Listed {
    names: Vec<String>,
    /// `None` before the first list.
    paths: Option<BTreeSet<String>>,
    rounds: u32,
}

impl Listed {
    /// True if drives were not listed yet. The next list then reports all drives as new.
    pub(crate) fn is_new(&self) -> bool {
        self.paths.is_none()
    }

    /// Returns the block devices that appeared since the last list, and events about drives that appeared or
    /// disappeared.
    pub(crate) fn notice(&mut self, machine: &Machine) -> (Vec<String>, Vec<Note>) {
        let names = machine.names();
        self.rounds += 1;
        if self.paths.is_some() && self.names == names && self.rounds < LISTED_EVERY {
            return (Vec::new(), Vec::new());
        }
        // A controller has no block device for a short time when its driver starts or stops.
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
