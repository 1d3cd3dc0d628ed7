//! Tests of encoding, decoding and damage of lists of partial writes.

use strake_units::{MemberSet, StripeIndex};

use super::uuid;
use crate::{
    PARTIAL_WRITE_BLOCKS_MAX, PartialWriteList, PartialWritePlace, REDO_HEADER_BYTES, RedoHeader,
    RedoPayload, Witness, decode_redo,
};

const OFFSET: u64 = 7 << 20;

fn header() -> RedoHeader {
    RedoHeader {
        array: uuid(1),
        epoch: uuid(2),
        generation: 9,
        ring: 3,
        sequence: 77,
        floor: 70,
        stripe: StripeIndex(0),
        out: MemberSet::EMPTY,
        replacement: None,
    }
}

/// Returns places of different sizes, for `parities`.
fn place(nth: u64, parities: u8) -> PartialWritePlace {
    let blocks = 1 + (nth * 7 % u64::from(PARTIAL_WRITE_BLOCKS_MAX)) as u32;
    let blocks = if nth.is_multiple_of(3) { 1 } else { blocks };
    PartialWritePlace {
        stripe: StripeIndex(nth * 1001),
        strip: nth as u8,
        offset: 4,
        blocks,
        parities,
    }
}

fn witness(nth: u64, block: u32, parities: u8) -> Witness {
    let salt = (nth as u32).wrapping_mul(0x9e37_79b9) ^ block;
    let word = (!salt.is_multiple_of(5)).then_some((salt >> 7) as u16 & 1023);
    let value =
        |part: usize| if part <= parities.into() { salt.rotate_left(part as u32) } else { 0 };
    Witness { word, values: std::array::from_fn(value) }
}

/// Returns a page with as many partial writes as fit, at most `count`, in memory that was not zeroed.
fn page(count: u64, parities: u8) -> (Vec<u8>, u64) {
    let mut page = vec![0xa5; REDO_HEADER_BYTES];
    let mut list = PartialWriteList::default();
    let mut taken = 0;
    while taken < count {
        let place = place(taken, parities);
        let witnesses = (0..place.blocks).map(|block| witness(taken, block, parities));
        let room = list.has_room_for(place.blocks, parities);
        assert_eq!(room, list.push(&mut page, place, witnesses));
        if !room {
            break;
        }
        taken += 1;
    }
    list.seal(&header(), OFFSET, &mut page);
    (page, taken)
}

#[test]
fn what_was_listed_is_read_again() {
    for parities in 1..=4 {
        for count in [0, 1, 2, 5, 1000] {
            let (page, taken) = page(count, parities);
            let record = decode_redo(&page, OFFSET).expect("sound");
            assert_eq!(record.header, header());
            let found = match record.payload {
                RedoPayload::PartialWrites(found) => found,
                RedoPayload::Nothing => Vec::new(),
                RedoPayload::Parts(parts) => panic!("{parts:?}"),
            };
            assert_eq!(found.len() as u64, taken);
            assert!(taken == count || taken > 2, "a page has room for more than one");
            for (nth, partial_write) in found.iter().enumerate() {
                let PartialWritePlace { stripe, strip, offset, blocks, parities } =
                    place(nth as u64, parities);
                assert_eq!(
                    (
                        partial_write.stripe,
                        partial_write.strip,
                        partial_write.offset,
                        partial_write.blocks,
                        partial_write.parities
                    ),
                    (stripe, strip, offset, blocks, parities)
                );
                let expected: Vec<Witness> =
                    (0..blocks).map(|block| witness(nth as u64, block, parities)).collect();
                assert_eq!(partial_write.witnesses, expected);
            }
        }
    }
}

#[test]
fn a_torn_list_is_none_and_a_wrong_one_is_refused() {
    let (whole, _) = page(30, 2);
    for torn in (0..REDO_HEADER_BYTES).step_by(512) {
        let mut page = whole.clone();
        page[torn..torn + 512].fill(0x11);
        assert_eq!(decode_redo(&page, OFFSET), None, "torn at {torn}");
    }
    assert_eq!(decode_redo(&whole, OFFSET + 4096), None, "it lies elsewhere");
    // The checksum is valid, but the content is not a list: no blocks, too many parities, more rows than the page has.
    for (at, byte) in [(128 + 14, 0), (128 + 13, 5), (14, 255), (15, 255), (12, 1)] {
        let mut page = whole.clone();
        page[at] = byte;
        let crc = crc32c::crc32c(&page[..4092]);
        page[4092..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_redo(&page, OFFSET), None, "byte {at}");
    }
}
