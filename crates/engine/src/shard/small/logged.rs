//! Small writes that are recorded in the redo log before they are written: in a stripe with a missing member, and in
//! mode `strict` where no partial-write record is sufficient. [`strake_raid::Single::Record`] is the decision. The
//! record is that of a write of a task ([`crate::shard::redo`]).
//!
//! ```text
//!  updated --> place in the ring --> record on every member it touches, stable --> written --> answered, the place
//!                     |                            |                                           is given up
//!                     v no place now               v a member failed, or something changed
//!                   to the head of its band, for a task
//! ```

use arrayvec::ArrayVec;
use strake_block::buf::SEGMENTS_MAX;
use strake_block::{Buf, Sg};
use strake_ondisk::redo::must_escape;
use strake_ondisk::{REDO_BLOCK_BYTES, RedoPart, encode_redo_again};
use strake_parity::checksum::crc32c_append;
use strake_raid::{PARTS_MAX, Sets};
use strake_units::Lba;

use super::table::Phase;
use super::{Members, Small, Smalls, blame_failed, unchanged};
use crate::message::View;
use crate::shard::Shard;
use crate::shard::redo::{Entry, RecordOutcome, header_without};

/// The record of a small write. Few small writes have one, so it is stored outside the table of small writes.
#[derive(Default)]
struct Record {
    /// The place in the ring, until the write is complete.
    entry: Option<Entry>,
    /// The page with the header, while the record is written.
    page: Option<Buf>,
    /// The updated parities, while the record is written.
    parities: ArrayVec<Buf, PARTS_MAX>,
}

/// The records of the small writes, in the order of the table of small writes.
pub(crate) struct Records(Box<[Record]>);

impl Records {
    /// Creates a table for `writes` writes.
    pub(crate) fn new(writes: usize) -> Self {
        Self((0..writes).map(|_| Record::default()).collect())
    }

    /// Returns the bytes of memory of the table.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Writes the record of a small write whose parities are updated, and returns true. Returns false if the write
/// needs a task: there is no space now, the content looks like a header and would have to be copied, or the array has
/// failed.
#[inline(never)]
pub(super) fn log(shard: &Shard, members: &mut Members, small: &mut Small) -> bool {
    if shard.shared.is_lost() {
        // A failed array releases records of writes that were executed only in part. A later record would have a floor
        // above them, so that no start would replay them.
        return false;
    }
    let count = small.parts.count();
    if small.data.parts().len() >= SEGMENTS_MAX {
        return false;
    }
    let Some(rows) = rows(shard, small) else { return false };
    let Some((entry, mut page)) = shard.redo.borrow_mut().place_now(small.data.len()) else {
        return false;
    };
    let out = shard.geometry.all_members() - members.viewed(View::InSync);
    let about = header_without(shard, out, small.place.stripe, entry);
    encode_redo_again(&about, &rows, entry.at, page.as_mut_slice());
    let page = page.freeze();
    let now = shard.now.get();
    small.begin_phase(Phase::Log, now);
    let mut records = shard.records.borrow_mut();
    let record = &mut records.0[small.number() as usize];
    for part in 0..count {
        let list = if part == 0 {
            let (first, rest) = small.data.parts().split_first().expect("a write has data");
            let mut list = Sg::from([page.clone(), first.clone()]);
            for piece in rest {
                list.push(piece.clone()).expect("a list has room for a page");
            }
            list
        } else {
            let parity = small.bufs[usize::from(part)].take().expect("it was updated");
            let parity = parity.freeze();
            record.parities.push(parity.clone());
            Sg::from([page.clone(), parity])
        };
        let sent = members.log_part(now, small.part(part, Lba(entry.at)), list);
        small.out.sent(part, sent);
    }
    (record.entry, record.page) = (Some(entry), Some(page));
    true
}

/// Returns the rows of the record of a small write, or `None` if a block looks like a header or is in two pieces.
fn rows(shard: &Shard, small: &Small) -> Option<ArrayVec<RedoPart, PARTS_MAX>> {
    let redo = shard.redo.borrow();
    let mut rows = ArrayVec::new();
    for (part, &slot) in small.written_on().iter().enumerate() {
        let (mut crc, mut at) = (0, 0);
        for mut bytes in small.content(part as u8) {
            if !usize::is_multiple_of(at, REDO_BLOCK_BYTES) {
                return None;
            }
            (crc, at) = (crc32c_append(crc, bytes), at + bytes.len());
            while !bytes.is_empty() {
                if must_escape(bytes) {
                    return None;
                }
                bytes = &bytes[REDO_BLOCK_BYTES.min(bytes.len())..];
            }
        }
        rows.push(RedoPart {
            slot,
            uuid: redo.uuid(slot),
            offset: small.place.offset,
            blocks: small.range.blocks as u32,
            crc,
            escaped: 0,
        });
    }
    Some(rows)
}

/// Continues a small write whose record was written, or puts it to the head of its band for a task.
pub(super) fn end(shard: &Shard, smalls: &mut Smalls, write: u32, sets: &Sets) {
    let small = smalls.get(write);
    let outcome = if small.failed { RecordOutcome::Failed } else { RecordOutcome::Stable };
    take_record(shard, small, outcome);
    let mut members = shard.members.borrow_mut();
    if outcome == RecordOutcome::Stable && unchanged(&members, small, sets) {
        shard.write_parts(&mut members, small);
        return;
    }
    drop(members);
    // A member that failed is put out of use, like after a failed record of a task. The task waits for this if the
    // member fails again.
    blame_failed(shard, smalls, write);
    shard.hand_over(smalls, write);
}

/// Returns the page of a record, and the parities to the write.
fn take_record(shard: &Shard, small: &mut Small, outcome: RecordOutcome) {
    let mut records = shard.records.borrow_mut();
    let record = &mut records.0[small.number() as usize];
    let mut redo = shard.redo.borrow_mut();
    record.page.take().into_iter().for_each(|page| redo.give_page(page));
    let bytes = small.data.len();
    for (place, parity) in small.bufs[1..].iter_mut().zip(record.parities.drain(..)) {
        let parity = parity.reclaim();
        // Only a drive that timed out keeps a buffer, and then the write of the record has failed.
        assert!(
            parity.is_ok() || outcome == RecordOutcome::Failed,
            "a drive that has answered keeps no buffer"
        );
        *place = parity.ok();
        // The buffer has its original size again.
        place.iter_mut().for_each(|buf| buf.truncate(bytes));
    }
    let entry = record.entry.expect("it was placed");
    redo.recorded(entry, outcome);
    match outcome {
        RecordOutcome::Stable => {}
        RecordOutcome::Failed => record.entry = None,
    }
}

/// Releases the place of the record of a small write, because the write is complete or will not be executed.
#[inline]
pub(super) fn leave(shard: &Shard, small: &Small) {
    if small.logged
        && let Some(entry) = shard.records.borrow_mut().0[small.number() as usize].entry.take()
    {
        shard.redo.borrow_mut().done(entry);
    }
}
