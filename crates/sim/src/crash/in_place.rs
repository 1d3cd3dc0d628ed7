//! Labels that overwrite labels.

use std::collections::BTreeMap;

use strake_ondisk::{AreaLayout, Copy, RingScan, SLOT_BYTES};

use super::disk::Event;
use super::image::{Change, Image};
use super::record::Record;

/// Describes a label that is written over a different label of the same generation: if the write were torn, both would
/// be lost.
pub(super) fn rewritten_label(record: &Record, base: &[Image], events: &[Event]) -> Option<String> {
    let mut slots = BTreeMap::new();
    for event in events {
        let Event::Issue { drive, offset, change: Change::Bytes(written), .. } = event else {
            continue;
        };
        let Some((copy, first)) = slot_at(record, *offset) else { continue };
        for (nth, new) in written.chunks_exact(SLOT_BYTES).enumerate() {
            let slot = first + nth;
            let old = slots.entry((*drive, copy == Copy::Head, slot)).or_insert_with(|| {
                let mut old = vec![0; SLOT_BYTES];
                base[*drive].read(offset + (nth * SLOT_BYTES) as u64, &mut old);
                old
            });
            let generation = |bytes: &[u8]| {
                let mut scan = RingScan::default();
                scan.add_slots(slot, bytes, copy);
                scan.newest.map(|label| label.generation)
            };
            let before = generation(old);
            if let Some(number) = before.filter(|_| before == generation(new) && old != new) {
                let what = "gets another label of the same generation in its place";
                return Some(format!("drive {drive} {what}: {number}"));
            }
            new.clone_into(old);
        }
    }
    None
}

/// The ring and the slot of a label at this offset of a member.
fn slot_at(record: &Record, offset: u64) -> Option<(Copy, usize)> {
    let layout = AreaLayout::of(record.case.disk_spec().bytes)?;
    [Copy::Head, Copy::Tail].into_iter().find_map(|copy| {
        let (start, bytes) = layout.ring_range(copy);
        let within = (start..start + bytes).contains(&offset);
        within.then(|| (copy, (offset - start) as usize / SLOT_BYTES))
    })
}
