//! Tests that a header in a block that is used again equals a header in a new block.

use strake_units::{MemberIndex, MemberSet, StripeIndex};

use super::uuid;
use crate::limits::MEMBERS_MAX;
use crate::{
    REDO_HEADER_BYTES, RedoHeader, RedoPart, RedoPayload, decode_redo, encode_redo,
    encode_redo_again,
};

const OFFSET: u64 = 3 << 20;

fn header(sequence: u64) -> RedoHeader {
    RedoHeader {
        array: uuid(1),
        epoch: uuid(2),
        generation: 9 + sequence,
        ring: 3,
        sequence,
        floor: sequence / 2,
        stripe: StripeIndex(sequence * 1001),
        out: MemberSet::EMPTY,
        replacement: sequence.is_multiple_of(2).then(|| (MemberIndex(3), uuid(7))),
    }
}

fn parts(count: usize, salt: u64) -> Vec<RedoPart> {
    let part = |nth: usize| RedoPart {
        slot: MemberIndex(nth as u8),
        uuid: uuid(nth as u8),
        offset: salt as u32 + 5,
        blocks: 1 + nth as u32,
        crc: (salt as u32 ^ nth as u32).wrapping_mul(0x9e37_79b9),
        escaped: salt << nth,
    };
    (0..count).map(part).collect()
}

#[test]
fn exhaustive_headers_in_used_blocks_equal_headers_in_new_blocks() {
    for before in 0..=MEMBERS_MAX {
        for count in 0..=MEMBERS_MAX {
            let mut block = [0; REDO_HEADER_BYTES];
            encode_redo_again(&header(1), &parts(before, 3), OFFSET, &mut block);
            let (header, parts) = (header(2), parts(count, 4));
            encode_redo_again(&header, &parts, OFFSET, &mut block);
            let mut new = [0xa5; REDO_HEADER_BYTES];
            encode_redo(&header, &parts, OFFSET, &mut new);
            assert_eq!(block, new, "{before} parts, then {count}");
            let record = decode_redo(&block, OFFSET).expect("the checksum is that of the block");
            assert_eq!(record.header, header);
            match record.payload {
                RedoPayload::Parts(found) => assert_eq!(found, parts),
                RedoPayload::Nothing => assert!(parts.is_empty()),
                RedoPayload::PartialWrites(_) => panic!("it has parts"),
            }
        }
    }
}
