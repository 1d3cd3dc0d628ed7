//! Tests of drives with records whose sequence has no successor. No array writes such records.

use strake_engine::{Outcome, load_config, store_config};
use strake_ondisk::{
    AreaLayout, BadEvent, BadList, Bitmap, PageRecord, SEQUENCE_MAX, Sequenced, encode_config,
    encode_page,
};
use strake_raid::Level;
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use crate::stage::{LOSSY, STRICTLY, Set, Stage, needs_consent};

/// The number of written blocks.
const BLOCKS: u64 = 500;

fn filled() -> Stage {
    Set::new(Level::Raid5, 4).filled(BLOCKS, 100, 3)
}

fn layout(stage: &Stage) -> AreaLayout {
    AreaLayout::of(stage.set.disk_bytes).expect("large enough")
}

/// Writes `bytes` at byte `offset` of the drives in `members`.
fn everywhere(stage: &Stage, members: &[usize], offset: u64, bytes: &[u8]) {
    members.iter().for_each(|at| stage.disks[*at].ram.write_at(offset, bytes).expect("inside"));
}

/// Replaces a slot of each bitmap page on `members` with an empty page of this sequence.
fn put_pages(stage: &Stage, members: &[usize], sequence: u64) {
    let uuid = stage.status().uuid;
    for bitmap in Bitmap::all(stage.disks.len()) {
        for page in 0..2 {
            let record = PageRecord { held: 0, bits: vec![0; 4064] };
            let bytes = encode_page(uuid, bitmap, page, &Sequenced { sequence, record });
            let offset = layout(stage).bitmap_page_offset(bitmap, page, sequence);
            everywhere(stage, members, offset, &bytes);
        }
    }
}

/// The array crashed, and some or all members have pages of the last sequence.
#[test]
fn bitmap_pages_of_the_last_sequence_count_as_lost() {
    for sequence in [u64::MAX, u64::MAX - 1, SEQUENCE_MAX + 1] {
        for members in [&[1][..], &[0, 1, 2, 3]] {
            let mut stage = filled();
            stage.cut_write(2, 40, 3);
            put_pages(&stage, members, sequence);
            let all = stage.status().geometry.stripes();
            let regions = stage.again(STRICTLY);
            assert!(regions > 0, "the write that was cut short is in one of them");
            stage.until("the resync", |stage| stage.status().resync.is_none());
            stage.expect(40, 3, 99);
            stage.write(40, 3, 5).expect("it serves");
            stage.check_parity(all);
            stage.write(100, 50, 6).expect("it serves");
            assert_eq!(stage.restart(), 0, "its own pages count again");
            stage.verify(BLOCKS);
        }
    }
}

/// With the greatest usable sequence, the next pages of the array count as lost at the next start, and never as older.
#[test]
fn pages_after_the_greatest_usable_sequence_are_not_passed_over() {
    let mut stage = filled();
    stage.stop().expect("clean");
    stage.again(STRICTLY);
    put_pages(&stage, &[0, 1, 2, 3], SEQUENCE_MAX);
    stage.again(STRICTLY);
    stage.cut_write(2, 40, 3);
    assert!(stage.again(STRICTLY) > 0, "the write that was cut short");
    stage.until("the resync", |stage| stage.status().resync.is_none());
    stage.check_parity(40);
}

/// A list of the last sequence on all members is refused with its name. Without this list, the array can list blocks
/// again.
#[test]
fn a_bad_block_list_of_the_last_sequence_is_refused() {
    let mut stage = filled();
    let mut list = BadList::default();
    let range = |at| LbaRange::new(Lba(at), 1);
    list.note(MemberIndex(1), range(7), BadEvent::Hollow).expect("there is room");
    let put = |stage: &Stage, members: &[usize], sequence| {
        let pages = list.encode(stage.status().uuid, sequence).concat();
        everywhere(stage, members, layout(stage).bad_blocks_offset(sequence), &pages);
    };
    put(&stage, &[0, 1, 2, 3], 4);
    stage.again(STRICTLY);
    // The label records that a list exists.
    stage.restart();
    assert_ne!(stage.status().bad_ranges, []);
    put(&stage, &[2], u64::MAX);
    stage.again(STRICTLY);
    assert_ne!(stage.status().bad_ranges, [], "the others show it");
    put(&stage, &[0, 1, 2, 3], u64::MAX);
    let Outcome::Refused { what, remedy, .. } = stage.find(STRICTLY) else {
        panic!("it must be refused")
    };
    assert!(what.contains("sequence 18446744073709551615") && needs_consent(remedy), "{what}");
    stage.again(LOSSY);
    assert_eq!(stage.status().bad_ranges, []);
    stage.again(STRICTLY);
    assert_eq!(stage.status().bad_ranges, [], "nor after another start");
}

#[test]
fn a_record_of_the_control_plane_of_the_last_sequence_is_passed_over() {
    let stage = filled();
    let uuid = stage.status().uuid;
    let drives: Vec<_> = stage.disks.iter().map(|disk| disk.drive.clone()).collect();
    let wait = &mut || Some(Nanos(0));
    store_config(&drives, uuid, b"first", wait).expect("the drives work");
    store_config(&drives, uuid, b"second", wait).expect("the drives work");
    let last = encode_config(uuid, u64::MAX, b"last").expect("it fits");
    everywhere(&stage, &[0, 1, 2, 3], layout(&stage).config_offset(u64::MAX), &last);
    assert_eq!(load_config(&drives, uuid, wait).as_deref(), Some(&b"second"[..]));
    store_config(&drives, uuid, b"third", wait).expect("the drives work");
    assert_eq!(load_config(&drives, uuid, wait).as_deref(), Some(&b"third"[..]));
}
