//! Tests of encoding and decoding, of damaged bytes, and of the assembly from found drives.

mod assembly;
mod bad_blocks;
mod codecs;
mod config_record;
mod foreign;
mod partial_write;
mod pool;
mod redo;
mod ring;
mod slot;

use strake_units::{MemberIndex, MemberSet, Uuid};

use crate::{GeometryRecord, MemberRecord, RecordedState, Superblock};

fn uuid(tag: u8) -> Uuid {
    Uuid::from_random([tag; 16])
}

/// Returns a label of slot 0 of an array with `members` members, which are all in sync since generation 1.
fn label(members: u8, generation: u64) -> Superblock {
    let row = |slot| MemberRecord {
        uuid: uuid(0x10 + slot),
        state: RecordedState::InSync,
        in_sync_generation: 1,
        recovered_stripes: 0,
        held_generation: 0,
        bytes: 64 << 20,
    };
    Superblock {
        array: uuid(1),
        name: "tank".parse().unwrap(),
        format: crate::Format::One,
        member: uuid(0x10),
        slot: MemberIndex(0),
        generation,
        epoch: uuid(0xe1),
        parent_epoch: uuid(0xe0),
        geometry: GeometryRecord {
            level: 6,
            parity: 2,
            members,
            group_width: members,
            strip_bytes: 65_536,
            block_bytes: 4096,
            layout: 1,
            member_blocks: 1000,
            region_stripes: 256,
        },
        clean: true,
        destroyed: false,
        members: (0..members).map(row).collect(),
        history: Vec::new(),
        replacements: Vec::new(),
        consistency: crate::Consistency::Safe,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
    }
}
