//! Reports what changed in arrays.

use strake_engine::ArrayEventKind;
use strake_units::MemberIndex;

use crate::manager::Manager;
use crate::policy::report::{Seen, note_of};
use crate::upkeep::silent::note_silent;

impl Manager {
    /// Compares every running array with its last reported state, and reports the differences.
    pub fn observe(&mut self) {
        for at in 0..self.running.len() {
            tell_array_events(self, at);
            let entry = self.entries.of(&self.running[at].uuid());
            let objection = |slot| entry.slot(slot).objection.as_ref();
            let status = self.running[at].array.status();
            let (now, notes) = Seen::next(entry.seen.as_ref(), &status, objection);
            entry.seen = Some(now);
            notes.into_iter().for_each(|note| self.record(note));
        }
        note_silent(self);
        for (uuid, entry) in self.entries.iter_mut() {
            if self.running.iter().all(|running| running.uuid() != *uuid) {
                entry.seen = None;
            }
        }
    }
}

/// Reports the events that the array itself records, because a comparison of two states does not show them.
fn tell_array_events(manager: &mut Manager, at: usize) {
    let array = &manager.running[at].array;
    let (name, events) = (array.name().to_string(), array.drain_events());
    if let Some(seen) = &mut manager.entries.of(&array.uuid().to_string()).seen {
        let replaced = events.iter().filter(|e| e.kind == ArrayEventKind::ReplaceFinished);
        let status = array.status();
        for slot in replaced.filter_map(|event| event.member).map(MemberIndex::at) {
            seen.note_replaced(slot, &status);
        }
    }
    for event in events {
        if let Some(note) = note_of(&name, event) {
            manager.record(note);
        }
    }
}
