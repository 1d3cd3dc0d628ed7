//! Reports connections and hosts that exports turned away.

use std::time::Instant;

use strake_units::Nanos;

use crate::events::Note;
use crate::exports::rejections::note_of;
use crate::manager::Manager;

/// Tells of addresses that turned connections away since they were told of last.
pub(crate) fn watch_crowds(manager: &mut Manager) {
    manager.crowds.keep(|listen| manager.servers.contains_key(listen));
    let counts = manager.servers.iter().map(|(at, server)| (at.clone(), server.turned_away()));
    let notes = manager.crowds.news(counts.collect(), Instant::now());
    notes.into_iter().for_each(|note| manager.record(note));
}

/// Tells of hosts that were not let in, as far as that is to be told at `now`.
pub(crate) fn tell_rejections(manager: &mut Manager, now: Nanos) {
    let reported: Vec<Note> = manager
        .servers
        .iter()
        .flat_map(|(listen, server)| {
            let due = server.take_rejections(now);
            due.into_iter().map(|rejection| note_of(listen, &rejection))
        })
        .collect();
    reported.into_iter().for_each(|note| manager.record(note));
}
