//! The values the golden images hold. They never change: a new format gets a file of its own.

use strake_ondisk::{
    Activation, BadEvent, BadList, COMPAT_AFTER_CRASH, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS,
    COMPAT_REMOTE, GeometryRecord, INCOMPAT_BAD_BLOCKS, INCOMPAT_IN_DOUBT, MemberRecord,
    RecordedState, ReplacementRecord, Superblock,
};
use strake_units::{Lba, LbaRange, MemberIndex, Uuid};

/// Byte offset of the head ring's slot for generation 71, which the label is encoded for.
pub const LABEL_OFFSET: u64 = (64 << 10) + 7 * 4096;
/// Sequence of the bitmap page.
pub const PAGE_SEQUENCE: u64 = 12;
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
        logged: 0,
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
    label.note_logged(0b1_1111, 70);
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
