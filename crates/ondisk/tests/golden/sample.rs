//! The values the golden images hold. They never change: a new format gets a file of its own.

use strake_ondisk::{
    Activation, BadEvent, BadList, COMPAT_AFTER_CRASH, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS,
    COMPAT_REMOTE, GeometryRecord, INCOMPAT_BAD_BLOCKS, INCOMPAT_IN_DOUBT, MemberRecord,
    PartialWrite, PartialWriteList, PartialWritePlace, REDO_HEADER_BYTES, RecordedState,
    RedoHeader, RedoPart, ReplacementRecord, Superblock, Witness, encode_redo,
};
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, StripeIndex, Uuid};

/// Byte offset of the head ring's slot for generation 71, which the label is encoded for.
pub const LABEL_OFFSET: u64 = (64 << 10) + 7 * 4096;
/// Sequence of the bitmap page.
pub const PAGE_SEQUENCE: u64 = 12;
/// Sequence that every live member held when the write-intent page was written.
pub const PAGE_HELD: u64 = 9;
/// Regions set in the bitmap page.
pub const PAGE_REGIONS: [u32; 4] = [0, 9, 4095, 32_511];

/// The label of format 1.
pub fn label() -> Superblock {
    use RecordedState::{Faulty, InSync, Missing, Rebuilding};
    let row = |(slot, state): (u8, RecordedState)| MemberRecord {
        uuid: Uuid([0x20 + slot; 16]),
        state,
        in_sync_generation: 3 + u64::from(slot),
        recovered_stripes: if state == Rebuilding { 77 } else { 0 },
        held_generation: 0,
        bytes: 7_681_501_126_656,
    };
    Superblock {
        array: Uuid([1; 16]),
        name: "golden.1".parse().expect("a good name"),
        format: strake_ondisk::Format::One,
        member: Uuid([0x20; 16]),
        slot: MemberIndex(0),
        generation: 71,
        epoch: Uuid([3; 16]),
        parent_epoch: Uuid([4; 16]),
        geometry: GeometryRecord {
            level: 6,
            parity: 2,
            members: 5,
            group_width: 5,
            strip_bytes: 131_072,
            block_bytes: 4096,
            layout: 1,
            member_blocks: 1_875_360_000,
            region_stripes: 512,
        },
        clean: true,
        destroyed: false,
        members: [InSync, Rebuilding, Faulty, Missing, InSync]
            .into_iter()
            .zip(0..)
            .map(|(state, slot)| row((slot, state)))
            .collect(),
        history: Vec::new(),
        replacements: Vec::new(),
        consistency: strake_ondisk::Consistency::Safe,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
    }
}

/// The label of format 1 with a history, members that know when they went out, and replacements.
pub fn label_with_history() -> Superblock {
    let mut label = label();
    label.compat = COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS;
    let activation = |nth: u8| Activation {
        epoch: Uuid([0x40 + nth; 16]),
        first_generation: 3 + 4 * u64::from(nth),
    };
    label.history = (0..16).map(activation).collect();
    label.members[2].held_generation = 68;
    label.members[3].held_generation = (1 << 56) - 1;
    let replacement = |slot: u8| ReplacementRecord {
        slot: MemberIndex(slot),
        uuid: Uuid([9; 16]),
        bytes: 1 << 43,
    };
    label.replacements = vec![replacement(0), replacement(4)];
    label
}

/// The label of format 1 with every feature that it ever had, which only the last programs of that format open.
pub fn label_with_features() -> Superblock {
    let mut label = label_with_history();
    label.compat |= COMPAT_REMOTE | COMPAT_AFTER_CRASH;
    label.incompat = INCOMPAT_BAD_BLOCKS | INCOMPAT_IN_DOUBT;
    label.consistency = strake_ondisk::Consistency::Strict;
    label.note_logged(MemberSet::first_n(5), 70);
    label
}

/// `label` as one of format 2, on members with room for its areas.
fn in_format_2(mut label: Superblock) -> Superblock {
    label.geometry.member_blocks = 1_870_000_000;
    label.geometry.region_stripes = 899;
    let data = label.geometry.member_blocks * u64::from(label.geometry.block_bytes);
    label.format = strake_ondisk::Format::two(data);
    label
}

