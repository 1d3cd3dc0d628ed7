//! Drives that came to the machine and went from it.

use std::collections::BTreeSet;

use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::scan;

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

impl Manager {
    /// Tells which of the machine's block devices came and went, and returns those that came.
    pub(crate) fn notice_block_devices(&mut self) -> Vec<String> {
        let names = self.drives.machine().names();
        self.listed.rounds += 1;
        if self.listed.paths.is_some()
            && self.listed.names == names
            && self.listed.rounds < LISTED_EVERY
        {
            return Vec::new();
        }
        let now: BTreeSet<String> = scan::block_paths(self.drives.machine()).into_iter().collect();
        let before = self.listed.paths.take();
        self.listed = Listed { names, paths: Some(now.clone()), rounds: 0 };
        let Some(before) = before else {
            return now.into_iter().collect();
        };
        for path in before.difference(&now) {
            let what = format!("drive {path} vanished from the machine");
            self.record(Note::new(EventKind::DriveVanished, format!("drive/{path}"), what));
        }
        let appeared: Vec<String> = now.difference(&before).cloned().collect();
        for path in &appeared {
            let what = format!("drive {path} appeared in the machine");
            self.record(Note::new(EventKind::DriveAppeared, format!("drive/{path}"), what));
        }
        appeared
    }
}
