//! Data in several buffers is one piece of data with one digest.

use super::{BLOCK, BOTH, Rig, facts};
use strake_block::{BufMut, Durability, Op, Sg};
use strake_nvme_wire::Status;
use strake_units::Lba;

/// Blocks with a distinct byte each, every one in a separate buffer; and their bytes.
fn scattered(blocks: u8) -> (Sg, Vec<u8>) {
    let mut data = Sg::default();
    for block in 0..blocks {
        let mut buf = BufMut::alone(BLOCK);
        buf.as_mut_slice().fill(block + 1);
        data.push(buf.freeze()).expect("there is room for four");
    }
    let bytes = (0..blocks).flat_map(|block| vec![block + 1; BLOCK]).collect();
    (data, bytes)
}

/// A digest of the first part alone would accept any damage of the rest. `Rig::pdu` compares digests.
#[test]
fn data_in_several_places_has_a_digest_of_all_of_it() {
    // Data in the capsule, and data after an R2T: 16 KiB in two PDUs of two blocks.
    for (blocks, along) in [(2, true), (4, false)] {
        let mut rig = Rig::with(facts(), BOTH, 8192);
        let (data, bytes) = scattered(blocks);
        rig.submit(1, Op::Write { at: Lba(3), data, durability: Durability::Normal });
        let sent = rig.pdu();
        let cid = sent.command().cid();
        let mut got = sent.data;
        if !along {
            rig.ask(cid, 0, bytes.len() as u32);
            for _ in 0..2 {
                got.extend(rig.pdu().data);
            }
        }
        assert!(got == bytes, "{blocks} blocks");
        rig.answer(cid, Status::SUCCESS);
        rig.ended_well(1);
    }
}
