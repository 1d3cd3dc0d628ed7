//! Tests of the bad block list: comparison with a simple model, encoding and decoding, and damaged bytes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof, proptest};
use strake_units::{Lba, LbaRange, MemberIndex};

use super::uuid;
use crate::{
    BAD_RUNS_MAX, BAD_SLOT_BYTES, BadEvent, BadList, BadListFull, Badness, Sequenced,
    newest_bad_list,
};

const EVENTS: [BadEvent; 5] = [
    BadEvent::Unreadable,
    BadEvent::Hollow,
    BadEvent::Abandon,
    BadEvent::Restored,
    BadEvent::Written,
];

fn range(start: u64, blocks: u64) -> LbaRange {
    LbaRange::new(Lba(start), blocks)
}

/// Returns the state after each event in each state, as a table with the form of the documentation.
fn expected(before: Option<Badness>, event: BadEvent) -> Option<Badness> {
    use Badness::{Abandoned, Abandoning, Hollow, Unreadable};
    let column = match before {
        None => 0,
        Some(Unreadable) => 1,
        Some(Hollow) => 2,
        Some(Abandoning) => 3,
        Some(Abandoned) => 4,
    };
    let row = match event {
        BadEvent::Unreadable => [Unreadable, Unreadable, Hollow, Abandoning, Abandoned].map(Some),
        BadEvent::Hollow => [Hollow, Hollow, Hollow, Abandoning, Abandoning].map(Some),
        BadEvent::Abandon => [Some(Abandoning); 5],
        BadEvent::Restored => [None, None, None, Some(Abandoned), Some(Abandoned)],
        BadEvent::Written => [None; 5],
    };
    row[column]
}

fn step() -> impl Strategy<Value = (u8, u64, u64, BadEvent)> {
    let event = prop_oneof![
        Just(EVENTS[0]),
        Just(EVENTS[1]),
        Just(EVENTS[2]),
        Just(EVENTS[3]),
        Just(EVENTS[4]),
    ];
    (0..3u8, 0..40u64, 1..12u64, event)
}

fn slot_of(list: &BadList, sequence: u64) -> Vec<u8> {
    let mut slot = list.encode(uuid(1), sequence).concat();
    slot.resize(BAD_SLOT_BYTES as usize, 0);
    slot
}

fn found(sequence: u64, record: BadList) -> Option<Sequenced<BadList>> {
    Some(Sequenced { sequence, record })
}

proptest! {
    #[test]
    fn a_list_says_of_every_block_what_happened_to_it(steps in vec(step(), 0..60)) {
        let mut list = BadList::default();
        let mut model = BTreeMap::new();
        for (member, start, blocks, event) in steps {
            let mut changed = false;
            for block in start..start + blocks {
                let before = model.remove(&(member, block));
                let after = expected(before, event);
                changed |= before != after;
                after.map(|what| model.insert((member, block), what));
            }
            let noted = list.note(MemberIndex(member), range(start, blocks), event);
            assert_eq!(noted, Ok(changed));
        }
        let each = |run: &crate::BadRun| {
            let (member, what) = (run.member.0, run.what);
            (run.start.0..run.range().end().0).map(move |block| ((member, block), what))
        };
        let listed: Vec<_> = list.runs().iter().flat_map(each).collect();
        assert_eq!(listed, model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
        for pair in list.runs().windows(2) {
            let (left, right) = (pair[0], pair[1]);
            let touch = left.member == right.member && left.range().end() == right.start;
            assert!(!touch || left.what != right.what, "{left:?} and {right:?} are one run");
        }
        for (member, start, blocks) in [(0, 0, 52), (1, 7, 1), (2, 20, 5), (1, 39, 13)] {
            let found = list.within(MemberIndex(member), range(start, blocks)).count();
            let hits = |run: &&crate::BadRun| {
                run.member.0 == member && run.range().overlaps(range(start, blocks))
            };
            assert_eq!(found, list.runs().iter().filter(hits).count());
        }
        let slots = [slot_of(&list, 6), slot_of(&BadList::default(), 5)];
        assert_eq!(newest_bad_list(&slots[0], &slots[1], uuid(1), 3), found(6, list));
    }
}

/// Returns a full list: the runs are every second block of member 1.
fn full() -> BadList {
    let mut list = BadList::default();
    for at in 0..BAD_RUNS_MAX as u64 {
        assert_eq!(list.note(MemberIndex(1), range(at * 2, 1), BadEvent::Hollow), Ok(true));
    }
    list
}

/// B10: md dropped blocks that did not fit into its list, and served those blocks as if they were valid.
#[test]
fn b10_a_full_list_refuses_and_drops_nothing() {
    let mut list = full();
    let before = list.clone();
    let far = range(1 << 40, 1);
    assert_eq!(list.note(MemberIndex(1), far, BadEvent::Hollow), Err(BadListFull));
    assert_eq!(list, before);
    // Events that free space, or that need no space, still succeed.
    assert_eq!(list.note(MemberIndex(1), range(1, 1), BadEvent::Hollow), Ok(true));
    assert_eq!(list.note(MemberIndex(1), far, BadEvent::Hollow), Ok(true));
    let slot = slot_of(&list, 8);
    assert_eq!(newest_bad_list(&slot, &[], uuid(1), 2), found(8, list));
}

#[test]
fn a_torn_update_leaves_the_list_before_it() {
    let mut list = full();
    let (old, older) = (slot_of(&list, 7), slot_of(&BadList::default(), 6));
    assert_eq!(list.note(MemberIndex(0), range(3, 1), BadEvent::Unreadable), Err(BadListFull));
    assert_eq!(list.note(MemberIndex(1), range(2, 1), BadEvent::Written), Ok(true));
    let new = slot_of(&list, 8);
    let was = newest_bad_list(&older, &old, uuid(1), 2).expect("whole");
    assert_eq!(was.sequence, 7);
    for cut in (512..BAD_SLOT_BYTES as usize).step_by(512) {
        for torn in [[&new[..cut], &older[cut..]].concat(), [&older[..cut], &new[cut..]].concat()] {
            let found = newest_bad_list(&torn, &old, uuid(1), 2).expect("the old one is there");
            let whole = torn == new;
            assert_eq!(found == was, !whole, "torn at {cut}");
        }
    }
}

#[test]
fn a_list_notices_any_changed_byte() {
    let mut list = BadList::default();
    for (member, at, event) in [(0, 5, EVENTS[0]), (2, 9, EVENTS[1]), (2, 11, EVENTS[2])] {
        assert_eq!(list.note(MemberIndex(member), range(at, 1), event), Ok(true));
    }
    let slot = slot_of(&list, 4);
    for at in 0..crate::PAGE_BYTES {
        let mut bad = slot.clone();
        bad[at] ^= 0x21;
        assert_eq!(newest_bad_list(&bad, &[], uuid(1), 3), None, "byte {at}");
    }
    let refused = |slot: &[u8], array, members| newest_bad_list(slot, &[], uuid(array), members);
    assert_eq!(refused(&slot, 2, 3), None, "another array's");
    assert_eq!(refused(&slot, 1, 2), None, "a member that does not exist");
    assert_eq!(newest_bad_list(&[], &slot, uuid(1), 3), None, "in the slot of odd sequences");
    assert_eq!(refused(&[0; BAD_SLOT_BYTES as usize], 1, 3), None);
    assert_eq!(refused(&slot[..4095], 1, 3), None);
}
