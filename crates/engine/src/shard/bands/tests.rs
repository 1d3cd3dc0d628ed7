use strake_block::Sg;
use strake_units::{Lba, StripeIndex};

use super::*;
use crate::message::Fill;

/// Blocks of a strip in a band.
const BAND_BLOCKS: u32 = 32;

const BAND: Band = Band { stripe: StripeIndex(3), index: 1 };

fn columns(offset: u32, blocks: u32) -> ColumnSet {
    ColumnSet::of(offset, blocks, BAND_BLOCKS)
}

fn bands() -> Bands {
    Bands::new(16, 8, 4)
}

fn write(start: u64) -> Work {
    let fill = Fill::Data(Sg::default());
    Work::Write { range: LbaRange::new(Lba(start), 1), fill, durability: Durability::Normal }
}

fn span(start: u64) -> Span {
    Span { band: BAND, work: write(start), origin: Origin::Maintenance }
}

fn put_back(bands: &mut Bands, entry: u32, columns: ColumnSet, start: u64) {
    let again = (write(start), Origin::Maintenance, Arrival::at(Nanos(0)));
    bands.put_back(entry, again, || columns);
}

/// Small write 0 has columns 0 and 1.
fn of(number: u32) -> ColumnSet {
    assert_eq!(number, 0);
    columns(0, 2)
}

fn beside(bands: &mut Bands, columns: ColumnSet) -> Option<u32> {
    bands.hold_beside(BAND, columns, of)
}

/// Starts the first waiting write beside the holders.
fn start(bands: &mut Bands, entry: u32, number: u32, columns: ColumnSet) -> Option<u64> {
    let holder = bands.next_holder(entry, (number, columns), of)?;
    Some(bands.take_write(entry, holder).range.start.0)
}

/// Returns the start of the first waiting write.
fn first(bands: &Bands, entry: u32) -> Option<u64> {
    bands.first_writes(entry).map(|(_, range, _)| range.start.0)
}

#[test]
fn columns_of_two_ranges_overlap_exactly_if_the_ranges_do() {
    let ranges: Vec<(u32, u32)> = (0..BAND_BLOCKS)
        .flat_map(|offset| (1..=BAND_BLOCKS - offset).map(move |blocks| (offset, blocks)))
        .collect();
    for (a, n) in &ranges {
        // The offset counts from the start of the strip, which may have several bands.
        let one = columns(a + 2 * BAND_BLOCKS, *n);
        assert!(one.overlaps(ColumnSet::ALL));
        for (b, m) in &ranges {
            let overlap = a < &(b + m) && b < &(a + n);
            assert_eq!(one.overlaps(columns(*b, *m)), overlap, "{a}+{n} and {b}+{m}");
        }
    }
}

#[test]
fn a_band_with_more_blocks_than_bits_shares_bits_between_adjacent_blocks() {
    for band_blocks in [64, 128, 256] {
        let one = |offset| ColumnSet::of(offset, 1, band_blocks);
        let of_all = (0..band_blocks).map(one).fold(ColumnSet::NONE, ColumnSet::with);
        assert_eq!(of_all, ColumnSet::ALL);
        assert_eq!(ColumnSet::of(0, band_blocks, band_blocks), ColumnSet::ALL);
        assert!(!one(0).overlaps(one(band_blocks - 1)));
        let per_bit = band_blocks / 64;
        assert_eq!(one(0), one(per_bit - 1));
        assert!(!one(0).overlaps(one(per_bit)));
    }
}

#[test]
fn holders_of_other_columns_join_and_the_last_one_frees_the_band() {
    let mut bands = bands();
    let entry = bands.hold(BAND, Holder::Small(0)).expect("the band is free");
    assert_eq!(bands.hold(BAND, Holder::Small(1)), None, "it has a holder");
    assert_eq!(beside(&mut bands, columns(1, 2)), None, "column 1 is held");
    assert_eq!(beside(&mut bands, ColumnSet::ALL), None);
    assert_eq!(beside(&mut bands, columns(2, 1)), Some(entry));
    assert!(!bands.has_one_holder(entry, columns(0, 2)));
    bands.let_go(entry, || columns(0, 2));
    assert!(bands.has_one_holder(entry, columns(2, 1)));
    assert_eq!(beside(&mut bands, columns(0, 1)), Some(entry), "it was released");
    bands.let_go(entry, || columns(2, 1));
    bands.let_go(entry, || columns(0, 1));
    assert!(bands.is_idle());
    assert_eq!(bands.next_ready(), None);
    assert_eq!(beside(&mut bands, columns(0, 1)), None, "nothing is held");
}

