//! Commands of I/O queues.

use crate::bus::Bus;
use crate::controller::{Breach, Controller};
use crate::prp;
use crate::queues::Fetched;
use crate::spec::Protection;
use strake_nvme_wire::bytes::u64_at;
use strake_nvme_wire::nvm::{ALL_NAMESPACES, Blocks, Dataset, RANGE_BYTES, Range, opcode};
use strake_nvme_wire::{Sqe, Status};

/// The two PRPs of a command.
pub(crate) fn prps(sqe: &Sqe) -> (u64, u64) {
    (u64_at(&sqe.0, 24), u64_at(&sqe.0, 32))
}

/// Bits of dword 12 that ask the controller to add protection information and to check it.
const PRACT: u32 = 1 << 29;

impl Controller {
    /// Executes up to `most` blocks of a command: how it ended, if it did.
    pub(crate) fn io(&mut self, bus: &dyn Bus, fetched: &mut Fetched, most: u32) -> Option<Status> {
        match self.io_part(bus, fetched, most) {
            Ok(()) if fetched.blocks_left() > 0 => None,
            Ok(()) => Some(Status::SUCCESS),
            Err(status) => Some(status),
        }
    }

    fn io_part(&mut self, bus: &dyn Bus, fetched: &mut Fetched, most: u32) -> Result<(), Status> {
        let sqe = fetched.sqe;
        let nsid = sqe.nsid();
        if let Some(status) = crate::maintenance::refuses_io(self) {
            return Err(status);
        }
        if sqe.opcode() == opcode::FLUSH && nsid == ALL_NAMESPACES {
            self.namespaces.iter_mut().flatten().for_each(|namespace| namespace.flush());
            return Ok(());
        }
        let at = (nsid as usize).wrapping_sub(1);
        let Some(Some(namespace)) = self.namespaces.get_mut(at) else {
            return Err(Status::INVALID_NAMESPACE);
        };
        match sqe.opcode() {
            opcode::FLUSH => {
                namespace.flush();
                Ok(())
            }
            opcode::READ | opcode::WRITE | opcode::WRITE_ZEROES | opcode::VERIFY => {
                self.blocks(bus, fetched, most)
            }
            opcode::DATASET_MANAGEMENT => self.dataset(bus, &sqe),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn blocks(&mut self, bus: &dyn Bus, fetched: &mut Fetched, most: u32) -> Result<(), Status> {
        let sqe = fetched.sqe;
        let (blocks, code) = (Blocks::parse(&sqe), sqe.opcode());
        self.check_blocks(fetched, &blocks)?;
        let has_data = matches!(code, opcode::READ | opcode::WRITE);
        let mut pieces = std::mem::take(&mut self.pieces);
        let size = self.namespace(&sqe).spec.block_log2;
        let bytes = u64::from(blocks.count) << size;
        let mut result =
            if has_data { prp::pieces(bus, prps(&sqe), bytes, &mut pieces) } else { Ok(()) };
        if result.is_err() {
            self.breach(Breach::Field(fetched.queue, code));
        }
        let until = (fetched.blocks + most).min(blocks.count);
        while result.is_ok() && fetched.blocks < until {
            let place = (blocks.start + u64::from(fetched.blocks), fetched.blocks as usize);
            result = self.block_of(bus, &sqe, place, &pieces);
            fetched.blocks += 1;
        }
        self.pieces = pieces;
        match code {
            opcode::READ => self.counts.reads += 1,
            opcode::WRITE => self.counts.writes += 1,
            _ => {}
        }
        result
    }

    fn namespace(&mut self, sqe: &Sqe) -> &mut crate::medium::Namespace {
        let at = sqe.nsid() as usize - 1;
        self.namespaces[at].as_mut().expect("it was looked for before")
    }

    /// What is wrong with the blocks that a command names.
    fn check_blocks(&mut self, fetched: &Fetched, blocks: &Blocks) -> Result<(), Status> {
        let sqe = fetched.sqe;
        let spec = self.namespace(&sqe).spec;
        let writes = matches!(sqe.opcode(), opcode::WRITE | opcode::WRITE_ZEROES);
        if blocks.start.checked_add(blocks.count.into()).is_none_or(|end| end > spec.blocks) {
            return Err(Status::OUT_OF_RANGE);
        }
        if writes && spec.write_protected {
            return Err(Status::WRITE_PROTECTED);
        }
        // Without metadata in host memory, the controller has to add and to remove the protection information.
        // Write Zeroes has no metadata: it may leave that out, and then clears the information.
        let is_protected = spec.protection != Protection::None;
        let acts = sqe.dword(12) & PRACT != 0;
        let is_possible =
            is_protected == acts || (is_protected && sqe.opcode() == opcode::WRITE_ZEROES);
        if !is_possible || (acts && sqe.dword(14) != blocks.start as u32) {
            self.breach(Breach::Field(fetched.queue, sqe.opcode()));
            return Err(Status::INVALID_FIELD);
        }
        let limit = match sqe.opcode() {
            opcode::WRITE_ZEROES => self.spec.zeroes_pages_log2,
            opcode::VERIFY => 0,
            _ => self.spec.transfer_pages_log2,
        };
        if limit > 0 && u64::from(blocks.count) << spec.block_log2 > 4096 << limit {
            self.breach(Breach::Field(fetched.queue, sqe.opcode()));
            return Err(Status::INVALID_FIELD);
        }
        Ok(())
    }

    /// One block, which is the `index`th of the command.
    fn block_of(
        &mut self,
        bus: &dyn Bus,
        sqe: &Sqe,
        (block, index): (u64, usize),
        pieces: &[(u64, usize)],
    ) -> Result<(), Status> {
        let cached = self.spec.write_cache && sqe.dword(12) & 1 << 30 == 0;
        let namespace = self.namespace(sqe);
        if let Some(status) = namespace.bad.get(&block) {
            return Err(*status);
        }
        let size = 1_usize << namespace.spec.block_log2;
        let unmapped = match sqe.opcode() {
            opcode::READ => {
                namespace.check(block)?;
                let bytes = namespace.block(block);
                each(pieces, index * size, size, |address, at| bus.write(address, &bytes[at]))
                    .is_err()
            }
            opcode::WRITE => {
                let mut bytes = [0; 4096];
                let copied = each(pieces, index * size, size, |address, at| {
                    bus.read(address, &mut bytes[at])
                });
                if copied.is_ok() {
                    namespace.set(block, &bytes[..size], cached);
                }
                copied.is_err()
            }
            opcode::WRITE_ZEROES => {
                namespace.set(block, &[0; 4096][..size], cached);
                if sqe.dword(12) & PRACT == 0 {
                    namespace.clear_protection(block);
                }
                false
            }
            _ => {
                namespace.check(block)?;
                false
            }
        };
        if unmapped {
            self.breach(Breach::Unmapped(sqe.opcode().into()));
            return Err(Status::TRANSFER_ERROR);
        }
        Ok(())
    }

    fn dataset(&mut self, bus: &dyn Bus, sqe: &Sqe) -> Result<(), Status> {
        let dataset = Dataset::parse(sqe);
        let bytes = take(bus, sqe, dataset.ranges as usize * RANGE_BYTES)?;
        let cached = self.spec.write_cache;
        for range in bytes.chunks_exact(RANGE_BYTES).filter_map(|chunk| chunk.first_chunk()) {
            let range = Range::parse(range);
            let namespace = self.namespace(sqe);
            if range
                .start
                .checked_add(range.count.into())
                .is_none_or(|end| end > namespace.spec.blocks)
            {
                return Err(Status::OUT_OF_RANGE);
            }
            if namespace.spec.write_protected {
                return Err(Status::WRITE_PROTECTED);
            }
            let size = 1 << namespace.spec.block_log2;
            for block in range.start..range.start + u64::from(range.count) {
                if dataset.deallocate {
                    namespace.set(block, &[0; 4096][..size], cached);
                }
            }
        }
        Ok(())
    }
}

/// Data of a command from the host.
pub(crate) fn take(bus: &dyn Bus, sqe: &Sqe, bytes: usize) -> Result<Vec<u8>, Status> {
    let mut out = vec![0; bytes];
    let mut pieces = Vec::new();
    prp::pieces(bus, prps(sqe), bytes as u64, &mut pieces)?;
    let copied = each(&pieces, 0, bytes, |address, at| bus.read(address, &mut out[at]));
    copied.map(|()| out).map_err(|_| Status::TRANSFER_ERROR)
}

/// Data of a command to the host.
pub(crate) fn give(bus: &dyn Bus, sqe: &Sqe, bytes: &[u8]) -> Result<(), Status> {
    let mut pieces = Vec::new();
    prp::pieces(bus, prps(sqe), bytes.len() as u64, &mut pieces)?;
    let copied = each(&pieces, 0, bytes.len(), |address, at| bus.write(address, &bytes[at]));
    copied.map_err(|_| Status::TRANSFER_ERROR)
}

/// Goes through `bytes` bytes of the pieces from `from` on: addresses, and the ranges of the bytes that belong there.
fn each<E>(
    pieces: &[(u64, usize)],
    mut from: usize,
    bytes: usize,
    mut does: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut done = 0;
    for (address, length) in pieces {
        if from >= *length {
            from -= length;
            continue;
        }
        let take = (length - from).min(bytes - done);
        does(address + from as u64, done..done + take)?;
        (done, from) = (done + take, 0);
        if done == bytes {
            break;
        }
    }
    Ok(())
}
