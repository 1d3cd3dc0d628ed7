//! Tests of which record counts, for every combination of small slots.

use crate::slot::Slots;
use crate::{SEQUENCE_MAX, Sequenced, newest_of};

/// The content of a slot: no valid record, or a record of this sequence.
type Content = Option<Sequenced<&'static str>>;

fn record(sequence: u64, record: &'static str) -> Content {
    Some(Sequenced { sequence, record })
}

#[test]
fn the_newest_record_in_its_own_slot_counts_exhaustive() {
    let contents = || std::iter::once(None).chain((0..8).map(|sequence| record(sequence, "")));
    for (a, b) in contents().flat_map(|a| contents().map(move |b| (a, b))) {
        let own = |slot: u64, content: Content| {
            content.map(|found| found.sequence).filter(|sequence| sequence % 2 == slot)
        };
        let newest = own(0, a).max(own(1, b));
        assert_eq!(newest_of([a, b]).map(|found| found.sequence), newest, "{a:?} {b:?}");
    }
}

#[test]
fn of_equals_the_one_that_is_known_counts() {
    let newer = |known, found| crate::newer(known, found, |record: &Sequenced<_>| record.sequence);
    let (first, second, later) = (record(4, "first"), record(4, "second"), record(5, "later"));
    assert_eq!(newer(first, second), first);
    assert_eq!(newer(first, later), later);
    assert_eq!(newer(later, first), later);
    assert_eq!(newer(None, first), first);
    assert_eq!(newer(first, None), first);
}

#[test]
fn a_record_without_a_successor_is_not_usable() {
    let usable = |sequence| record(sequence, "").and_then(Sequenced::usable);
    assert_eq!(usable(SEQUENCE_MAX), record(SEQUENCE_MAX, ""));
    assert_eq!(usable(SEQUENCE_MAX + 1), None);
    assert_eq!(usable(u64::MAX), None);
}

/// The write of the next record does not change the slot of the record that counts, for any result of the write.
#[test]
fn the_next_record_goes_elsewhere() {
    for count in [2, 64] {
        let slots = Slots { offset: 4096, bytes: 512, count };
        for sequence in (0..200).chain([SEQUENCE_MAX]) {
            let next = Sequenced { sequence, record: () }.next();
            let (offset, bytes) = slots.range();
            let (at, then) = (slots.at(sequence), slots.at(next));
            assert!(at != then && at.is_multiple_of(512));
            assert!(offset <= at && at + 512 <= offset + bytes);
        }
    }
}