#[test]
fn nothing_overtakes_a_waiting_operation() {
    let mut bands = bands();
    let entry = bands.hold(BAND, Holder::Small(0)).expect("the band is free");
    bands.enqueue(span(7), Nanos(0));
    assert_eq!(beside(&mut bands, columns(5, 1)), None, "an operation waits");
    assert_eq!(bands.next_ready(), None, "the holder lists it");
    bands.let_go(entry, || columns(0, 1));
    assert_eq!(bands.next_ready(), Some(entry));
    assert_eq!(bands.next_ready(), None, "it is listed once");
    assert!(!bands.is_held(entry));
    assert_eq!(beside(&mut bands, columns(5, 1)), None, "a task or a write is about to start");
}

#[test]
fn waiting_writes_start_one_after_the_other_beside_each_other() {
    let mut bands = bands();
    let entry = bands.hold(BAND, Holder::Whole).expect("the band is free");
    [70, 80, 81].into_iter().for_each(|start| bands.enqueue(span(start), Nanos(0)));
    assert_eq!(start(&mut bands, entry, 1, columns(7, 1)), None, "the whole band is held");
    bands.let_go(entry, || ColumnSet::ALL);
    assert_eq!(bands.next_ready(), Some(entry));
    assert_eq!(start(&mut bands, entry, 0, columns(0, 2)), Some(70));
    assert_eq!(bands.next_ready(), Some(entry), "the next one may start beside it");
    assert_eq!(start(&mut bands, entry, 1, columns(1, 1)), None, "column 1 is held");
    assert_eq!(start(&mut bands, entry, 1, columns(2, 1)), Some(80));
    assert_eq!(start(&mut bands, entry, 2, columns(2, 1)), None, "column 2 is held");
    bands.let_go(entry, || columns(0, 2));
    assert_eq!(start(&mut bands, entry, 2, columns(0, 1)), Some(81));
    bands.let_go(entry, || columns(2, 1));
    bands.let_go(entry, || columns(0, 1));
    assert!(bands.is_idle(), "the columns have no other holder");
}

#[test]
fn an_operation_that_was_put_back_is_first_and_waits_for_the_other_holders() {
    let mut bands = bands();
    let entry = bands.hold(BAND, Holder::Small(0)).expect("the band is free");
    assert_eq!(beside(&mut bands, columns(2, 1)), Some(entry));
    bands.enqueue(span(9), Nanos(0));
    put_back(&mut bands, entry, columns(0, 2), 0);
    assert_eq!(bands.next_ready(), Some(entry));
    assert_eq!(first(&bands, entry), None, "it needs a task");
    assert!(bands.is_held(entry), "and a task needs the whole band");
    bands.let_go(entry, || columns(2, 1));
    assert_eq!(bands.next_ready(), Some(entry));
    assert!(!bands.is_held(entry));
    assert_eq!(bands.pop(entry).map(|item| item.thorough), Some(true));
    assert_eq!(first(&bands, entry), Some(9), "the rest may be small writes");
    bands.give_back(entry);
    assert_eq!(bands.next_ready(), Some(entry));
}

#[test]
fn a_task_shares_its_band_with_nothing() {
    let mut bands = bands();
    bands.enqueue(span(7), Nanos(0));
    let entry = bands.next_ready().expect("the band is free");
    assert!(bands.pop(entry).is_some(), "as its task does");
    assert_eq!(beside(&mut bands, columns(5, 1)), None);
    bands.retire(entry);
    assert!(bands.hold(BAND, Holder::Small(1)).is_some());
}
