//! The FUA bit of each command of a remote drive, for every kind of transfer and every split.

use super::{BLOCK, NONE, Rig, facts};
use crate::identify::Facts;
use strake_block::Durability::{Fua, Normal};
use strake_block::{BufMut, Durability, Op, Sg};
use strake_nvme_wire::{Status, nvm};
use strake_units::{Lba, LbaRange};

fn write(at: u64, blocks: usize, durability: Durability) -> Op {
    let data = Sg::from(BufMut::alone(blocks * BLOCK).freeze());
    Op::Write { at: Lba(at), data, durability }
}

/// Reads a command with its data, and completes it.
fn reported(rig: &mut Rig) -> (u8, u64, u32, bool) {
    let command = rig.command();
    let blocks = nvm::Blocks::parse(&command);
    rig.answer(command.cid(), Status::SUCCESS);
    (command.opcode(), blocks.start, blocks.count, blocks.force_unit_access)
}

#[test]
fn a_write_with_its_data_along_says_how_durable_it_is() {
    let mut rig = Rig::new();
    for (durability, force) in [(Normal, false), (Fua, true), (Normal, false)] {
        rig.submit(1, write(3, 2, durability));
        assert_eq!(reported(&mut rig), (nvm::opcode::WRITE, 3, 2, force));
        rig.ended_well(1);
    }
}

#[test]
fn a_write_whose_data_is_asked_for_says_how_durable_it_is() {
    let mut rig = Rig::new();
    for (durability, force) in [(Normal, false), (Fua, true)] {
        rig.submit(1, write(3, 4, durability));
        let command = rig.command();
        assert_eq!(nvm::Blocks::parse(&command).force_unit_access, force);
        rig.ask(command.cid(), 0, 4 * BLOCK as u32);
        for _ in 0..2 {
            assert_eq!(rig.pdu().data.len(), 2 * BLOCK);
        }
        rig.answer(command.cid(), Status::SUCCESS);
        rig.ended_well(1);
    }
}

/// Every piece has the bit: a piece without it would leave a gap in acknowledged data.
#[test]
fn every_command_of_a_write_that_is_cut_says_how_durable_it_is() {
    let mut rig = Rig::with(Facts { transfer_bytes: 8192, ..facts() }, NONE, 8192);
    for (durability, force) in [(Fua, true), (Normal, false)] {
        rig.submit(1, write(10, 5, durability));
        let pieces: Vec<_> = (0..3).map(|_| reported(&mut rig)).collect();
        let wanted = [(10, 2), (12, 2), (14, 1)];
        assert_eq!(pieces, wanted.map(|(at, count)| (nvm::opcode::WRITE, at, count, force)));
        rig.ended_well(1);
    }
}

/// Zeroes as Write Zeroes commands, and as writes if a drive does not support them.
#[test]
fn zeroes_say_how_durable_they_are() {
    let plain = Facts { zeroes_bytes: None, transfer_bytes: 8192, ..facts() };
    for (facts, opcode) in [(facts(), nvm::opcode::WRITE_ZEROES), (plain, nvm::opcode::WRITE)] {
        let mut rig = Rig::with(facts, NONE, 8192);
        for (durability, force) in [(Normal, false), (Fua, true), (Normal, false)] {
            let range = LbaRange::new(Lba(7), 2);
            rig.submit(1, Op::WriteZeroes { range, durability });
            assert_eq!(reported(&mut rig), (opcode, 7, 2, force));
            rig.ended_well(1);
        }
    }
}
