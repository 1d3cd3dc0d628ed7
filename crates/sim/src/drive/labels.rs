//! Detection of labels among the writes to a drive.

use strake_ondisk::{Address, AreaLayout, Copy, RING_SLOTS, SLOT_BYTES, Superblock};

use super::state::Change;
use crate::medium::PAGE;
use crate::trace::{LabelEvent, Trace};

const _: () = assert!(SLOT_BYTES == PAGE, "a label is a page");

/// Records every valid label in a write to `offset` of a drive with this number of `bytes`. A torn write consists of
/// bytes, a whole write of pages.
pub(super) fn note(trace: &Trace, bytes: u64, offset: u64, change: &Change) {
    let Some(layout) = AreaLayout::of(bytes) else { return };
    let look = |nth: usize, page: &[u8]| {
        let at = offset + (nth * PAGE) as u64;
        for copy in [Copy::Head, Copy::Tail] {
            let (ring, length) = layout.ring_range(copy);
            if !(ring..ring + length).contains(&at) {
                continue;
            }
            let ring_slot = ((at - ring) / SLOT_BYTES as u64 % RING_SLOTS) as u8;
            let address = Address { copy, ring_slot, offset: Some(at) };
            if let Ok(label) = Superblock::decode(page, address) {
                trace.label(LabelEvent::Written(copy, Box::new(label)));
            }
        }
    };
    match change {
        Change::Pages(pages) => {
            let pages = pages.iter().enumerate();
            pages.for_each(|(nth, page)| page.iter().for_each(|page| look(nth, &page[..])));
        }
        Change::Bytes(bytes) => {
            bytes.chunks_exact(PAGE).enumerate().for_each(|(nth, page)| look(nth, page));
        }
        Change::Zeroes(_) => {}
    }
}
