//! Drives of recorded arrays that do not run. The daemon does not keep these drives open.

use std::time::Instant;

use strake_api::v1::Drive as DriveMessage;

use crate::bounded::{self, Job};
use crate::commands::scan::add_contents;
use crate::drives::DriveKind;
use crate::drives::address::outlasts;
use crate::drives::probe::{Probes, Target};
use crate::limits::LOOK_LIMIT;
use crate::manager::Manager;

/// A drive of a recorded array that does not run.
pub(crate) struct OfflineDrive {
    path: String,
    array: String,
    /// The slot in the labels that were found.
    member: Option<u32>,
}

/// Returns the drives of the recorded arrays that do not run: the drives that were found, and the recorded drives.
pub(crate) fn offline_drives(manager: &Manager) -> Vec<OfflineDrive> {
    let mut all: Vec<OfflineDrive> = Vec::new();
    for view in manager.offline_arrays() {
        let found = view.members.iter().map(|member| (&member.path, Some(member.position)));
        let recorded = manager.records.record_of(&view.uuid).map(|record| record.drives.iter());
        let recorded = recorded.into_iter().flatten().map(|path| (path, None));
        for (path, member) in found.chain(recorded).filter(|(path, _)| !path.is_empty()) {
            if all.iter().all(|known| known.path != *path) {
                all.push(OfflineDrive { path: path.clone(), array: view.name.clone(), member });
            }
        }
    }
    all
}

/// Adds the arrays to the drives in `list`, and the drives that are not in the list: files, and absent drives.
pub(crate) fn add_offline(
    list: &mut Vec<DriveMessage>,
    offline: Vec<OfflineDrive>,
    probes: &Probes,
) {
    let mut unlisted: Vec<Job<DriveMessage>> = Vec::new();
    for OfflineDrive { path, array, member } in offline {
        let is_it = |drive: &&mut DriveMessage| drive.path == path || drive.aliases.contains(&path);
        match list.iter_mut().find(is_it) {
            // Another array may have taken the drive.
            Some(known) if known.array.is_empty() => (known.array, known.member) = (array, member),
            Some(_) => {}
            None if outlasts(&path) => {
                let new = DriveMessage { path, array, member, ..DriveMessage::default() };
                unlisted.push((new.path.clone(), Box::new(move || looked_at(new))));
            }
            // Memory is lost with the daemon.
            None => {}
        }
    }
    // A drive that does not answer is not listed.
    let (mut new, _) = bounded::side_by_side(unlisted, Instant::now() + LOOK_LIMIT);
    let files = new.iter().filter(|drive| drive.state.is_empty());
    let target = |drive: &DriveMessage| {
        let (path, bytes) = (drive.path.clone(), Some(drive.size_bytes));
        Target { path, bytes, health: None }
    };
    let probed = probes.look(files.map(target).collect());
    for (drive, (_, probe)) in new.iter_mut().filter(|d| d.state.is_empty()).zip(probed) {
        add_contents(drive, probe.contents);
    }
    list.append(&mut new);
    list.sort_by(|a, b| a.path.cmp(&b.path));
}

/// Looks at a drive that is neither open nor a drive of the kernel. The state of a file stays empty: its contents
/// decide.
fn looked_at(drive: DriveMessage) -> DriveMessage {
    match std::fs::metadata(&drive.path) {
        Ok(meta) if meta.is_file() => {
            let (kind, size_bytes) = (DriveKind::File.word().to_owned(), meta.len());
            DriveMessage { kind, size_bytes, ..drive }
        }
        Ok(_) => failed(drive, "it is no longer a drive".to_owned()),
        Err(error) => failed(drive, error.to_string()),
    }
}

fn failed(drive: DriveMessage, note: String) -> DriveMessage {
    DriveMessage { state: "failed".to_owned(), note, ..drive }
}
