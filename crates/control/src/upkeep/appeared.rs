//! Block devices that appeared. The block devices of taken drives are held back until the drives are taken: a drive
//! cannot be taken while an array uses it with the kernel driver.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::HELD_ROUNDS;
use crate::manager::Manager;
use crate::record::store::TakenRecord;
use crate::state::late_takes::Held;
use crate::upkeep::taken::{Found, look_for, note_not_taken};

/// Finds the block devices that appeared, and decides which of them arrays may use. This is the first part of a round.
pub(crate) fn notice_appeared(manager: &mut Manager) {
    if manager.stopping {
        return;
    }
    forget_failures_of_gone(manager);
    let is_first = manager.listed.is_new();
    let (appeared, notes) = manager.listed.notice(manager.drives.machine());
    notes.into_iter().for_each(|note| manager.record(note));
    let free = hold_back(manager, appeared, is_first);
    if free.is_empty() {
        return;
    }
    let running: Vec<String> = manager.running.iter().map(|running| running.uuid()).collect();
    for array in running {
        manager.entries.of(&array).appeared.extend(free.iter().cloned());
    }
}

/// Forgets the failures of drives that are absent. A drive that failed to start is tried again after it was replugged.
/// While a drive is being returned to the kernel, only its block device is absent, so its failure is kept.
fn forget_failures_of_gone(manager: &mut Manager) {
    let host = manager.options.binder.host();
    let records = &manager.records;
    manager.late_takes.failed.retain(|serial| {
        records.taken_of(serial).is_some_and(|record| host.picture(&record.address).is_some())
    });
}

/// Holds back the block devices of taken drives. Returns the other devices, and the devices that are no longer held
/// back. The first call finds drives that the start could not take, and whose reasons were reported: they are not held
/// back.
fn hold_back(manager: &mut Manager, appeared: Vec<String>, is_first: bool) -> BTreeSet<String> {
    let mut held = std::mem::take(&mut manager.late_takes.held_back);
    let mut free: BTreeSet<String> = appeared.iter().chain(held.keys()).cloned().collect();
    let expected = if free.is_empty() { BTreeMap::new() } else { driven_by_kernel(manager) };
    let serving: BTreeSet<String> =
        manager.running.iter().flat_map(|running| running.serving_paths()).collect();
    for (path, serial) in expected {
        let late = &mut manager.late_takes;
        if !is_first && appeared.contains(&path) {
            // The drive returned, so the earlier report no longer applies.
            late.reported.remove(&serial);
        }
        let is_reported = late.reported.contains_key(&serial);
        if is_reported || serving.contains(&path) || !free.contains(&path) {
            continue;
        }
        let before = held.remove(&path).filter(|before| before.serial == serial);
        let mut now = before.unwrap_or(Held { serial, rounds: 0, why: None });
        now.rounds += 1;
        if now.rounds > HELD_ROUNDS {
            held.insert(path, now);
            continue;
        }
        // The next attempt to take the drive occurs in this round.
        late.last = None;
        free.remove(&path);
        late.held_back.insert(path, now);
    }
    for Held { serial, why, .. } in held.into_values() {
        let record = manager.records.taken_of(&serial).cloned();
        if let (Some(record), Some(why)) = (record, why) {
            note_not_taken(manager, &record, &why);
        }
    }
    free
}

/// The block devices and serial numbers of taken drives that the kernel drives, and that may start when they are bound.
fn driven_by_kernel(manager: &Manager) -> BTreeMap<String, String> {
    let (late, all) = (&manager.late_takes, &manager.records.taken);
    let mut records: Vec<&TakenRecord> = all.iter().collect();
    records.retain(|record| record.is_taken() && !late.failed.contains(&record.serial));
    if records.is_empty() {
        return BTreeMap::new();
    }
    let (host, drives) = (manager.options.binder.host(), manager.drives.machine().drives());
    let mut found = BTreeMap::new();
    for record in records {
        if let Found::Driven(address) = look_for(host, record, all) {
            let of_it = drives.iter().filter(|drive| drive.pci.contains(&address));
            found.extend(of_it.map(|drive| (drive.path.clone(), record.serial.clone())));
        }
    }
    found
}