/// The label of format 2.
pub fn label_2() -> Superblock {
    in_format_2(label_with_history())
}

/// The label of format 2 with every feature that format 1 ever had.
pub fn label_2_with_features() -> Superblock {
    in_format_2(label_with_features())
}

/// What the control plane keeps on a member.
pub const CONFIG: &[u8] =
    br#"{"version":1,"exports":[{"name":"tank","listen":"unix:/run/tank.sock"}]}"#;

/// A list of bad blocks that fills two pages, with every kind of badness.
pub fn bad_list() -> BadList {
    use BadEvent::{Abandon, Hollow, Restored, Unreadable};
    let mut list = BadList::default();
    let mut note = |member, start, blocks, event| {
        let range = LbaRange::new(Lba(start), blocks);
        list.note(MemberIndex(member), range, event).expect("there is room");
    };
    (0..300).for_each(|at| note(4, at * 8, 1, Hollow));
    note(0, 1_875_359_999, 1, Unreadable);
    note(2, 4096, 7, Abandon);
    note(2, 4099, 2, Restored);
    list
}

/// Byte offset of the redo log's headers.
pub const REDO_OFFSET: u64 = (6 << 20) + (5 << 12);

/// The header of a redo log record.
pub fn redo_header() -> RedoHeader {
    RedoHeader {
        array: Uuid([1; 16]),
        epoch: Uuid([3; 16]),
        generation: 71,
        ring: 258,
        sequence: 0x0102_0304_0506_0708,
        floor: 0x0102_0304_0506_0607,
        stripe: StripeIndex(0x1112_1314_1516),
        out: MemberSet::from_bits(0b10_0100),
        replacement: Some((MemberIndex(2), Uuid([9; 16]))),
    }
}

/// The header of a redo log record that holds partial writes.
pub fn redo_list_header() -> RedoHeader {
    RedoHeader { stripe: StripeIndex(0), replacement: None, ..redo_header() }
}

/// The header of a mark.
pub fn redo_mark_header() -> RedoHeader {
    RedoHeader { sequence: 0, ..redo_list_header() }
}

/// What members get by a redo log record, as many as an array has members.
pub fn redo_parts() -> Vec<RedoPart> {
    let part = |slot: u8| RedoPart {
        slot: MemberIndex(slot),
        uuid: Uuid([0x20 + slot; 16]),
        offset: 0x0201 + u32::from(slot),
        blocks: 32 + u32::from(slot),
        crc: 0xa1b2_c300 + u32::from(slot),
        escaped: 1 << slot,
    };
    (0..64).map(part).collect()
}

/// Partial writes of every number of parities, one of which changes nothing in a block.
pub fn partial_writes() -> Vec<PartialWrite> {
    let witness = |parities: u8, block: u32| Witness {
        word: (block != 1).then_some(1000 + block as u16),
        values: std::array::from_fn(|part| match part <= usize::from(parities) {
            true => 0x0403_0201 * (part as u32 + 1) + block,
            false => 0,
        }),
    };
    let write = |parities: u8| PartialWrite {
        stripe: StripeIndex(0x2122_2324_2526 + u64::from(parities)),
        strip: parities,
        offset: 7 * u32::from(parities),
        blocks: 1 + u32::from(parities),
        parities,
        witnesses: (0..=u32::from(parities)).map(|block| witness(parities, block)).collect(),
    };
    (1..=4).map(write).collect()
}

/// The header block of a record with parts.
pub fn redo_record(header: &RedoHeader, parts: &[RedoPart]) -> [u8; REDO_HEADER_BYTES] {
    let mut page = [0xa5; REDO_HEADER_BYTES];
    encode_redo(header, parts, REDO_OFFSET, &mut page);
    page
}

/// The header block of a record with partial writes.
pub fn redo_list() -> [u8; REDO_HEADER_BYTES] {
    let mut page = [0xa5; REDO_HEADER_BYTES];
    let mut list = PartialWriteList::default();
    for write in partial_writes() {
        let PartialWrite { stripe, strip, offset, blocks, parities, witnesses } = write;
        let place = PartialWritePlace { stripe, strip, offset, blocks, parities };
        assert!(list.push(&mut page, place, witnesses.into_iter()), "there is room");
    }
    list.seal(&redo_list_header(), REDO_OFFSET, &mut page);
    page
}
